// The table of keys: each key that PyTorch's allocator settings have had, the values that it may have, and
// what it sets here. Sources: `AcceleratorAllocatorConfig` and `CUDAAllocatorConfig` of PyTorch, up to 2.14
// and its additions since.
import type { ConfValue } from './conf-syntax.js'
import { type AllocatorOptions, divisionCount, divisionList, MiB, type PinnedOptions } from './options.js'

export type Outcome =
  | { readonly effect: 'honoured'; readonly why: string; readonly options: AllocatorOptions }
  | { readonly effect: 'noted'; readonly why: string }
  | { readonly effect: 'bad'; readonly wanted: string; readonly found: string; readonly at: number }
  | { readonly effect: 'refused'; readonly wanted: string; readonly why: string; readonly next: string }

/** What a key needs to know of the other settings of the text, wherever they stand. */
export interface ConfContext {
  readonly largeSegmentMb: bigint
}

export interface ConfKey {
  /** The key's name, then its other names. */
  readonly names: readonly [string, ...string[]]
  readonly read: (value: ConfValue, context: ConfContext) => Outcome
}

const honoured = (options: AllocatorOptions, why: string): Outcome => ({ effect: 'honoured', why, options })
const noted = (why: string): Outcome => ({ effect: 'noted', why })
const refused = (wanted: string, why: string, next: string): Outcome => ({
  effect: 'refused',
  wanted,
  why,
  next,
})
const bad = (wanted: string, value: ConfValue): Outcome =>
  value.kind === 'word'
    ? { effect: 'bad', wanted, found: value.word.text, at: value.word.at }
    : { effect: 'bad', wanted, found: 'a list', at: value.at }

type Names = ConfKey['names']

const words = (names: Names, outcomes: Readonly<Record<string, () => Outcome>>): ConfKey => ({
  names,
  read: value => {
    const text = value.kind === 'word' ? value.word.text : ''
    return Object.hasOwn(outcomes, text) ? outcomes[text]!() : bad(Object.keys(outcomes).join(' or '), value)
  },
})

const flag = (names: Names, outcome: (on: boolean) => Outcome): ConfKey =>
  words(names, { True: () => outcome(true), False: () => outcome(false) })

const whole = (
  names: Names,
  least: (context: ConfContext) => bigint,
  outcome: (number: bigint) => Outcome,
): ConfKey => ({
  names,
  read: (value, context) => {
    const number = value.kind === 'word' ? wholeOf(value.word.text) : undefined
    const from = least(context)
    return number !== undefined && number >= from
      ? outcome(number)
      : bad(`a whole number from ${from} to ${largestWord}`, value)
  },
})

const decimal = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i

const share = (
  names: Names,
  wanted: string,
  holds: (share: number) => boolean,
  outcome: (share: number) => Outcome,
): ConfKey => ({
  names,
  read: value => {
    const number =
      value.kind === 'word' && decimal.test(value.word.text) ? Number(value.word.text) : Number.NaN
    return holds(number) ? outcome(number + 0) : bad(wanted, value)
  },
})

// A number of bytes that JavaScript cannot count exactly is larger than any machine: it becomes no bound, or
// the largest number.
const bytesOf = (mebibytes: bigint): number => {
  const bytes = Number(mebibytes) * MiB
  return Number.isSafeInteger(bytes) ? bytes : Number.POSITIVE_INFINITY
}
const finite = (mebibytes: bigint): number => Math.min(bytesOf(mebibytes), Number.MAX_SAFE_INTEGER)

const from = (least: bigint) => (): bigint => least
const pinned = (options: PinnedOptions, why: string): Outcome => honoured({ pinned: options }, why)

const notAClass = 'a range of addresses is reserved for all of the device, since addresses cost no memory'
const reserve = /^(\d+\.?\d*|\.\d+)(e[+-]?\d+)?g?$/i
const isReserve = (text: string): boolean => {
  const number = Number(text.replace(/g$/i, ''))
  return reserve.test(text) && number > 0 && Number.isFinite(number)
}
const reserveWanted = 'a share of the device above 0, as 0.5, or GiB, as 40G'

export const confKeys: readonly ConfKey[] = [
  words(['backend'], {
    native: () => noted('there is one allocator here, and it caches as this one does'),
    cudaMallocAsync: () => async(),
    hipMallocAsync: () => async(),
  }),
  flag(['expandable_segments'], on =>
    honoured({ expandable: on }, on ? 'the default here' : 'memory is taken in plain segments'),
  ),
  whole(
    ['max_split_size_mb'],
    context => context.largeSegmentMb,
    mb =>
      honoured(
        { maxSplit: bytesOf(mb) },
        'blocks of plain segments; those of expandable ones are split, since they merge again',
      ),
  ),
  whole(
    ['max_non_split_rounding_mb'],
    context => context.largeSegmentMb,
    mb =>
      honoured(
        { maxNonSplitRounding: finite(mb) },
        'counts for sizes from max_split_size_mb on, in plain segments',
      ),
  ),
  whole(['large_segment_size_mb'], from(11n), mb =>
    honoured(
      { largeSegment: finite(mb) },
      "plain segments for sizes from 1 to 10 MiB; expandable ones grow by the driver's pages",
    ),
  ),
  {
    names: ['roundup_power2_divisions'],
    read: value => {
      const steps = divisionsOf(value)
      return 'wanted' in steps
        ? { effect: 'bad', ...steps }
        : honoured({ divisions: divisionList(steps) }, 'sizes are rounded up as PyTorch does')
    },
  },
  share(
    ['garbage_collection_threshold'],
    'a number between 0 and 1, without them',
    x => x > 0 && x < 1,
    x =>
      honoured(
        { collectAbove: x },
        'under a limit, and of plain segments: as in PyTorch, expandable ones are left alone',
      ),
  ),
  share(
    ['per_process_memory_fraction'],
    'a number from 0 to 1',
    x => x >= 0 && x <= 1,
    x => honoured({ fraction: x }, "the most that is held, of the device's memory"),
  ),
  flag(['throw_on_cudamalloc_oom'], on =>
    honoured({ refuseEarly: on }, on ? 'what is beyond the limit fails at once' : 'the default here'),
  ),
  flag(['release_lock_on_cudamalloc', 'release_lock_on_hipmalloc'], () =>
    noted(
      "only calls that need the driver take the allocator's mutex: a lane that finds a block in its own cache does not",
    ),
  ),
  flag(['graph_capture_record_stream_reuse'], () =>
    noted("graphs are built from a plan's order, not captured: reuse inside of one is by its edges"),
  ),
  {
    names: ['expandable_segments_reserve'],
    read: value =>
      value.kind === 'word' && isReserve(value.word.text) ? noted(notAClass) : bad(reserveWanted, value),
  },
  {
    names: ['expandable_segments_reserve_by_class'],
    read: value => {
      if (value.kind === 'word') return bad('a list of class:share', value)
      const wrong = value.pairs.find(pair => !isReserve(pair.value.text))?.value
      return wrong === undefined
        ? noted(notAClass)
        : { effect: 'bad', wanted: reserveWanted, found: wrong.text, at: wrong.at }
    },
  },
  flag(['svm'], on =>
    on
      ? refused('svm:False', "shared virtual memory is of Intel's devices", 'leave svm out')
      : noted('the default here'),
  ),
  whole(['roundup_bypass_threshold_mb'], from(0n), () =>
    refused(
      'roundup_power2_divisions',
      'PyTorch has dropped this key',
      'end the list of roundup_power2_divisions with ">:0" after the last size to be rounded',
    ),
  ),
  flag(['pinned_use_cuda_host_register', 'pinned_use_hip_host_register'], () =>
    noted("pinned memory is the driver's own (cuMemHostAlloc); registering other memory gives the same"),
  ),
  {
    names: ['pinned_num_register_threads'],
    read: value => {
      const threads = value.kind === 'word' ? wholeOf(value.word.text) : undefined
      return threads !== undefined && threads <= 128n && threads > 0n && (threads & (threads - 1n)) === 0n
        ? noted('no memory is registered, so no thread has to')
        : bad('a power of two from 1 to 128', value)
    },
  },
  flag(['pinned_use_background_threads'], () =>
    noted(
      'under the default policy an allocation queries no event, so there is no polling to move to a thread',
    ),
  ),
  whole(['pinned_reserve_segment_size_mb'], from(1n), mb =>
    pinned({ reserveFirst: finite(mb) }, 'taken at the start, and kept'),
  ),
  whole(['pinned_max_round_threshold_mb'], from(0n), mb =>
    pinned(
      { roundUpTo: bytesOf(mb) },
      'sizes up to this become powers of two; without this key none do, which takes less memory',
    ),
  ),
  whole(['pinned_max_cached_size_mb'], from(0n), mb =>
    pinned({ cacheUpTo: bytesOf(mb) }, 'longer blocks go back at once, and are not rounded up'),
  ),
  flag(['pinned_free_catch_all'], () => noted('a free throws nothing here, whatever the driver says')),
]

const async = (): Outcome =>
  refused(
    'native',
    "the driver's own pool knows nothing of recorded uses: it would reuse memory too early",
    'leave backend out',
  )

/** An error in a value, and its place in the text. */
interface BadValue {
  readonly wanted: string
  readonly found: string
  readonly at: number
}

const largestWord = 2n ** 64n - 1n

/** A whole number as PyTorch reads it: 64 bits without a sign. Undefined for anything else. */
export const wholeOf = (text: string): bigint | undefined => {
  if (!/^\d+$/.test(text)) return undefined
  const digits = text.replace(/^0+(?=\d)/, '')
  const number = digits.length <= 20 ? BigInt(digits) : largestWord + 1n
  return number <= largestWord ? number : undefined
}

const isPower = (value: bigint): boolean => value > 0n && (value & (value - 1n)) === 0n
const mostSteps = 2n ** 31n
const stepsWanted = `0, or a power of two up to ${mostSteps}`

const stepsOf = (text: string): number | undefined => {
  const steps = wholeOf(text)
  return steps !== undefined && steps <= mostSteps && (steps === 0n || isPower(steps))
    ? Number(steps)
    : undefined
}

/**
 * The steps of the sixteen intervals of `roundup_power2_divisions`, exactly as PyTorch fills them. A single
 * number counts for all. In a list the first entry also counts for all intervals below its own, each other
 * entry only for its own, and `>` for all intervals after the last one that was named. All sizes from 32 GiB
 * on are one interval. Source: `AcceleratorAllocatorConfig::parseRoundUpPower2Divisions`.
 */
const divisionsOf = (value: ConfValue): readonly number[] | BadValue => {
  const result = Array.from({ length: divisionCount }, () => 0)
  if (value.kind === 'word') {
    const steps = stepsOf(value.word.text)
    return steps === undefined
      ? { wanted: `${stepsWanted}; or a list of MiB:steps`, found: value.word.text, at: value.word.at }
      : result.fill(steps)
  }
  let last = 0
  let first = true
  for (const { name, value: word } of value.pairs) {
    const steps = stepsOf(word.text)
    if (steps === undefined) return { wanted: stepsWanted, found: word.text, at: word.at }
    if (name.text === '>') {
      result.fill(steps, last + 1)
      continue
    }
    const mebibytes = wholeOf(name.text)
    if (mebibytes === undefined || !isPower(mebibytes))
      return { wanted: 'MiB, a power of two, or ">" for all that is larger', found: name.text, at: name.at }
    last = Math.min(mebibytes.toString(2).length, divisionCount) - 1
    if (first) result.fill(steps, 0, last)
    result[last] = steps
    first = false
  }
  return result
}

const byName = new Map(confKeys.flatMap(key => key.names.map(name => [name, key] as const)))

/** Every name that a key may be given by. */
export const confKeyNames: readonly string[] = [...byName.keys()]

export const confKeyOf = (name: string): ConfKey | undefined => byName.get(name)
