// A symbol without a size is an error wherever a graph is compiled or run, never a size of 1.

import fc from 'fast-check'
import { isLeft } from 'fp-ts/lib/Either.js'
import { lastValueFrom } from 'rxjs'
import { expect, it } from 'vitest'
import {
  add,
  type BraidError,
  compile,
  download,
  type Graph,
  graph,
  interpret,
  interpretRanks,
  meaning,
  param,
  state,
  tensor,
  upload,
} from '../../../dsl/index.js'
import { runs } from '../../fixtures/runs.js'

const names = ['batch', 'time', 'width', 'constructor'] as const
const shape = fc.array(fc.constantFrom<string | number>(2, 3, ...names), { minLength: 1, maxLength: 3 })
type Shape = readonly (string | number)[]

const network = (input: Shape, weight: Shape, kept: Shape): Graph =>
  graph(
    'symbols',
    { x: tensor('f32', input) } as never,
    (({ x }: never) => {
      const s = state({ kept: tensor('f32', kept) } as never) as never as {
        kept: never
        next: (of: object) => void
      }
      s.next({ kept: s.kept })
      const w = param('w', tensor('f32', weight) as never) as never as { pipe: (...by: unknown[]) => never }
      const up = (x as { pipe: (...by: unknown[]) => never }).pipe(upload()) as {
        pipe: (by: unknown) => never
      }
      return { y: up.pipe(download()), z: w.pipe(add(1), download()) }
    }) as never,
  ) as never

it('names each symbol without a size, and no other, in compile and in every interpretation', async () => {
  await fc.assert(
    fc.asyncProperty(shape, shape, shape, fc.subarray([...names]), async (input, weight, kept, sized) => {
      const net = network(input, weight, kept)
      const used = new Set([...input, ...weight, ...kept].filter(dim => typeof dim === 'string'))
      const dims = Object.fromEntries(sized.filter(name => used.has(name)).map(name => [name, 4]))
      const unbound = [...used].filter(name => !Object.hasOwn(dims, name))
      const compiled = compile(net, { dims, mode: 'eager' })
      expect(isLeft(compiled)).toBe(unbound.length > 0)
      if (unbound.length === 0) return
      const faults = isLeft(compiled) ? compiled.left : []
      expect(faults.map(({ _tag }) => _tag)).toEqual(unbound.map(() => 'UnboundSymbol'))
      for (const symbol of unbound)
        expect(
          faults.some(
            ({ wanted, next }) => wanted.includes(symbol) && next.includes(`dims: { ${symbol}: … }`),
          ),
        ).toBe(true)
      const feeds = { x: [] } as never
      const all = [
        interpret(net, { dims })(feeds),
        meaning(net, { dims })(feeds),
        interpretRanks(net, { dims })([feeds]),
      ]
      for (const running of all) {
        const error = await lastValueFrom<unknown>(running).catch((thrown: unknown) => thrown)
        expect((error as BraidError).faults).toEqual(faults)
      }
    }),
    { numRuns: runs(60) },
  )
})
