import type { Room } from '../scratch.js'

/** Numbers of one entry: its lane, its point, the entry that follows. */
const stride = 3

/**
 * Of each owner, a buffer or a cell of one, the last point that each lane touched it at: a chain of entries, one a lane. Entry `e` has its lane in `entries[e]`, its
 * point in `entries[e + 1]` and the next in `entries[e + 2]`; 0 ends a chain. Lanes that touch one owner are few, so a chain is short.
 */
export class Last {
  readonly head: Int32Array
  readonly entries: Int32Array
  private fresh = stride
  /** A chain of entries that are to be had again. */
  private spare = 0

  constructor(
    room: Room,
    owners: number,
    /** How many touches a tick has: of all of them together there are no more entries. */
    touches: number,
  ) {
    this.head = room.int32(owners)
    this.entries = room.unset32(stride * (touches + 1))
  }

  restart(): void {
    this.head.fill(0)
    this.fresh = stride
    this.spare = 0
  }

  touch(owner: number, lane: number, point: number): void {
    const { head, entries } = this
    for (let e = head[owner]!; e !== 0; e = entries[e + 2]!)
      if (entries[e] === lane) {
        entries[e + 1] = point
        return
      }
    this.add(owner, lane, point)
  }

  /**
   * As `touch`, by a lane whose frontier is `known[from ..]`, where what comes before another touch need not be kept: whoever is after this touch is after all that its
   * lane knows of.
   */
  cover(owner: number, lane: number, point: number, known: Int32Array, from: number): void {
    const { head, entries } = this
    let before = 0
    let own = false
    for (let e = head[owner]!; e !== 0; ) {
      const next = entries[e + 2]!
      const m = entries[e]!
      if (m === lane) {
        entries[e + 1] = point
        own = true
        before = e
      } else if (known[from + m]! < entries[e + 1]!) before = e
      else {
        if (before === 0) head[owner] = next
        else entries[before + 2] = next
        entries[e + 2] = this.spare
        this.spare = e
      }
      e = next
    }
    if (!own) this.add(owner, lane, point)
  }

  private add(owner: number, lane: number, point: number): void {
    const { head, entries } = this
    let e = this.spare
    if (e === 0) {
      e = this.fresh
      this.fresh = e + stride
    } else this.spare = entries[e + 2]!
    entries[e] = lane
    entries[e + 1] = point
    entries[e + 2] = head[owner]!
    head[owner] = e
  }

  /** As if nobody had touched it. */
  forget(owner: number): void {
    const { head, entries } = this
    const first = head[owner]!
    if (first === 0) return
    let e = first
    while (entries[e + 2] !== 0) e = entries[e + 2]!
    entries[e + 2] = this.spare
    this.spare = first
    head[owner] = 0
  }

  /** The last point of one lane; 0: none. */
  of(owner: number, lane: number): number {
    const { entries } = this
    for (let e = this.head[owner]!; e !== 0; e = entries[e + 2]!) if (entries[e] === lane) return entries[e + 1]!
    return 0
  }
}
