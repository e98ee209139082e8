import type { GraphNode } from '../../ir/graph.js'
import type { FusedAttrs } from '../analysis/fused.js'
import type { Checked } from '../analysis/ir.js'
import type { Fusion, WhyStored } from '../analysis/provenance.js'
import { rewritten } from '../analysis/rewritten.js'
import { withAttentionResults } from './fuse/attention-results.js'
import { mostListed, storedBetween } from './fuse/edges.js'
import { withEpilogues } from './fuse/epilogues.js'
import { FusedKernels } from './fuse/kernel.js'
import { type Effort, type Region, Regions } from './fuse/regions.js'
import { repeated, timeOfAll } from './fuse/repeated.js'
import { joinSiblings } from './fuse/siblings.js'
import { withStridedReads } from './fuse/strided-reads.js'

//   m = x · s · r = relu(m) · y = r + b
//   → y = fused(x, s, b): one kernel that reads x, s and b and writes y; m and r have no memory
//
//   m = max(x) · e = exp(x - m) · s = sum(e) · y = e / s, along the last axis
//   → y = fused(x): one kernel that reads each row of x once
//
//   t = gather(table, tokens) · p = gather(places, order) · x = t + p · y = layerNorm(x)
//   → y = fused(tokens, table, order, places): one kernel that reads rows of both tables
//
//   i = iota(x, axis 0) · j = iota(x, axis 1) · m = j < i · y = where(m, x, 0)
//   → y = fused(x): one kernel that reads x and counts
//
// Before that, attention reads rows where they lie (fuse/strided-reads.ts), its kernels write two results of the
// same weights (fuse/attention-results.ts), and products take what their own kernels can do of what follows them
// (fuse/epilogues.ts). After it, once values have their memory, attention
// takes the appends to what it reads (lower/appends.ts).
//
// After this pass an elementwise value, a gather, or a reduction along any axis, is computed in the kernel of
// its readers where these are one kernel, on the same lane and device, at the same rate, and one kernel takes
// no longer than two; and two such kernels that read the same are one, with several results
// (fuse/siblings.ts). An elementwise value that only such kernels read is computed in each of them where that
// takes less time (fuse/repeated.ts). Other nodes are unchanged. A value is stored in memory where an output, a
// state, a node of another kind, `keep()` or `after()` reads it, and where something is gathered from it, or by
// it. It is not where others only come after it.

/** Regions of a graph, and how many became part of another one that reads the same. */
interface Found {
  readonly ir: Checked
  readonly regions: Regions
  readonly siblings: number
}

const regionsOf = (ir: Checked, effort: Effort): Found => {
  const regions = new Regions(ir, effort)
  return { ir, regions, siblings: effort === 'wide' ? joinSiblings(ir, regions) : 0 }
}

/** The same where values are computed again rather than read, if all regions take less time then. */
const withRepeated = (found: Found): Found => {
  const again = repeated(found.ir, found.regions)
  if (again === undefined) return found
  const then = regionsOf(again, 'wide')
  return timeOfAll(again, then.regions) < timeOfAll(found.ir, found.regions) ? then : found
}

class Fusing {
  private readonly ir: Checked
  private readonly regions: Regions
  private readonly fused: FusedKernels
  /** Whether regions were joined, or compute something again, because of what they read. */
  readonly isWide: boolean
  readonly fusion: { regions: Fusion['regions'][number][]; kernels: number }

  constructor(ir: Checked, effort: Effort) {
    const found = regionsOf(ir, effort)
    const { ir: taken, regions, siblings } = effort === 'wide' ? withRepeated(found) : found
    this.ir = taken
    this.regions = regions
    this.fused = new FusedKernels(regions, taken)
    this.isWide = siblings > 0 || taken !== ir
    this.fusion = { regions: [], kernels: 0 }
  }

  get hasSeveral(): boolean {
    const { all, awaited } = this.regions
    return all.some(
      ({ results, members }) =>
        results.length > 0 || members.some((id, i) => i > 0 && Number.isFinite(awaited[id])),
    )
  }

  /** The graph with each region as one node, in the place of its last member. */
  rewritten(): Checked {
    const { ir, regions } = this
    const fused = new Array<GraphNode | undefined>(ir.nodes.length)
    const all = regions.all.filter(({ members }) => members.length > 1)
    if (all.length === 0) return ir
    for (const region of all) fused[region.members[0]!] = this.nodeOf(region)
    const kept = this.keptOf(fused)
    for (const { members } of all) this.list(members)
    return rewritten(
      ir,
      this.orderOf(kept, fused),
      id => fused[id] ?? this.resultOf(id) ?? this.orderedOf(id) ?? ir.nodes[id]!,
    )
  }

  private list(members: readonly number[]): void {
    this.fusion.kernels++
    if (this.fusion.regions.length === mostListed) return
    const { nodes } = this.ir
    const { name, at } = nodes[members[0]!]!
    this.fusion.regions.push({ name, members: members.map(id => nodes[id]!.name).reverse(), at })
  }

  /**
   * The nodes that stay, in order; the results of a region follow its last member, and views of them that
   * stood before it follow these.
   */
  private orderOf(kept: Uint8Array, fused: readonly (GraphNode | undefined)[]): readonly number[] {
    const { of, values } = this.regions
    const order: number[] = []
    const views = new Map<number, number[]>()
    const placeOf = (id: number): number => {
      if (values.viewFrom[id]! >= 0) return placeOf(this.ir.nodes[id]!.inputs[0]!)
      return of[id]?.members[0] ?? id
    }
    for (let id = 0; id < kept.length; id++) {
      if (kept[id] === 0 || this.isInner(id)) continue
      const place = placeOf(id)
      if (place > id) {
        views.set(place, [...(views.get(place) ?? []), id])
        continue
      }
      order.push(id)
      if (fused[id] !== undefined) for (const result of of[id]!.results) order.push(result)
      for (const view of views.get(id) ?? []) order.push(view)
    }
    return order
  }

  private isInner(id: number): boolean {
    const region = this.regions.of[id]
    return region !== undefined && region.members[0] !== id
  }

  /** A result of a region beside that of its last member. */
  private resultOf(id: number): GraphNode | undefined {
    const region = this.regions.of[id]
    if (region === undefined || region.members[0] === id) return undefined
    const index = region.results.indexOf(id) + 1
    return { ...this.ir.nodes[id]!, op: 'port', inputs: [region.members[0]!], attrs: { index } }
  }

  /** An `after` of a value that is no result: its readers come after the kernel that computes the value. */
  private orderedOf(id: number): GraphNode | undefined {
    const node = this.ir.nodes[id]!
    if (node.op !== 'after') return undefined
    const [value, first] = node.inputs as [number, number]
    const maker = this.regions.values.behind(first)
    if (!this.isInner(maker) || this.regions.of[maker]!.results.includes(maker)) return undefined
    return { ...node, inputs: [value, this.regions.of[maker]!.members[0]!] }
  }

  private nodeOf(region: Region): GraphNode {
    const { nodes } = this.ir
    const { fused, reads } = this.fused.of(region)
    const { kernel, flops, movedBytes, tolerance } = fused
    const members = region.members.map(id => nodes[id]!.name).reverse()
    const results = region.results.map(id => ({ name: nodes[id]!.name, spec: this.ir.specs[id]! }))
    const attrs: FusedAttrs = { kernel, flops, movedBytes, tolerance, results, members }
    const last = nodes[region.members[0]!]!
    return { ...last, op: 'fused', inputs: reads, attrs: attrs as unknown as GraphNode['attrs'] }
  }

  /** Nodes that something still reads: not members but the last, nor views that only a region read. */
  private keptOf(fused: readonly (GraphNode | undefined)[]): Uint8Array {
    const { nodes, outputs } = this.ir
    const kept = new Uint8Array(nodes.length)
    const { values } = this.regions
    for (const { op, inputs } of nodes) if (op === 'delay') kept[inputs[0]!] = 1
    for (const { node, parts } of outputs) for (const id of parts?.nodes ?? [node]) kept[id] = 1
    for (let id = nodes.length - 1; id >= 0; id--) {
      if (!this.isInner(id) && values.viewFrom[id]! < 0) kept[id] = 1
      if (kept[id] === 0 || this.isInner(id) || nodes[id]!.op === 'delay') continue
      for (const input of (fused[id] ?? this.orderedOf(id) ?? nodes[id]!).inputs) kept[input] = 1
    }
    return kept
  }

  /** Why other values that kernels read are stored. */
  apart(products: ReadonlyMap<string, WhyStored>): Fusion['apart'] {
    return storedBetween(this.ir, this.regions, products)
  }
}

export interface Fused {
  readonly ir: Checked
  readonly fusion: Omit<Fusion, 'rejected'>
  /**
   * Whether a lesser effort would find something else: one without siblings, and one without several results.
   */
  readonly differs: { readonly several: boolean; readonly free: boolean }
}

/** Regions of two steps: of a kernel that both made, all members are in one. */
const withMembers = (first: Fusion['regions'], then: Fusion['regions']): Fusion['regions'] => {
  const known = new Map(first.map(region => [region.name, region]))
  const joined = then.map(region => {
    const members = region.members.flatMap(name => {
      const own = known.get(name)?.members ?? [name]
      known.delete(name)
      return own
    })
    return { ...region, members }
  })
  return [...known.values(), ...joined]
}

export const fuse =
  (effort: Effort) =>
  (ir: Checked): Fused => {
    const reads = effort === 'lean' ? { ir, regions: [] } : withStridedReads(ir)
    const attended = effort === 'lean' ? { ir, regions: [] } : withAttentionResults(reads.ir)
    const products = withEpilogues(attended.ir, effort)
    const fusing = new Fusing(products.ir, effort)
    const rewritten = fusing.rewritten()
    const made = withMembers(withMembers(reads.regions, attended.regions), products.regions)
    const regions = [...made, ...fusing.fusion.regions].slice(0, mostListed)
    const kernels = fusing.fusion.kernels + made.length
    const fusion = { effort, kernels, regions, apart: fusing.apart(products.apart) }
    const ops = new Set(effort === 'lean' ? [] : ir.nodes.map(({ op }) => op))
    const joinsAppends = ops.has('append') && ops.has('attention')
    return {
      ir: joinsAppends ? { ...rewritten, joinsAppends } : rewritten,
      fusion,
      differs: { several: fusing.isWide, free: fusing.hasSeveral },
    }
  }
