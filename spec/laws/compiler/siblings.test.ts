// The pass `fuse`: kernels on one lane that read the same are one, whatever each was made of.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { compile, orThrow, type Plan } from '../../../dsl/index.js'
import { verify } from '../../../dsl/verify/verify.js'
import { type Chain, graphOf, readBy, siblings } from '../../fixtures/graphs/siblings.js'
import { runs } from '../../fixtures/runs.js'

const fused = (chains: readonly Chain[], fuse: boolean): Plan => {
  const { graph } = graphOf(chains)
  return orThrow(compile(graph, { mode: 'eager', fuse })) as Plan
}

const kernelsOf = ({ nodes }: Plan): number =>
  nodes.filter(({ kernel }) => kernel !== undefined && kernel.kind !== 'copy').length

/** Groups of chains on one lane, each of which reads a parameter that another one of the group reads. */
const groupsOf = (chains: readonly Chain[]): number => {
  let groups: { readonly lane: string; readonly reads: ReadonlySet<number> }[] = []
  for (const chain of chains) {
    const own = new Set(readBy(chain))
    const isOf = (group: (typeof groups)[number]): boolean =>
      group.lane === chain.lane && [...group.reads].some(read => own.has(read))
    const all = groups.filter(isOf).flatMap(({ reads }) => [...reads])
    groups = [...groups.filter(group => !isOf(group)), { lane: chain.lane, reads: new Set([...own, ...all]) }]
  }
  return groups.length
}

describe('fuse', () => {
  test('makes one kernel of all chains that read the same', () => {
    fc.assert(
      fc.property(siblings, chains => {
        const [plain, plan] = [false, true].map(fuse => fused(chains, fuse)) as [Plan, Plan]
        expect(verify(plan)).toEqual([])
        expect(kernelsOf(plan)).toBe(groupsOf(chains))
        expect(plan.bound.device[0]).toBeLessThanOrEqual(plain.bound.device[0]!)
      }),
      { numRuns: runs(60) },
    )
  })
})
