// Builds native/ with CMake: the addon, the C++ tests, the benchmarks. Each only when it is stale; the addon of
// an installed package anew.
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { availableParallelism } from 'node:os'
import { dirname, join } from 'node:path'
import { withBuildLock } from './lock.mjs'
import { ask, follow, root, run, Stop } from './run.mjs'
import { files, fingerprint, readStamp, removeStamp, writeStamp } from './stamp.mjs'
import { generator, needAll, needCMake, needCompiler, needLinux } from './tools.mjs'

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

const notConfigured = 'CMake could not configure the native part; its own words stand above.'
const notBuilt = "The native part did not build; the compiler's own words stand above."

/** What CMake is called with to configure native/ into `folder`. It downloads nothing. */
const configuring = (folder, definitions) => {
  needLinux()
  const [, , paths] = needAll(needCMake, needCompiler, headers, generator)
  if (cached(folder, 'CMAKE_HOME_DIRECTORY') !== join(root, 'native')) clean(folder)
  const chosen = cached(folder, 'CMAKE_GENERATOR') ?? generator()
  const defined = Object.entries({ ...defaults, ...paths, ...definitions })
  const args = ['-S', 'native', '-B', folder, '-G', chosen, '-Wno-dev', '--log-level=WARNING']
  return [...args, ...defined.map(([name, value]) => `-D${name}=${value}`)]
}

const building = (folder, target) => [
  ...['--build', folder, '--parallel', String(availableParallelism()), '--target', target],
]

/** Configures native/ into `folder` with these CMake definitions. */
export const configureNative = (folder = 'native/build', definitions = {}) => {
  if (run('cmake', configuring(folder, definitions)) !== 0) throw new Stop(notConfigured)
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
export const buildNative = (folder = 'native/build', definitions = {}, target = 'braid') => {
  const { path, print, isCurrent } = stampOf(folder, definitions, target)
  if (isCurrent) return
  removeStamp(path)
  console.log(`Building the native part into ${folder} …`)
  configureNative(folder, definitions)
  if (run('cmake', building(folder, target)) !== 0) throw new Stop(notBuilt)
  if (target === 'braid') put(folder)
  writeStamp(path, print)
}

/** Puts the addon that was linked in the place of the one before. */
const put = folder => renameSync(join(root, folder, 'linked', addon), join(root, folder, addon))

/** Runs CMake, and shows what it printed if it fails. */
const quietly = async (args, problem, onLine, signal) => {
  const { status, output } = await follow('cmake', args, onLine, { signal })
  signal?.throwIfAborted()
  if (status === 0) return
  process.stderr.write(`${output}\n`)
  throw new Stop(problem)
}

// A checkout keeps object files, and compiles what has changed. What an installed package has of an earlier build
// may be of another machine: it builds from nothing, and leaves the addon alone behind.
const isCheckout = existsSync(join(root, 'tsconfig.json'))

// A newer compiler than ours warns of more.
const here = isCheckout ? {} : { BRAID_STRICT: 'OFF' }

/**
 * Builds the addon that is loaded here. `step` is called with the number of files that are compiled, and of
 * all. `interruptible` calls its argument with a signal, whose abort ends the build with the signal's reason;
 * it is called when no other build runs, since waiting for one hears no signal.
 */
export const buildAddon = (step, interruptible) =>
  withBuildLock(() => interruptible(signal => compileAddon(step, signal)))

const compileAddon = async (step, signal) => {
  const folder = 'native/build'
  const { path, print, isCurrent } = stampOf(folder, here, 'braid')
  if (isCheckout && isCurrent) return
  removeStamp(path)
  try {
    if (!isCheckout) clean(folder)
    await quietly(configuring(folder, here), notConfigured, () => {}, signal)
    const commands = readFileSync(join(root, folder, 'compile_commands.json'), 'utf8')
    const all = JSON.parse(commands).length
    let done = 0
    const onLine = line => /\bBuilding CXX\b/.test(line) && step(++done, Math.max(done, all))
    step(0, all)
    await quietly(building(folder, 'braid'), notBuilt, onLine, signal)
    put(folder)
    if (isCheckout) writeStamp(path, print)
  } finally {
    if (!isCheckout) clean(folder)
  }
}

/** Where the package has the addon that it ships. */
export const shipped = 'prebuilt/linux-x64/braid.node'

/**
 * Builds the addon that the package ships: the addon of this checkout, without the names of its functions. A
 * Stop where this machine builds one that not every system of the floor can load.
 */
export const buildShipped = () => {
  if (process.arch !== 'x64') throw new Stop(`The addon that is shipped is of x64; this is ${process.arch}.`)
  const folder = 'native/build'
  buildNative(folder)
  const flags = ['CMAKE_CXX_FLAGS', 'CMAKE_MODULE_LINKER_FLAGS'].filter(name => cached(folder, name))
  if (flags.length > 0)
    throw new Stop(
      `${flags.map(name => `${name} is ${cached(folder, name)}`).join('; ')}: what is shipped is built without.\n` +
        `  Unset CXXFLAGS and LDFLAGS, then: rm -r ${folder} && npm run build -- --shipped`,
    )
  const built = join(root, folder, addon)
  // A package has no such file: what it builds is for one machine.
  const { readElf, shippingFaults } = createRequire(import.meta.url)('./elf.mjs')
  const faults = shippingFaults(readElf(readFileSync(built)))
  if (faults.length > 0)
    throw new Stop(
      `The addon that is built here cannot be shipped:\n${faults.map(fault => `    ${fault}`).join('\n')}\n` +
        '  Build it on Debian 12, with the static C++ library that comes with g++.',
    )
  const stripped = join(root, folder, 'linked', addon)
  mkdirSync(dirname(stripped), { recursive: true })
  const strip = cached(folder, 'CMAKE_STRIP') ?? 'strip'
  if (run(strip, ['--strip-all', '-o', stripped, built]) !== 0)
    throw new Stop('strip failed; its own words stand above. Debian, Ubuntu: sudo apt-get install binutils')
  mkdirSync(dirname(join(root, shipped)), { recursive: true })
  renameSync(stripped, join(root, shipped))
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
