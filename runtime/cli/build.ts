import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { parse } from './args.js'
import { Failed, type Output } from './io.js'
import { home } from './program.js'

export const usage = 'braid build [--json]'

/** Builds the addon of this package, or of this checkout, with the C++ compiler and CMake of this machine. */
export const build = async (args: readonly string[], out: Output): Promise<number> => {
  parse(args, {}, usage)
  const script = pathToFileURL(join(home(), 'scripts/build-addon.mjs')).href
  const { buildAddon } = (await import(script)) as { buildAddon(stdout: number): void }
  try {
    // What CMake prints is no result.
    buildAddon(2)
  } catch (error) {
    const found = error instanceof Error ? error.message : String(error)
    throw new Failed([
      {
        _tag: 'NotBuilt',
        at: home(),
        subject: 'the native addon',
        wanted: 'a C++20 compiler, CMake, and ninja or make',
        found,
        next: 'install what is missing, then run: npx braid build',
      },
    ])
  }
  out.result({ built: join(home(), 'native/build/braid.node') })
  out.say('The addon is built.')
  return 0
}
