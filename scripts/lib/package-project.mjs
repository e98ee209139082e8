// A user's project, made from the package as npm packs it.
import { spawnSync } from 'node:child_process'
import {
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import { buildTypeScript } from '../build.mjs'
import { install } from './install.mjs'
import { withBuildLock } from './lock.mjs'
import { buildShipped } from './native.mjs'
import { root, Stop } from './run.mjs'

/** Runs a program to its end: its status, and all that it says. */
export const say = (cwd, [command, ...args], env = process.env) => {
  const options = { cwd, env, encoding: 'utf8', timeout: 300_000, stdio: ['ignore', 'pipe', 'pipe'] }
  const { status, stdout, stderr, error } = spawnSync(command, args, options)
  return { status, stdout: stdout ?? '', said: `${stdout ?? ''}${stderr ?? ''}${error?.message ?? ''}` }
}

/** Whether a program ended well and said each of these texts; prints what it said if not. */
export const prints = ({ status, said }, ...wanted) => {
  const missing = wanted.filter(text => !said.includes(text))
  if (status === 0 && missing.length === 0) return true
  console.error(`It ended with status ${status}; missing: ${missing.join(' | ')}\n${said.slice(0, 4000)}`)
  return false
}

// npm's own file, so that it runs where the PATH has Node alone.
export const npmFile = () => {
  const given = process.env.npm_execpath
  if (given?.endsWith('.js')) return given
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    const path = join(folder, 'npm')
    if (existsSync(path) && realpathSync(path).endsWith('npm-cli.js')) return realpathSync(path)
  }
  throw new Stop('npm is needed to pack the package; it comes with Node: https://nodejs.org/en/download')
}

const npm = (cwd, env, ...args) => {
  const ended = say(cwd, [process.execPath, npmFile(), ...args, '--no-audit', '--no-fund'], env)
  if (ended.status !== 0) throw new Stop(`npm ${args[0]} failed:\n${ended.said}`)
  return ended.stdout
}

/** Installs a package from npm's cache or registry into a folder. Throws a Stop where it cannot be had. */
export const add = (folder, name, env = process.env) => {
  mkdirSync(folder, { recursive: true })
  // Without a network, a registry that does not answer is asked once.
  const once = ['--fetch-retries=0', '--fetch-timeout=60000']
  npm(folder, env, 'install', '--ignore-scripts', '--prefer-offline', ...once, '--prefix', folder, name)
}

/** Builds what is stale, and packs it. */
export const packed = () => {
  withBuildLock(() => {
    install()
    buildTypeScript()
    buildShipped()
  })
  const folder = mkdtempSync(join(tmpdir(), 'braid-pack-'))
  npm(root, process.env, 'pack', '--ignore-scripts', '--pack-destination', folder)
  const file = join(folder, readdirSync(folder)[0])
  return { folder, file, bytes: statSync(file).size }
}

/** Bytes on a disk of blocks of 4 KiB. */
const sizeOf = folder =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .map(path => lstatSync(join(folder, path)))
    .reduce((sum, stat) => sum + 4096 * Math.ceil(Math.max(1, stat.size) / 4096), 0)

/** A project that has installed the package, and what its user may call. */
export const installed = file => {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'braid-user-')))
  const bin = join(folder, 'bin')
  mkdirSync(bin)
  symlinkSync(process.execPath, join(bin, 'node'))
  const env = { ...process.env, PATH: bin, BRAID_CACHE: 'off', NO_COLOR: '1' }
  const remove = () => rmSync(folder, { recursive: true, force: true })
  try {
    npm(folder, env, 'init', '--yes')
    const began = performance.now()
    npm(folder, env, 'install', '--ignore-scripts', '--prefer-offline', file)
    console.log(`installed in ${((performance.now() - began) / 1000).toFixed(1)} s`)
  } catch (error) {
    remove()
    throw error
  }
  const modules = join(folder, 'node_modules')
  const write = (name, text) => {
    mkdirSync(dirname(join(folder, name)), { recursive: true })
    writeFileSync(join(folder, name), text)
    return name
  }
  return {
    folder,
    modules,
    env,
    remove,
    write,
    bytes: sizeOf(modules),
    put: (name, from) => write(name, readFileSync(from, 'utf8')),
    writeJavaScript: (name, code) => write(name, javaScript(code)),
    /** A package of this checkout's, as if it were installed in the project too. */
    lend: name => {
      mkdirSync(dirname(join(modules, name)), { recursive: true })
      symlinkSync(join(root, 'node_modules', name), join(modules, name))
      return () => rmSync(join(modules, name))
    },
    copyTo: (name, to) => cpSync(join(folder, name), join(to, name), { recursive: true }),
  }
}

/** What TypeScript makes of a program for the oldest Node that is supported. */
export const javaScript = code => {
  const ts = createRequire(import.meta.url)('typescript')
  const compilerOptions = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext }
  return ts.transpileModule(code, { compilerOptions }).outputText
}

/** The program of the README, the same with what the command line wants beside it, and what it prints. */
export const readme = () => {
  const text = readFileSync(join(root, 'README.md'), 'utf8')
  const section = text.split(/^## /m).find(part => part.includes("from 'braid-gpu/runtime'"))
  const blocks = language =>
    [...section.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, 'gms'))].map(([, block]) => block)
  const code = blocks('ts')
  return { net: code.slice(0, -1).join('\n'), program: code.join('\n'), output: blocks('text')[0].trimEnd() }
}
