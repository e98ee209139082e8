import type { Buffer, Lowered } from './ir.js'

/**
 * What a tick may do only after the tick before has done it: by operation, the number of its core; -1: none.
 * A *core* is all that lies on a path between two accesses of a state that the tick writes, and of states
 * whose paths cross.
 */
export interface StateCores {
  readonly coreOf: Int32Array
  readonly cores: number
  /** The states that the tick writes. */
  readonly states: readonly Buffer[]
}

interface Accessed {
  readonly state: Buffer
  /** The operations that access it, in the program's order. */
  readonly by: number[]
  written: boolean
}

const accessedIn = ({ operations, buffers }: Lowered): readonly Accessed[] => {
  const found = new Map<number, Accessed>()
  for (let i = 0; i < operations.length; i++) {
    const { reads, writes } = operations[i]!
    const note = (id: number, isWrite: boolean): void => {
      const { root } = buffers[id]!
      if (buffers[root]!.life !== 'state') return
      const state = found.get(root) ?? { state: buffers[root]!, by: [], written: false }
      found.set(root, state)
      if (state.by.at(-1) !== i) state.by.push(i)
      state.written ||= isWrite
    }
    for (const id of reads) note(id, false)
    for (const id of writes) note(id, true)
  }
  return [...found.values()].filter(({ written }) => written)
}

/**
 * The strongly connected components of the dependencies and of `rings`, by Tarjan's algorithm without
 * recursion: by operation, the number of its component.
 */
const componentsOf = (
  operations: Lowered['operations'],
  rings: readonly (readonly number[])[],
): Int32Array => {
  const count = operations.length
  const before: number[][] = operations.map(({ after }) => [...after])
  for (const ring of rings)
    ring.forEach((i, at) => {
      before[ring[(at + 1) % ring.length]!]!.push(i)
    })
  const component = new Int32Array(count).fill(-1)
  const index = new Int32Array(count).fill(-1)
  const low = new Int32Array(count)
  const next = new Int32Array(count)
  const open: number[] = []
  const path: number[] = []
  let visited = 0
  let components = 0
  const visit = (i: number): void => {
    index[i] = low[i] = visited++
    open.push(i)
    path.push(i)
  }
  const close = (i: number): void => {
    for (let last = -1; last !== i; ) {
      last = open.pop()!
      component[last] = components
    }
    components++
  }
  for (let root = 0; root < count; root++) {
    if (index[root] !== -1) continue
    visit(root)
    while (path.length > 0) {
      const i = path.at(-1)!
      const to = before[i]![next[i]!++]
      if (to === undefined) {
        path.pop()
        if (path.length > 0) low[path.at(-1)!] = Math.min(low[path.at(-1)!]!, low[i]!)
        if (low[i] === index[i]) close(i)
      } else if (index[to] === -1) visit(to)
      else if (component[to] === -1) low[i] = Math.min(low[i]!, index[to]!)
    }
  }
  return component
}

/** The cores of a tick; undefined where it writes no state. */
export const stateCoresOf = (ir: Lowered): StateCores | undefined => {
  const accessed = accessedIn(ir)
  if (accessed.length === 0) return undefined
  const states = accessed.map(({ state }) => state)
  const component = componentsOf(
    ir.operations,
    accessed.map(({ by }) => by),
  )
  const numbers = new Map<number, number>()
  for (const { by } of accessed) {
    const own = component[by[0]!]!
    if (!numbers.has(own)) numbers.set(own, numbers.size)
  }
  return { coreOf: component.map(own => numbers.get(own) ?? -1), cores: numbers.size, states }
}
