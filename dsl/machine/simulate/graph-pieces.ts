import { type CommandTable, Op } from '../../order/command-table.js'
import { graphsIn } from '../../order/compiled-plan.js'
import type { HostModel } from '../machine.js'
import { Step } from './workload.js'

type PutStep = (kind: number, lane: number, event: number, issue: number) => void

/** A graph, as steps see it. Its events are numbered behind those of the plan. */
interface Piece {
  readonly from: number
  readonly to: number
  readonly nodes: number
  /** The lane that it is launched on, and the other lanes of its commands. */
  readonly lane: number
  readonly others: readonly number[]
  readonly started: number
  readonly ended: number
  /** By other lane, in order: the event of its point before the launch, and of its last node. */
  readonly before: readonly number[]
  readonly last: readonly number[]
}

/**
 * The graphs of a plan as steps. Inside, lanes do their runs as ever and wait for each other, at no cost of
 * the issuing thread: what edges order is what lanes, records and waits order. Around that stand the waits of
 * a launch: it is after what any of its lanes or waits is after, and what follows it on them, or waits for an
 * event inside, is after all of it. Lanes that do nothing outside graphs of one lane need none of these
 * waits.
 */
export class GraphPieces {
  private readonly pieces: readonly Piece[]
  /** By event, the piece that has its record; -1: none. */
  private readonly pieceOf: Int32Array
  /** By lane, whether it does anything that is not inside graphs of one lane. */
  private readonly isMixed: Uint8Array
  readonly events: number
  private next = 0

  static of(table: CommandTable): GraphPieces | undefined {
    const graphs = graphsIn(table.plan)
    return graphs === undefined || graphs.from.length === 0 ? undefined : new GraphPieces(table, graphs)
  }

  private constructor(
    private readonly table: CommandTable,
    { from, to }: { readonly from: Int32Array; readonly to: Int32Array },
  ) {
    const { op, lane, subject, lanes, recordOf, commands } = table
    const leader = new Int32Array(lanes).fill(-1)
    this.isMixed = new Uint8Array(lanes)
    this.pieceOf = new Int32Array(table.events).fill(-1)
    let events = table.events
    let end = 0
    const mark = (upTo: number): void => {
      for (let c = end; c < upTo; c++) if (op[c] !== Op.broken) this.isMixed[lane[c]!] = 1
    }
    this.pieces = Array.from(from, (first, g) => {
      mark(first)
      end = to[g]!
      const used = new Set<number>()
      let nodes = 0
      let launch = -1
      for (let c = first; c < end; c++) {
        used.add(lane[c]!)
        if (op[c] === Op.record && recordOf[subject[c]!] === c) this.pieceOf[subject[c]!] = g
        if (op[c] !== Op.run) continue
        nodes++
        if (launch < 0) launch = lane[c]!
      }
      used.delete(launch)
      for (const l of [launch, ...used]) {
        if (leader[l]! >= 0 && leader[l] !== launch) this.isMixed[l] = 1
        leader[l] = launch
      }
      const others = [...used]
      const numbers = (): number[] => others.map(() => events++)
      const piece = { from: first, to: end, nodes, lane: launch, others, started: events++, ended: events++ }
      return { ...piece, before: numbers(), last: numbers() }
    })
    mark(commands)
    this.events = events - table.events
  }

  /** Steps beside those of the plan's commands, at most. */
  get steps(): number {
    return this.pieces.reduce((sum, { from, to, others }) => sum + 3 + 6 * others.length + (to - from), 0)
  }

  /** Whether command c is in a graph. */
  isInside(c: number): boolean {
    const piece = this.pieces[this.next]
    return piece !== undefined && c >= piece.from && c < piece.to
  }

  /** Whether a lane has anything for which the session must know its end. */
  ends(lane: number): boolean {
    return this.isMixed[lane] === 1 || this.pieces.some(piece => piece.lane === lane)
  }

  /** The event that stands for event e, for a wait at command c. */
  eventFor(e: number, c: number): number {
    const g = this.pieceOf[e]!
    const own = this.pieces[g]
    if (own === undefined) return e
    const isOwn = c >= own.from && c < own.to && this.table.op[c] === Op.wait
    return isOwn ? e : own.ended
  }

  /** Whether the wait at command c, inside a graph, is for an event that the same tick records inside it. */
  isEdge(c: number): boolean {
    return this.table.op[c] === Op.wait && this.pieceOf[this.table.subject[c]!] === this.next
  }

  /** What stands before command c: the launch, where a graph begins. */
  begin(c: number, kindOf: Int8Array, host: HostModel, put: PutStep): void {
    const piece = this.pieces[this.next]
    if (piece === undefined || c !== piece.from) return
    const { to, nodes, lane, others, started, before } = piece
    const { op, subject, plan } = this.table
    others.forEach((other, i) => {
      if (this.isMixed[other] === 0) return
      put(Step.record, other, before[i]!, host.record)
      put(Step.wait, lane, before[i]!, host.wait)
    })
    for (let w = c; w < to; w++) {
      const isWait = kindOf[w] === Step.wait || kindOf[w] === Step.waitPrevious
      if (!isWait || this.isEdge(w)) continue
      const event = this.eventFor(subject[w]!, w)
      // What its own lane did in the tick before is before it anyway, where ticks have the same lanes.
      if (op[w] === Op.previous && event === piece.ended && (plan.arenas ?? 1) === 1) continue
      put(kindOf[w]!, lane, event, host.wait)
    }
    put(Step.record, lane, started, host.graph + nodes * host.node)
    for (const other of others) put(Step.wait, other, started, 0)
  }

  /** What stands after command c: the end of a graph. */
  end(c: number, host: HostModel, put: PutStep): void {
    const piece = this.pieces[this.next]
    if (piece === undefined || c + 1 !== piece.to) return
    const { lane, others, ended, last } = piece
    others.forEach((other, i) => {
      put(Step.record, other, last[i]!, 0)
      put(Step.wait, lane, last[i]!, 0)
    })
    put(Step.record, lane, ended, this.isMixed[lane] === 1 ? host.record : 0)
    for (const other of others) if (this.isMixed[other] === 1) put(Step.wait, other, ended, host.wait)
    this.next++
  }
}
