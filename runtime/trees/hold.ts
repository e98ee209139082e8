import type { HostArray } from '../../dsl/index.js'
import type { Where } from '../../dsl/ir/graph.js'
import type { Block, Span } from '../device/block.js'
import type { Lane } from '../device/lane.js'
import type { Handle } from './handle.js'
import type { Feeds, Launch, LaunchOwner } from './launch.js'
import type { Launcher } from './launcher.js'
import type { TreeError } from './messages.js'
import type { Origin, Slot } from './slots.js'

/**
 * What a program holds of a tree: by the tree itself, by its launches and by its handles. Nothing that the addon
 * calls may refer to it, so that it is garbage once the program has let go of them all.
 */
export class TreeHold implements LaunchOwner {
  constructor(private readonly launcher: Launcher) {}

  launch(plan: string, feeds: Feeds, at: Where): Launch {
    return this.launcher.launch(this, plan, feeds, at)
  }
  onward(after: Origin, plan: string, feeds: Feeds, at: Where): Launch {
    return this.launcher.onward(this, after, plan, feeds, at)
  }
  problem(slot: Slot, origin: Origin): string | undefined {
    return this.launcher.problem(slot, origin)
  }
  failureOf(origin: Origin): TreeError | undefined {
    return this.launcher.failureOf(origin)
  }
  checkUse(lane: unknown, body: unknown): void {
    this.launcher.checkUse(lane, body)
  }
  use<A>(handle: Handle, lane: Lane, body: (span: Span) => A): Promise<A> {
    return this.launcher.use(handle, lane, body)
  }
  copy(handle: Handle, lane: Lane | undefined): Promise<Block> {
    return this.launcher.copy(handle, lane)
  }
  read(handle: Handle): Promise<HostArray> {
    return this.launcher.read(handle)
  }
}
