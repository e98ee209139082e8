import { rounded } from '../../memory/pool-peak.js'
import type { Ordered } from '../analysis/ir.js'

/**
 * Bytes of device memory that are in use at once at the most, in issue order, of the device where that is most: no order of lanes and no waits can make a plan of this
 * order hold less. Each buffer lives from the first operation that touches it to the last. Linear.
 */
export const liveOf = ({ operations, buffers }: Pick<Ordered, 'operations' | 'buffers'>): number => {
  const first = new Int32Array(buffers.length).fill(-1)
  const last = new Int32Array(buffers.length).fill(-1)
  operations.forEach(({ reads, writes }, i) => {
    for (const list of [reads, writes])
      for (const buffer of list) {
        const { root } = buffers[buffer]!
        if (first[root] === -1) first[root] = i
        last[root] = i
      }
  })
  const devices = buffers.reduce((most, { device = 0 }) => Math.max(most, device), 0) + 1
  const change = new Float64Array(operations.length + 1)
  let most = 0
  for (let on = 0; on < devices; on++) {
    change.fill(0)
    let now = 0
    buffers.forEach(({ life, space, root, bytes, device = 0 }, id) => {
      if (space !== 'device' || root !== id || device !== on) return
      if (life === 'state' || life === 'param') now += rounded(bytes)
      if (life !== 'tick' || first[id] === -1) return
      change[first[id]!]! += rounded(bytes)
      change[last[id]! + 1]! -= rounded(bytes)
    })
    most = Math.max(most, now)
    // What is freed after an operation is free before the next one's allocations.
    for (const by of change) {
      now += by
      most = Math.max(most, now)
    }
  }
  return most
}
