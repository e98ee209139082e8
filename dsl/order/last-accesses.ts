import type { ArrayAllocator } from '../collections/scratch-arena.js'

/** Numbers of one entry: 1 + its lane, its point, the entry that follows. */
const size = 3

/**
 * Of each owner, a buffer or a byte interval, the last point at which each lane accessed it: a chain of
 * entries, one a lane. Few lanes access one owner, so a chain is short. An owner's first entry has a place of
 * its own, further ones are taken from behind those places.
 */
export class LastAccesses {
  private readonly entries: Int32Array
  private readonly end: number
  private fresh: number
  /** A chain of entries that are free again. */
  private spare = 0

  /**
   * `accesses`: how many a tick has. There are never more entries, since each is of one owner and one lane.
   */
  constructor(allocator: ArrayAllocator, owners: number, accesses: number) {
    this.end = (owners + 1) * size
    this.fresh = this.end
    this.entries = allocator.unset32(this.end + size * accesses)
    this.entries.fill(0, 0, this.end)
  }

  restart(): void {
    this.entries.fill(0, 0, this.end)
    this.fresh = this.end
    this.spare = 0
  }

  /** The first entry of an owner's chain; 0: no lane has accessed it. */
  first(owner: number): number {
    const e = (owner + 1) * size
    return this.entries[e] === 0 ? 0 : e
  }

  /** The entry that follows in the chain; 0: none. */
  next(e: number): number {
    return this.entries[e + 2]!
  }

  laneOf(e: number): number {
    return this.entries[e]! - 1
  }

  pointOf(e: number): number {
    return this.entries[e + 1]!
  }

  /** A lane accesses an owner at its point `point`. */
  put(owner: number, lane: number, point: number): void {
    for (let e = this.first(owner); e !== 0; e = this.next(e))
      if (this.entries[e] === lane + 1) {
        this.entries[e + 1] = point
        return
      }
    this.add(owner, lane, point)
  }

  /**
   * As `put`, by a lane whose frontier is `known[from ..]`, keeping only the maximal accesses: those that
   * happen before this one are dropped, since whatever happens after this one happens after them.
   */
  putMaximal(owner: number, lane: number, point: number, known: Int32Array, from: number): void {
    const { entries } = this
    let own = false
    for (let before = 0, e = this.first(owner); e !== 0; ) {
      const m = entries[e]! - 1
      if (m === lane) {
        entries[e + 1] = point
        own = true
      } else if (known[from + m]! >= entries[e + 1]!) {
        e = this.drop(e, before)
        continue
      }
      before = e
      e = entries[e + 2]!
    }
    if (!own) this.add(owner, lane, point)
  }

  /** The last point of one lane; 0: none. */
  of(owner: number, lane: number): number {
    for (let e = this.first(owner); e !== 0; e = this.next(e))
      if (this.entries[e] === lane + 1) return this.entries[e + 1]!
    return 0
  }

  /**
   * Takes entry e out of its chain, in which it follows `before` (0: it is the owner's first); the entry that
   * now stands in its place.
   */
  private drop(e: number, before: number): number {
    const { entries } = this
    const next = entries[e + 2]!
    if (before !== 0) {
      entries[before + 2] = next
      this.release(e)
      return next
    }
    if (next === 0) {
      entries[e] = 0
      return 0
    }
    for (let i = 0; i < size; i++) entries[e + i] = entries[next + i]!
    this.release(next)
    return e
  }

  private release(e: number): void {
    this.entries[e + 2] = this.spare
    this.spare = e
  }

  private add(owner: number, lane: number, point: number): void {
    const { entries } = this
    const first = (owner + 1) * size
    let e = first
    if (entries[first] === 0) entries[first + 2] = 0
    else {
      e = this.spare
      if (e === 0) {
        e = this.fresh
        this.fresh = e + size
      } else this.spare = entries[e + 2]!
      entries[e + 2] = entries[first + 2]!
      entries[first + 2] = e
    }
    entries[e] = lane + 1
    entries[e + 1] = point
  }
}
