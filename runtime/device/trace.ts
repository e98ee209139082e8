import * as E from 'fp-ts/lib/Either.js'
import type { Fault } from '../../dsl/ir/fault.js'
import { describe } from '../values.js'
import { fieldsOf } from './settings/checks.js'

/** An error in a trace. `at` is the place, as `ops[17]`. */
export type TraceFault = Fault<'BadTrace'>

/** The peaks of PyTorch's allocator in the run that was recorded, in bytes. */
export interface TorchPeaks {
  readonly peakAllocated?: number
  readonly peakReserved?: number
}

/**
 * A recorded run of an allocator, in order. Each operation has a kind (0 allocates, 1 asks for a free, 2
 * completes the free: every use of the block has ended), a block, a stream, and, if it allocates, the bytes
 * asked for.
 */
export interface AllocatorTrace {
  readonly name: string
  readonly streams: number
  readonly kinds: Uint8Array
  readonly ids: Float64Array
  readonly bytes: Float64Array
  readonly stream: Uint8Array
  /** The largest sum of bytes asked for; a block counts from its allocation until its free is complete. */
  readonly peakLive: number
  /**
   * PyTorch's version and peaks, where the trace has them: with its default segments, and with expandable
   * ones.
   */
  readonly torch: {
    readonly version?: string
    readonly default?: TorchPeaks
    readonly expandable?: TorchPeaks
  }
}

/**
 * The most streams of a trace: a device has 256 lanes, and the replay runs the uses of blocks on lanes of
 * their own.
 */
export const mostTraceStreams = 128
// The most faults that are reported. A file that is no trace has a fault in each operation.
const mostFaults = 20

const fault = (at: string, wanted: string, found: string, next: string): TraceFault => ({
  _tag: 'BadTrace',
  at,
  subject: '',
  wanted,
  found,
  next,
})

const shape = '[op, id, bytes, stream]: op 0 allocates, 1 asks for a free, 2 is its completion'

/**
 * Reads a trace from a value that JSON held: `{ name, torch, streams, ops: [[op, id, bytes, stream], …] }`.
 * Takes anything; never throws.
 */
export const parseTrace = (value: unknown): E.Either<readonly TraceFault[], AllocatorTrace> => {
  const fields = fieldsOf(value)
  if (fields === undefined)
    return E.left([
      fault(
        'trace',
        'an object { name, torch, streams, ops }',
        describe(value),
        'give a trace of an allocator',
      ),
    ])
  const faults: TraceFault[] = []
  const [name, streams, ops] = [fields.get('name'), fields.get('streams'), fields.get('ops')]
  if (name !== undefined && typeof name !== 'string')
    faults.push(fault('name', 'a text, or nothing', describe(name), 'correct the name, or leave it out'))
  const known =
    Number.isSafeInteger(streams) && (streams as number) >= 1 && (streams as number) <= mostTraceStreams
  if (!known)
    faults.push(
      fault(
        'streams',
        `a whole number from 1 to ${mostTraceStreams}`,
        describe(streams),
        'count the streams that operations name',
      ),
    )
  const torch = torchOf(fields.get('torch'), faults)
  if (!Array.isArray(ops))
    faults.push(fault('ops', `a list of ${shape}`, describe(ops), 'record the run again'))
  else if (ops.length === 0)
    faults.push(
      fault('ops', 'at least one operation', 'an empty list', 'record a run that allocates something'),
    )
  if (!Array.isArray(ops) || ops.length === 0) return E.left(faults)
  const read = readOps(ops, known ? (streams as number) : mostTraceStreams, faults)
  if (faults.length > 0) return E.left(faults)
  return E.right({ name: typeof name === 'string' ? name : '', streams: streams as number, torch, ...read })
}

const peakOf = (value: unknown, at: string, faults: TraceFault[]): TorchPeaks | undefined => {
  if (value === undefined || value === null) return undefined
  const fields = fieldsOf(value)
  if (fields === undefined) {
    faults.push(
      fault(
        at,
        'an object { peak_allocated, peak_reserved }',
        describe(value),
        'correct it, or leave it out',
      ),
    )
    return undefined
  }
  const peak = (key: string): number | undefined => {
    const found = fields.get(key)
    if (found === undefined || found === null || (Number.isSafeInteger(found) && (found as number) >= 0))
      return (found as number | null | undefined) ?? undefined
    faults.push(
      fault(`${at}.${key}`, 'bytes, a whole number', describe(found), 'correct it, or leave it out'),
    )
    return undefined
  }
  const [peakAllocated, peakReserved] = [peak('peak_allocated'), peak('peak_reserved')]
  return {
    ...(peakAllocated === undefined ? {} : { peakAllocated }),
    ...(peakReserved === undefined ? {} : { peakReserved }),
  }
}

const torchOf = (value: unknown, faults: TraceFault[]): AllocatorTrace['torch'] => {
  if (value === undefined || value === null) return {}
  const fields = fieldsOf(value)
  if (fields === undefined) {
    faults.push(
      fault(
        'torch',
        'an object { version, default, expandable }',
        describe(value),
        'correct it, or leave it out',
      ),
    )
    return {}
  }
  const version = fields.get('version')
  const plain = peakOf(fields.get('default'), 'torch.default', faults)
  const expandable = peakOf(fields.get('expandable'), 'torch.expandable', faults)
  return {
    ...(typeof version === 'string' ? { version } : {}),
    ...(plain === undefined ? {} : { default: plain }),
    ...(expandable === undefined ? {} : { expandable }),
  }
}

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0

const readOps = (ops: readonly unknown[], streams: number, faults: TraceFault[]) => {
  const kinds = new Uint8Array(ops.length)
  const ids = new Float64Array(ops.length)
  const bytes = new Float64Array(ops.length)
  const stream = new Uint8Array(ops.length)
  // For each block whose free is not complete: the operation that allocated it, and the one that asked for
  // its free.
  const allocated = new Map<number, number>()
  const freed = new Map<number, number>()
  let live = 0
  let peakLive = 0
  for (let i = 0; i < ops.length; i++) {
    const wrong = (wanted: string, found: string, next: string): void =>
      void faults.push(fault(`ops[${i}]`, wanted, found, next))
    if (faults.length >= mostFaults) {
      wrong(
        'operations without a fault',
        `${mostFaults} faults so far`,
        'correct those first: the rest was not looked at',
      )
      break
    }
    const op: unknown = ops[i]
    if (!Array.isArray(op) || op.length !== 4) {
      wrong(shape, describe(op), 'write four numbers for each operation')
      continue
    }
    const [kind, id, size, on] = op as readonly unknown[]
    if (kind !== 0 && kind !== 1 && kind !== 2) {
      wrong('an op of 0, 1 or 2', describe(kind), 'allocate is 0, free requested 1, free completed 2')
      continue
    }
    if (!isCount(id)) {
      wrong('an id, a whole number from 0', describe(id), 'number the blocks')
      continue
    }
    if (!isCount(size) || !isCount(on) || on >= streams) {
      if (!isCount(size))
        wrong('bytes, a whole number from 0', describe(size), 'give the bytes as they were asked for')
      else
        wrong(
          `a stream from 0 to ${streams - 1}`,
          describe(on),
          'correct the stream, or the count of streams',
        )
      continue
    }
    const [from, to] = [allocated.get(id), freed.get(id)]
    if (kind === 0) {
      if (from !== undefined) {
        wrong(
          `an id that is not in use: ${id} was allocated at ops[${from}]`,
          'it is allocated again',
          'complete its free first',
        )
        continue
      }
      allocated.set(id, i)
      live += size
      peakLive = Math.max(peakLive, live)
      if (live > Number.MAX_SAFE_INTEGER) {
        wrong('less than 2^53 bytes alive at once', String(live), 'correct the sizes')
        break
      }
    } else if (from === undefined) {
      const what = kind === 1 ? 'a free' : 'the completion of a free'
      wrong(
        `${what} of a block that is allocated`,
        `block ${id} is not`,
        'record from the first allocation on',
      )
      continue
    } else if (kind === 1) {
      if (to !== undefined) {
        wrong(`one free of block ${id}, asked for at ops[${to}]`, 'another', 'leave the second out')
        continue
      }
      freed.set(id, i)
    } else {
      if (to === undefined) {
        wrong(
          `op 1 for block ${id} first`,
          'its free is complete before it was asked for',
          'record both, in this order',
        )
        continue
      }
      live -= bytes[from]!
      allocated.delete(id)
      freed.delete(id)
    }
    kinds[i] = kind
    ids[i] = id
    bytes[i] = kind === 0 ? size : 0
    stream[i] = on
  }
  return { kinds, ids, bytes, stream, peakLive }
}
