// Whether a session yields what `interpret` yields, of a random graph.
import { lastValueFrom, toArray } from 'rxjs'
import { expect } from 'vitest'
import type { Between } from '../../dsl/index.js'
import { distance, type Meaning, meaning } from '../../dsl/interpret/meaning.js'
import { type HostArray, numbers } from '../../dsl/language/values.js'
import { pulled, type Session } from '../../runtime/index.js'
import type { Sample } from '../fixtures/graphs/random.js'

export type Values = Readonly<Record<string, HostArray>>

/** Runs all ticks of the sample, and copies the outputs of each. */
export const outputsOf = async (
  session: Session,
  { feeds, ticks }: Pick<Sample, 'feeds'> & { readonly ticks?: number },
): Promise<readonly Values[]> => {
  const outputs: Values[] = []
  const pulls = Object.fromEntries(Object.entries(feeds).map(([name, values]) => [name, pulled(values)]))
  await session.run(pulls as never, ticks === undefined ? {} : { ticks }).forEach(lease => {
    using held = lease as unknown as Values & Disposable
    outputs.push(Object.fromEntries(Object.entries(held).map(([name, value]) => [name, value.slice()])))
  })
  return outputs
}

/** What the graph means: of each tick, its values and how far off rounding may be. */
export const meantOf = (
  { graph, params, dims, feeds, ticks }: Sample,
  between?: Between,
): Promise<readonly Meaning[]> => {
  const options = { params: params as never, dims, ticks, ...(between ? { between } : {}) }
  return lastValueFrom(meaning(graph, options)(feeds as never).pipe(toArray()))
}

/** The first element that is further from what is meant than rounding allows; undefined where none is. */
export const mismatch = (made: Sample, wanted: readonly Meaning[], got: readonly Values[]) => {
  if (got.length !== wanted.length) return { ticks: got.length, wanted: wanted.length }
  for (const [tick, { values, allowed }] of wanted.entries())
    for (const [name, dtype] of Object.entries(made.outputs)) {
      const [found, meant] = [numbers(got[tick]![name]!, dtype), numbers(values[name]!, dtype)]
      const { wrong } = distance(found, meant, allowed[name]!)
      if (wrong !== undefined)
        return { tick, name, wrong, got: found[wrong], meant: meant[wrong], allowed: allowed[name] }
    }
  return undefined
}

/** Fails unless these are the values that the graph means, each as near as rounding allows. */
export const expectMeant = async (made: Sample, got: readonly Values[]): Promise<void> =>
  expect(mismatch(made, await meantOf(made), got)).toBeUndefined()
