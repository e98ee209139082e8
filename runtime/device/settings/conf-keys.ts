// One table: each key that PyTorch's allocator settings have had, what its value may be, and what becomes of it here. Sources:
// `AcceleratorAllocatorConfig` and `CUDAAllocatorConfig` of PyTorch, up to 2.14 and what was added since.
import { divisionsOf, largestWord, wholeOf } from './conf-divisions.js'
import type { ConfValue } from './conf-syntax.js'
import type { AllocatorOptions, PinnedOptions } from './options.js'
import { divisionList } from './options-divisions.js'
import { MiB } from './options-read.js'

export type Outcome =
  | { readonly effect: 'honoured'; readonly why: string; readonly options: AllocatorOptions }
  | { readonly effect: 'noted'; readonly why: string }
  | { readonly effect: 'bad'; readonly wanted: string; readonly found: string; readonly at: number }
  | { readonly effect: 'refused'; readonly wanted: string; readonly why: string; readonly next: string }

/** What other settings of the same text say, wherever they stand. */
export interface ConfContext {
  readonly largeSegmentMb: bigint
}

export interface ConfKey {
  /** The key, and what else it is called. */
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

// More bytes than a number of JavaScript counts are more than any machine has: no bound, or the largest there is.
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
      "the driver is asked for memory under the allocator's mutex, which a lane that finds a block in its own cache does not take",
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
      'an allocation under the default policy asks the driver nothing, so there is no polling to move to a thread',
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
    "the driver's own pool knows no lanes: it would reuse memory without regard to the uses that are recorded here",
    'leave backend out',
  )

const byName = new Map(confKeys.flatMap(key => key.names.map(name => [name, key] as const)))

/** Every name that a key may be given by. */
export const confKeyNames: readonly string[] = [...byName.keys()]

export const confKeyOf = (name: string): ConfKey | undefined => byName.get(name)
