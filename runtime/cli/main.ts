import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { bench, usage as benchUsage } from './bench.js'
import { build, usage as buildUsage } from './build.js'
import { doctor, usage as doctorUsage } from './doctor.js'
import { explain, usage as explainUsage } from './explain.js'
import { exitStatus } from './interrupt.js'
import { Failed, Misuse, makeOutput, type Output, outputFailed, report } from './io.js'
import { plan, usage as planUsage } from './plan.js'
import { home } from './program.js'
import { replay, usage as replayUsage } from './replay.js'
import { run, usage as runUsage } from './run.js'
import { simulate, usage as simulateUsage } from './simulate.js'
import { snapshot, usage as snapshotUsage } from './snapshot.js'
import { verify, usage as verifyUsage } from './verify.js'

interface Verb {
  readonly usage: string
  readonly does: string
  run(args: readonly string[], out: Output): Promise<number>
}

const verbs: Readonly<Record<string, Verb>> = {
  run: {
    usage: runUsage,
    does:
      'compiles a program, opens it, runs it on its feeds; --check holds every output against interpret; ' +
      '--watch goes over to what a change of its files makes',
    run,
  },
  plan: { usage: planUsage, does: 'prints the plan; as json it is the public format', run: plan },
  explain: {
    usage: explainUsage,
    does: 'why each wait, use, allocation and lane is there, and why others are not',
    run: explain,
  },
  verify: {
    usage: verifyUsage,
    does: 'proves the laws of a plan file; a line per violation, exit status 1 if any',
    run: verify,
  },
  simulate: {
    usage: simulateUsage,
    does:
      'predicts timeline, peak and exposed time on a described machine; ' +
      '--against compares a measured trace',
    run: simulate,
  },
  replay: {
    usage: replayUsage,
    does: "replays a trace of another allocator's run on Braid's: peaks, times, fallbacks, waits and moved pages",
    run: replay,
  },
  snapshot: {
    usage: snapshotUsage,
    does:
      'draws what an allocator holds, from a file of device.snapshot(); ' +
      "--as torch writes the form of PyTorch's memory viewer",
    run: snapshot,
  },
  doctor: {
    usage: doctorUsage,
    does: 'devices, driver, libraries found and missing, and what to do about each',
    run: doctor,
  },
  build: {
    usage: buildUsage,
    does: 'builds the native addon of this package with the compiler that is here',
    run: build,
  },
  bench: { usage: benchUsage, does: 'the benchmarks, each with its peer and ratio', run: bench },
}

const help = (): string =>
  [
    'braid: multi-stream GPU pipelines from typed dataflow graphs',
    '',
    ...Object.values(verbs).flatMap(({ usage, does }) => [`  ${usage}`, `      ${does}`]),
    '',
    'PROGRAM is a .ts, .js or .mjs file whose default export is program({ graph, feeds }). ' +
      'Sizes are bytes, or say KiB, MiB or GiB.',
    '--json prints one JSON object on standard output; errors go to standard error. ' +
      'Exit status: 0, 1 for a failure, 2 for a misuse.',
  ].join('\n')

const version = (): string =>
  (JSON.parse(readFileSync(join(home(), 'package.json'), 'utf8')) as { version: string }).version

const main = async (argv: readonly string[]): Promise<number> => {
  const [word, ...args] = argv
  const before = args.includes('--') ? args.slice(0, args.indexOf('--')) : args
  const json = before.includes('--json')
  try {
    if (word === undefined) throw new Misuse(`which verb?\n\n${help()}`)
    if (word === '--version') {
      process.stdout.write(`${version()}\n`)
      return 0
    }
    if (word === '--help' || word === '-h' || word === 'help') {
      process.stdout.write(`${help()}\n`)
      return 0
    }
    const verb = Object.hasOwn(verbs, word) ? verbs[word] : undefined
    if (!verb) throw new Misuse(`no verb "${word}"; there are: ${Object.keys(verbs).join(', ')}`)
    if (before.includes('--help') || before.includes('-h')) {
      process.stdout.write(`usage: ${verb.usage}\n  ${verb.does}\n`)
      return 0
    }
    return await verb.run(args, makeOutput(json))
  } catch (error) {
    return report(error, json)
  }
}

// Whether the command has reported its end.
let ended = false

// An uncaught error of a user's program (an Observable's late error, a rejected promise) is reported as a
// sentence too.
for (const event of ['uncaughtException', 'unhandledRejection'] as const)
  process.on(event, (error: unknown) => {
    ended = true
    process.exitCode = report(error, process.argv.includes('--json'))
    process.exit()
  })

// The reader of the output may close the pipe early: `braid plan … | head`.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') {
    ended = true
    process.exit(0)
  }
  ended = true
  process.exitCode = report(outputFailed(error), process.argv.includes('--json'))
  process.exit()
})

// Node exits silently with 13 when a top-level await can never settle.
process.on('exit', () => {
  if (ended || process.exitCode !== 13) return
  process.exitCode = report(
    new Failed([
      {
        _tag: 'Unfinished',
        at: process.argv[3] ?? '',
        subject: '',
        wanted: 'a program that loads, and feeds that give values or end',
        found: 'one that waits for something that can never come',
        next:
          'look for a top-level await that nothing settles, ' +
          'and for a feed that falls silent without completing',
      },
    ]),
    process.argv.includes('--json'),
  )
})

// Before any program is loaded, so that its places are those of its TypeScript.
process.setSourceMapsEnabled(true)
process.exitCode = await main(process.argv.slice(2))
ended = true
// A program that was interrupted may hold timers and sockets that keep the process alive.
if (process.exitCode === exitStatus.SIGINT || process.exitCode === exitStatus.SIGTERM) process.exit()
