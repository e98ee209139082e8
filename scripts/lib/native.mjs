// Builds native/ with CMake: the addon, the C++ tests, the benchmarks. Each only when it is stale.
import { existsSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { availableParallelism } from 'node:os'
import { dirname, join } from 'node:path'
import { withBuildLock } from './lock.mjs'
import { ask, root, run, Stop } from './run.mjs'
import { files, fingerprint, readStamp, removeStamp, writeStamp } from './stamp.mjs'
import { generator, needCMake, needCompiler } from './tools.mjs'

const cached = (folder, name) => {
  const cache = join(root, folder, 'CMakeCache.txt')
  return existsSync(cache)
    ? new RegExp(`^${name}(?::\\w+)?=(.*)$`, 'm').exec(readFileSync(cache, 'utf8'))?.[1]
    : undefined
}

// Headers of Node-API come from npm packages: in the node_modules of a checkout, or hoisted into a user's
// project.
const headers = () => {
  const require = createRequire(join(root, 'package.json'))
  try {
    return {
      BRAID_NODE_ADDON_API: dirname(require.resolve('node-addon-api/package.json')),
      BRAID_NODE_API_HEADERS: require('node-api-headers').include_dir,
    }
  } catch {
    throw new Stop('The packages node-addon-api and node-api-headers are not installed. Run: npm install')
  }
}

const defaults = { CMAKE_BUILD_TYPE: 'Release', BRAID_TESTS: 'OFF', BRAID_BENCH: 'OFF', BRAID_SANITIZE: '' }

/** The addon, which runs until the next one is linked. */
const addon = 'braid.node'

/** Removes what an earlier CMake left in `folder`, but for the addon. */
const clean = folder => {
  const path = join(root, folder)
  for (const name of existsSync(path) ? readdirSync(path) : [])
    if (name !== addon) rmSync(join(path, name), { recursive: true, force: true })
}

/** Configures native/ into `folder` with these CMake definitions. Downloads nothing. */
export const configureNative = (folder = 'native/build', definitions = {}, stdout = 'inherit') => {
  needCMake()
  needCompiler()
  if (cached(folder, 'CMAKE_HOME_DIRECTORY') !== join(root, 'native')) clean(folder)
  const chosen = cached(folder, 'CMAKE_GENERATOR') ?? generator()
  const defined = Object.entries({ ...defaults, ...headers(), ...definitions })
  const args = ['-S', 'native', '-B', folder, '-G', chosen, '-Wno-dev', '--log-level=WARNING']
  const values = defined.map(([name, value]) => `-D${name}=${value}`)
  if (run('cmake', [...args, ...values], { stdio: ['ignore', stdout, 'inherit'] }) !== 0)
    throw new Stop('CMake could not configure the native part; its own words stand above.')
}

/** A target's stamp file, what it says when the present sources have been built, and whether it does. */
const stampOf = (folder, definitions, target) => {
  const sources = files(['native'], path => /\.(h|cc|cmake)$|CMakeLists\.txt$/.test(path))
  const words = [...Object.entries({ ...defaults, ...definitions }).flat(), target]
  const print = fingerprint(
    sources,
    [...words, process.env.CXX ?? '', process.env.CXXFLAGS ?? ''].map(String),
  )
  const path = `${folder}/.stamp-${target}`
  const output = target === 'braid' ? addon : target
  return { path, print, isCurrent: readStamp(path) === print && existsSync(join(root, folder, output)) }
}

/** Whether the addon is built from the sources as they are. */
export const isNativeBuilt = () => stampOf('native/build', {}, 'braid').isCurrent

/** Configures and builds a target of native/ where its sources or definitions have changed. */
export const buildNative = (
  folder = 'native/build',
  definitions = {},
  target = 'braid',
  stdout = 'inherit',
) => {
  const { path, print, isCurrent } = stampOf(folder, definitions, target)
  if (isCurrent) return
  removeStamp(path)
  console.log(`Building the native part into ${folder} …`)
  configureNative(folder, definitions, stdout)
  const args = ['--build', folder, '--parallel', String(availableParallelism()), '--target', target]
  if (run('cmake', args, { stdio: ['ignore', stdout, 'inherit'] }) !== 0)
    throw new Stop("The native part did not build; the compiler's own words stand above.")
  if (target === 'braid') renameSync(join(root, folder, 'linked', addon), join(root, folder, addon))
  writeStamp(path, print)
}

/** Whether GoogleTest can be compiled against. */
const haveGoogleTest = () =>
  ask(needCompiler(), ['-x', 'c++', '-std=c++20', '-fsyntax-only', '-'], '#include <gtest/gtest.h>\n') !==
  undefined

/**
 * Builds the C++ tests, under a sanitizer if one is named. Returns the program's path, or undefined if
 * GoogleTest is not installed.
 */
export const buildTests = (folder, sanitize = '') => {
  if (!haveGoogleTest()) return undefined
  buildNative(folder, { BRAID_TESTS: 'ON', BRAID_SANITIZE: sanitize }, 'braid_tests')
  return `${folder}/braid_tests`
}

/** The sanitizers of the C++ tests. Each builds into its own folder. */
export const sanitizers = ['address', 'thread']
export const buildSanitized = name =>
  withBuildLock(() => buildTests(`native/build-${name}`, name), `build-${name}`)
