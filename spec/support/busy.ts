// What tests of the allocator do all the time: open a device that is hard on mistakes, keep a lane from going on, and look at memory.
import { orThrow } from '../../dsl/index.js'
import { hold } from '../../runtime/allocator/testing.js'
import {
  type AllocatorOptions,
  type Block,
  Device,
  type HostOptions,
  type Lane,
  type Span,
} from '../../runtime/index.js'

export { hold }

export const KiB = 1024
export const MiB = 1024 * KiB

/** A device of its own. On `host` freed memory holds garbage and lanes run at odd speeds; the memory is small, so that little goes far. */
export const deviceOf = async (
  name: string,
  allocator: AllocatorOptions = {},
  more: { readonly host?: HostOptions; readonly development?: boolean; readonly environment?: boolean } = {},
): Promise<Device> => {
  const { host, ...others } = more
  const shaken = { memory: 512 * MiB, poison: true, jitter: 11, jitterMicroseconds: 40, ...host }
  return orThrow(await Device.open(name, { allocator, ...others, ...(name === 'host' ? { host: shaken } : {}) })())
}

/** Pinned memory, got before anything is held back, that a lane copies a block into; `read` once the lane has come so far. */
export const mirrorOf = (device: Device, bytes: number, lane: Lane = device.defaultLane) => {
  const block = device.pinned(bytes, lane)
  const words = new Uint32Array(block.view())
  words.fill(0)
  return { block, words, all: (): readonly number[] => [...new Set(words)] }
}

/** The 32-bit words of a block or a part of one, behind everything that the lane was given. */
export const wordsOf = async (device: Device, lane: Lane, from: Block | Span): Promise<Uint32Array> => {
  using pinned = device.pinned(from.bytes, lane)
  lane.copy(pinned, from)
  await lane.synchronize()
  return new Uint32Array(pinned.view()).slice()
}

/** The distinct words of it: one, where it was filled and nobody else wrote to it. */
export const contentOf = async (device: Device, lane: Lane, from: Block | Span): Promise<readonly number[]> => [
  ...new Set(await wordsOf(device, lane, from)),
]

/**
 * Work that keeps a lane running for a while after the call and ends by itself: copies of a block onto itself, by halves. For calls that
 * block until a lane has come so far, where `hold` would never end, and for more work than a GPU takes behind a gate before its calls block.
 * How long it takes is the device's matter; nothing may depend on it.
 */
export const busy = (lane: Lane, scratch: Block, turns: number): void => {
  const half = Math.floor(scratch.bytes / 8) * 4
  const [low, high] = [scratch.at(0, half), scratch.at(half, half)]
  for (let turn = 0; turn < turns; turn++) lane.copy(turn % 2 === 0 ? high : low, turn % 2 === 0 ? low : high)
}

/**
 * Whether a promise has been settled within so many milliseconds: a moment, for what must not be so however long one waits; long, for what
 * will be so soon.
 */
export const settled = async (promise: Promise<unknown>, within = 20): Promise<boolean> => {
  const pending = Symbol('pending')
  let timer: NodeJS.Timeout | undefined
  const late = new Promise(resolve => {
    timer = setTimeout(resolve, within, pending)
  })
  const first = await Promise.race([promise.catch(() => undefined), late])
  clearTimeout(timer)
  return first !== pending
}

/** What a call throws. */
export const thrownBy = (call: () => unknown): unknown => {
  try {
    call()
  } catch (error) {
    return error
  }
  return undefined
}
