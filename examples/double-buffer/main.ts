// Frames from an Observable that does not wait, through three lanes, with back pressure: when all slots are
// taken, the oldest waiting frame is dropped. Shows the credits during the run, then checks every answer, the
// drops and the overlap.
import { parseArgs } from 'node:util'
import { compile, orThrow } from 'braid-gpu'
import { type OpenOptions, open, pushed } from 'braid-gpu/runtime'
import { lastValueFrom, tap } from 'rxjs'
import { camera, contrast, frame, frameNumber } from './frames.js'
import { pipeline, slowed } from './program.js'

const { values } = parseArgs({
  options: {
    device: { type: 'string', default: 'host' },
    frames: { type: 'string', default: '300' },
    every: { type: 'string', default: '4' },
  },
})
const count = Number(values.frames)
const every = Number(values.every)
const device = values.device as NonNullable<OpenOptions['device']>
const onHost = device === 'host'

/** The largest difference of two frames, in steps of brightness. */
const difference = (a: Uint8Array, b: Uint8Array) =>
  a.reduce((most, pixel, i) => Math.max(most, Math.abs(pixel - b[i]!)), Math.abs(a.length - b.length))

const main = async () => {
  const plan = orThrow(compile(pipeline, { inFlight: 3 }))
  await using session = orThrow(
    await open(plan, { device, trace: true, ...(onHost ? { host: slowed } : {}) })(),
  )
  console.log(`Braid · double buffer: ${count} frames, one every ${every} ms, on ${session.device.name}`)
  console.log(
    `  ${session.inFlight} credits: frames that may be on their way at once. A frame takes one when ` +
      `it is accepted, and gives it back when`,
  )
  console.log(
    '  its answer has been used. o = free, > = on the device, ' +
      '= = leased to the program, which is looking at it\n',
  )
  let delivered = 0
  let wrong = 0
  let newest = -1
  const began = performance.now()
  await lastValueFrom(
    session.run({ frame: pushed(camera(count, every), 'dropOldest') }).pipe(
      tap(lease => {
        using held = lease
        const number = frameNumber(held.first)
        // A rounding difference in the mean may change one truncation.
        if (number <= newest || difference(held.contrast, contrast(frame(number))) > 1) wrong++
        newest = number
        delivered++
        const { free, flying, leased } = session.stats().credits
        if (delivered % 12 === 1) {
          const slots = `${'o'.repeat(free)}${'>'.repeat(flying)}${'='.repeat(leased)}`
          console.log(
            `  frame ${String(number).padStart(4)}   credits ${slots.padEnd(session.inFlight)}   ` +
              `delivered ${String(delivered).padStart(3)}   ` +
              `dropped ${String(session.stats().drops['frame'] ?? 0).padStart(3)}`,
          )
        }
      }),
    ),
  )
  const wall = performance.now() - began
  const records = session.trace()
  const busy = (lane: string) =>
    records
      .filter(record => record.lane === lane)
      .reduce((sum, { startMs, endMs }) => sum + endMs - startMs, 0)
  const lanes = plan.lanes.map(({ name }) => ({ name, ms: busy(name) }))
  const span =
    Math.max(...records.map(({ endMs }) => endMs)) - Math.min(...records.map(({ startMs }) => startMs))
  const overlap = lanes.reduce((sum, { ms }) => sum + ms, 0) / span
  const { drops, peak, bound } = session.stats()
  const dropped = drops['frame'] ?? 0

  console.log(
    `\n  ${(wall / 1000).toFixed(2)} s; the lanes were busy ` +
      `${lanes.map(({ name, ms }) => `${name} ${((100 * ms) / span).toFixed(0)} %`).join(', ')} of the time`,
  )
  const check = (holds: boolean, text: string) => {
    console.log(`  ${holds ? '✓' : '✗'} ${text}`)
    return holds
  }
  const checks = [
    check(
      wrong === 0 && delivered > 0,
      `answers: ${delivered - wrong} of ${delivered} equal the plain loops, in order`,
    ),
    check(
      delivered + dropped === count,
      `drops: ${delivered} delivered + ${dropped} dropped = ${count} frames that came`,
    ),
    check(
      overlap >= 1.5 || !onHost,
      `overlap: ${overlap.toFixed(2)} lanes were at work on average${onHost ? ' (wanted: 1.5 or more)' : ''}`,
    ),
    check(peak.reserved <= bound.device, `memory: promised ${bound.device} bytes, held ${peak.reserved}`),
  ]
  return checks.every(holds => holds)
}

try {
  process.exitCode = (await main()) ? 0 : 1
} catch (error) {
  console.error(`\ndouble-buffer: ${error instanceof Error ? error.message : String(error)}`)
  process.exitCode = 1
}
