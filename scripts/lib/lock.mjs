// One build of a kind at a time in a checkout: two CMakes would overwrite each other.
//
// Each build that runs has an empty file of its own in .cache/locks. The file's name says whose it is: the
// host, the process id, and when that process started, since ids are used again. So whoever finds the file of
// a process that has ended, however it ended, may remove it: no other build can have a file of that name.
import { createHash } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { ask, root, Stop } from './run.mjs'

const folder = join(root, '.cache/locks')
const minute = 60_000

const sleep = milliseconds => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds)
const digest = (...words) => createHash('sha256').update(words.join('\0')).digest('hex').slice(0, 12)

/** What `read` yields, or '' where it throws: /proc is Linux's alone. */
const orNothing = read => {
  try {
    return read()
  } catch {
    return ''
  }
}

// Two containers on one machine number their processes separately.
const host = digest(
  hostname(),
  orNothing(() => readlinkSync('/proc/self/ns/pid')),
)

/** When the process of this id started, as a word; undefined where no process of this id runs. */
const startOf = pid => {
  const stat = orNothing(() => readFileSync(`/proc/${pid}/stat`, 'latin1'))
  if (stat !== '') {
    // The fields after the program's name, which may hold spaces: the state first, the start as the 20th.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    if (/[ZX]/.test(fields[0])) return undefined
    return digest(
      orNothing(() => readFileSync('/proc/sys/kernel/random/boot_id', 'latin1')),
      fields[19],
    )
  }
  if (process.platform === 'linux') return undefined
  const [state, ...started] = (ask('ps', ['-o', 'stat=,lstart=', '-p', String(pid)]) ?? '')
    .trim()
    .split(/\s+/)
  return state === '' || state.startsWith('Z') ? undefined : digest(...started)
}

/**
 * The builds of this kind that run, without `own`. Removes the files of those that have ended. A process of
 * another host cannot be looked at: its build counts as running until its file is `limit` old.
 */
const runningBuilds = (name, own, limit) =>
  readdirSync(folder).flatMap(file => {
    const [kind, at, pid, started] = file.split('.')
    if (kind !== name || file === own) return []
    const path = join(folder, file)
    const age = Date.now() - (statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0)
    const runs = at === host ? started !== undefined && startOf(pid) === started : age < limit
    if (!runs) rmSync(path, { recursive: true, force: true })
    return runs ? [{ pid, path, isHere: at === host }] : []
  })

/** Takes the lock and returns its file, or returns undefined and the builds that hold it. */
const take = (name, limit) => {
  const own = [name, host, process.pid, startOf(process.pid)].join('.')
  const path = join(folder, own)
  const others = runningBuilds(name, own, limit)
  if (others.length > 0) return { others }
  // Of two builds that do this at the same time, the one that looks last sees the file of the other.
  writeFileSync(path, '')
  const rivals = runningBuilds(name, own, limit)
  if (rivals.length === 0) return { path, others: [] }
  rmSync(path, { force: true })
  return { others: rivals }
}

const waitFor = (name, limit) => {
  const began = Date.now()
  let reported
  for (;;) {
    const { path, others } = take(name, limit)
    if (path !== undefined) return path
    const { pid, isHere, path: theirs } = others[0]
    const which = isHere ? `process ${pid}` : `process ${pid} on another host or in another container`
    const remove = isHere ? '' : ` If no such build runs, remove ${theirs}.`
    if (Date.now() - began > limit)
      throw new Stop(
        `Another build of this checkout (${which}) has not ended in ` +
          `${Math.round(limit / minute)} minutes.\n` +
          `End it, then run this again.${remove}`,
      )
    if (reported !== theirs) console.log(`Waiting for another build of this checkout (${which}) …${remove}`)
    reported = theirs
    sleep(100 + 200 * Math.random())
  }
}

const unwritable = ['EACCES', 'EPERM', 'EROFS', 'ENOSPC', 'EDQUOT']

const explained = error => {
  if (!unwritable.includes(error.code)) return error
  return new Stop(
    `${root} cannot be written (${error.code}), and it is not built, or not from its present sources.\n` +
      (error.code === 'ENOSPC' || error.code === 'EDQUOT'
        ? 'Make room on the disk, then run this again.'
        : 'Build it as its owner, or use a copy that you may write.'),
  )
}

/**
 * Runs `work` while no other build of this name runs in this checkout, until what it returns has settled.
 * Waits for one that does, `limit` milliseconds at most. A Stop where the checkout cannot be written.
 */
export const withBuildLock = (work, name = 'build', limit = 30 * minute) => {
  let path
  const release = () => {
    if (path !== undefined) rmSync(path, { force: true })
  }
  try {
    mkdirSync(folder, { recursive: true })
    path = waitFor(name, limit)
    const result = work()
    if (!(result instanceof Promise)) {
      release()
      return result
    }
    return result.finally(release).catch(error => {
      throw explained(error)
    })
  } catch (error) {
    release()
    throw explained(error)
  }
}
