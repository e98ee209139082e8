import * as E from 'fp-ts/lib/Either.js'
import type { Fault } from '../../../dsl/ir/fault.js'
import { divisionCount, divisionsFrom } from './options-divisions.js'
import { between, bound, bytes, type Check, flag, known, MiB, oneOf, wrong } from './options-read.js'

/** Which ways to memory an allocation tries, in which order, before the pool grows and after it may not. */
export type AllocatorPolicy = 'order-then-wait' | 'order-then-grow' | 'poll' | 'never-wait'

/** From `from` bytes on, a power of two from 1 MiB to 32 GiB, sizes are rounded up to `steps` steps between powers of two. */
export interface SizeDivision {
  readonly from: number
  readonly steps: number
}

/** Pinned host memory, which has a pool of its own. Sizes in bytes. */
export interface PinnedOptions {
  /** The most that is held. Default: no bound. */
  readonly limit?: number
  /** Sizes up to this are rounded up to a power of two; none by default, all with `Infinity`. */
  readonly roundUpTo?: number
  /** Blocks longer than this go back at once when they are freed. Default: none does. */
  readonly cacheUpTo?: number
  /** Taken at the start, and never given back. Default 0. */
  readonly reserveFirst?: number
}

/** How a device's caching allocator behaves. Sizes in bytes; PyTorch's name of each stands behind it. */
export interface AllocatorOptions {
  /** Default `order-then-grow`. */
  readonly policy?: AllocatorPolicy
  /** The most that is held of the device's memory. Default: no bound. */
  readonly limit?: number
  /** The same as a share of the device's memory, from 0 to 1; the lower of both counts. `per_process_memory_fraction` */
  readonly fraction?: number
  /** Pages are mapped one after the other into ranges of addresses. Default true. `expandable_segments` */
  readonly expandable?: boolean
  /** Whole free pages go where they are needed before new ones are made. Default true. */
  readonly movePages?: boolean
  /** Blocks of at least this are never split. Default: no bound. `max_split_size_mb` */
  readonly maxSplit?: number
  /** How much longer a block may be than what takes it unsplit. Default: `largeSegment`. `max_non_split_rounding_mb` */
  readonly maxNonSplitRounding?: number
  /** What is asked of the driver for sizes from 1 to 10 MiB. Default 20 MiB. `large_segment_size_mb` */
  readonly largeSegment?: number
  /** Free segments go back when more than this share of the limit is held; 0 for never. `garbage_collection_threshold` */
  readonly collectAbove?: number
  /** What is beyond the limit fails at once, with nothing given back first. Default false. `throw_on_cudamalloc_oom` */
  readonly refuseEarly?: boolean
  /** Steps for all sizes, or by size; 0 or 1 is none. Default 0. `roundup_power2_divisions` */
  readonly divisions?: number | readonly SizeDivision[]
  readonly pinned?: PinnedOptions
}

/** Every option with its value; `Infinity` is no bound. */
export interface ResolvedAllocatorOptions extends Required<Omit<AllocatorOptions, 'divisions' | 'pinned'>> {
  /** Steps by interval: sizes below 2 MiB, from 2 MiB, from 4 MiB … from 32 GiB. */
  readonly divisions: readonly number[]
  readonly pinned: Required<PinnedOptions>
}

/** What is wrong with an allocator's option. `at` is its name, as `allocator.pinned.limit`. */
export type AllocatorFault = Fault<'BadOption'>

const policies = [
  'order-then-wait',
  'order-then-grow',
  'poll',
  'never-wait',
] as const satisfies AllocatorPolicy[]
const none = Number.POSITIVE_INFINITY

const names = [
  'policy',
  'limit',
  'fraction',
  'expandable',
  'movePages',
  'maxSplit',
  'maxNonSplitRounding',
  'largeSegment',
  'collectAbove',
  'refuseEarly',
  'divisions',
  'pinned',
] as const satisfies (keyof AllocatorOptions)[]
const pinnedNames = [
  'limit',
  'roundUpTo',
  'cacheUpTo',
  'reserveFirst',
] as const satisfies (keyof PinnedOptions)[]

/**
 * What was given, over `under` (settings from the environment), over the defaults. Every fault at once; takes anything and
 * never throws.
 */
export const allocatorOptions = (
  given: unknown,
  under: AllocatorOptions = {},
): E.Either<readonly AllocatorFault[], ResolvedAllocatorOptions> => {
  const faults: AllocatorFault[] = []
  const reader =
    (fields: ReadonlyMap<string, unknown>, at: string) =>
    <T>(name: string, check: Check<T>, otherwise: T): T => {
      const value = fields.get(name)
      if (value === undefined) return otherwise
      const read = check.of(value)
      if (read === undefined) faults.push(wrong(`${at}.${name}`, check.wanted, value))
      return read ?? otherwise
    }
  const fields = known(given, 'allocator', names, faults)
  const of = reader(fields, 'allocator')
  const ofPinned = reader(
    known(fields.get('pinned'), 'allocator.pinned', pinnedNames, faults),
    'allocator.pinned',
  )

  const largeSegment = of('largeSegment', bytes(10 * MiB + 1), under.largeSegment ?? 20 * MiB)
  const cacheUpTo = ofPinned('cacheUpTo', bound(0), under.pinned?.cacheUpTo ?? none)
  const resolved: ResolvedAllocatorOptions = {
    policy: of('policy', oneOf(policies), under.policy ?? 'order-then-grow'),
    limit: of('limit', bound(0), under.limit ?? none),
    fraction: of('fraction', share, under.fraction ?? 1),
    expandable: of('expandable', flag, under.expandable ?? true),
    movePages: of('movePages', flag, under.movePages ?? true),
    maxSplit: of('maxSplit', bound(largeSegment), Math.max(under.maxSplit ?? none, largeSegment)),
    maxNonSplitRounding: of(
      'maxNonSplitRounding',
      bytes(largeSegment),
      Math.max(under.maxNonSplitRounding ?? largeSegment, largeSegment),
    ),
    largeSegment,
    collectAbove: of('collectAbove', shareBelowOne, under.collectAbove ?? 0),
    refuseEarly: of('refuseEarly', flag, under.refuseEarly ?? false),
    divisions:
      divisionsFrom(fields.get('divisions') ?? under.divisions, 'allocator.divisions', faults) ?? noDivisions,
    pinned: {
      limit: ofPinned('limit', bound(0), under.pinned?.limit ?? none),
      // What goes straight back is not worth rounding.
      roundUpTo: Math.min(ofPinned('roundUpTo', bound(0), under.pinned?.roundUpTo ?? 0), cacheUpTo),
      cacheUpTo,
      reserveFirst: ofPinned('reserveFirst', bytes(0), under.pinned?.reserveFirst ?? 0),
    },
  }
  return faults.length > 0 ? E.left(faults) : E.right(resolved)
}

const share = between('a share of the device, from 0 to 1', value => value >= 0 && value <= 1)
const shareBelowOne = between('0, or a share between 0 and 1', value => value >= 0 && value < 1)
const noDivisions: readonly number[] = Array.from({ length: divisionCount }, () => 0)

/** The most that may be held on a device of this many bytes; `Infinity` where there is no bound. */
export const limitOn = ({ limit, fraction }: ResolvedAllocatorOptions, deviceBytes: number): number =>
  Math.min(limit, fraction < 1 ? Math.floor(fraction * deviceBytes) : none)
