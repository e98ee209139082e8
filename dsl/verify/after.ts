import { quotedLane, quotedNode } from '../ir/names.js'
import type { PlanNode } from '../ir/plan.js'
import { type CommandTable, Op } from '../order/command-table.js'
import { Frontiers } from '../order/frontiers.js'
import type { Sink } from './report.js'

type Orders = NonNullable<PlanNode['after']>

/** A plan of somebody else's may say anything: the loader tells what is wrong with it. */
const ordersOf = ({ after }: PlanNode): Orders =>
  (Array.isArray(after) ? after.filter(Array.isArray) : []) as unknown as Orders

/**
 * L10: each run comes after what its node says it comes after: after the end of that node's run of the same tick, or after its start, which is the point of its lane right
 * before it. So a lane that has come as far as the start of a run is after all that the run waits for, and after all that the lane did before.
 *
 * Replayed by itself, since few plans have any such order. Two ticks decide, as for every law (see Frontiers).
 */
export class After {
  /** By node: 1 where another node comes after it. */
  private readonly named: Uint8Array
  private readonly clock: Frontiers
  /** By node: its latest run's command in this tick (-1: none yet), and the point of its lane before that. */
  private readonly run: Int32Array
  private readonly point: Int32Array

  private constructor(
    private readonly tables: CommandTable,
    private readonly sink: Sink,
  ) {
    const { nodes } = tables.plan
    this.named = new Uint8Array(nodes.length)
    for (const node of nodes) for (const [other] of ordersOf(node)) this.named[other] = 1
    this.clock = new Frontiers(tables)
    this.run = new Int32Array(nodes.length)
    this.point = new Int32Array(nodes.length)
  }

  /** Undefined where no node says that it comes after another one. */
  static of(tables: CommandTable, sink: Sink): After | undefined {
    return tables.ordered ? new After(tables, sink) : undefined
  }

  /** Replays the plan, leaving out the wait `dropped` (-1: none); stops as soon as the sink is full. */
  replay(dropped = -1): void {
    const { tables, clock, sink, run, point, named } = this
    const { op, lane, subject, commands } = tables
    clock.restart(dropped)
    for (let tick = 0; tick < 2 && !sink.full; tick++) {
      clock.begin()
      run.fill(-1)
      for (let c = 0; c < commands && !sink.full; c++) {
        if (op[c] === Op.run) {
          this.judge(c)
          if (named[subject[c]!] === 1) {
            run[subject[c]!] = c
            point[subject[c]!] = clock.known[lane[c]! * (clock.lanes + 1)]!
          }
        }
        clock.step(c)
      }
    }
  }

  private judge(c: number): void {
    const { tables, clock, sink, run, point } = this
    const { plan, lane, subject } = tables
    const l = lane[c]!
    for (const [node, when] of ordersOf(plan.nodes[subject[c]!]!)) {
      const earlier = run[node] ?? -1
      const said = `${quotedNode(plan, subject[c]!)} is to come after the ${when === 'start' ? 'start' : 'end'} of ${quotedNode(plan, node)}`
      if (earlier < 0) {
        sink.add('L10', c, { lane: l }, () => `${said}, which is not issued before it`)
        continue
      }
      const wanted = point[node]! + (when === 'start' ? 0 : 1)
      if (clock.covers(l, lane[earlier]!, wanted)) continue
      sink.add(
        'L10',
        c,
        { lane: l },
        () =>
          `${said}, commands[${earlier}] on ${quotedLane(plan, lane[earlier]!)}; ${quotedLane(plan, l)} waits for no event that follows it`,
      )
    }
  }
}
