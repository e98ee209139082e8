/** The distinct (owner, lane) of some accesses: an owner is a buffer, or a byte range of one. */
export interface Pairs {
  /** Pairs of owner b: pairStart[b] up to pairStart[b + 1]. */
  readonly pairStart: Int32Array
  readonly pairLane: Int32Array
  readonly accessPair: Int32Array
}

/** Accesses of command c are start[c] up to start[c + 1]; `owner` has one of `owners` for each. */
export const pairsOf = (owners: number, lanes: number, lane: Int32Array, start: Int32Array, owner: Int32Array): Pairs =>
  (lanes <= 32 ? byMask : byBucket)(owners, lanes, lane, start, owner)

const bitsOf = (mask: number): number => {
  mask -= (mask >>> 1) & 0x55555555
  mask = (mask & 0x33333333) + ((mask >>> 2) & 0x33333333)
  return Math.imul((mask + (mask >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24
}

/** A set of lanes is one word: a pair is its owner's first and as many as it has lower lanes. */
const byMask = (owners: number, _lanes: number, lane: Int32Array, start: Int32Array, owner: Int32Array): Pairs => {
  const commands = start.length - 1
  const mask = new Int32Array(owners)
  for (let c = 0; c < commands; c++) {
    const bit = 1 << lane[c]!
    for (let a = start[c]!, end = start[c + 1]!; a < end; a++) mask[owner[a]!]! |= bit
  }
  const pairStart = new Int32Array(owners + 1)
  for (let b = 0; b < owners; b++) pairStart[b + 1] = pairStart[b]! + bitsOf(mask[b]!)
  const pairLane = new Int32Array(pairStart[owners]!)
  for (let b = 0, pair = 0; b < owners; b++)
    for (let left = mask[b]!; left !== 0; left &= left - 1) pairLane[pair++] = 31 - Math.clz32(left & -left)
  const accessPair = new Int32Array(start[commands]!)
  for (let c = 0; c < commands; c++) {
    const lower = (1 << lane[c]!) - 1
    for (let a = start[c]!, end = start[c + 1]!; a < end; a++) {
      const b = owner[a]!
      accessPair[a] = pairStart[b]! + bitsOf(mask[b]! & lower)
    }
  }
  return { pairStart, pairLane, accessPair }
}

/** Accesses are bucketed by owner, then each bucket's lanes are told apart by a stamp. */
const byBucket = (owners: number, lanes: number, lane: Int32Array, start: Int32Array, owner: Int32Array): Pairs => {
  const commands = start.length - 1
  const accesses = start[commands]!
  const at = new Int32Array(owners + 1)
  for (let a = 0; a < accesses; a++) at[owner[a]! + 1]!++
  for (let b = 0; b < owners; b++) at[b + 1]! += at[b]!
  const fill = at.slice()
  const byOwner = new Int32Array(accesses)
  const laneOf = new Int32Array(accesses)
  for (let c = 0; c < commands; c++) {
    for (let a = start[c]!; a < start[c + 1]!; a++) {
      laneOf[a] = lane[c]!
      byOwner[fill[owner[a]!]!++] = a
    }
  }
  const pairStart = new Int32Array(owners + 1)
  const pairLane = new Int32Array(accesses)
  const accessPair = new Int32Array(accesses)
  const stamp = new Int32Array(lanes).fill(-1)
  const pairOf = new Int32Array(lanes)
  let pairs = 0
  for (let b = 0; b < owners; b++) {
    pairStart[b] = pairs
    for (let i = at[b]!; i < at[b + 1]!; i++) {
      const a = byOwner[i]!
      const l = laneOf[a]!
      if (stamp[l] !== b) {
        stamp[l] = b
        pairLane[pairs] = l
        pairOf[l] = pairs++
      }
      accessPair[a] = pairOf[l]!
    }
  }
  pairStart[owners] = pairs
  return { pairStart, pairLane: pairLane.slice(0, pairs), accessPair }
}
