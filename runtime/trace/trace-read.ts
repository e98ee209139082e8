import * as E from 'fp-ts/lib/Either.js'
import type { Fault } from '../../dsl/ir/fault.js'
import type { MeasuredRun } from '../../dsl/machine/simulate/compare.js'
import { annotation, event, firstLane, begin as opens, packet, packetOfTrace } from './trace-fields.js'

/** A trace as `braid run --trace` writes it, read again. Of other traces it says what was wanted. */
export const readTrace = (
  bytes: Uint8Array,
  at: string,
): E.Either<Fault<'BadFile'>, readonly MeasuredRun[]> => {
  const bad = (found: string) =>
    E.left<Fault<'BadFile'>>({
      _tag: 'BadFile',
      at,
      subject: 'trace',
      wanted: 'a trace that braid run --trace wrote: .pftrace, or .json in the form of Chrome',
      found,
      next: 'write one with: braid run PROGRAM --ticks 20 --trace FILE',
    })
  try {
    const runs = isText(bytes) ? ofChrome(new TextDecoder().decode(bytes)) : ofPerfetto(bytes)
    return typeof runs === 'string' ? bad(runs) : E.right(runs)
  } catch (error) {
    return bad(error instanceof Error ? error.message : String(error))
  }
}

// JSON opens with a brace, after white space at most; a Perfetto file with the tag of its first packet.
const isText = (bytes: Uint8Array): boolean =>
  bytes.find(byte => byte > 0x20) === 0x7b && bytes[0] !== ((packetOfTrace << 3) | 2)

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null

const ofChrome = (text: string): readonly MeasuredRun[] | string => {
  const file: unknown = JSON.parse(text)
  const events = isObject(file) ? file['traceEvents'] : undefined
  if (!Array.isArray(events)) return 'an object without traceEvents'
  const runs: MeasuredRun[] = []
  for (const event of events as readonly unknown[]) {
    if (!isObject(event) || event['ph'] !== 'X') continue
    const { name, tid, ts, dur, args } = event
    const tick = isObject(args) ? args['tick'] : undefined
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

/** The fields of a message: numbers by varint, all else as bytes. */
const fieldsOf = (bytes: Uint8Array, seen: (field: number, value: number | Uint8Array) => void): void => {
  let at = 0
  const varint = (): number => {
    let value = 0n
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[at++]
      if (byte === undefined || shift > 63n) throw new Error('a message that ends too early')
      value |= BigInt(byte & 0x7f) << shift
      if (byte < 0x80) return Number(BigInt.asUintN(64, value))
    }
  }
  while (at < bytes.length) {
    const tag = varint()
    const field = Math.floor(tag / 8)
    switch (tag % 8) {
      case 0:
        seen(field, varint())
        break
      case 1:
        at += 8
        break
      case 2: {
        const length = varint()
        if (at + length > bytes.length) throw new Error('a message that ends too early')
        seen(field, bytes.subarray(at, (at += length)))
        break
      }
      case 5:
        at += 4
        break
      default:
        throw new Error(`a field of unknown kind ${tag % 8}`)
    }
  }
}

const text = (value: number | Uint8Array): string =>
  typeof value === 'number' ? '' : new TextDecoder().decode(value)

interface Slice {
  kind: number
  lane: number
  name: string
  tick: number
}

const sliceOf = (bytes: Uint8Array): Slice => {
  const slice = { kind: 0, lane: -1, name: '', tick: -1 }
  fieldsOf(bytes, (field, value) => {
    if (field === event.type) slice.kind = Number(value)
    else if (field === event.track) slice.lane = Number(value) - firstLane
    else if (field === event.name) slice.name = text(value)
    else if (field === event.annotation && typeof value !== 'number') {
      let name = ''
      let int = -1
      fieldsOf(value, (field, value) => {
        if (field === annotation.name) name = text(value)
        else if (field === annotation.int) int = Number(value)
      })
      if (name === 'tick') slice.tick = int
    }
  })
  return slice
}

const ofPerfetto = (bytes: Uint8Array): readonly MeasuredRun[] | string => {
  const open = new Map<number, { slice: Slice; at: number }>()
  const runs: MeasuredRun[] = []
  fieldsOf(bytes, (field, value) => {
    if (field !== packetOfTrace || typeof value === 'number') return
    let time = 0
    let slice: Slice | undefined
    fieldsOf(value, (field, value) => {
      if (field === packet.timestamp) time = Number(value)
      else if (field === packet.event && typeof value !== 'number') slice = sliceOf(value)
    })
    if (slice === undefined || slice.lane < 0) return
    if (slice.kind === opens) open.set(slice.lane, { slice, at: time })
    else {
      const begun = open.get(slice.lane)
      open.delete(slice.lane)
      if (begun === undefined || begun.slice.tick < 0) return
      const { name, tick, lane } = begun.slice
      runs.push({ tick, name, laneId: lane, startMs: begun.at / 1e6, endMs: time / 1e6 })
    }
  })
  return runs.length === 0 ? 'no slices of runs' : runs
}
