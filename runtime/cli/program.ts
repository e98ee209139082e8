import { spawnSync } from 'node:child_process'
import { readFileSync, type Stats, statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { isProgram, type Program } from '../../dsl/index.js'
import { irregular, standsAt } from '../files/whole.js'
import { packageRoot } from '../package-root.js'
import { thrown } from '../values.js'
import { Failed } from './io.js'

const fail = (at: string, wanted: string, found: string, next: string): never => {
  throw new Failed([{ _tag: 'BadProgram', at, subject: 'program', wanted, found, next }])
}

/** The package: the command is a part of it. */
export const home = (): string => packageRoot() ?? process.cwd()

/**
 * Loads the export made by `program({ … })`, the default export or `program`. `version`: its files are loaded
 * anew under each number (reload.ts).
 */
export const loadProgram = async (path: string, version?: number): Promise<Program> => {
  const file = resolve(path)
  const problem = noFile(standsAt(file))
  if (problem !== undefined)
    fail(path, 'a file that exports a program', problem, 'give the path of a .ts, .js or .mjs file')
  if (!/\.[mc]?[jt]s$/.test(file))
    fail(
      path,
      'a .ts, .js or .mjs file',
      path,
      'for a plan that was written to a file use: braid verify PLAN.json',
    )
  const module = await load(file, path, version)
  const found = [
    module['default'],
    module['program'],
    (module['default'] as { program?: unknown } | undefined)?.program,
  ].find(isProgram)
  return (
    found ??
    fail(
      path,
      'a default export, or one called program, made by program({ graph, feeds })',
      Object.keys(module).length === 0 ? 'no exports' : `the exports ${Object.keys(module).join(', ')}`,
      'export default program({ graph, feeds: () => ({ … }) })',
    )
  )
}

const noFile = (found: Stats | Error | undefined): string | undefined => {
  if (found === undefined) return 'no such file'
  return found instanceof Error ? found.message : irregular(found)
}

// A file that throws while it loads is the user's error, reported with its message and place.
const load = async (
  file: string,
  path: string,
  version: number | undefined,
): Promise<Record<string, unknown>> => {
  const built = version === undefined ? builtOf(file) : undefined
  const { href } = pathToFileURL(built ?? file)
  try {
    if (built === undefined && /\.[mc]?ts$/.test(file)) await startTypeScript(path)
    return (await import(version === undefined ? href : `${href}?braid=${version}`)) as Record<
      string,
      unknown
    >
  } catch (error) {
    if (error instanceof Failed) throw error
    return fail(
      path,
      'a file that loads',
      `${thrown(error).replace(/\s*\n\s*/g, ' ')}${placeOf(error, file)}`.replaceAll(/\?braid=\d+/g, ''),
      nextOf(error, file),
    )
  }
}

// The place in the user's files: the first frame outside of Node, of packages and of this command.
const placeOf = (error: unknown, file: string): string => {
  const stack = error instanceof Error && typeof error.stack === 'string' ? error.stack : ''
  const frame = stack
    .split('\n')
    .find(line => line.startsWith('    at ') && !/node:|node_modules|[/\\]runtime[/\\]cli[/\\]/.test(line))
  if (frame) return ` ${frame.trim()}`
  return error instanceof SyntaxError && !/\.[mc]?ts$/.test(file) ? syntaxPlace(file) : ''
}

// A caught SyntaxError has no place; `node --check` prints it.
const syntaxPlace = (file: string): string => {
  const { stderr } = spawnSync(process.execPath, ['--check', file], { encoding: 'utf8' })
  const [, line] = /^[^\n]*:(\d+)\n/.exec(stderr) ?? []
  return line === undefined ? '' : ` at ${file}:${line}`
}

// The examples are built with Braid: the output in dist is used if it is up to date.
const builtOf = (file: string): string | undefined => {
  const inside = relative(home(), file)
  if (!inside.startsWith('examples') || !inside.endsWith('.ts')) return undefined
  const built = join(home(), 'dist', inside.replace(/\.ts$/, '.js'))
  const age = statSync(built, { throwIfNoEntry: false })?.mtimeMs
  return age !== undefined && age >= statSync(file).mtimeMs ? built : undefined
}

/** The module of tsx that registers it, from the first folder that has one: the program's, this, the package's. */
const tsxModule = (file: string): string | undefined => {
  for (const from of [file, join(process.cwd(), 'package.json'), fileURLToPath(import.meta.url)])
    try {
      return pathToFileURL(createRequire(from).resolve('tsx/esm')).href
    } catch {
      // Not there.
    }
  return undefined
}

/** Node's own way, which knows less: it takes the types away, and leaves all other syntax as it is. */
const stripsTypes = (): boolean => Boolean((process.features as { typescript?: unknown }).typescript)

/** What loads TypeScript, once it is asked for. */
let loader: 'tsx' | 'node' | 'bun' | undefined

/**
 * Loads TypeScript from now on, as the file at `path` needs it: through tsx where the program can resolve it,
 * else by what runs this, if that loads TypeScript.
 */
export const startTypeScript = async (path: string): Promise<void> => {
  if (loader !== undefined) return
  if (process.versions['bun'] !== undefined) {
    loader = 'bun'
    return
  }
  const found = tsxModule(resolve(path))
  try {
    if (found !== undefined) await import(found)
  } catch (error) {
    fail(path, 'tsx, which loads TypeScript', thrown(error), installTsx)
  }
  if (found === undefined && !stripsTypes())
    fail(
      path,
      'something that loads TypeScript: the package tsx, or Node 22.18 or newer',
      `no tsx, and Node ${process.versions.node}, which loads JavaScript alone`,
      `${installTsx}; or compile the file, and give its .js`,
    )
  loader = found === undefined ? 'node' : 'tsx'
}

const installTsx = 'run: npm install --save-dev tsx'

/** The `type` of the package.json that a file is under. */
const packageType = (file: string): unknown => {
  for (let folder = dirname(file); ; folder = dirname(folder)) {
    try {
      return (JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as { type?: unknown }).type
    } catch {
      if (folder === dirname(folder)) return undefined
    }
  }
}

/** Whether Node takes a file for CommonJS, by its name. */
const isCommonJs = (file: string): boolean =>
  /\.c[jt]s$/.test(file) || (/\.[jt]s$/.test(file) && packageType(file) !== 'module')

/** What to do about an error of loading a file. */
const nextOf = (error: unknown, file: string): string => {
  const { code, message } = error as { readonly code?: unknown; readonly message?: unknown }
  const isSyntax = error instanceof SyntaxError || code === 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX'
  if (isCommonJs(file) && (isSyntax || /ES module|top-level await/i.test(String(message))))
    return 'write "type": "module" in package.json, or name the file .mts or .mjs: a program is an ES module'
  return loader === 'node' && isSyntax
    ? `Node only takes types away; for \`using\`, enums and the like, ${installTsx}`
    : 'correct the file; its imports run when it is loaded'
}
