import { quotedLane, quotedNode } from '../ir/names.js'
import type { PlanNode } from '../ir/plan.js'
import { type CommandTable, Op } from '../order/command-table.js'
import { Replay } from '../order/replay.js'
import type { Sink } from './report.js'

type Orders = NonNullable<PlanNode['after']>

/** A plan of an invalid form may hold anything here. */
const ordersOf = ({ after }: PlanNode): Orders =>
  (Array.isArray(after) ? after.filter(Array.isArray) : []) as unknown as Orders

/**
 * L10: each run comes after the runs that its node names in `after`: after the end of that node's run of the
 * same tick, or after its start, which is the point of its lane right before it. A lane that happens-after
 * the start of a run happens-after everything that the run waits for, and everything that the lane did
 * before. L10 has a replay of its own, since few plans have such orders.
 */
export class After {
  private readonly replay: Replay
  /** By node: 1 where another node comes after it. */
  private readonly isNamed: Uint8Array
  /**
   * By node: the command of its latest run in this tick (-1: none yet), and the point of its lane before
   * that.
   */
  private readonly run: Int32Array
  private readonly point: Int32Array

  private constructor(
    private readonly table: CommandTable,
    private readonly sink: Sink,
  ) {
    const { nodes } = table.plan
    this.replay = new Replay(table)
    this.isNamed = new Uint8Array(nodes.length)
    for (const node of nodes) for (const [other] of ordersOf(node)) this.isNamed[other] = 1
    this.run = new Int32Array(nodes.length)
    this.point = new Int32Array(nodes.length)
  }

  /** Undefined where no node has such an order. */
  static of(table: CommandTable, sink: Sink): After | undefined {
    return table.ordered ? new After(table, sink) : undefined
  }

  /** Judges the plan without the wait `dropped` (-1: none); stops as soon as the sink is full. */
  judge(dropped = -1): void {
    const { table, replay, sink, run, point, isNamed } = this
    const { op, subject, commands } = table
    replay.restart(dropped)
    for (let tick = 0; tick < 2 && !sink.full; tick++) {
      replay.begin()
      run.fill(-1)
      for (let c = 0; c < commands && !sink.full; c++) {
        if (op[c] === Op.run) {
          const node = subject[c]!
          this.judgeRun(c)
          if (isNamed[node] === 1) {
            run[node] = c
            point[node] = replay.now(replay.laneOf(c))
          }
        }
        replay.step(c)
      }
    }
  }

  private judgeRun(c: number): void {
    const { table, replay, sink, run, point } = this
    const { plan, lane, subject } = table
    const l = lane[c]!
    for (const [node, when] of ordersOf(plan.nodes[subject[c]!]!)) {
      const earlier = run[node] ?? -1
      const end = `the ${when === 'start' ? 'start' : 'end'} of ${quotedNode(plan, node)}`
      const order = `${quotedNode(plan, subject[c]!)} is to come after ${end}`
      if (earlier < 0) {
        sink.add('L10', c, { lane: l }, () => `${order}, which is not issued before it`)
        continue
      }
      const wanted = point[node]! + (when === 'start' ? 0 : 1)
      if (replay.isBefore(replay.laneOf(c), replay.laneOf(earlier), wanted)) continue
      sink.add(
        'L10',
        c,
        { lane: l },
        () =>
          `${order}, commands[${earlier}] on ${quotedLane(plan, lane[earlier]!)}; ` +
          `${quotedLane(plan, l)} waits for no event that follows it`,
      )
    }
  }
}
