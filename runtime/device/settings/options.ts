import * as E from 'fp-ts/lib/Either.js'
import {
  badOption,
  between,
  bound,
  bytes,
  type Check,
  check,
  fieldsOf,
  flag,
  isPowerOfTwo,
  itemsOf,
  knownFields,
  type OptionFault,
  oneOf,
} from './checks.js'

/** Bytes in a mebibyte, in which PyTorch's settings count. */
export const MiB = 2 ** 20

/** Intervals between powers of two that have steps of their own: below 2 MiB, from 2 MiB, … from 32 GiB. */
export const divisionCount = 16

/**
 * Where an allocation looks for memory, and in which order, before the pool grows and when it cannot grow.
 */
export type AllocatorPolicy = 'order-then-wait' | 'order-then-grow' | 'poll' | 'never-wait'

/**
 * From `from` bytes on, a power of two from 1 MiB to 32 GiB, sizes are rounded up to `steps` steps between
 * powers of two.
 */
export interface SizeDivision {
  readonly from: number
  readonly steps: number
}

/** Options of pinned host memory, which has a pool of its own. Sizes in bytes. */
export interface PinnedOptions {
  /** The most that is held. Default: no bound. */
  readonly limit?: number
  /** Sizes up to this are rounded up to a power of two. Default 0: none are. `Infinity`: all are. */
  readonly roundUpTo?: number
  /** Longer blocks are given back to the driver when they are freed. Default: none are. */
  readonly cacheUpTo?: number
  /** Bytes taken when the device opens, and never given back. Default 0. */
  readonly reserveFirst?: number
}

/** How a device's caching allocator behaves. Sizes in bytes. PyTorch's name of an option ends its comment. */
export interface AllocatorOptions {
  /** Default `order-then-grow`. */
  readonly policy?: AllocatorPolicy
  /** The most that is held of the device's memory. Default: no bound. */
  readonly limit?: number
  /**
   * The same as a share of the device's memory, from 0 to 1; the lower of both counts.
   * `per_process_memory_fraction`
   */
  readonly fraction?: number
  /** Pages are mapped one after the other into ranges of addresses. Default true. `expandable_segments` */
  readonly expandable?: boolean
  /**
   * Longer blocks are given back to the driver when they are freed, which waits for their lane. Default: none
   * are. 0 turns caching off. It needs memory that is not expandable, and makes that the default.
   */
  readonly cacheUpTo?: number
  /** Whole free pages are moved to where memory is needed before new pages are made. Default true. */
  readonly movePages?: boolean
  /** Blocks of at least this are never split. Default: no bound. `max_split_size_mb` */
  readonly maxSplit?: number
  /**
   * How much longer a block that is not split may be than the allocation. Default: `largeSegment`.
   * `max_non_split_rounding_mb`
   */
  readonly maxNonSplitRounding?: number
  /** Bytes asked of the driver for allocations from 1 to 10 MiB. Default 20 MiB. `large_segment_size_mb` */
  readonly largeSegment?: number
  /**
   * Free segments go back when more than this share of the limit is held; 0 for never.
   * `garbage_collection_threshold`
   */
  readonly collectAbove?: number
  /**
   * An allocation beyond the limit fails at once: nothing is given back first. Default false.
   * `throw_on_cudamalloc_oom`
   */
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

/** An error in an allocator's option. `at` is the option's name, as `allocator.pinned.limit`. */
export type AllocatorFault = OptionFault

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
  'cacheUpTo',
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
 * The options that were given; those of `under` (settings from the environment) where one is missing; else
 * the defaults. Returns every fault. Takes anything and never throws.
 */
export const allocatorOptions = (
  given: unknown,
  under: AllocatorOptions = {},
): E.Either<readonly AllocatorFault[], ResolvedAllocatorOptions> => {
  const faults: OptionFault[] = []
  const reader =
    (fields: ReadonlyMap<string, unknown>, at: string) =>
    <T>(name: string, { wanted, holds }: Check<T>, otherwise: T): T => {
      const found = fields.get(name)
      if (found === undefined) return otherwise
      if (holds(found)) return Object.is(found, -0) ? (0 as T) : found
      faults.push(badOption(`${at}.${name}`, wanted, found))
      return otherwise
    }
  const fields = knownFields(given, 'allocator', names, faults)
  const pinnedFields = knownFields(fields.get('pinned'), 'allocator.pinned', pinnedNames, faults)
  const of = reader(fields, 'allocator')
  const ofPinned = reader(pinnedFields, 'allocator.pinned')

  const largeSegment = of('largeSegment', bytes(10 * MiB + 1), under.largeSegment ?? 20 * MiB)
  const keptUpTo = of('cacheUpTo', bound(0), under.cacheUpTo ?? none)
  const cacheUpTo = ofPinned('cacheUpTo', bound(0), under.pinned?.cacheUpTo ?? none)
  const resolved: ResolvedAllocatorOptions = {
    policy: of('policy', oneOf(policies), under.policy ?? 'order-then-grow'),
    limit: of('limit', bound(0), under.limit ?? none),
    fraction: of('fraction', share, under.fraction ?? 1),
    expandable: of('expandable', flag, keptUpTo === none && (under.expandable ?? true)),
    cacheUpTo: keptUpTo,
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
    divisions: stepsByInterval(fields.get('divisions') ?? under.divisions ?? 0, faults),
    pinned: {
      limit: ofPinned('limit', bound(0), under.pinned?.limit ?? none),
      // A block that goes straight back to the driver is not worth rounding.
      roundUpTo: Math.min(ofPinned('roundUpTo', bound(0), under.pinned?.roundUpTo ?? 0), cacheUpTo),
      cacheUpTo,
      reserveFirst: ofPinned('reserveFirst', bytes(0), under.pinned?.reserveFirst ?? 0),
    },
  }
  return faults.length > 0 ? E.left(faults) : E.right(resolved)
}

const share = between('a share of the device, from 0 to 1', value => value >= 0 && value <= 1)
const shareBelowOne = between('0, or a share between 0 and 1', value => value >= 0 && value < 1)

// The allocator holds the number of steps in 32 bits.
const steps = check<number>(
  '0, or a power of two up to 2147483648',
  value => value === 0 || (isPowerOfTwo(value) && value <= 2 ** 31),
)
const largestFrom = MiB * 2 ** (divisionCount - 1)
const from = check<number>(
  `bytes, a power of two from ${MiB} to ${largestFrom}`,
  value => isPowerOfTwo(value) && value >= MiB && value <= largestFrom,
)

/**
 * The steps of each interval, from one number for all, or from a list whose entries each count up to the next
 * one.
 */
const stepsByInterval = (given: unknown, faults: OptionFault[]): readonly number[] => {
  const at = 'allocator.divisions'
  const result = Array.from({ length: divisionCount }, () => 0)
  if (steps.holds(given)) return result.fill(given + 0)
  const items = itemsOf(given, divisionCount)
  if (items === undefined)
    faults.push(
      badOption(at, `${steps.wanted}; or a list of up to ${divisionCount} of { from, steps }`, given),
    )
  let last = 0
  for (const [index, item] of (items ?? []).entries()) {
    const place = `${at}[${index}]`
    if (fieldsOf(item) === undefined) {
      faults.push(badOption(place, 'an object { from, steps }', item))
      continue
    }
    const fields = knownFields(item, place, ['from', 'steps'], faults)
    const [start, count] = [fields.get('from'), fields.get('steps')]
    if (!from.holds(start)) faults.push(badOption(`${place}.from`, from.wanted, start))
    else if (start <= last)
      faults.push(badOption(`${place}.from`, `more than ${last}, the entry before it`, start))
    if (!steps.holds(count)) faults.push(badOption(`${place}.steps`, steps.wanted, count))
    if (from.holds(start) && steps.holds(count)) result.fill(count + 0, Math.log2(start / MiB))
    if (from.holds(start)) last = Math.max(last, start)
  }
  return result
}

/** The shortest list of divisions with these steps by interval. */
export const divisionList = (stepsOf: readonly number[]): readonly SizeDivision[] =>
  stepsOf.flatMap((count, index) =>
    count === (stepsOf[index - 1] ?? 0) ? [] : [{ from: MiB * 2 ** index, steps: count }],
  )

/** The most bytes that may be held on a device of `deviceBytes`; `Infinity` where there is no bound. */
export const limitOn = ({ limit, fraction }: ResolvedAllocatorOptions, deviceBytes: number): number =>
  Math.min(limit, fraction < 1 ? Math.floor(fraction * deviceBytes) : none)
