// npm run build: the TypeScript into dist/, the addon into native/build/braid.node; each only when it is
// stale.
//   --native: the addon alone. --typescript: dist/ alone. --shipped: beside them, the addon that the package
//   ships, into prebuilt/. --sanitized: instead, the C++ tests under each sanitizer, at low priority, so that
//   other work goes first.
import { constants, setPriority } from 'node:os'
import { install, isInstalled } from './lib/install.mjs'
import { withBuildLock } from './lib/lock.mjs'
import { buildNative, buildSanitized, buildShipped, isNativeBuilt, sanitizers } from './lib/native.mjs'
import { entry, isMain } from './lib/run.mjs'
import { needNode } from './lib/tools.mjs'
import { buildDeclarations, compile, stampOf } from './lib/typescript.mjs'

const codeStamp = () =>
  stampOf('dist/.stamp', ['dsl', 'runtime', 'examples', 'spec/bench', 'spec/fixtures'], 'scripts/bundle.mjs')

/**
 * Builds dist/ where it is stale. With `checked`, a type error is a Stop; a caller that checks the types
 * itself saves most of the time without.
 */
export const buildTypeScript = (checked = true) => {
  const code = codeStamp()
  if (!code.isCurrent) console.log('Compiling TypeScript …')
  if (checked) buildDeclarations()
  if (code.isCurrent) return
  compile(code, ['scripts/bundle.mjs'], 'rolldown found the errors above; nothing was run.')
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
