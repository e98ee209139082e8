/**
 * The points that a lane must happen-after to take freed bytes: at most one a lane, in order of lane. Bytes
 * have few of them, however many lanes there are: one of their home lane and one of each lane that used them.
 */
export class ReleasePoints {
  /** Lane, point, lane, point … */
  entries = new Int32Array(16)
  /** The number of points. */
  count = 0

  clear(): void {
    this.count = 0
  }

  /** The point of a lane, in place of the one that was put before; 0: the lane has issued nothing yet. */
  put(lane: number, point: number): void {
    if (point === 0) return
    let at = 2 * this.count
    while (at > 0 && this.entries[at - 2]! > lane) at -= 2
    if (at > 0 && this.entries[at - 2] === lane) {
      this.entries[at - 1] = point
      return
    }
    if (2 * this.count === this.entries.length) {
      const longer = new Int32Array(2 * this.entries.length)
      longer.set(this.entries)
      this.entries = longer
    }
    this.entries.copyWithin(at + 2, at, 2 * this.count)
    this.entries[at] = lane
    this.entries[at + 1] = point
    this.count++
  }
}
