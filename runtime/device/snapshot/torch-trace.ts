// PyTorch's viewer plays a trace backwards from the segments at its end. It stops with an exception where the
// two contradict each other: a free of a block that is in no segment, a free that was never completed, pages
// unmapped that were not mapped. The traces made here never contradict their segments.
import type { TorchRecord, TorchSegment } from './torch-form.js'

interface Range {
  address: number
  size: number
  readonly stream: number
}

/**
 * The newest part of a trace that leads to these segments, and how many older records were dropped. A
 * `free_completed` is added after each `free_requested` whose block is free at the end. A `segment_alloc` of
 * a range that the viewer has joined to a neighbour becomes a `segment_map`: only then does the viewer take
 * the range out of the joined one.
 */
export const consistent = (
  trace: readonly TorchRecord[],
  segments: readonly TorchSegment[],
): { readonly trace: readonly TorchRecord[]; readonly dropped: number } => {
  const memory = new Memory(segments)
  const newestFirst: TorchRecord[] = []
  for (let i = trace.length - 1; i >= 0; i--) {
    const record = trace[i]!
    const joined = record.action === 'segment_alloc' && !memory.holds(record)
    const shown: TorchRecord = joined ? { ...record, action: 'segment_map' } : record
    if (!memory.undo(shown, completion => newestFirst.push(completion)))
      return { trace: newestFirst.reverse(), dropped: i + 1 }
    newestFirst.push(shown)
  }
  return { trace: newestFirst.reverse(), dropped: 0 }
}

/** The mapped ranges and the blocks in use, going back in time. */
class Memory {
  private readonly ranges: Range[] // in order of address; no two touch bytes of each other
  private readonly taken: Map<number, number> // sizes of the blocks that are not free, by address

  constructor(segments: readonly TorchSegment[]) {
    this.ranges = segments
      .map(({ address, total_size, stream }) => ({ address, size: total_size, stream }))
      .sort((a, b) => a.address - b.address)
    const blocks = segments.flatMap(segment => segment.blocks).filter(({ state }) => state !== 'inactive')
    this.taken = new Map(blocks.map(({ address, size }) => [address, size]))
  }

  /** Whether a range is exactly the record's. */
  holds({ addr = 0, size }: TorchRecord): boolean {
    const range = this.ranges[this.before(addr)]
    return range?.address === addr && range.size === size
  }

  /** False where the record cannot have led to the present state. */
  undo(record: TorchRecord, complete: (record: TorchRecord) => void): boolean {
    const { action, addr = 0, size } = record
    if (action === 'alloc') this.taken.delete(addr)
    else if (action === 'free_completed') return this.takes(addr, size)
    else if (action === 'free_requested') {
      if (this.taken.has(addr)) return true
      if (!this.takes(addr, size)) return false
      complete({ ...record, action: 'free_completed' })
    } else if (action === 'segment_alloc' || action === 'segment_map') return this.unmap(addr, size)
    else if (action === 'segment_free' || action === 'segment_unmap')
      return this.map({ address: addr, size, stream: record.stream }, action === 'segment_unmap')
    return true
  }

  private takes(address: number, size: number): boolean {
    const range = this.ranges[this.before(address)]
    if (size < 1 || !range || address + size > range.address + range.size) return false
    this.taken.set(address, size)
    return true
  }

  private map(added: Range, merge: boolean): boolean {
    const { ranges } = this
    const i = this.before(added.address) + 1
    const [previous, next] = [ranges[i - 1], ranges[i]]
    const end = added.address + added.size
    if (added.size < 1 || (previous && previous.address + previous.size > added.address)) return false
    if (next && next.address < end) return false
    ranges.splice(i, 0, added)
    if (merge && next?.address === end && next.stream === added.stream) {
      added.size += next.size
      ranges.splice(i + 1, 1)
    }
    if (
      merge &&
      previous &&
      previous.address + previous.size === added.address &&
      previous.stream === added.stream
    ) {
      previous.size += added.size
      ranges.splice(i, 1)
    }
    return true
  }

  private unmap(address: number, size: number): boolean {
    const { ranges } = this
    const i = this.before(address)
    const range = ranges[i]
    if (size < 1 || !range) return false
    const [end, rangeEnd] = [address + size, range.address + range.size]
    if (end > rangeEnd) return false
    for (const [at, bytes] of this.taken) if (at < end && at + bytes > address) return false
    const left = { ...range, size: address - range.address }
    const right = { ...range, address: end, size: rangeEnd - end }
    ranges.splice(i, 1, ...[left, right].filter(part => part.size > 0))
    return true
  }

  /** The index of the last range that begins at this address or before; -1 where none does. */
  private before(address: number): number {
    let low = 0
    let high = this.ranges.length
    while (low < high) {
      const middle = (low + high) >> 1
      if (this.ranges[middle]!.address <= address) low = middle + 1
      else high = middle
    }
    return low - 1
  }
}
