// Kernels of attention that write two results: which values they are of, and which stay kernels of their own.
import { describe, expect, it } from 'vitest'
import {
  attention,
  compile,
  download,
  gradients,
  graph,
  mul,
  orThrow,
  param,
  sum,
  tensor,
  upload,
} from '../../../dsl/index.js'

const names = ['q', 'k', 'v'] as const
type Name = (typeof names)[number]

/** The results of the kernels of attention in the plan of the gradients of some of q, k and v. */
const resultsOf = (wanted: readonly Name[], { fuse = true } = {}) => {
  const net = graph({ x: tensor('f32', [2, 5, 4]) }, ({ x }) => {
    const q = x.pipe(upload(), mul(2))
    const [k, v] = [param('k', tensor('f32', [2, 5, 4])), param('v', tensor('f32', [2, 5, 4]))]
    const values = { q, k, v }
    const y = q.pipe(attention(k, v, { causal: true }))
    const found = gradients(
      y.pipe(mul(3), sum()),
      Object.fromEntries(wanted.map(name => [name, values[name]])) as typeof values,
    )
    return Object.fromEntries(wanted.map(name => [name, found[name].pipe(download())]))
  })
  return orThrow(compile(net as never, { fuse }))
    .nodes.flatMap(({ kernel }) =>
      kernel?.kind === 'attention'
        ? [[kernel.result ?? 'attended', kernel.logs && 'logs', kernel.dv && 'dv'].filter(Boolean).join(' ')]
        : [],
    )
    .sort()
}

describe('the results of kernels of attention', () => {
  it('are the logarithms beside the values, and both gradients by keys', () => {
    expect(resultsOf(['q', 'k', 'v'])).toEqual(['attended logs', 'byKeys dv', 'byQueries'])
  })

  it('are one each where nothing is fused', () => {
    expect(resultsOf(['q', 'k', 'v'], { fuse: false })).toEqual([
      'attended',
      'byKeys',
      'byQueries',
      'byValues',
      'logSumExp',
    ])
  })

  it('are those that something reads', () => {
    expect(resultsOf(['q'])).toEqual(['attended logs', 'byQueries'])
    expect(resultsOf(['v'])).toEqual(['attended logs', 'byValues'])
    expect(resultsOf(['k'])).toEqual(['attended logs', 'byKeys'])
  })

  it('are the same where the one of the values stands first', () => {
    expect(resultsOf(['v', 'k'])).toEqual(['attended logs', 'byKeys dv'])
  })
})
