import type { HostArray } from '../../dsl/index.js'
import type { NativeSequence } from '../addon.js'
import type { Block, Span } from '../device/block.js'
import type { Core } from '../device/core.js'
import type { Device } from '../device/device.js'
import type { Lane } from '../device/lane.js'
import { arrayOver } from '../values.js'
import { type Handle, partsOf } from './handle.js'
import type { Slots } from './slots.js'

export interface TreeMemory {
  readonly device: Device
  readonly core: Core
  /** The tree's own lane: for what is copied before a launch, and after it. */
  readonly lane: Lane
  readonly sequence: NativeSequence
  readonly arena: Block | undefined
}

/** Makes a lane come after the launch that was issued last. */
export const orderAfterLaunches = ({ sequence, core }: TreeMemory, lane: Lane): void => {
  const status = sequence.order(lane.stream)
  if (status !== 0) throw core.failed(status, 'tree.launch', 'the arena')
}

/** Who reads values of the arena beside the tree's launches. */
export class Readers {
  constructor(
    private readonly memory: TreeMemory,
    private readonly slots: Slots,
  ) {}

  /** Gives a lane work on a value, after the launch that makes it, and marks the use. */
  use<A>(handle: Handle, lane: Lane, body: (span: Span) => A): Promise<A> {
    const { slot, submitted, spec } = partsOf(handle)
    const given = (async (): Promise<A> => {
      await this.memory.sequence.whenIssued(await submitted.get())
      orderAfterLaunches(this.memory, lane)
      try {
        return body(this.memory.arena!.at(slot.from, spec.bytes))
      } finally {
        this.slots.use(slot, lane, lane.record())
      }
    })()
    const ignored = (): void => undefined
    this.slots.reading(slot, given.then(ignored, ignored))
    return given
  }

  async read(handle: Handle): Promise<HostArray> {
    const { spec } = partsOf(handle)
    const { device, lane } = this.memory
    using block = device.pinned(Math.max(1, spec.bytes), lane, { site: 'plan tree: read value' })
    using event = await this.use(handle, lane, span => {
      lane.copy(block, span, spec.bytes)
      return lane.record()
    })
    await event.synchronize()
    return arrayOver(block.view(), 0, spec).slice() as HostArray
  }

  /** Copies a value out of the arena, into a block of the caller's. */
  takeOut(handle: Handle): Promise<Block> {
    const { spec, origin, slot } = partsOf(handle)
    const { device, lane } = this.memory
    return this.use(handle, lane, span => {
      const block = device.malloc(spec.bytes, lane, { site: `${origin.plan}.${slot.output}` })
      lane.copy(block, span)
      return block
    })
  }
}
