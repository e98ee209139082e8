import type { NativeShortage } from '../addon.js'
import { size } from '../values.js'
import { AllocatorError } from './allocator-error.js'

/** The live blocks that were allocated at one place. */
export interface Holder {
  readonly bytes: number
  readonly count: number
  /** A label, or file and line; empty where places were not kept. */
  readonly site: string
}

/** An allocation that cannot be served, and the state of memory. Sizes in bytes. */
export interface Shortage {
  readonly memory: 'device' | 'pinned'
  readonly wanted: number
  /** After rounding. */
  readonly size: number
  /** Bytes held from the driver, and the most that may be held; undefined where there is no limit. */
  readonly reserved: number
  readonly limit: number | undefined
  /**
   * Parts of the reserved bytes: in blocks that are owned; in freed blocks with uses that have not completed;
   * free.
   */
  readonly live: number
  readonly pending: number
  readonly free: number
  /** The longest free piece. */
  readonly longestFree: number
  /** Reserved by pools that this allocation may not use. */
  readonly otherPools: number
  /** The bytes that the pool's own allocator was asked for and did not give; 0: none was asked. */
  readonly asked: number
  readonly deviceFree: number
  readonly deviceTotal: number
  /** The largest first. */
  readonly holders: readonly Holder[]
}

export const shortageOf = (
  memory: Shortage['memory'],
  given: NativeShortage,
  words: (site: number) => string,
): Shortage => ({
  memory,
  ...given,
  limit: given.limit ?? undefined,
  holders: given.holders.map(({ bytes, count, site }) => ({ bytes, count, site: words(site) })),
})

/** The settings of the allocator that the advice depends on. */
export interface Setting {
  readonly device: string
  readonly expandable: boolean
  readonly waits: boolean
  readonly sitesKept: boolean
}

const holding = (shortage: Shortage): string => {
  const known = shortage.holders.filter(({ site }) => site !== '').slice(0, 5)
  if (known.length === 0) return ''
  const lines = known.map(
    ({ bytes, count, site }) => `${size(bytes)} in ${count} ${count === 1 ? 'block' : 'blocks'} from ${site}`,
  )
  return `; held by ${lines.join('; ')}`
}

const unusable = ({ pending, free, longestFree, otherPools }: Shortage): string => {
  const parts = [
    free > 0 ? `${size(free)} are free, the longest piece ${size(longestFree)}` : '',
    pending > 0 ? `${size(pending)} are freed but other lanes may still use them` : '',
    otherPools > 0 ? `${size(otherPools)} belong to other pools` : '',
  ].filter(Boolean)
  return parts.length === 0 ? '' : `; ${parts.join(', ')}`
}

// Names only changes that could help: an option that is on already is not advised.
const advice = (shortage: Shortage, setting: Setting): string => {
  const { size: wanted, reserved, limit, free, pending, otherPools, deviceFree, memory } = shortage
  const byLimit = limit !== undefined && reserved + wanted > limit && deviceFree >= wanted
  const parts: string[] = []
  if (shortage.asked > 0) {
    parts.push("let the pool's own allocator give memory, or allocate outside of the pool")
    parts.push('free blocks of the pool sooner')
    return parts.join('; ')
  }
  if (byLimit)
    parts.push(
      memory === 'device'
        ? 'raise allocator.limit or allocator.fraction: the device itself has room'
        : 'raise allocator.pinned.limit',
    )
  if (memory === 'device' && free >= wanted && !setting.expandable)
    parts.push('allocator.expandable: true, which joins what lies free in pieces')
  if (pending > 0 && !setting.waits) parts.push("a policy that waits for pending uses, 'order-then-wait'")
  if (otherPools >= wanted)
    parts.push('close pools that are no longer used, or make them with useOnOutOfMemory: true')
  if (!byLimit && deviceFree + reserved < shortage.deviceTotal / 2 && deviceFree < wanted)
    parts.push('look for other processes on the device, which hold most of it')
  parts.push('free blocks sooner, or ask for less')
  if (!setting.sitesKept) parts.push('Device.open with development: true names who holds the memory')
  return parts.join('; ')
}

/** No memory for an allocation, after every step of the policy's fallback chain. */
export class OutOfMemoryError extends AllocatorError implements Omit<Shortage, 'wanted'> {
  declare readonly _tag: 'OutOfMemory'
  declare readonly code: 'CUDA_ERROR_OUT_OF_MEMORY'
  readonly memory: Shortage['memory']
  readonly size: number
  readonly wantedBytes: number
  readonly reserved: number
  readonly limit: number | undefined
  readonly live: number
  readonly pending: number
  readonly free: number
  readonly longestFree: number
  readonly otherPools: number
  readonly asked: number
  readonly deviceFree: number
  readonly deviceTotal: number
  readonly holders: readonly Holder[]

  constructor(at: string, shortage: Shortage, setting: Setting, cause?: unknown) {
    const { memory, wanted, reserved, limit, live, deviceFree, deviceTotal } = shortage
    const allowed = limit === undefined ? '' : ` of the ${size(limit)} allowed`
    const held = `${size(reserved)} are reserved${allowed}, ${size(live)} of them in use`
    const rest =
      shortage.asked > 0
        ? `the pool's own allocator gave none of the ${size(shortage.asked)} that it was asked for; `
        : memory === 'device'
          ? `${size(deviceFree)} of ${size(deviceTotal)} free on the device; `
          : ''
    super(
      {
        _tag: 'OutOfMemory',
        at,
        subject: setting.device,
        wanted: `${size(wanted)} of ${memory === 'device' ? 'device' : 'pinned host'} memory`,
        found: `${rest}${held}${unusable(shortage)}${holding(shortage)}`,
        next: advice(shortage, setting),
      },
      { code: 'CUDA_ERROR_OUT_OF_MEMORY', ...(cause === undefined ? {} : { cause }) },
    )
    this.name = 'OutOfMemoryError'
    this.memory = memory
    this.size = shortage.size
    this.wantedBytes = wanted
    this.reserved = reserved
    this.limit = limit
    this.live = live
    this.pending = shortage.pending
    this.free = shortage.free
    this.longestFree = shortage.longestFree
    this.otherPools = shortage.otherPools
    this.asked = shortage.asked
    this.deviceFree = deviceFree
    this.deviceTotal = deviceTotal
    this.holders = shortage.holders
  }
}
