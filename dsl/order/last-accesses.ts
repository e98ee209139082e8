import type { ArrayAllocator } from './scratch-arena.js'

/** Numbers of one entry: 1 + its lane, its point, the entry that follows. */
const each = 3

/**
 * Of each owner, a buffer or a cell of one, the last point that each lane touched it at: a chain of entries, one a lane. Entry `e` has 1 + its lane in `cards[e]`, its
 * point in `cards[e + 1]` and the next in `cards[e + 2]`; 0 ends a chain. Lanes that touch one owner are few, so a chain is short.
 *
 * The first entry of an owner begins its *card*, where there may be more numbers that somebody else keeps of it: owners are touched in any order, so all that is asked of one at a time
 * lies side by side in memory. Further entries are behind the cards.
 */
export class LastAccesses {
  readonly cards: Int32Array
  private readonly size: number
  private readonly end: number
  private fresh: number
  /** A chain of entries that are to be had again. */
  private spare = 0

  constructor(
    allocator: ArrayAllocator,
    owners: number,
    /** How many touches a tick has: of all of them together there are no more entries. */
    touches: number,
    /** How many numbers there are on a card beside the entry. */
    beside = 0,
  ) {
    this.size = each + beside
    this.end = (owners + 1) * this.size
    this.fresh = this.end
    this.cards = allocator.unset32(this.end + each * touches)
    this.cards.fill(0, 0, this.end)
  }

  restart(): void {
    this.cards.fill(0, 0, this.end)
    this.fresh = this.end
    this.spare = 0
  }

  /** Where an owner's card begins. */
  card(owner: number): number {
    return (owner + 1) * this.size
  }

  /** The first entry of an owner's chain; 0: nobody has touched it. */
  first(owner: number): number {
    const card = this.card(owner)
    return this.cards[card] === 0 ? 0 : card
  }

  touch(owner: number, lane: number, point: number): void {
    const { cards } = this
    for (let e = this.first(owner); e !== 0; e = cards[e + 2]!)
      if (cards[e] === lane + 1) {
        cards[e + 1] = point
        return
      }
    this.add(this.card(owner), lane, point)
  }

  /**
   * As `touch`, by a lane whose frontier is `known[from ..]`, where what comes before another touch need not be kept: whoever is after this touch is after all that its
   * lane knows of.
   */
  cover(owner: number, lane: number, point: number, known: Int32Array, from: number): void {
    const { cards } = this
    const card = this.card(owner)
    let own = false
    for (let before = 0, e = this.first(owner); e !== 0; ) {
      const m = cards[e]! - 1
      if (m === lane) {
        cards[e + 1] = point
        own = true
      } else if (known[from + m]! >= cards[e + 1]!) {
        e = this.drop(e, before)
        continue
      }
      before = e
      e = cards[e + 2]!
    }
    if (!own) this.add(card, lane, point)
  }

  /** Takes entry e out of its chain, in which it follows `before`; 0: it is on a card. The entry that comes next in the chain. */
  private drop(e: number, before: number): number {
    const { cards } = this
    const next = cards[e + 2]!
    if (before !== 0) {
      cards[before + 2] = next
      this.spared(e)
      return next
    }
    if (next === 0) {
      cards[e] = 0
      return 0
    }
    for (let i = 0; i < each; i++) cards[e + i] = cards[next + i]!
    this.spared(next)
    return e
  }

  private spared(e: number): void {
    this.cards[e + 2] = this.spare
    this.spare = e
  }

  private add(card: number, lane: number, point: number): void {
    const { cards } = this
    let e = card
    if (cards[card] === 0) cards[card + 2] = 0
    else {
      e = this.spare
      if (e === 0) {
        e = this.fresh
        this.fresh = e + each
      } else this.spare = cards[e + 2]!
      cards[e + 2] = cards[card + 2]!
      cards[card + 2] = e
    }
    cards[e] = lane + 1
    cards[e + 1] = point
  }

  /** The last point of one lane; 0: none. */
  of(owner: number, lane: number): number {
    const { cards } = this
    for (let e = this.first(owner); e !== 0; e = cards[e + 2]!)
      if (cards[e] === lane + 1) return cards[e + 1]!
    return 0
  }
}
