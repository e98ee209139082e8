import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { ownAddon } from '../addon-file.js'
import { parse } from './args.js'
import { exitStatus, Interrupted, interruptible } from './interrupt.js'
import { Failed, Misuse, type Output } from './io.js'
import { home } from './program.js'

export const usage = 'braid build [--json]'

interface Script {
  buildAddon(
    progress: NodeJS.WriteStream,
    interruptible: (work: (signal: AbortSignal) => Promise<void>) => Promise<void>,
  ): Promise<void>
}

/** Builds the addon of this package, or of this checkout, with the C++ compiler and CMake of this machine. */
export const build = async (args: readonly string[], out: Output): Promise<number> => {
  const { positionals } = parse(args, {}, usage)
  if (positionals.length > 0) throw new Misuse(`"${positionals[0]}" is one word too many\nusage: ${usage}`)
  const script = pathToFileURL(join(home(), 'scripts/build-addon.mjs')).href
  const { buildAddon } = (await import(script)) as Script
  const began = performance.now()
  try {
    await buildAddon(process.stderr, work => interruptible(work, 'ending the build'))
  } catch (error) {
    if (error instanceof Interrupted) return exitStatus[error.by]
    const found = error instanceof Error ? error.message : String(error)
    throw new Failed([
      {
        _tag: 'NotBuilt',
        at: home(),
        subject: 'the native addon',
        wanted: 'Linux, a C++20 compiler, CMake, and ninja or make',
        found,
        next: 'correct what is said above, then run: npx braid build',
      },
    ])
  }
  const built = join(home(), ownAddon)
  out.result({ built })
  out.say(`The addon is built: ${built} (${Math.ceil((performance.now() - began) / 1000)} s)`)
  return 0
}
