import { tensorBytes } from '../../../ir/tensor.js'
import { GraphRebuild } from '../../analysis/graph-rebuild.js'
import type { Checked } from '../../analysis/ir.js'
import { isView } from '../../analysis/operators.js'
import { worth } from '../../analysis/predict.js'
import { rewritten } from '../../analysis/rewritten.js'
import { apartBy } from './readers.js'
import { most, type Region, type Regions, Sources } from './regions.js'
import { changedMemory } from './values.js'

//   a = cast(x) · y = a / sum(a) of each row · z = sum(a · b) of each column, two regions, and a is stored
//   → a' = cast(x) · y = a' / sum(a') · a" = cast(x) · z = sum(a" · b): two regions that read x
//
// After this step an elementwise value that one region makes and only regions read is computed again in each
// of the others, where all kernels together are predicted to take less time for it and no more memory is held:
// what the value is made of is in memory then anyway, or takes no more bytes than the value, which is not
// stored any more. No reduction is done again.

/** Values that a region computes again for the sake of one, at most. */
const mostRepeated = 16

/** What a region computes for a value that another one makes, and what it reads for that. */
interface Again {
  readonly region: Region
  readonly nodes: readonly number[]
  readonly slots: number
  readonly instructions: number
  /** The nodes that the region does not read yet, and the bytes of each. */
  readonly fresh: readonly number[]
  /** Bytes that the region reads more. */
  readonly more: number
}

/** Bytes that the kernel of a region reads and writes. */
const movedBy = ({ specs }: Checked, { members, sources, resultBytes }: Region): number =>
  sources.bytes.reduce((sum, bytes) => sum + bytes, tensorBytes(specs[members[0]!]!) + resultBytes)

/** Nanoseconds of all regions, one after the other. */
export const timeOfAll = (ir: Checked, regions: Regions): number =>
  regions.all.reduce((sum, region) => {
    if (region.members.length === 0) return sum
    const moved = movedBy(ir, region)
    return sum + regions.timeOf(region, moved, moved)
  }, 0)

class Repeated {
  /** By region: the nodes that it computes again; and the region with these, and with what it then reads. */
  readonly again = new Map<Region, Set<number>>()
  private readonly grown = new Map<Region, Region>()
  private readonly times = new Map<Region, number>()
  /** Values that all their readers compute themselves. */
  private readonly gone = new Set<number>()
  /** By node: whether only regions read it that could make it, of which one is not its own. */
  private readonly isMade: Uint8Array
  /** By node: the last of its readers in other regions, and by such a reading the node, and the one before. */
  private readonly readings: Int32Array
  private readonly reader: number[] = []
  private readonly earlier: number[] = []
  /** By node: the node whose memory it has, and of that the last place of a kernel that reads it. */
  private readonly root: Int32Array
  private readonly last: Int32Array
  private changed: Uint8Array | undefined
  /** Nanoseconds that all this is predicted to save. */
  saved = 0

  constructor(
    private readonly ir: Checked,
    private readonly regions: Regions,
  ) {
    const { nodes, outputs } = ir
    this.isMade = new Uint8Array(nodes.length).fill(1)
    this.readings = new Int32Array(nodes.length).fill(-1)
    this.root = new Int32Array(nodes.length)
    this.last = new Int32Array(nodes.length).fill(-1)
    for (const { id } of nodes) this.note(id)
    for (const { node, parts } of outputs) for (const id of parts?.nodes ?? [node]) this.keep(id)
    for (const { op, inputs } of nodes) if (op === 'delay') this.keep(inputs[0]!)
    if (this.reader.length === 0) return
    this.changed = changedMemory(ir)
    for (const { id } of nodes) if (this.isMade[id] === 1 && this.readings[id]! >= 0) this.meet(id)
  }

  /** Notes what a node reads. */
  private note(id: number): void {
    const { of, values } = this.regions
    const node = this.ir.nodes[id]!
    const isOwn = values.elementwise[id] !== undefined || !isView(node)
    this.root[id] = isOwn ? id : this.root[node.inputs[0]!]!
    if (values.viewFrom[id]! >= 0 || node.op === 'delay') return
    const region = of[id]
    const place = region?.members[0] ?? id
    for (const input of node.inputs) {
      const source = values.behind(input)
      const root = this.root[source]!
      if (this.last[root]! < place) this.last[root] = place
      if (of[source] === undefined || of[source] === region) continue
      if (region === undefined || !this.isFit(source, region)) this.isMade[source] = 0
      if (this.isMade[source] === 0) continue
      this.earlier.push(this.readings[source]!)
      this.readings[source] = this.reader.push(id) - 1
    }
  }

  /** Notes that a value is in memory at the end of the tick. */
  private keep(id: number): void {
    const source = this.regions.values.behind(id)
    this.isMade[source] = 0
    this.last[this.root[source]!] = this.ir.nodes.length
  }

  /** Whether a region could have a node, as far as the node goes. */
  private isFit(id: number, { members }: Region): boolean {
    const { elementwise } = this.regions.values
    const own = elementwise[id]
    if (own === undefined || own.length > 0 || own.isIndexed) return false
    const last = members[0]!
    return (
      own.kernel.compute === elementwise[last]!.kernel.compute && apartBy(this.ir, id, last) === undefined
    )
  }

  private now(region: Region): Region {
    return this.grown.get(region) ?? region
  }

  /** Lets all regions that read a value compute it, if that takes less time. */
  private meet(id: number): void {
    const { of, values } = this.regions
    const ways: Again[] = []
    for (let at = this.readings[id]!; at >= 0; at = this.earlier[at]!) {
      const region = of[this.reader[at]!]!
      if (ways.some(way => way.region === region)) continue
      const way = this.wayOf(id, region)
      if (way === undefined) return
      ways.push(way)
    }
    const own = this.now(of[id]!)
    const isAll = own.members[0] === id && own.results.length === 0
    const bytes = tensorBytes(this.ir.specs[id]!)
    const more = ways.reduce((sum, way) => sum + way.more, 0)
    if (!isAll && more >= bytes) return
    if (!this.isHeld(ways, values.bytes[id]!)) return
    const saved = this.timeOf(own) - (isAll ? 0 : this.timeOf(own, -bytes))
    const longer = ways.reduce((sum, way) => sum + this.longerBy(way), 0)
    if (longer >= saved) return
    this.saved += saved - longer
    for (const way of ways) this.take(way)
    this.gone.add(id)
    if (!isAll && own.members[0] !== id)
      this.grown.set(of[id]!, {
        ...own,
        results: own.results.filter(other => other !== id),
        resultBytes: own.resultBytes - bytes,
      })
  }

  /** Nanoseconds of a region where its kernel reads so many bytes more. */
  private timeOf(region: Region, more = 0, slots = 0): number {
    const moved = movedBy(this.ir, region)
    if (more !== 0 || slots !== 0)
      return this.regions.timeOf({ ...region, slots: region.slots + slots }, moved + more, moved)
    let time = this.times.get(region)
    if (time === undefined) this.times.set(region, (time = this.regions.timeOf(region, moved, moved)))
    return time
  }

  private longerBy({ region, more, slots }: Again): number {
    const now = this.now(region)
    return this.timeOf(now, more, slots) - this.timeOf(now)
  }

  /** How a region computes a value itself; undefined where it cannot. */
  private wayOf(id: number, region: Region): Again | undefined {
    const { ir, regions, changed } = this
    const { values, of } = regions
    const known = this.again.get(region)
    const now = this.now(region)
    const nodes = [id]
    const fresh: number[] = []
    let slots = 0
    let instructions = now.instructions
    let more = 0
    for (const node of nodes) {
      if (!this.isFit(node, region) || nodes.length > mostRepeated || changed?.[node] === 1) return undefined
      const own = values.elementwise[node]!
      slots += own.slots
      instructions += own.instructions
      for (const input of values.readsOf(node)) {
        if (input < 0) continue
        const source = values.behind(input)
        if (of[source] === region || known?.has(source) === true) continue
        if (!this.isStored(source)) {
          if (!nodes.includes(source)) nodes.push(source)
        } else if (!now.sources.has(source) && !fresh.includes(source)) {
          if (!this.mayRead(source, region)) return undefined
          fresh.push(source)
          more += tensorBytes(ir.specs[source]!)
        }
      }
    }
    for (let i = 0; i < now.sources.size; i++)
      if (values.behind(now.sources.ids[i]!) === id) more -= now.sources.bytes[i]!
    const operands = now.sources.size + fresh.length
    if (instructions > most.instructions || operands > most.operands) return undefined
    return { region, nodes, slots, instructions, fresh, more }
  }

  private isStored(id: number): boolean {
    const region = this.regions.of[id]
    if (region === undefined) return true
    return !this.gone.has(id) && (region.members[0] === id || region.results.includes(id))
  }

  /**
   * Whether a region may read a value that it does not read yet: not one that is changed in its memory, nor a
   * state whose next value may be made there before.
   */
  private mayRead(id: number, { members, sources }: Region): boolean {
    const { nodes } = this.ir
    const root = nodes[this.root[id]!]!
    if (this.changed?.[id] === 1 || this.changed?.[root.id] === 1) return false
    if (root.op !== 'delay' || sources.ids.some(source => this.root[source] === root.id)) return true
    const next = this.regions.values.behind(root.inputs[0]!)
    return members[0]! < (this.regions.of[next]?.members[0] ?? next)
  }

  /** Whether all that is read is in memory until then, but for so many bytes. */
  private isHeld(ways: readonly Again[], most: number): boolean {
    const { bytes } = this.regions.values
    const longer: number[] = []
    let sum = 0
    for (const { region, fresh } of ways)
      for (const id of fresh) {
        const root = this.root[id]!
        if (this.last[root]! >= region.members[0]! || longer.includes(root)) continue
        longer.push(root)
        sum += bytes[root]!
      }
    return sum <= most
  }

  private take({ region, nodes, slots, instructions, fresh }: Again): void {
    const { values } = this.regions
    const known = this.again.get(region) ?? new Set()
    this.again.set(region, known)
    for (const id of nodes) known.add(id)
    const now = this.now(region)
    const sources = new Sources()
    for (let i = 0; i < now.sources.size; i++) {
      const source = now.sources.ids[i]!
      if (!known.has(values.behind(source))) sources.set(source, now.sources.bytes[i]!)
    }
    for (const id of fresh) {
      sources.set(id, tensorBytes(this.ir.specs[id]!))
      const root = this.root[id]!
      if (this.last[root]! < region.members[0]!) this.last[root] = region.members[0]!
    }
    this.grown.set(region, { ...now, sources, instructions, slots: now.slots + slots })
  }
}

/** The graph in which each region has nodes of its own for what it computes again. */
const withNodes = (
  ir: Checked,
  { of, values }: Regions,
  again: ReadonlyMap<Region, ReadonlySet<number>>,
): Checked => {
  const rebuild = new GraphRebuild(ir)
  const { renumbered } = rebuild
  const perhapsUnread: number[] = []
  const made = new Map<Region, Map<number, number>>()
  const inputOf = (region: Region, repeats: ReadonlySet<number>, id: number): number => {
    if (!repeats.has(values.behind(id))) return renumbered[id]!
    let own = made.get(region)
    if (own === undefined) made.set(region, (own = new Map()))
    const known = own.get(id)
    if (known !== undefined) return known
    const node = ir.nodes[id]!
    const inputs = node.inputs.map(input => inputOf(region, repeats, input))
    const name = `${ir.nodes[region.members[0]!]!.name}.${node.name}`
    const added = rebuild.add({ ...node, name }, inputs, ir.specs[id]!, id)
    own.set(id, added)
    // Values that are not stored any more may be all that reads either.
    perhapsUnread.push(renumbered[id]!, added)
    return added
  }
  for (const node of ir.nodes) {
    const region = of[node.id]
    const repeats = region && again.get(region)
    const inputs = node.inputs.map(input =>
      repeats === undefined ? renumbered[input]! : inputOf(region!, repeats, input),
    )
    renumbered[node.id] = rebuild.add(node, inputs, ir.specs[node.id]!, node.id)
  }
  for (const { id, op, inputs } of ir.nodes)
    if (op === 'delay') rebuild.close(renumbered[id]!, renumbered[inputs[0]!]!)
  return withoutUnread(rebuild.result(), perhapsUnread)
}

/** The graph without those of some nodes that nothing reads. */
const withoutUnread = (ir: Checked, perhaps: readonly number[]): Checked => {
  const { nodes, outputs } = ir
  const readers = new Int32Array(nodes.length)
  for (const { inputs } of nodes) for (const input of inputs) readers[input]! += 1
  for (const { node, parts } of outputs) for (const id of parts?.nodes ?? [node]) readers[id]! += 1
  const unread = new Set<number>()
  for (const id of [...new Set(perhaps)].sort((a, b) => b - a)) {
    if (readers[id]! > 0) continue
    unread.add(id)
    for (const input of nodes[id]!.inputs) readers[input]! -= 1
  }
  const order = nodes.map(({ id }) => id).filter(id => !unread.has(id))
  return rewritten(ir, order, id => nodes[id]!)
}

/** Operations of a graph up to which this is tried: where something is found, all regions are made anew. */
const mostTried = 2 ** 16

/**
 * The graph in which regions compute again what they then need not read; undefined where that is predicted to
 * save less than is worth it.
 */
export const repeated = (ir: Checked, regions: Regions): Checked | undefined => {
  if (ir.nodes.length > mostTried) return undefined
  const { again, saved } = new Repeated(ir, regions)
  if (again.size === 0 || saved <= worth * timeOfAll(ir, regions)) return undefined
  return withNodes(ir, regions, again)
}
