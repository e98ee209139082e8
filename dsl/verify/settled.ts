import { releaseByAccesses } from '../memory/plan-trace.js'
import { type AllocationTrace, TraceRecorder } from '../memory/trace.js'
import { type CommandTable, Kind } from '../order/command-table.js'
import type { Frontiers } from '../order/frontiers.js'
import type { LastAccesses } from '../order/last-accesses.js'

/** Ticks in flight beyond which a settled tick is replayed. */
const mostInFlight = 64
/** Lanes are told apart by the bits of a number. */
const mostLanes = 31
const mostPoints = 2 ** 31 - 1

/**
 * What a settled tick gives out and takes back (see AllocationTrace), seen in the first tick of somebody else's replay. Where no wait is for the tick before, the two differ in one
 * thing alone: of a lane of which the first tick knows no point yet, a later one knows what the lanes that it has met knew when the tick began. Met are its own lane, and those of
 * which it knows a point of the tick, since whatever leads from lane to lane inside a tick is a record behind such a point.
 */
export class Settled {
  private readonly ledgers: readonly TraceRecorder[]
  private plain = true
  private ends: Int32Array | undefined

  private constructor(
    private readonly tables: CommandTable,
    private readonly clock: Frontiers,
  ) {
    this.ledgers = ledgersOf(tables)
  }

  static of(tables: CommandTable, clock: Frontiers): Settled | undefined {
    const { plan, lanes, carries, cells, accessRoot } = tables
    const isPlain =
      !carries && cells.cell === accessRoot && lanes <= mostLanes && plan.inFlight <= mostInFlight
    return isPlain && plan.storage === 'pooled' ? new Settled(tables, clock) : undefined
  }

  /** Alloc c, and below free c: those that L3 lets pass, so each buffer's once, and no more points than there are accesses. */
  alloc(c: number): void {
    const { named, memory, bytes, lane } = this.tables
    const { known, base } = this.clock
    const b = named[c]!
    this.ledgers[memory[b]!]!.alloc(b, c, bytes[b]!, lane[c]!, known, base)
  }

  /** It releases what was last touched. */
  free(c: number, last: LastAccesses): void {
    const { named, memory, bytes } = this.tables
    const b = named[c]!
    const ledger = this.ledgers[memory[b]!]!
    releaseByAccesses(ledger, last, b, this.clock.base)
    ledger.free(b, c, bytes[b]!)
  }

  /** A record of which no point of the tick tells. */
  record(c: number): void {
    const { known, lanes } = this.clock
    if (known[this.tables.lane[c]! * (lanes + 1)] === 0) this.plain = false
  }

  /** The first tick has been issued. */
  end(): void {
    this.ends = this.clock.known.slice()
  }

  /** Of a plan for which L1 to L4 and L7 hold; undefined where its later ticks differ in more than is said above, or the first one has not ended. */
  traces(): readonly AllocationTrace[] | undefined {
    const { ends, ledgers } = this
    if (!this.plain || ends === undefined || !ledgers.every(ledger => ledger.isFull)) return undefined
    const { lanes, plan } = this.tables
    const { inFlight } = plan
    const length = Int32Array.from({ length: lanes }, (_, l) => ends[l * (lanes + 1)]!)
    const begun = begunOf(ends, length, inFlight)
    for (const ledger of ledgers) amend(ledger, begun)
    return ledgers.map(ledger => ledger.trace(inFlight, length))
  }
}

/** One for each memory, for a plan that allocates each tick buffer on its home lane and frees it: by L3 no other passes, but one with buffers that nobody touches, which leaves them with room. */
const ledgersOf = (tables: CommandTable): TraceRecorder[] => {
  const { plan, lanes, buffers, kind, root, home, memory, allocator } = tables
  const allocs = Array.from({ length: plan.devices + 1 }, () => new Int32Array(lanes))
  for (let b = 0; b < buffers; b++)
    if (kind[b] === Kind.tick && root[b] === b) allocs[memory[b]!]![home[b]!]!++
  return allocs.map(counts => {
    const frees = counts.reduce((sum, count) => sum + count, 0)
    return new TraceRecorder(counts, frees, allocator)
  })
}

/** What each lane knows when a settled tick begins, a row a lane, counted from its first points: so no more than 0. `ends` is what they know when the first tick has ended. */
const begunOf = (ends: Int32Array, length: Int32Array, inFlight: number): Int32Array => {
  const lanes = length.length
  let begun: Int32Array = new Int32Array(lanes * lanes)
  for (let tick = 1; tick < inFlight; tick++) {
    const known = ends.slice()
    for (let l = 0; l < lanes; l++) new Met(begun, lanes, l).complete(known, l * lanes)
    begun = known.map((point, at) => point - length[at % lanes]!)
  }
  return begun
}

/** What a lane knows only grows: behind the first alloc of a lane that knows some point of each, all do. */
const amend = ({ frontier, starts }: TraceRecorder, begun: Int32Array): void => {
  const lanes = starts.length - 1
  for (let l = 0; l < lanes; l++) {
    const met = new Met(begun, lanes, l)
    for (let a = starts[l]!; a < starts[l + 1]!; a++) if (met.complete(frontier, a * lanes)) break
  }
}

/** The lanes that a lane has met in a tick, itself among them, and what they knew together when it began. */
class Met {
  private met = 0
  private readonly knew: Int32Array

  constructor(
    private readonly begun: Int32Array,
    private readonly lanes: number,
    lane: number,
  ) {
    this.knew = new Int32Array(lanes).fill(-mostPoints)
    this.meet(lane)
  }

  private meet(lane: number): void {
    const { begun, lanes, knew } = this
    this.met |= 1 << lane
    for (let m = 0; m < lanes; m++) knew[m] = Math.max(knew[m]!, begun[lane * lanes + m]!)
  }

  /** The lane's frontier `known[from ..]`, as it is later in the tick than the one before, with 0 for a lane of whose points it knows none. Whether there was none such. */
  complete(known: Int32Array, from: number): boolean {
    const { lanes, knew } = this
    let whole = true
    for (let m = 0; m < lanes; m++) {
      if (known[from + m] === 0) whole = false
      else if ((this.met & (1 << m)) === 0) this.meet(m)
    }
    if (!whole) for (let m = 0; m < lanes; m++) if (known[from + m] === 0) known[from + m] = knew[m]!
    return whole
  }
}
