// npm run build: the TypeScript into dist/, the addon into native/build/braid.node; each only when it is
// stale.
//   --native: the addon alone. --typescript: dist/ alone. --shipped: beside them, the addon that the package
//   ships, into prebuilt/. --sanitized: instead, the C++ tests under each sanitizer, at low priority, so that
//   other work goes first.
import { rmSync } from 'node:fs'
import { constants, setPriority } from 'node:os'
import { join } from 'node:path'
import { install, isInstalled } from './lib/install.mjs'
import { withBuildLock } from './lib/lock.mjs'
import { buildNative, buildSanitized, buildShipped, isNativeBuilt, sanitizers } from './lib/native.mjs'
import { entry, isMain, root, run, Stop, tool } from './lib/run.mjs'
import { files, fingerprint, readStamp, writeStamp } from './lib/stamp.mjs'
import { needNode } from './lib/tools.mjs'

const stampOf = () => {
  const sources = files(['dsl', 'runtime', 'examples', 'spec/bench', 'spec/fixtures'], path =>
    path.endsWith('.ts'),
  )
  const inputs = files(['tsconfig.json', 'tsconfig.build.json', 'package-lock.json'])
  const print = `${fingerprint([...sources, ...inputs])}\n${sources.join('\n')}`
  return { sources, print, stamp: readStamp('dist/.stamp') }
}

const isTypeScriptBuilt = () => {
  const { print, stamp } = stampOf()
  return stamp === print
}

/**
 * Compiles dist/ where it is stale. With `checked`, a type error is a Stop; a caller that checks the types
 * itself saves half of the time without.
 */
export const buildTypeScript = (checked = true) => {
  const { sources, print, stamp } = stampOf()
  if (stamp === print) return
  // A source that went away must not live on in dist.
  if (
    stamp
      .split('\n')
      .slice(1)
      .some(path => !sources.includes(path))
  )
    rmSync(join(root, 'dist'), { recursive: true, force: true })
  // A build that is cut short leaves a stamp that fits nothing, and names the sources that dist may hold.
  writeStamp('dist/.stamp', `unfinished\n${sources.join('\n')}`)
  console.log('Compiling TypeScript …')
  const args = [tool.tsc, '-p', 'tsconfig.build.json', ...(checked ? [] : ['--noCheck'])]
  if (run(process.execPath, args) !== 0) throw new Stop('TypeScript found the errors above; nothing was run.')
  writeStamp('dist/.stamp', print)
}

/** Everything that the examples, the command line and the tests need, from a bare clone on. */
export const prepare = ({ checked = true } = {}) => {
  needNode()
  // A checkout that is built may be one that cannot be written.
  if (isInstalled() && isTypeScriptBuilt() && isNativeBuilt()) return
  withBuildLock(() => {
    install()
    buildTypeScript(checked)
    buildNative()
  })
}

if (isMain(import.meta.url))
  await entry(() => {
    needNode()
    if (process.argv.includes('--sanitized')) {
      setPriority(constants.priority.PRIORITY_LOW)
      for (const name of sanitizers) buildSanitized(name)
      return 0
    }
    withBuildLock(() => {
      install()
      if (!process.argv.includes('--native')) buildTypeScript()
      if (!process.argv.includes('--typescript')) buildNative()
      if (process.argv.includes('--shipped')) buildShipped()
    })
    console.log('Built.')
    return 0
  })
