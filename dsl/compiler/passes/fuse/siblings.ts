import { tensorBytes } from '../../../ir/tensor.js'
import type { Checked } from '../../analysis/ir.js'
import { isView } from '../../analysis/operators.js'
import { inOrder, isSameAccess, refined, sizeOf } from './access.js'
import type { FusedKernels } from './kernel.js'
import { apartBy } from './readers.js'
import { most, type Region, type Regions } from './regions.js'

//   a = neg(exp(x)) · b = abs(sin(x)), two regions
//   → a, b = fused(x): one kernel of two results, which reads x once
//
//   e = exp(x) · a = neg(e) · b = abs(e), of which one region has e and a as results and the other one reads e
//   → a, b = fused(x)
//
// After this step two regions that share what they read, or of which one reads the other's results, are one where
// all this is true: they are on one lane and device, at one rate, and have the same points; whoever else reads a
// result of the first one comes after the last member of the second, in the order of the graph; the first one reads
// nothing whose memory could go sooner; and one kernel takes no longer than two. It has the second region's place.

/** Regions that read the same value and are tried with another one, at most. */
const mostTried = 4

class Siblings {
  joined = 0
  /** The nodes that read each node, in order: those of node i begin at `from[i]`. */
  private readonly from: Int32Array
  private readonly readBy: Int32Array
  /** Outputs and the next values of states, which are read at the end of the tick. */
  private readonly stays = new Set<number>()
  /** By node: the regions that read it, the first one in the order of the graph at the end. */
  private readonly readers = new Map<number, Region[]>()

  constructor(
    private readonly ir: Checked,
    private readonly regions: Regions,
    private readonly kernels: FusedKernels,
  ) {
    const { nodes, outputs } = ir
    for (const { node, parts } of outputs) for (const id of parts?.nodes ?? [node]) this.stays.add(id)
    for (const { op, inputs } of nodes) if (op === 'delay') this.stays.add(inputs[0]!)
    this.from = new Int32Array(nodes.length + 2)
    for (const { op, inputs } of nodes)
      if (op !== 'delay') for (const input of inputs) this.from[input + 2]!++
    for (let id = 0; id < nodes.length; id++) this.from[id + 2]! += this.from[id + 1]!
    this.readBy = new Int32Array(this.from.at(-1)!)
    for (const { id, op, inputs } of nodes)
      if (op !== 'delay') for (const input of inputs) this.readBy[this.from[input + 1]!++] = id
    // What was joined reads more, so that others may join it. A region has few results, so these are few rounds.
    for (let before = -1; before < this.joined; ) {
      before = this.joined
      this.round()
    }
  }

  /** Later regions first: where one is met, those that may take it in are known. */
  private round(): void {
    this.readers.clear()
    for (const region of this.regions.all)
      if (region.members.length > 0 && !this.isTaken(region))
        for (const source of region.sources.keys()) this.note(source, region)
  }

  /** Whether a kernel that stands at a place or after it reads a node, directly or through views. */
  private isReadFrom(id: number, place: number): boolean {
    for (let i = this.from[id + 1]! - 1; i >= this.from[id]!; i--) {
      const by = this.readBy[i]!
      if ((this.regions.of[by]?.members[0] ?? by) >= place) return true
      if (isView(this.ir.nodes[by]!) && this.isReadFrom(by, place)) return true
    }
    return false
  }

  /** Whether a kernel that stands before the place of a region reads a node, but for its own and the region. */
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

  /** Whether something other than its own region and a later one reads a node, or it is an output or a state. */
  private isStored(id: number, later: Region): boolean {
    const { of } = this.regions
    if (this.stays.has(id)) return true
    for (let i = this.from[id]!; i < this.from[id + 1]!; i++) {
      const own = of[this.readBy[i]!]
      if (own === undefined || (own !== later && own !== of[id])) return true
    }
    return false
  }

  private note(source: number, region: Region): void {
    const known = this.readers.get(source)
    if (known === undefined) this.readers.set(source, [region])
    else known.push(region)
  }

  /** Makes a region part of a later one, if there is one for it. */
  private isTaken(region: Region): boolean {
    for (const read of [...region.sources.keys(), region.members[0]!, ...region.results]) {
      const known = this.readers.get(read) ?? []
      for (let i = known.length - 1; i >= Math.max(0, known.length - mostTried); i--) {
        const later = known[i]!
        if (!this.isFit(region, later)) continue
        const own = [...region.sources.keys()].filter(each => !later.sources.has(each))
        if (!this.join(region, later)) continue
        for (const each of own) this.note(each, later)
        return true
      }
    }
    return false
  }

  /** Whether nothing but the kernels themselves is against one in the place of two. */
  private isFit(region: Region, later: Region): boolean {
    const { ir, regions } = this
    const { values } = regions
    const [a, b] = [region.members[0]!, later.members[0]!]
    if (a === b || apartBy(ir, a, b) !== undefined) return false
    if (values.elementwise[a]!.kernel.compute !== values.elementwise[b]!.kernel.compute) return false
    if (sizeOf(region.shape) !== sizeOf(later.shape)) return false
    if ([a, ...region.results].some(id => this.isReadBefore(id, later))) return false
    for (const source of region.sources.keys()) {
      let root = source
      while (isView(ir.nodes[root]!)) root = ir.nodes[root]!.inputs[0]!
      if (values.bytes[root]! > 0 && !this.stays.has(root) && !this.isReadFrom(root, b)) return false
    }
    return true
  }

  /** Makes both one region, in the place of the later one; undoes it where that cannot be or takes longer. */
  private join(region: Region, later: Region): boolean {
    const { regions } = this
    const shape = shapeOf(region, later)
    if (shape === undefined) return false
    const apart = [this.costOf(region), this.costOf(later, new Set(region.members))] as const
    if (!this.isReadAsMade(region, later, shape)) return false
    const before = { ...later, members: [...later.members], results: [...later.results] }
    this.put(region, later, shape)
    if (this.isBetter(later, apart)) {
      Object.assign(region, { members: [], results: [], sources: new Map() })
      this.joined++
      return true
    }
    Object.assign(later, before)
    for (const id of region.members) regions.of[id] = region
    return false
  }

  /** Whether a later region reads of the results of a region, at each point, what is computed there. */
  private isReadAsMade(region: Region, later: Region, shape: readonly number[]): boolean {
    const { ir, regions } = this
    const { of, values, access } = regions
    const all: Region = { ...later, shape, length: Math.max(region.length, later.length) }
    return later.members.every(member => {
      const inside = regions.inside(all, values.elementwise[member]!, access[member]!)
      return ir.nodes[member]!.inputs.every((input, i) => {
        let made = input
        while (of[made] === undefined && values.viewFrom[made]! >= 0) made = ir.nodes[made]!.inputs[0]!
        if (of[made] !== region) return true
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
    const all: Region = {
      ...later,
      members: [...later.members, ...region.members].sort((a, b) => b - a),
      shape,
      length: Math.max(region.length, later.length),
      results: [...later.results, ...results],
      resultBytes: results.reduce((sum, id) => sum + tensorBytes(ir.specs[id]!), later.resultBytes),
      sources: new Map([...region.sources, ...later.sources]),
      instructions: region.instructions + later.instructions,
      reductions: region.reductions + later.reductions,
    }
    for (const id of region.members) all.sources.delete(id)
    regions.countAll(all)
    Object.assign(later, all)
    for (const id of region.members) regions.of[id] = later
  }

  /** Whether a region of two reads less than they do apart, and takes no longer. */
  private isBetter(region: Region, [one, other]: readonly [Cost, Cost]): boolean {
    const { regions } = this
    const { instructions, reductions, results, shape, members } = region
    if (instructions > most.instructions || reductions > most.reductions) return false
    if (results.length + 1 > most.results || shape.length > most.dimensions) return false
    for (const id of members) {
      const inside = regions.inside(region, regions.values.elementwise[id]!, regions.access[id]!)
      if (inside === undefined || inside.shape.length !== shape.length) return false
      if (inside.shape.some((size, d) => size !== shape[d])) return false
    }
    const { moved, operands } = this.costOf(region)
    const together = one.moved + other.moved
    if (operands > most.operands || moved >= together) return false
    const [a, b] = [one, other].map(each => regions.timeOf(each.region, each.moved, together)) as [
      number,
      number,
    ]
    // Neither waits for what the other one reads longer than that would take.
    if (one.ready > other.ready + b || other.ready > one.ready + a) return false
    return regions.timeOf(region, moved, together) <= a + b
  }

  /** `made`: what is not waited for. */
  private costOf(region: Region, made?: ReadonlySet<number>): Cost {
    const { regions } = this
    const { movedBytes, reads } = this.kernels.of(region)
    let ready = 0
    for (const source of region.sources.keys())
      if (made?.has(source) !== true) ready = Math.max(ready, regions.values.end[source]!)
    // A reduction that is alone stays the kernel that it is, which may divide a row among blocks.
    const isAlone = region.isRow && region.members.length === 1
    return {
      region: isAlone ? { ...region, length: 0 } : { ...region },
      moved: movedBytes,
      operands: reads.length,
      ready,
    }
  }
}

interface Cost {
  readonly region: Region
  readonly moved: number
  readonly operands: number
  readonly ready: number
}

/** The points of two regions as one: those of the region whose shape refines the other's. */
const shapeOf = (region: Region, later: Region): readonly number[] | undefined => {
  const length = Math.max(region.length, later.length)
  if (![region, later].every(each => each.length === 0 || each.length === length)) return undefined
  const isOfBoth = (shape: readonly number[]): boolean =>
    [region, later].every(each => refined(inOrder(each.shape), shape) !== undefined)
  const shape = [later.shape, region.shape].find(isOfBoth)
  return length === 0 || shape?.at(-1) === length ? shape : undefined
}

/** Joins regions that read the same; yields how many were taken in by another one. */
export const joinSiblings = (ir: Checked, regions: Regions, kernels: FusedKernels): number =>
  new Siblings(ir, regions, kernels).joined
