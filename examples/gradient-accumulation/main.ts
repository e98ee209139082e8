// Linear regression by steps of eight micro-batches each: a graph of two rates. Prints the plan, trains, and
// compares every step of the weights with plain loops. Exit status 1 if one differs.
import { parseArgs } from 'node:util'
import { compile, orThrow, textOf } from 'braid-gpu'
import { type OpenOptions, open } from 'braid-gpu/runtime'
import { lastValueFrom, tap } from 'rxjs'
import { feeds, training } from './program.js'
import { features, micro, sample, step, truth } from './samples.js'

const { values } = parseArgs({
  options: { device: { type: 'string', default: 'host' }, steps: { type: 'string', default: '200' } },
})
const steps = Number(values.steps)
const device = values.device as NonNullable<OpenOptions['device']>

const distance = (a: ArrayLike<number>, b: ArrayLike<number>) =>
  Array.from(a).reduce((most, value, i) => Math.max(most, Math.abs(value - b[i]!)), 0)

const main = async (): Promise<boolean> => {
  const plan = orThrow(compile(training))
  console.log(textOf(plan))
  await using session = orThrow(await open(plan, { device })())
  console.log(
    `Braid · gradient accumulation: ${steps} steps of ${micro} micro-batches on ${session.device.name}\n`,
  )
  let expected: Float64Array = new Float64Array(features)
  let done = 0
  let furthest = 0
  let error = 0
  await lastValueFrom(
    session.run(feeds(), { ticks: steps }).pipe(
      tap(lease => {
        using held = lease
        const batches = Array.from({ length: micro }, (_, i) => sample(done * micro + i))
        expected = step(expected, batches)
        furthest = Math.max(furthest, distance(held.weights, expected))
        error = distance(held.weights, truth)
        if (done++ % 40 === 0)
          console.log(
            `  step ${String(done).padStart(4)}   furthest weight from the truth ${error.toFixed(4)}`,
          )
      }),
    ),
  )
  const { peak, bound } = session.stats()
  const check = (holds: boolean, text: string) => {
    console.log(`  ${holds ? '✓' : '✗'} ${text}`)
    return holds
  }
  console.log('')
  return [
    check(done === steps, `steps: ${done}, each of ${micro} values of both feeds`),
    check(
      furthest < 1e-4,
      `weights: within ${furthest.toExponential(1)} of the plain loops after every step`,
    ),
    check(
      error < 0.05 || steps < 200,
      `truth: within ${error.toFixed(4)} of the weights that made the samples`,
    ),
    check(peak.reserved <= bound.device, `memory: promised ${bound.device} bytes, held ${peak.reserved}`),
  ].every(holds => holds)
}

try {
  process.exitCode = (await main()) ? 0 : 1
} catch (error) {
  console.error(`\ngradient-accumulation: ${error instanceof Error ? error.message : String(error)}`)
  process.exitCode = 1
}
