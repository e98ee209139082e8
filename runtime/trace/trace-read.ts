import * as E from 'fp-ts/lib/Either.js'
import type { MeasuredRun } from '../../dsl/internal.js'
import type { Fault } from '../../dsl/ir/fault.js'
import { isRecord } from '../../dsl/ir/record.js'

/**
 * The first byte of a trace in Perfetto's protobuf form, which Braid once wrote: the tag of its first packet.
 */
const protobuf = 0x0a

/** The runs of a trace that `braid run --trace` wrote, or what is wrong with the file. */
export const readTrace = (
  bytes: Uint8Array,
  at: string,
): E.Either<Fault<'BadFile'>, readonly MeasuredRun[]> => {
  const bad = (found: string) =>
    E.left<Fault<'BadFile'>>({
      _tag: 'BadFile',
      at,
      subject: 'trace',
      wanted: "a trace in Chrome's form (JSON), as braid run --trace writes it",
      found,
      next: 'write one with: braid run PROGRAM --ticks 20 --trace FILE',
    })
  try {
    const text = new TextDecoder().decode(bytes)
    if (bytes[0] === protobuf && !/^\s*\{/.test(text))
      return bad(
        "a trace in Perfetto's protobuf form, which earlier versions wrote and this one does not read",
      )
    const runs = runsOf(text)
    return typeof runs === 'string' ? bad(runs) : E.right(runs)
  } catch (error) {
    return bad(error instanceof Error ? error.message : String(error))
  }
}

const runsOf = (text: string): readonly MeasuredRun[] | string => {
  const file: unknown = JSON.parse(text)
  const events = isRecord(file) ? file['traceEvents'] : undefined
  if (!Array.isArray(events)) return 'an object without traceEvents'
  const runs: MeasuredRun[] = []
  for (const event of events as readonly unknown[]) {
    if (!isRecord(event) || event['ph'] !== 'X') continue
    const { name, tid, ts, dur, args } = event
    const tick = isRecord(args) ? args['tick'] : undefined
    if (typeof name !== 'string' || ![tid, ts, dur, tick].every(Number.isFinite))
      return 'a slice without lane, time or tick'
    const startMs = (ts as number) / 1000
    runs.push({
      tick: tick as number,
      name,
      laneId: tid as number,
      startMs,
      endMs: startMs + (dur as number) / 1000,
    })
  }
  return runs
}
