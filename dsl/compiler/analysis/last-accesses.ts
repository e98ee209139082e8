import { type ArrayAllocator, heap } from '../../order/scratch-arena.js'

/** For each of some buffers a row of lanes: 1 + the last access of each, 0 for none. Rows of buffers that are done with serve again. */
export class LastAccesses {
  private last = new Int32Array(1024)
  private readonly rowOf: Int32Array
  private readonly spare: number[] = []
  private rows = 0

  constructor(
    buffers: number,
    private readonly lanes: number,
    room: ArrayAllocator = heap,
  ) {
    this.rowOf = room.int32(buffers).fill(-1)
  }

  touch(buffer: number, lane: number, i: number): void {
    let row = this.rowOf[buffer]!
    if (row === -1) {
      row = this.spare.pop() ?? this.rows++
      this.rowOf[buffer] = row
      if (this.rows * this.lanes > this.last.length) {
        const longer = new Int32Array(Math.max(2 * this.last.length, this.rows * this.lanes))
        longer.set(this.last)
        this.last = longer
      }
    }
    this.last[row * this.lanes + lane] = i + 1
  }

  /** The buffer's last accesses, latest first, into `accesses`; how many there are. Its row is empty then. */
  drain(buffer: number, accesses: Int32Array): number {
    const row = this.rowOf[buffer]!
    if (row === -1) return 0
    this.spare.push(row)
    let length = 0
    for (let cell = row * this.lanes; cell < (row + 1) * this.lanes; cell++) {
      const access = this.last[cell]! - 1
      this.last[cell] = 0
      if (access < 0) continue
      let at = length++
      for (; at > 0 && accesses[at - 1]! < access; at--) accesses[at] = accesses[at - 1]!
      accesses[at] = access
    }
    return length
  }
}
