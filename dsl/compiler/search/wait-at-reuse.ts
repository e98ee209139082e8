import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import { withScratchArena } from '../../collections/scratch-arena.js'
import { lastingBytes } from '../../memory/lasting.js'
import { rounded } from '../../memory/pool-peak.js'
import { RangePool } from '../../memory/range-pool.js'
import { ReleasePoints } from '../../memory/release-points.js'
import { type CommandTable, commandTableOf, Op } from '../../order/command-table.js'
import { Replay } from '../../order/replay.js'
import type { Lifetimes, WindowEdge } from '../analysis/ir.js'
import { outlineOf } from '../passes/emit.js'
import { lifetimes } from '../passes/lifetimes.js'
import { synchronize } from '../passes/synchronize.js'

/** A run of some tick: its lane's point, and the frontier that a wait for it brings along. */
interface Run {
  readonly node: number
  readonly tick: number
  readonly lane: number
  readonly point: number
  readonly frontier: Int32Array
}

/** Rounds in which waits are added and the pool is replayed, and ticks of each replay. */
const maxRounds = 32
const maxTicks = 6
/** Commands beyond which no waits are added: each round replays all of them. */
const maxCommands = 20_000

/** The runs after which the free ranges of a pool were released: `runs[owner]`. */
type Owners = readonly (readonly Run[])[]

/**
 * Of the stretches of adjacent free ranges that are long enough, the owners of the one whose last run was
 * issued first.
 */
const oldestStretch = (
  pool: RangePool,
  size: number,
  most: number,
  runs: Owners,
  commands: number,
): readonly number[] => {
  const { free } = pool
  let best: readonly number[] = []
  let bestAge = Number.POSITIVE_INFINITY
  for (let first = 0; first < free.length; first++) {
    const { offset } = free[first]!
    let end = offset
    let age = 0
    let last = first
    for (; last < free.length && free[last]!.offset === end && end - offset < size; last++) {
      end += free[last]!.size
      for (const { tick, node } of runs[free[last]!.owner]!) age = Math.max(age, tick * commands + node)
    }
    const length = end === pool.peak ? most - offset : end - offset
    if (length < size || age >= bestAge) continue
    best = free.slice(first, last).map(({ owner }) => owner)
    bestAge = age
  }
  return best
}

/** By command, the node of the next run: an alloc stands before the run that it is for. */
const nextNodes = ({ commands, op, subject }: CommandTable): Int32Array => {
  const next = new Int32Array(commands).fill(-1)
  for (let c = commands - 1, node = -1; c >= 0; c--) {
    if (op[c] === Op.run) node = subject[c]!
    next[c] = node
  }
  return next
}

/**
 * Replays the session's pools, and answers each allocation that would take one beyond `most` bytes with waits
 * for the runs that released the stretch of free bytes which was released first. Returns these waits for the
 * first tick that needs any; none where no tick does, or where waits do not help the first such allocation.
 */
class PoolReplay {
  private readonly frontiers: Replay
  private readonly pools: readonly RangePool[]
  private readonly runs: Run[][] = []
  private readonly edges: WindowEdge[] = []
  private readonly nextNode: Int32Array
  private readonly offset: Float64Array
  /** By lane, its last run; by buffer, the runs that its uses mark. */
  private readonly last: (Run | undefined)[] = []
  private readonly marked = new Map<number, Run[]>()
  private readonly release = new ReleasePoints()

  constructor(
    private readonly table: CommandTable,
    private readonly most: number,
  ) {
    this.frontiers = new Replay(table)
    this.pools = lastingBytes(table, rounded).map(bytes => new RangePool(table.lanes, bytes))
    this.nextNode = nextNodes(table)
    this.offset = new Float64Array(table.buffers)
  }

  waits(): readonly WindowEdge[] {
    const { table, frontiers, edges } = this
    for (let tick = 0; tick < maxTicks + table.plan.inFlight; tick++) {
      frontiers.begin()
      for (let c = 0; c < table.commands; c++) {
        frontiers.step(c)
        const code = table.op[c]
        if (code === Op.run) this.run(c)
        else if (code === Op.use) this.use(c)
        else if (code === Op.free) this.free(c)
        else if (code === Op.alloc && !this.alloc(c)) return edges
      }
      // With these waits in the plan, later ticks see another pool.
      if (edges.length > 0) return edges
    }
    return edges
  }

  private frontier(lane: number): Int32Array {
    const { known, lanes } = this.frontiers
    return known.subarray(lane * lanes, (lane + 1) * lanes)
  }

  private run(c: number): void {
    const lane = this.table.lane[c]!
    const frontier = this.frontier(lane).slice()
    const node = this.table.subject[c]!
    this.last[lane] = { node, tick: this.frontiers.tick, lane, point: frontier[lane]!, frontier }
  }

  private use(c: number): void {
    const { lane, subject } = this.table
    const run = this.last[lane[c]!]
    const others = (this.marked.get(subject[c]!) ?? []).filter(other => other.lane !== lane[c])
    if (run !== undefined) this.marked.set(subject[c]!, [...others, run])
  }

  private free(c: number): void {
    const { subject, memory, bytes, lane } = this.table
    const b = subject[c]!
    const home = this.last[lane[c]!]
    const marked = (this.marked.get(b) ?? []).filter(other => other.lane !== lane[c])
    const runs = [...marked, ...(home === undefined ? [] : [home])].sort(
      (one, other) => one.lane - other.lane,
    )
    this.marked.delete(b)
    this.release.clear()
    for (const run of runs) this.release.put(run.lane, run.point)
    this.pools[memory[b]!]?.give(this.offset[b]!, rounded(bytes[b]!), this.release, this.runs.length)
    this.runs.push(runs)
  }

  /** Whether the bytes were there, or waits made them so. */
  private alloc(c: number): boolean {
    const { table, most, frontiers } = this
    const b = table.subject[c]!
    const lane = table.lane[c]!
    const pool = this.pools[table.memory[b]!]
    if (pool === undefined) return true
    const frontier = this.frontier(lane)
    const size = rounded(table.bytes[b]!)
    const at = pool.take(size, lane, frontier, most)
    if (at >= 0) {
      this.offset[b] = at
      return true
    }
    for (const owner of oldestStretch(pool, size, most, this.runs, table.commands)) {
      const unordered = this.runs[owner]!.filter(run => run.lane !== lane && run.point > frontier[run.lane]!)
      for (const run of unordered) {
        const tick = run.tick === frontiers.tick ? 0 : -1
        this.edges.push({ later: this.nextNode[c]!, earlier: run.node, tick })
        frontiers.join(lane, run.frontier, 0)
      }
    }
    this.offset[b] = pool.take(size, lane, frontier, most)
    return this.offset[b]! >= 0
  }
}

/** The edges that are not in `known`, each once. */
const fresh = (edges: readonly WindowEdge[], known: readonly WindowEdge[]): WindowEdge[] => {
  const keyOf = ({ later, earlier, tick }: WindowEdge): string => `${later} ${earlier} ${tick}`
  const keys = new Set(known.map(keyOf))
  return edges.filter(edge => {
    const key = keyOf(edge)
    return keys.has(key) ? false : keys.add(key)
  })
}

/**
 * Where an allocation would grow the pool beyond `most` bytes, makes its lane wait for the last users of
 * freed bytes instead: order is given up for memory, one tick's waits at a time, the first shortage first.
 * The result may still hold more: `bound` finds how much.
 */
export const waitAtReuse = (ir: Lifetimes, most: number): Lifetimes => {
  for (let round = 0; round < maxRounds; round++) {
    const waits = withScratchArena(allocator => {
      const table = commandTableOf(outlineOf(ir, allocator), allocator)
      return table.commands > maxCommands ? [] : new PoolReplay(table, most).waits()
    })
    const edges = fresh(waits, ir.windows)
    if (edges.length === 0) return ir
    const again = pipe(synchronize({ ...ir, windows: [...ir.windows, ...edges] }), E.chain(lifetimes))
    if (E.isLeft(again)) return ir
    ir = again.right
  }
  return ir
}
