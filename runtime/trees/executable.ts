import type { HostArray, Lease } from '../../dsl/index.js'
import type { Plan } from '../../dsl/ir/plan.js'
import type { NativeBuffer, NativeDevice, NativeFailure, NativeProgram, NativeProgramSpec } from '../addon.js'
import { flatten, rootOf } from '../session/flatten.js'
import { type LeaseOwner, makeLease, watchLease } from '../session/lease.js'
import { inputViews, type Port, portsOf, viewsOf } from '../session/ports.js'
import { Ticks } from '../session/ticks.js'
import { fill } from '../values.js'
import { graphBytes } from './graph-bytes.js'

/**
 * What launches one node: kernels that are ready, with every address in them. A node's executable may be
 * closed and made again: its layout stays, so the addresses do too.
 */
export interface Executable extends LeaseOwner {
  readonly ticks: Ticks
  /** Bytes that it takes beside the arena, those of executable graphs as they are estimated. */
  readonly bytes: number
  readonly graphLaunches: number
  readonly inputs: readonly Port[]
  /**
   * Fills the inputs that come from the host, and launches. `uses` are events that the launch comes after.
   */
  submit(feeds: ReadonlyMap<string, HostArray>, uses: readonly number[] | undefined, done: Done): void
  close(): Promise<void>
}

type Done = (failure: NativeFailure | null, lease: Lease<unknown> | undefined) => void

/** Memory that several programs have, by buffer of a plan: the number of its block. */
export type Blocks = ReadonlyMap<number, number>

const paramLife = 2

/**
 * A plan with places as the executor reads it. The arena is one buffer that it shares with other programs, as
 * a parameter is, and every placed buffer is a view of it.
 */
export const specInArena = (
  plan: Plan,
  arenaBytes: number,
  apart: Blocks,
): {
  readonly spec: NativeProgramSpec
  readonly flat: ReturnType<typeof flatten>
  readonly arena: number
} => {
  const flat = flatten(plan)
  const arena = plan.buffers.length
  const buffers = flat.spec.buffers.map((buffer, id): NativeBuffer => {
    const { root, offset } = rootOf(plan, id)
    const place = plan.buffers[root]!.offset
    if (place !== undefined)
      return { ...buffer, life: paramLife, root: arena, rootOffset: place + offset, arenaOffset: -1 }
    return apart.has(root) ? { ...buffer, life: paramLife, arenaOffset: -1 } : buffer
  })
  const whole: NativeBuffer = {
    name: 'arena',
    bytes: arenaBytes,
    space: 0,
    home: 0,
    life: paramLife,
    root: arena,
    rootOffset: 0,
    arenaOffset: -1,
    device: 0,
  }
  const spec = {
    ...flat.spec,
    buffers: [...buffers, whole],
    arenaBytes: [0],
    bound: { device: [2 ** 50], pinned: 2 ** 50 },
  }
  return { spec, flat, arena }
}

/** An executable over a program of the executor. */
export class ProgramExecutable implements Executable {
  readonly ticks: Ticks
  readonly inputs: readonly Port[]
  private readonly outputs: readonly Port[]
  private readonly views: readonly (readonly (readonly HostArray[])[])[]
  private readonly arrays: (slot: number) => readonly HostArray[]
  private readonly done: (Done | undefined)[] = []
  private readonly ofGraphs: number
  private closing: Promise<void> | undefined

  constructor(
    plan: Plan,
    private readonly program: NativeProgram,
    device: NativeDevice,
    private readonly onFree: () => void,
  ) {
    this.ofGraphs = graphBytes(plan, device.info.kind)
    const isPinned = ({ root }: Port): boolean => plan.buffers[root]!.space === 'pinned'
    this.ticks = new Ticks(plan.inFlight)
    this.inputs = portsOf(plan, 'input').filter(isPinned)
    this.outputs = portsOf(plan, 'output').filter(isPinned)
    this.views = inputViews(program, this.inputs, plan.inFlight)
    this.arrays = viewsOf(program, this.outputs)
    program.onTick((tick, failure) => this.completed(tick, failure))
  }

  get bytes(): number {
    const { pinned, reserved } = this.program.stats()
    return pinned + reserved + this.ofGraphs
  }

  get graphLaunches(): number {
    return this.program.stats().graphLaunches
  }

  submit(feeds: ReadonlyMap<string, HostArray>, uses: readonly number[] | undefined, done: Done): void {
    const tick = this.ticks.next
    const slot = this.ticks.slot(tick)
    this.inputs.forEach(({ spec, rate }, input) => {
      const value = feeds.get(spec.name)!
      const length = value.length / rate
      this.views[slot]![input]!.forEach((place, part) => {
        fill(place, rate === 1 ? value : value.subarray(part * length, (part + 1) * length), spec)
      })
    })
    this.program.submit(tick, slot, uses)
    this.done[tick % this.ticks.size] = done
    this.ticks.submit()
  }

  giveBack(tick: number): void {
    if (this.closing) return
    this.ticks.giveBack(tick)
    this.onFree()
  }

  close(): Promise<void> {
    this.closing ??= this.program.close()
    return this.closing
  }

  private completed(tick: number, failure: NativeFailure | null): void {
    const slot = this.ticks.slot(tick)
    const leased = failure === null && this.outputs.length > 0
    this.ticks.complete(tick, leased)
    const done = this.done[tick % this.ticks.size]!
    this.done[tick % this.ticks.size] = undefined
    if (!leased) {
      done(failure, undefined)
      return
    }
    const lease = makeLease(tick, this.outputs, this.arrays(slot), this, view => this.program.detach(view))
    watchLease(lease, tick, this)
    done(null, lease)
  }
}
