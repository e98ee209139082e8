import type { Succession, Tenants } from './tenants.js'

/** Operations that one place of the index stands for. */
const width = 16

/** Stretches of time, and who is there: found by their beginning, or by any place within. */
class Stretches {
  private readonly beginning: number[][]
  /** A binary tree over the places: who covers all that a node stands for, but not all that its parent does. */
  private readonly covering: number[][]

  constructor(private readonly places: number) {
    this.beginning = Array.from({ length: places }, () => [])
    this.covering = Array.from({ length: 2 * places }, () => [])
  }

  add(k: number, from: number, to: number): void {
    this.beginning[from]!.push(k)
    let low = from + this.places
    let high = to + this.places + 1
    for (; low < high; low >>= 1, high >>= 1) {
      if (low & 1) this.covering[low++]!.push(k)
      if (high & 1) this.covering[--high]!.push(k)
    }
  }

  /** Everybody who is somewhere from `from` to `to`, each once. */
  visit(from: number, to: number, visit: (list: readonly number[]) => void): void {
    for (let node = from + this.places; node > 0; node >>= 1) visit(this.covering[node]!)
    for (let at = from + 1; at <= to; at++) visit(this.beginning[at]!)
  }
}

/**
 * Which tenants may be in each other's way, without looking at all: an index by time. A tenant is there from the earliest operation that its first
 * access is not known to be after, to its last access; and at the end of the tick, from the earliest operation there that its next first access is
 * not known to be after. Tenants that are nowhere together may share bytes: one follows the other, in the tick and around its end.
 */
export class Neighbours {
  private readonly stretches: Stretches
  private readonly places: number
  private readonly from: Int32Array
  private readonly to: Int32Array
  private readonly again: Int32Array
  private readonly seen: Int32Array
  private stamp = 0
  /** Entries that were looked at so far. */
  work = 0

  constructor(succession: Succession, { first, last }: Pick<Tenants, 'first' | 'last'>) {
    const place = (i: number): number => Math.floor(i / width)
    this.places = place(succession.operations) + 1
    this.stretches = new Stretches(this.places)
    this.from = first.map(i => place(succession.openSince(i)))
    this.to = last.map(place)
    // Where all of the tick before is known to be done, there is no such stretch.
    this.again = first.map(i => {
      const open = succession.openSinceLast(i)
      return open === succession.operations ? this.places : place(open)
    })
    this.seen = new Int32Array(first.length)
  }

  add(k: number): void {
    this.stretches.add(k, this.from[k]!, this.to[k]!)
    const again = Math.max(this.again[k]!, this.to[k]! + 1)
    if (again < this.places) this.stretches.add(k, again, this.places - 1)
  }

  /** Of those that were added, who may be in the way of k; their number, and they in `into`. */
  of(k: number, into: Int32Array): number {
    const { seen } = this
    const stamp = ++this.stamp
    let count = 0
    const look = (list: readonly number[]): void => {
      this.work += list.length
      for (let i = 0; i < list.length; i++) {
        const other = list[i]!
        if (seen[other] === stamp) continue
        seen[other] = stamp
        into[count++] = other
      }
    }
    this.stretches.visit(this.from[k]!, this.to[k]!, look)
    const again = Math.max(this.again[k]!, this.to[k]! + 1)
    if (again < this.places) this.stretches.visit(again, this.places - 1, look)
    return count
  }
}
