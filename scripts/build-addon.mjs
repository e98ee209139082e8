// Builds the addon of an installed package. Where the addon cannot be built, `npx braid build` fails; npm's
// install step only reports what is missing, since the language and the compiler need no addon.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { withBuildLock } from './lib/lock.mjs'
import { buildNative, isNativeBuilt } from './lib/native.mjs'
import { isMain, root, Stop } from './lib/run.mjs'
import { needNode } from './lib/tools.mjs'

/**
 * Builds native/build/braid.node where it is missing or stale; `stdout` is where CMake prints. Throws a Stop
 * that names what is missing.
 */
export const buildAddon = (stdout = 'inherit') => {
  needNode()
  if (!isNativeBuilt()) withBuildLock(() => buildNative(undefined, {}, 'braid', stdout))
}

// In a checkout `npm run build` builds, and `npm ci` must not.
const isCheckout = existsSync(join(root, 'tsconfig.json'))

if (isMain(import.meta.url) && !isCheckout)
  try {
    buildAddon()
  } catch (error) {
    if (!(error instanceof Stop)) throw error
    process.stderr.write(`\nbraid: the addon is not built yet. ${error.message}\nThen run: npx braid build\n`)
  }
