// Which file of the package is the addon, and why there is none for a machine.
import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import type { Fault } from '../dsl/ir/fault.js'
import { AddonError } from './errors.js'
import { packageRoot } from './package-root.js'

/** What `npm run build` and `npx braid build` build. */
export const ownAddon = 'native/build/braid.node'

/** What the package ships, for Linux on x64 with a glibc from this version on. */
export const shippedAddon = 'prebuilt/linux-x64/braid.node'
export const leastGlibc = '2.34'

/** What the choice depends on. */
export interface Machine {
  /** The package's folder; undefined where it is not found. */
  readonly root: string | undefined
  /** As process.platform and process.arch. */
  readonly os: string
  readonly arch: string
  /** Whether the C library is musl. */
  musl(): boolean
  /** The version of glibc; undefined where it cannot be asked for. */
  glibc(): string | undefined
  exists(path: string): boolean
  /** Throws what the system says where the file cannot be loaded. */
  load(path: string): unknown
}

const wanted = `Linux on x64 with glibc ${leastGlibc} or newer, or an addon that is built on this machine`

/** The addon. Throws an AddonError. */
export const loadAddon = (machine: Machine): unknown => {
  const { root, exists } = machine
  const refuse = (found: string, next: string, cause?: unknown): never => {
    const fault: Omit<Fault<'NoAddon'>, '_tag' | 'subject'> = { at: root ?? 'braid-gpu', wanted, found, next }
    throw new AddonError(fault, cause)
  }
  if (root === undefined)
    return refuse(
      'no folder of the package braid-gpu beside this program',
      'a bundler must leave braid-gpu as an import (external), and it must be installed where the bundle runs',
    )
  const own = join(root, ownAddon)
  if (exists(own)) return load(machine, own, error => refuse(...broken(own, error), error))
  const problem = unsupported(machine)
  if (problem !== undefined) return refuse(...problem)
  const shipped = join(root, shippedAddon)
  if (!exists(shipped))
    return refuse(`neither ${own} nor ${shipped}`, 'run: npx braid build, or install the package again')
  return load(machine, shipped, error => refuse(...unloadable(machine, shipped, error), error))
}

const load = (machine: Machine, path: string, refuse: (error: unknown) => never): unknown => {
  try {
    return machine.load(path)
  } catch (error) {
    return refuse(error)
  }
}

/** Where Node was told to load no addon at all, none helps. */
const forbidden = (error: unknown): boolean =>
  (error as { code?: unknown } | undefined)?.code === 'ERR_DLOPEN_DISABLED'
const allow = 'start Node without --no-addons, or with --allow-addons beside --permission'

type Refusal = readonly [found: string, next: string]

/** What the system says of a file that does not load, without the file's name. */
const saying = (path: string, error: unknown): string => {
  const text = error instanceof Error ? error.message : String(error)
  return text.split('\n')[0]!.replace(`${path}: `, '')
}

const compile = 'run: npx braid build, with a C++20 compiler and CMake'

const broken = (path: string, error: unknown): Refusal => [
  `${path}, which was built here and does not load: ${saying(path, error)}`,
  forbidden(error)
    ? allow
    : 'run: npx braid build, or remove the file where the package ships one for this machine',
]

const names: Readonly<Record<string, string>> = { darwin: 'macOS', win32: 'Windows', linux: 'Linux' }

/** Why the package ships nothing for this machine. */
const unsupported = ({ os, arch, musl }: Machine): Refusal | undefined => {
  if (os !== 'linux')
    return [
      `${names[os] ?? os} on ${arch}`,
      'open devices on Linux: in a container, in a virtual machine, or in WSL 2. ' +
        'The language, the compiler, the interpreter and the verifier run here as well',
    ]
  if (arch !== 'x64') return [`Linux on ${arch}`, compile]
  return musl() ? ['Linux on x64 with musl', compile] : undefined
}

const unloadable = (machine: Machine, path: string, error: unknown): Refusal => {
  const version = machine.glibc()
  return version !== undefined && isOlder(version, leastGlibc)
    ? [`glibc ${version}`, compile]
    : [`${path}, which does not load: ${saying(path, error)}`, forbidden(error) ? allow : compile]
}

const isOlder = (version: string, least: string): boolean => {
  const [major = 0, minor = 0] = version.split('.').map(Number)
  const [leastMajor = 0, leastMinor = 0] = least.split('.').map(Number)
  return major < leastMajor || (major === leastMajor && minor < leastMinor)
}

/** Whether this process runs on musl: its loader is mapped. Some systems have both C libraries. */
const musl = (): boolean => {
  try {
    return /\/ld-musl-[^/]*$/m.test(readFileSync('/proc/self/maps', 'latin1'))
  } catch {
    return false
  }
}

const glibc = (): string | undefined => {
  const report = process.report as (NodeJS.ProcessReport & { excludeNetwork?: boolean }) | undefined
  if (report === undefined) return undefined
  // A report looks up the name of each connection's other end.
  const before = report.excludeNetwork
  report.excludeNetwork = true
  const { header } = report.getReport() as { header?: { glibcVersionRuntime?: string } }
  if (before !== undefined) report.excludeNetwork = before
  return header?.glibcVersionRuntime
}

/** This machine. */
export const thisMachine = (): Machine => ({
  root: packageRoot(),
  os: process.platform,
  arch: process.arch,
  musl,
  glibc,
  exists: existsSync,
  load: path => createRequire(path)(path),
})
