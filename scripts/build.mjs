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
import { files, fingerprint, readStamp, removeStamp, writeStamp } from './lib/stamp.mjs'
import { needNode } from './lib/tools.mjs'

/** What is made of these TypeScript sources, and of the files that say how, is current if `stamp` holds `print`. */
const stampOf = (stamp, folders, ...more) => {
  const sources = files(folders, path => path.endsWith('.ts'))
  const inputs = files(['tsconfig.json', 'package-lock.json', ...more])
  const print = `${fingerprint([...sources, ...inputs])}\n${sources.join('\n')}`
  return { stamp, print, sources, isCurrent: readStamp(stamp) === print }
}

const codeStamp = () =>
  stampOf('dist/.stamp', ['dsl', 'runtime', 'examples', 'spec/bench', 'spec/fixtures'], 'scripts/bundle.mjs')

/** Runs a compiler whose output is current from then on. A build that is cut short leaves no stamp. */
const compile = ({ stamp, print }, problem, ...args) => {
  removeStamp(stamp)
  if (run(process.execPath, args) !== 0) throw new Stop(problem)
  writeStamp(stamp, print)
}

/** Checks the types of dsl/ and runtime/, and writes their declarations into dist/, where these are stale. */
export const buildDeclarations = () => {
  const wanted = stampOf('dist/.stamp-types', ['dsl', 'runtime'], 'tsconfig.build.json')
  if (wanted.isCurrent) return
  compile(
    wanted,
    'TypeScript found the errors above; nothing was run.',
    tool.tsc,
    '-p',
    'tsconfig.build.json',
  )
  // The declarations of a source that went away.
  for (const path of files(['dist/dsl', 'dist/runtime'], path => path.endsWith('.d.ts')))
    if (!wanted.sources.includes(path.replace(/^dist\/(.*)\.d\.ts$/, '$1.ts'))) rmSync(join(root, path))
}

/**
 * Builds dist/ where it is stale. With `checked`, a type error is a Stop; a caller that checks the types
 * itself saves most of the time without.
 */
export const buildTypeScript = (checked = true) => {
  const code = codeStamp()
  if (!code.isCurrent) console.log('Compiling TypeScript …')
  if (checked) buildDeclarations()
  if (code.isCurrent) return
  compile(code, 'rolldown found the errors above.', 'scripts/bundle.mjs')
}

/** Everything that the examples, the command line and the tests need, from a bare clone on. */
export const prepare = ({ checked = true } = {}) => {
  needNode()
  // A checkout that is built may be one that cannot be written.
  if (isInstalled() && codeStamp().isCurrent && isNativeBuilt()) return
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
