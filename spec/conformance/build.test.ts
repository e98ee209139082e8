// The scripts that build a checkout: one build at a time, whatever an earlier one left behind; and a checkout
// that is built runs where it cannot be written.
import { type SpawnSyncReturns, spawn, spawnSync } from 'node:child_process'
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { afterAll, describe, expect, it } from 'vitest'

const root = fileURLToPath(new URL('../../', import.meta.url))
const folders: string[] = []
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true })
})

/** A folder with the scripts of this checkout. */
const checkout = () => {
  const folder = mkdtempSync(join(tmpdir(), 'braid-build-'))
  folders.push(folder)
  chmodSync(folder, 0o755)
  cpSync(join(root, 'scripts'), join(folder, 'scripts'), { recursive: true })
  const put = (path: string, text: string, mode = 0o644): void => {
    mkdirSync(join(folder, path, '..'), { recursive: true })
    writeFileSync(join(folder, path), text, { mode })
  }
  return { folder, put, locks: join(folder, '.cache/locks') }
}

interface Ended {
  readonly status: number | null
  readonly output: string
}

const lockUrl = (folder: string): string =>
  JSON.stringify(pathToFileURL(join(folder, 'scripts/lib/lock.mjs')).href)

/** Runs `work` under the lock in a process of its own. */
const locked = (folder: string, work: string, limit = 20_000) => {
  const code = `
    import { existsSync, writeFileSync, rmSync } from 'node:fs'
    import { withBuildLock } from ${lockUrl(folder)}
    const sleep = ms => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
    try { withBuildLock(() => { ${work} }, 'build', ${limit}) } catch (error) {
      console.log(error.constructor.name + ': ' + error.message)
      process.exitCode = 1
    }`
  const child = spawn(process.execPath, ['--input-type=module', '-e', code], { cwd: folder })
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', bytes => {
      output += String(bytes)
    })
  const ended = new Promise<Ended>(resolve =>
    child.on('close', status => {
      resolve({ status, output })
    }),
  )
  return { child, ended }
}

const until = async (holds: () => boolean): Promise<void> => {
  while (!holds()) await new Promise(resolve => setTimeout(resolve, 10))
}

describe('the lock of a build', () => {
  it('is held by one process at a time', async () => {
    const { folder } = checkout()
    const work = `
      writeFileSync('busy', '', { flag: 'wx' })
      sleep(30)
      rmSync('busy')`
    const all = await Promise.all(Array.from({ length: 6 }, () => locked(folder, work).ended))
    // The flag wx fails where another process is inside.
    expect(all.map(({ status }) => status)).toEqual([0, 0, 0, 0, 0, 0])
  })

  it('is free again when its process was killed, whatever files were left', async () => {
    const { folder, put, locks } = checkout()
    const { child, ended } = locked(folder, "writeFileSync('inside', ''); sleep(60_000)")
    await until(() => existsSync(join(folder, 'inside')))
    child.kill('SIGKILL')
    await ended
    const [left] = readdirSync(locks)
    const [kind, host] = left!.split('.')
    // Of a running process's id, but another start; without a start; of earlier versions of the lock.
    for (const name of [
      `${kind}.${host}.${process.pid}.000000000000`,
      `${kind}.${host}.1.000000000000`,
      `${kind}.${host}.1`,
      `${kind}.${host}`,
    ])
      put(`.cache/locks/${name}`, '')
    for (const text of ['', 'a word', '1', `${process.pid}`, '-1']) {
      put('.cache/build.lock', text)
      expect(await locked(folder, "writeFileSync('built', '')").ended).toEqual({ status: 0, output: '' })
    }
    expect(readdirSync(locks)).toEqual([])
  })

  it('is waited for with a message, and not for ever', async () => {
    const { folder, locks } = checkout()
    const { child, ended } = locked(folder, "writeFileSync('inside', ''); sleep(60_000)")
    await until(() => existsSync(join(folder, 'inside')))
    const waited = await locked(folder, '', 500).ended
    child.kill('SIGKILL')
    await ended
    expect(waited.status).toBe(1)
    expect(waited.output).toContain(`Waiting for another build of this checkout (process ${child.pid}) …`)
    expect(waited.output).toContain(
      `Stop: Another build of this checkout (process ${child.pid}) has not ended`,
    )
    // Where it cannot be known whether the other one still runs, its age decides.
    const foreign = join(locks, 'build.elsewhere.7.000000000000')
    writeFileSync(foreign, '')
    const age = 7
    utimesSync(foreign, Date.now() / 1000 - age, Date.now() / 1000 - age)
    const taken = await locked(folder, '', 10_000).ended
    expect(taken.output).toContain(`If no such build runs, remove ${foreign}`)
    expect(taken.status).toBe(0)
  })
})

describe.runIf(process.platform !== 'win32')('npm start', () => {
  /** A checkout whose tools do nothing but leave the files that real ones would. */
  const built = () => {
    const made = checkout()
    const { folder, put } = made
    put('package-lock.json', '{}')
    put('package.json', '{}')
    put('tsconfig.json', '{}')
    put('dsl/index.ts', '')
    put('native/CMakeLists.txt', '')
    put('node_modules/typescript/bin/tsc', '')
    for (const door of ['dsl', 'runtime']) put(`.cache/declarations/${door}/index.d.ts`, '')
    put('node_modules/rolldown/index.js', 'exports.build = async () => {}')
    for (const name of ['node-addon-api', 'node-api-headers'])
      symlinkSync(join(root, 'node_modules', name), join(folder, 'node_modules', name))
    put('node_modules/.package-lock.json', '{}')
    put('dist/examples/weight-streaming/main.js', "console.log('it ran')")
    const cmake =
      'case "$1" in --version) echo cmake version 3.30.0;; ' +
      '--build) mkdir -p $2/linked; echo new >$2/linked/braid.node;; esac'
    put('bin/cmake', `#!/bin/sh\n${cmake}\n`, 0o755)
    return made
  }

  const start = (folder: string, user = {}): SpawnSyncReturns<string> =>
    spawnSync(process.execPath, [join(folder, 'scripts/start.mjs')], {
      cwd: folder,
      encoding: 'utf8',
      env: { ...process.env, PATH: `${join(folder, 'bin')}:${process.env['PATH']}` },
      ...user,
    })

  // The superuser may write everywhere, so it runs the script as somebody else.
  const nobody = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {}
  const protect = (folder: string): void => {
    expect(spawnSync('chmod', ['-R', 'a-w', folder]).status).toBe(0)
    folders.push(folder)
  }

  it('builds what is stale, and once', () => {
    const { folder } = built()
    const first = start(folder)
    expect(first.stderr).toBe('')
    expect(first.stdout).toContain('Compiling TypeScript …')
    expect(first.stdout).toContain('Building the native part')
    expect(start(folder).stdout).toBe('it ran\n')
  })

  it('runs a built checkout that cannot be written; reports a stale one in a sentence', () => {
    const { folder, put } = built()
    expect(start(folder).status).toBe(0)
    protect(folder)
    const ran = start(folder, nobody)
    expect([ran.stdout, ran.stderr, ran.status]).toEqual(['it ran\n', '', 0])
    expect(spawnSync('chmod', ['-R', 'u+w', folder]).status).toBe(0)
    put('dsl/index.ts', 'export {}')
    protect(folder)
    const stale = start(folder, nobody)
    expect(stale.status).toBe(1)
    expect(stale.stderr).toMatch(
      /^\nbraid: \S+ cannot be written \(EACCES\), and it is not built, or not from its present sources\.\n/,
    )
    expect(stale.stderr).not.toContain('    at ')
    spawnSync('chmod', ['-R', 'u+w', folder])
  })

  it('leaves the packages of another checkout alone, to which node_modules is a link', () => {
    const { folder, put } = built()
    renameSync(join(folder, 'node_modules'), join(folder, 'theirs'))
    symlinkSync(join(folder, 'theirs'), join(folder, 'node_modules'))
    put('package-lock.json', '{ }')
    utimesSync(join(folder, 'theirs/.package-lock.json'), 0, 0)
    put('bin/npm', '#!/bin/sh\nrm -r node_modules/*\n', 0o755)
    expect(start(folder).status).toBe(0)
    expect(existsSync(join(folder, 'theirs/node-addon-api'))).toBe(true)
  })

  it('keeps the addon that works until the next one is linked, wherever a build stops', () => {
    const { folder, put } = built()
    put('native/build/braid.node', 'working')
    // Another checkout's, so that CMake begins from nothing.
    put('native/build/CMakeCache.txt', 'CMAKE_HOME_DIRECTORY:INTERNAL=/elsewhere/native\n')
    put('native/build/CMakeFiles/of-elsewhere', '')
    const addon = (): string => readFileSync(join(folder, 'native/build/braid.node'), 'utf8')
    const whole = readFileSync(join(folder, 'bin/cmake'), 'utf8')
    for (const stop of ['-S', '--build'])
      for (const how of ['exit 1', 'kill -9 $PPID']) {
        const stopped = `if [ "$1" = ${stop} ]; then mkdir -p native/build/linked; ${how}; fi`
        put('bin/cmake', whole.replace('\n', `\n${stopped}\n`), 0o755)
        expect(start(folder).status).not.toBe(0)
        expect(addon()).toBe('working')
      }
    expect(existsSync(join(folder, 'native/build/CMakeFiles/of-elsewhere'))).toBe(false)
    put('bin/cmake', whole, 0o755)
    expect(start(folder).status).toBe(0)
    expect(addon()).toBe('new\n')
  })

  it('builds anew what an earlier build left unfinished', () => {
    const { folder, put } = built()
    expect(start(folder).status).toBe(0)
    put('dsl/index.ts', 'export {}')
    put('node_modules/typescript/bin/tsc', 'process.exit(2)')
    expect(start(folder).stderr).toContain('TypeScript found the errors above')
    put('node_modules/typescript/bin/tsc', '')
    expect(start(folder).stdout).toContain('Compiling TypeScript …')
  })
})
