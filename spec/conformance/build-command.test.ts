// `npx braid build` in an installed package: what it shows, what it leaves behind, and what it says is missing.
// CMake is a script that behaves as CMake does.
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { afterAll, describe, expect, it } from 'vitest'
import { needAll, needLinux, progress, Stop } from '../fixtures/scripts.js'

const root = fileURLToPath(new URL('../../', import.meta.url))
const folders: string[] = []
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true })
})

const cmake = `#!/bin/sh
case "$1" in
  --version) echo cmake version 3.30.0 ;;
  -S)
    mkdir -p "$4/CMakeFiles"
    echo '[{}, {}, {}]' >"$4/compile_commands.json" ;;
  --build)
    mkdir -p "$2/linked" "$2/CMakeFiles/a.dir"
    for i in 1 2 3; do
      echo "[$i/4] Building CXX object CMakeFiles/a.dir/$i.o"
      echo object >"$2/CMakeFiles/a.dir/$i.o"
    done
    echo new >"$2/linked/braid.node" ;;
esac
`

/** A package as it is installed, and what is called in it. */
const installed = () => {
  const folder = mkdtempSync(join(tmpdir(), 'braid-build-command-'))
  folders.push(folder)
  const put = (path: string, text: string, mode = 0o644): void => {
    mkdirSync(join(folder, path, '..'), { recursive: true })
    writeFileSync(join(folder, path), text, { mode })
    chmodSync(join(folder, path), mode)
  }
  cpSync(join(root, 'scripts'), join(folder, 'scripts'), { recursive: true })
  put('package.json', '{}')
  put('native/CMakeLists.txt', '')
  for (const name of ['node-addon-api', 'node-api-headers']) {
    mkdirSync(join(folder, 'node_modules'), { recursive: true })
    symlinkSync(join(root, 'node_modules', name), join(folder, 'node_modules', name))
  }
  put('bin/cmake', cmake, 0o755)
  const script = JSON.stringify(pathToFileURL(join(folder, 'scripts/build-addon.mjs')).href)
  const code = `
    const { buildAddon } = await import(${script})
    const ending = new AbortController()
    process.on('SIGTERM', () => ending.abort(new Error('it was ended')))
    await buildAddon(process.stderr, work => work(ending.signal)).catch(error => {
      console.log(error.constructor.name + ': ' + error.message)
      process.exitCode = 1
    })`
  const args = ['--input-type=module', '-e', code]
  const options = (path: string) => ({ cwd: folder, env: { ...process.env, CXX: '', PATH: path } })
  const usual = `${join(folder, 'bin')}:${process.env['PATH']}`
  return {
    folder,
    put,
    build: (path = usual) => spawnSync(process.execPath, args, { ...options(path), encoding: 'utf8' }),
    start: (): ChildProcess => spawn(process.execPath, args, options(usual)),
    /** What lies where the addon is built. */
    left: () => {
      const path = join(folder, 'native/build')
      const names = existsSync(path) ? readdirSync(path) : []
      return names.map(name => (name === 'braid.node' ? readFileSync(join(path, name), 'utf8') : name))
    },
  }
}

/** Whether a process of this id runs. One that has ended may wait for its parent to ask how. */
const runs = (pid: number): boolean => {
  const stat = `/proc/${pid}/stat`
  return existsSync(stat) && !/\) Z /.test(readFileSync(stat, 'latin1'))
}

describe.runIf(process.platform === 'linux')('braid build', () => {
  it('shows how many files are compiled, and leaves the addon alone behind', () => {
    const { put, build, left } = installed()
    put('native/build/braid.node', 'of before')
    put('native/build/CMakeFiles/of-before', '')
    const { status, stdout, stderr } = build()
    expect([status, stdout, left()]).toEqual([0, '', ['new\n']])
    expect(stderr).toBe([0, 1, 2, 3].map(n => `Compiling the native part: ${n} of 3 files\n`).join(''))
    // What is built here may have come from another machine: it is built again.
    expect(build().stderr).toBe(stderr)
  })

  it('keeps the addon before where it fails, and shows what was said', () => {
    const { put, build, left } = installed()
    put('native/build/braid.node', 'of before')
    for (const [step, problem] of [
      ['-S', 'CMake could not configure the native part'],
      ['--build', 'The native part did not build'],
    ] as const) {
      const failing = `if [ "$1" = ${step} ]; then echo a.cc:7: wrong >&2; mkdir -p native/build/linked; exit 1; fi`
      put('bin/cmake', cmake.replace('\n', `\n${failing}\n`), 0o755)
      const { status, stdout, stderr } = build()
      expect([status, left()]).toEqual([1, ['of before']])
      expect(stdout).toContain(`Stop: ${problem}`)
      expect(stderr).toContain('a.cc:7: wrong')
    }
  })

  it('is one at a time', async () => {
    const { put, start, left } = installed()
    // mkdir fails where another build is inside.
    const alone = 'if [ "$1" = --build ]; then mkdir busy || exit 1; sleep 0.1; rmdir busy; fi'
    put('bin/cmake', cmake.replace('\n', `\n${alone}\n`), 0o755)
    const builds = [start(), start(), start()].map(
      child => new Promise(resolve => child.on('close', resolve)),
    )
    expect([await Promise.all(builds), left()]).toEqual([[0, 0, 0], ['new\n']])
  })

  it('ends the compilers with it, and then leaves nothing', async () => {
    const { folder, put, start, left } = installed()
    put('native/build/braid.node', 'of before')
    // A build that cmake starts and does not end with itself.
    const waiting = 'if [ "$1" = --build ]; then sh -c "echo \\$\\$ >pid; exec sleep 100"; exit 1; fi'
    put('bin/cmake', cmake.replace('\n', `\n${waiting}\n`), 0o755)
    const child = start()
    let output = ''
    child.stdout!.on('data', bytes => {
      output += String(bytes)
    })
    const ended = new Promise(resolve => child.on('close', resolve))
    const pid = (): number =>
      existsSync(join(folder, 'pid')) ? Number(readFileSync(join(folder, 'pid'))) : 0
    while (pid() === 0) await new Promise(resolve => setTimeout(resolve, 10))
    child.kill('SIGTERM')
    expect(await ended).toBe(1)
    expect([output, left()]).toEqual(['Error: it was ended\n', ['of before']])
    expect(runs(pid())).toBe(false)
  })

  it('does not fail for a warning: a newer compiler has more of them', () => {
    const { put, build } = installed()
    put(
      'bin/cmake',
      cmake.replace('-S)', '-S)\n    case "$*" in *BRAID_STRICT=OFF*) ;; *) exit 1 ;; esac'),
      0o755,
    )
    expect(build().status).toBe(0)
  })

  it('says all that is missing, and touches nothing', () => {
    const { folder, put, build, left } = installed()
    put('native/build/braid.node', 'of before')
    mkdirSync(join(folder, 'nothing'))
    rmSync(join(folder, 'node_modules'), { recursive: true })
    const { status, stdout } = build(join(folder, 'nothing'))
    expect([status, left()]).toEqual([1, ['of before']])
    for (const part of [
      /CMake 3\.20 or newer is needed .* it is not installed/,
      /A C\+\+20 compiler is needed .* None of c\+\+, g\+\+, clang\+\+ is installed/,
      /The packages node-addon-api and node-api-headers are not installed/,
      /Neither ninja nor make is installed/,
    ])
      expect(stdout).toMatch(part)
  })
})

describe('the progress of a build', () => {
  const shown = (isTTY: boolean, all: number): string => {
    let text = ''
    const step = progress({ isTTY, write: (more: string) => void (text += more) })
    for (let done = 0; done <= all; done++) step(done, all)
    return text
  }

  it('is one line on a terminal', () => {
    const text = shown(true, 3)
    expect(text).not.toContain('\n')
    expect(text.split('\r').at(-1)).toBe('Compiling the native part: 3 of 3 files; linking …\u001b[K')
  })

  it('is a line for each tenth elsewhere', () => {
    const lines = shown(false, 67).trimEnd().split('\n')
    expect(lines.length).toBe(11)
    expect(lines.at(-1)).toBe('Compiling the native part: 67 of 67 files')
  })
})

describe('what a build needs', () => {
  it('is Linux', () => {
    expect(() => needLinux('linux')).not.toThrow()
    for (const platform of ['darwin', 'win32', 'freebsd'])
      expect(() => needLinux(platform)).toThrow(`this is ${platform}`)
  })

  it('is said at once; what is no lack is thrown as it is', () => {
    const lacks = (text: string) => () => {
      throw new Stop(text)
    }
    expect(
      needAll(
        () => 1,
        () => 2,
      ),
    ).toEqual([1, 2])
    expect(() => needAll(lacks('a'), () => 1, lacks('b'))).toThrow(new Stop('a\nb'))
    expect(() =>
      needAll(lacks('a'), () => {
        throw new TypeError('c')
      }),
    ).toThrow(TypeError)
  })
})
