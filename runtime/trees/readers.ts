import type { HostArray } from '../../dsl/index.js'
import type { NativeSequence } from '../addon.js'
import { AllocatorError } from '../device/allocator-error.js'
import { type Block, lendBlock, revokeLoan, type Span, sharedHandle } from '../device/block.js'
import type { Core } from '../device/core.js'
import type { Device } from '../device/device.js'
import { endingWith, quietly } from '../device/ending.js'
import { type Lane, makeLane } from '../device/lane.js'
import { laneAccess } from '../device/lane-access.js'
import { arrayOver } from '../values.js'
import type { CopiedOut } from './copied-out.js'
import { type Handle, partsOf } from './handle.js'
import * as messages from './messages.js'
import type { Slots } from './slots.js'

export interface TreeMemory {
  readonly device: Device
  readonly core: Core
  /** The tree's own lane: for what is copied before a launch, and after it. */
  readonly lane: Lane
  readonly sequence: NativeSequence
  readonly arena: Block | undefined
  /** Is told of blocks of the caller's, where the Device is closed with the tree. */
  readonly copiedOut: CopiedOut | undefined
}

/** Makes a lane come after the launch that was issued last. */
export const orderAfterLaunches = ({ sequence, core }: TreeMemory, lane: Lane): void => {
  const status = sequence.order(laneAccess.idFor(lane, core, 'tree.launch'))
  if (status !== 0) throw core.failed(status, 'tree.launch', 'the arena')
}

/** Who reads values of the arena beside the tree's launches. */
export class Readers {
  /** Reads that have been asked for, until the tree's memory and lane are no longer needed for them. */
  private readonly pending = new Set<Promise<void>>()

  constructor(
    private readonly memory: TreeMemory,
    private readonly slots: Slots,
  ) {}

  /** Throws where the lane does not run what it is given. */
  checkLane(lane: unknown, at: string): void {
    laneAccess.idFor(lane, this.memory.core, at)
  }

  /** The same, or the body is none. */
  check(lane: unknown, body: unknown): void {
    this.checkLane(lane, 'handle.use')
    if (typeof body !== 'function') throw messages.notABody(body)
  }

  /** Gives a lane of the caller's work on a value. The span is of no use once the body has returned. */
  use<A>(handle: Handle, lane: Lane, body: (span: Span) => A): Promise<A> {
    const { core, arena } = this.memory
    const { slot, origin, spec } = partsOf(handle)
    return this.give(handle, lane, ({ address }) => {
      const value = `${origin.plan}.${slot.output}`
      const block = lendBlock(core, {
        ...{ handle: sharedHandle(arena!), address, size: spec.bytes, bytes: spec.bytes, briefly: true },
        lane: makeLane(core, -1, 0n, value, 'session'),
        lender: ["a value of a plan tree, whose memory is the tree's", 'leave it as it is'],
      })
      try {
        return body(block.at(0, spec.bytes))
      } finally {
        revokeLoan(block, at => messages.endedUse(at, slot.output, origin))
      }
    })
  }

  /** Gives a lane work on a value, after the launch that makes it, and marks the use. */
  private give<A>(handle: Handle, lane: Lane, body: (span: Span) => A): Promise<A> {
    const { slot, submitted, spec } = partsOf(handle)
    const given = (async (): Promise<{ readonly value: A }> => {
      await this.memory.sequence.whenIssued(await submitted.get())
      // It may be another lane than when it was checked: disposed of, or being captured.
      laneAccess.idFor(lane, this.memory.core, 'handle.use')
      orderAfterLaunches(this.memory, lane)
      const mark = (): void => this.slots.use(slot, lane, lane.record())
      let value: A
      try {
        value = body(this.memory.arena!.at(slot.from, spec.bytes))
      } catch (error) {
        quietly(mark)
        throw error
      }
      mark()
      // In an object, so that no launch and no close waits for what an async body returns.
      return { value }
    })()
    this.slots.reading(slot, this.waitedFor(given))
    return this.orFailure(handle, async () => (await given).value)
  }

  /** Resolves when a read has ended in either way. Until then the tree is not closed. */
  private waitedFor(read: Promise<unknown>): Promise<void> {
    const over = (): void => void this.pending.delete(ended)
    const ended = read.then(over, over)
    this.pending.add(ended)
    return ended
  }

  /** Resolves when no read is pending. */
  async drained(): Promise<void> {
    while (this.pending.size > 0) await Promise.all(this.pending)
  }

  read(handle: Handle): Promise<HostArray> {
    const read = this.copyOut(handle)
    void this.waitedFor(read)
    return read
  }

  private async copyOut(handle: Handle): Promise<HostArray> {
    const { spec } = partsOf(handle)
    const { device, lane } = this.memory
    const block = device.pinned(Math.max(1, spec.bytes), lane, { site: 'plan tree: read value' })
    return endingWith(
      () =>
        this.orFailure(handle, async () => {
          using event = await this.give(handle, lane, span => {
            lane.copy(block, span, spec.bytes)
            return lane.record()
          })
          await event.synchronize()
          return arrayOver(block.view(), 0, spec).slice() as HostArray
        }),
      () => block.free(),
    )
  }

  /**
   * Where a call of the device fails, and the launch that makes the value has failed, that is why: its
   * failure is the error.
   */
  private async orFailure<A>(handle: Handle, body: () => Promise<A>): Promise<A> {
    try {
      return await body()
    } catch (error) {
      const { owner, origin, ended } = partsOf(handle)
      if (!(error instanceof AllocatorError && error._tag === 'DriverFailed')) throw error
      await ended.get().catch(() => undefined)
      throw owner.failureOf(origin) ?? error
    }
  }

  /** Copies a value out of the arena, into a block of the caller's whose home is the lane. */
  copy(handle: Handle, lane: Lane): Promise<Block> {
    const { spec, origin, slot } = partsOf(handle)
    const { device } = this.memory
    return this.give(handle, lane, span => {
      // No block is of no bytes.
      const block = device.malloc(Math.max(1, spec.bytes), lane, { site: `${origin.plan}.${slot.output}` })
      try {
        lane.copy(block, span)
        this.memory.copiedOut?.add(block)
      } catch (error) {
        quietly(() => block.free())
        throw error
      }
      return block
    })
  }

  /** As each launch does with what is declared as owned, on the tree's own lane. */
  takeOut(handle: Handle): Promise<Block> {
    return this.copy(handle, this.memory.lane)
  }
}
