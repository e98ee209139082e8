import { tensorBytes } from '../../../ir/tensor.js'
import type { Checked } from '../../analysis/ir.js'
import { isView } from '../../analysis/operators.js'
import { inOrder, isEqual, isOfRows, isSameAccess, type RowsOf, refined, sizeOf } from './access.js'
import { trafficOf } from './kernel.js'
import { apartBy } from './readers.js'
import { most, type Region, type Regions, Sources } from './regions.js'

//   a = neg(exp(x)) · b = abs(sin(x)), two regions
//   → a, b = fused(x): one kernel of two results, which reads x once
//
//   e = exp(x) · a = neg(e) · b = abs(e), of which one region has e and a as results and the other one reads e
//   → a, b = fused(x)
//
// After this step two regions that share what they read, or of which one reads the other's results, are one
// where all this is true: they are on one lane and device, at one rate, and have the same points; whoever
// else reads a result of the first one comes after the last member of the second, in the order of the graph;
// the first one reads nothing whose memory could go sooner; and one kernel takes no longer than two. It has
// the second region's place.

/** Regions that read the same value and are tried with another one, at most. */
const mostTried = 4

class Siblings {
  joined = 0
  /** The nodes that read each node, in order: those of node i begin at `from[i]`. */
  private readonly from: Int32Array
  private readonly readBy: Int32Array
  /** Outputs and the next values of states, which are read at the end of the tick. */
  private readonly stays: Uint8Array
  /** By node: the node whose memory it has, where all that may be views are views. */
  private readonly root: Int32Array
  /** By node: the last place of a kernel that reads it, directly or through views. */
  private readonly last: Int32Array
  private readonly traffic: (Traffic | undefined)[] = []
  /** By node: how many regions were noted as its readers in this round, and the last ones, in a ring. */
  private readonly noted: Int32Array
  private readonly readers: Int32Array
  /** By node: the last round in which a region that reads it was joined to another one. */
  private readonly changed: Int32Array
  private rounds = 0

  constructor(
    private readonly ir: Checked,
    private readonly regions: Regions,
  ) {
    const { nodes, outputs } = ir
    const count = nodes.length
    this.stays = new Uint8Array(count)
    for (const { node, parts } of outputs) for (const id of parts?.nodes ?? [node]) this.stays[id] = 1
    for (const { op, inputs } of nodes) if (op === 'delay') this.stays[inputs[0]!] = 1
    this.from = new Int32Array(count + 2)
    // What readers only come after is not read.
    const read = nodes.map(({ id, op, inputs }) => {
      if (op === 'delay' || regions.isUnreadView(id)) return []
      return op === 'after' ? inputs.slice(0, 1) : inputs
    })
    for (const inputs of read) for (const input of inputs) this.from[input + 2]!++
    for (let id = 0; id < count; id++) this.from[id + 2]! += this.from[id + 1]!
    this.readBy = new Int32Array(this.from.at(-1)!)
    for (const { id } of nodes) for (const input of read[id]!) this.readBy[this.from[input + 1]!++] = id
    this.root = new Int32Array(count)
    for (const node of nodes) this.root[node.id] = isView(node) ? this.root[node.inputs[0]!]! : node.id
    this.last = new Int32Array(count).fill(-1)
    for (let id = count - 1; id >= 0; id--) {
      const { op, inputs } = nodes[id]!
      const place = regions.of[id]?.members[0] ?? id
      const read = this.root[id] === id ? place : Math.max(place, this.last[id]!)
      if (op !== 'delay') for (const input of inputs) this.last[input] = Math.max(read, this.last[input]!)
    }
    this.noted = new Int32Array(count)
    this.readers = new Int32Array(mostTried * count)
    this.changed = new Int32Array(count)
    // What was joined reads more, so that others may join it. A region has few results, so these are few
    // rounds.
    for (let before = -1; before < this.joined; ) {
      before = this.joined
      this.round()
    }
  }

  /**
   * Notes that a node is computed at a place, for what it reads and for what the views are of that it reads.
   */
  private place(id: number, place: number): void {
    const open = [id]
    for (const at of open)
      for (const input of this.ir.nodes[at]!.inputs) {
        this.changed[input] = this.rounds
        if (this.last[input]! >= place) continue
        this.last[input] = place
        if (this.root[input] !== input) open.push(input)
      }
  }

  /**
   * Later regions first: where one is met, those that may take it in are known. After the first round a region
   * is tried only if one of its values has changed readers since the previous round began.
   */
  private round(): void {
    const { all } = this.regions
    this.rounds++
    this.noted.fill(0)
    for (let number = 0; number < all.length; number++) {
      const region = all[number]!
      if (region.members.length === 0 || (this.hasChanged(region) && this.isTaken(number))) continue
      for (const source of region.sources.ids) this.note(source, number)
    }
  }

  private hasChanged({ members, results, sources }: Region): boolean {
    const { changed, rounds, root } = this
    if (rounds === 1) return true
    const isNew = (id: number): boolean => changed[id]! >= rounds - 1 || changed[root[id]!]! >= rounds - 1
    return isNew(members[0]!) || results.some(isNew) || sources.ids.some(isNew)
  }

  /**
   * Whether a kernel that stands before the place of a region reads a node, but for its own and the region.
   */
  private isReadBefore(id: number, later: Region): boolean {
    const { of } = this.regions
    for (let i = this.from[id]!; i < this.from[id + 1]!; i++) {
      const by = this.readBy[i]!
      if (by >= later.members[0]!) return false
      const own = of[by]
      if (own !== undefined && (own === later || own === of[id])) continue
      if ((own?.members[0] ?? by) <= later.members[0]!) return true
    }
    return false
  }

  /**
   * Whether something other than its own region and a later one reads a node, or it is an output or a state, or
   * nothing reads it.
   */
  private isStored(id: number, later: Region): boolean {
    const { of } = this.regions
    if (this.stays[id] === 1 || this.from[id] === this.from[id + 1]) return true
    for (let i = this.from[id]!; i < this.from[id + 1]!; i++) {
      const own = of[this.readBy[i]!]
      if (own === undefined || (own !== later && own !== of[id])) return true
    }
    return false
  }

  private note(source: number, region: number): void {
    this.readers[mostTried * source + (this.noted[source]!++ % mostTried)] = region
  }

  /** Makes a region part of a later one, if there is one for it. */
  private isTaken(number: number): boolean {
    const region = this.regions.all[number]!
    const { sources, members, results } = region
    const held = this.heldUntil(region)
    if (held <= members[0]!) return false
    for (let i = 0; i < sources.size; i++) if (this.isTakenBy(sources.ids[i]!, number, held)) return true
    return this.isTakenBy(members[0]!, number, held) || results.some(id => this.isTakenBy(id, number, held))
  }

  /** The last place at which all that a region reads is in memory anyway. */
  private heldUntil({ sources }: Region): number {
    const { bytes } = this.regions.values
    let last = Number.POSITIVE_INFINITY
    for (const source of sources.ids) {
      const root = this.root[source]!
      if (bytes[root]! > 0 && this.stays[root] === 0) last = Math.min(last, this.last[root]!)
    }
    return last
  }

  /** Makes a region part of one of the regions that read a node, which stands at `held` at the latest. */
  private isTakenBy(read: number, number: number, held: number): boolean {
    const { noted, readers, regions } = this
    const least = Math.max(0, noted[read]! - mostTried)
    for (let i = noted[read]! - 1; i >= least; i--) {
      const other = readers[mostTried * read + (i % mostTried)]!
      const region = regions.all[number]!
      const later = regions.all[other]!
      if (later.members[0]! > held || !this.isAlike(region, later) || !this.isFit(region, later)) continue
      const own = region.sources.ids.filter(each => !later.sources.has(each))
      if (!this.join(number, other)) continue
      for (const each of own) this.note(each, other)
      return true
    }
    return false
  }

  /** Whether two regions may be one kernel, as far as what they are goes. */
  private isAlike({ members: [a], shape }: Region, { members: [b], shape: other }: Region): boolean {
    const { elementwise } = this.regions.values
    return (
      sizeOf(shape) === sizeOf(other) &&
      elementwise[a!]!.kernel.compute === elementwise[b!]!.kernel.compute &&
      apartBy(this.ir, a!, b!) === undefined
    )
  }

  /**
   * Whether two alike regions may be one kernel as far as order and size go: nothing reads the first one's
   * results, or comes after it, before the second one's place, and together they stay within `most`.
   */
  private isFit(region: Region, later: Region): boolean {
    if (region.members.some(id => this.regions.awaited[id]! <= later.members[0]!)) return false
    if (this.isReadBefore(region.members[0]!, later)) return false
    return !region.results.some(id => this.isReadBefore(id, later)) && this.isSmall(region, later)
  }

  /** Whether a kernel of both has no more than it may; each source is an operand at least. */
  private isSmall(region: Region, later: Region): boolean {
    if (region.instructions + later.instructions > most.instructions) return false
    if (region.reductions + later.reductions > most.reductions) return false
    let operands = region.sources.size
    for (const source of later.sources.ids)
      if (this.regions.of[source] !== region && !region.sources.has(source)) operands++
    return operands <= most.operands
  }

  /** Makes both one region, in the place of the later one; undoes it where that cannot be or takes longer. */
  private join(number: number, other: number): boolean {
    const { regions, ir } = this
    const [region, later] = [regions.all[number]!, regions.all[other]!]
    const shape = shapeOf(region, later)
    if (shape === undefined || !this.isReadAsMade(region, later, shape)) return false
    const before = { ...later }
    const alone = [
      { region, moved: this.trafficOf(number).movedBytes },
      { region: before, moved: this.trafficOf(other).movedBytes },
    ] as const
    this.put(region, later, shape)
    const traffic = this.isFused(later) ? trafficOf(regions, ir, later) : undefined
    if (traffic !== undefined && this.isBetter(later, traffic, ...alone)) {
      for (const id of later.members) this.place(id, later.members[0]!)
      region.members = []
      region.results = []
      region.sources = new Sources()
      this.traffic[other] = traffic
      this.joined++
      return true
    }
    Object.assign(later, before)
    for (const id of region.members) regions.of[id] = region
    return false
  }

  private trafficOf(number: number): Traffic {
    return (this.traffic[number] ??= trafficOf(this.regions, this.ir, this.regions.all[number]!))
  }

  /** Whether a later region reads of the results of a region, at each point, what is computed there alone. */
  private isReadAsMade(region: Region, later: Region, shape: readonly number[]): boolean {
    const { ir, regions } = this
    const { of, values, access } = regions
    const all: Region = { ...later, shape, ...rowsOf(region, later) }
    return later.members.every(member => {
      const inside = regions.inside(all, values.elementwise[member]!, access[member]!)
      return values.readsOf(member).every((input, i) => {
        let made = input
        while (of[made] === undefined && values.viewFrom[made]! >= 0) made = ir.nodes[made]!.inputs[0]!
        if (of[made] !== region) return true
        if (values.elementwise[member]!.isIndexed) return false
        const [one, other] = [
          regions.over(all, access[made]!),
          inside && regions.over(all, inside.operands[i]!),
        ]
        return made === input && one !== undefined && other !== undefined && isSameAccess(one, other, shape)
      })
    })
  }

  private put(region: Region, later: Region, shape: readonly number[]): void {
    const { ir, regions } = this
    const results = [region.members[0]!, ...region.results].filter(id => this.isStored(id, later))
    later.members = [...later.members, ...region.members].sort((a, b) => b - a)
    later.shape = shape
    const { length, inner } = rowsOf(region, later)
    later.length = length
    later.inner = inner
    later.results = [...later.results, ...results]
    later.resultBytes = results.reduce((sum, id) => sum + tensorBytes(ir.specs[id]!), later.resultBytes)
    later.sources = region.sources.with(later.sources)
    later.instructions += region.instructions
    later.reductions += region.reductions
    for (const id of region.members) later.sources.delete(id)
    regions.countAll(later)
    for (const id of region.members) regions.of[id] = later
  }

  /** Whether all members of a region compute at its points, and it has no more results than it may. */
  private isFused(region: Region): boolean {
    const { regions } = this
    const { results, shape, members } = region
    if (results.length + 1 > most.results || shape.length > most.dimensions) return false
    return members.every(id => {
      const inside = regions.inside(region, regions.values.elementwise[id]!, regions.access[id]!)
      return inside !== undefined && isEqual(inside.shape, shape)
    })
  }

  /** Whether a region of two reads less than they do apart, and takes no longer. */
  private isBetter(region: Region, { movedBytes, operands }: Traffic, one: Priced, other: Priced): boolean {
    const { regions } = this
    const together = one.moved + other.moved
    if (operands > most.operands || movedBytes >= together) return false
    const a = regions.timeOf(aloneOf(one.region), one.moved, together)
    const b = regions.timeOf(aloneOf(other.region), other.moved, together)
    // The joined kernel must not wait for one region's inputs longer than the other region's kernel takes.
    const made = new Set(one.region.members)
    const readyOf = ({ sources }: Region): number =>
      sources.ids.reduce((at, id) => (made.has(id) ? at : Math.max(at, regions.values.end[id]!)), 0)
    const [ready, otherReady] = [readyOf(one.region), readyOf(other.region)]
    if (ready > otherReady + b || otherReady > ready + a) return false
    return regions.timeOf(region, movedBytes, together) <= a + b
  }
}

/** A region, and the bytes that its kernel moves. */
interface Priced {
  readonly region: Region
  readonly moved: number
}

/** A reduction of rows that is alone, compared as if it filled the device (fuse/regions.ts). */
const aloneOf = (region: Region): Region =>
  region.isRow && region.inner === 1 && region.members.length === 1 ? { ...region, length: 0 } : region

type Traffic = ReturnType<typeof trafficOf>

/** The rows of the region that has some. */
const rowsOf = (region: Region, later: Region): RowsOf => {
  const { length, inner } = later.length > 0 ? later : region
  return { length, inner }
}

/** The points of two regions as one: those of the region whose shape refines the other's. */
const shapeOf = (region: Region, later: Region): readonly number[] | undefined => {
  const rows = rowsOf(region, later)
  const { length, inner } = rows
  if (![region, later].every(each => each.length === 0 || (each.length === length && each.inner === inner)))
    return undefined
  const isOfBoth = (shape: readonly number[]): boolean =>
    [region, later].every(each => refined(inOrder(each.shape), shape) !== undefined)
  const shape = [later.shape, region.shape].find(isOfBoth)
  return shape === undefined || length === 0 || isOfRows(shape, rows) ? shape : undefined
}

/** Joins regions that read the same; yields how many were taken in by another one. */
export const joinSiblings = (ir: Checked, regions: Regions): number => new Siblings(ir, regions).joined
