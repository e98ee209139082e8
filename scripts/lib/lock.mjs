import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { root } from './run.mjs'

const sleep = milliseconds => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds)

const holder = path => {
  try {
    const pid = Number(readFileSync(path, 'utf8'))
    process.kill(pid, 0) // signal 0 asks only whether the process lives
    return pid
  } catch (error) {
    return error.code === 'EPERM' ? -1 : undefined
  }
}

/**
 * Runs `work` while no other build of this name runs in this checkout: two CMakes would overwrite each other.
 */
export const withBuildLock = (work, name = 'build') => {
  mkdirSync(join(root, '.cache'), { recursive: true })
  const path = join(root, '.cache', `${name}.lock`)
  for (let reported = false; ; sleep(200)) {
    try {
      writeFileSync(path, String(process.pid), { flag: 'wx' })
      break
    } catch (error) {
      if (error.code !== 'EEXIST') throw error
      const pid = holder(path)
      if (pid === undefined) rmSync(path, { force: true })
      else if (!reported) console.log(`Waiting for another build of this checkout (process ${pid}) …`)
      reported = pid !== undefined
    }
  }
  try {
    return work()
  } finally {
    rmSync(path, { force: true })
  }
}
