// npm run build: the TypeScript into dist/, the addon into native/build/braid.node. Each only when it is stale.
//   --native: the addon alone. --sanitized: instead the C++ tests under each sanitizer, on one core that nothing else wants.
import { existsSync, readFileSync, rmSync } from 'node:fs'
import { availableParallelism, constants, setPriority } from 'node:os'
import { join } from 'node:path'
import { install } from './lib/install.mjs'
import { withBuildLock } from './lib/lock.mjs'
import { ask, entry, isMain, root, run, Stop, tool } from './lib/run.mjs'
import { files, fingerprint, readStamp, writeStamp } from './lib/stamp.mjs'
import { generator, needCMake, needCompiler, needNode } from './lib/tools.mjs'

export const buildTypeScript = () => {
  const sources = files(['dsl', 'runtime', 'examples', 'spec/bench', 'spec/fixtures'], path =>
    path.endsWith('.ts'),
  )
  const inputs = files(['tsconfig.json', 'tsconfig.build.json', 'package-lock.json'])
  const print = `${fingerprint([...sources, ...inputs])}\n${sources.join('\n')}`
  const stamp = readStamp('dist/.stamp')
  if (stamp === print) return
  // A source that went away must not live on in dist.
  if (
    stamp
      .split('\n')
      .slice(1)
      .some(path => !sources.includes(path))
  )
    rmSync(join(root, 'dist'), { recursive: true, force: true })
  console.log('Compiling TypeScript …')
  if (run(process.execPath, [tool.tsc, '-p', 'tsconfig.build.json']) !== 0)
    throw new Stop('TypeScript found the errors above; nothing was run.')
  writeStamp('dist/.stamp', print)
}

const cached = (folder, name) => {
  const cache = join(root, folder, 'CMakeCache.txt')
  return existsSync(cache)
    ? new RegExp(`^${name}(?::\\w+)?=(.*)$`, 'm').exec(readFileSync(cache, 'utf8'))?.[1]
    : undefined
}

/** Configures and builds native/ into `folder` with these CMake definitions. Headers of Node-API come from npm: nothing is downloaded. */
export const buildNative = (
  folder = 'native/build',
  definitions = {},
  target = 'braid',
  jobs = availableParallelism(),
) => {
  const sources = files(['native'], path => /\.(h|cc|cmake)$|CMakeLists\.txt$/.test(path))
  const defined = {
    CMAKE_BUILD_TYPE: 'Release',
    BRAID_TESTS: 'OFF',
    BRAID_BENCH: 'OFF',
    BRAID_SANITIZE: '',
    ...definitions,
  }
  const words = [...Object.entries(defined).flat(), target, process.env.CXX ?? '', process.env.CXXFLAGS ?? '']
  const print = fingerprint(sources, words.map(String))
  const stampFile = `${folder}/.stamp-${target}`
  const output = target === 'braid' ? 'braid.node' : target
  if (readStamp(stampFile) === print && existsSync(join(root, folder, output))) return
  needCMake()
  needCompiler()
  if (cached(folder, 'CMAKE_HOME_DIRECTORY') !== join(root, 'native'))
    rmSync(join(root, folder), { recursive: true, force: true })
  const chosen = cached(folder, 'CMAKE_GENERATOR') ?? generator()
  console.log(`Building the native part into ${folder} …`)
  const configured = run('cmake', [
    '-S',
    'native',
    '-B',
    folder,
    '-G',
    chosen,
    '-Wno-dev',
    '--log-level=WARNING',
    ...Object.entries(defined).map(([name, value]) => `-D${name}=${value}`),
  ])
  if (configured !== 0)
    throw new Stop('CMake could not configure the native part; its own words stand above.')
  const args = ['--build', folder, '--parallel', String(jobs), '--target', target]
  if (run('cmake', args) !== 0)
    throw new Stop("The native part did not build; the compiler's own words stand above.")
  writeStamp(stampFile, print)
}

/** Whether GoogleTest can be compiled against. */
const haveGoogleTest = () =>
  ask(needCompiler(), ['-x', 'c++', '-std=c++20', '-fsyntax-only', '-'], '#include <gtest/gtest.h>\n') !==
  undefined

/** Builds the C++ tests, under a sanitizer where one is named. Returns the program's path, or undefined where GoogleTest is not installed. */
export const buildTests = (folder, sanitize = '', jobs = undefined) => {
  if (!haveGoogleTest()) return undefined
  buildNative(folder, { BRAID_TESTS: 'ON', BRAID_SANITIZE: sanitize }, 'braid_tests', jobs)
  return `${folder}/braid_tests`
}

/** Sanitizers that the C++ tests are built with, each into a folder of its own; what is built already stays. */
export const sanitizers = ['address', 'thread']
export const buildSanitized = (name, jobs = undefined) =>
  withBuildLock(() => buildTests(`native/build-${name}`, name, jobs), `build-${name}`)

/** Everything that the examples, the command line and the tests need, from a bare clone on. */
export const prepare = () => {
  needNode()
  withBuildLock(() => {
    install()
    buildTypeScript()
    buildNative()
  })
}

if (isMain(import.meta.url))
  await entry(() => {
    needNode()
    if (process.argv.includes('--sanitized')) {
      setPriority(constants.priority.PRIORITY_LOW)
      for (const name of sanitizers) buildSanitized(name, 1)
      return 0
    }
    withBuildLock(() => {
      install()
      if (!process.argv.includes('--native')) buildTypeScript()
      buildNative()
    })
    console.log('Built.')
    return 0
  })
