// The bodies of `bench models`, small: fused plans yield what the graphs mean.
import { firstValueFrom } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { distance, meaning } from '../../dsl/interpret/meaning.js'
import { numbers } from '../../dsl/language/values.js'
import { smallBodies, valuesOf } from '../bench/model-bodies.js'
import { ours } from '../bench/models.js'
import { openOn } from '../fixtures/allocator.js'
import { present } from './devices.js'

describe.each(present)('bodies of models on %s', name => {
  it.each(smallBodies().map(body => [body.name, body.dtype, body] as const))(
    '%s, %s',
    async (_, dtype, body) => {
      await using device = await openOn(name)
      const { ends } = await ours(body, device, 0)
      const params = Object.fromEntries(
        Object.entries(body.weights).map(([name, weight]) => [name, valuesOf(weight)]),
      )
      const { values, allowed } = await firstValueFrom(
        meaning(body.graph, { params: params as never, dims: {}, ticks: 1 })({} as never),
      )
      const meant = numbers(values['y']!, dtype)
      const { wrong } = distance(Float32Array.from(ends[0]!), Float32Array.from(meant), allowed['y']!)
      expect([ends[0]!.length, wrong]).toEqual([meant.length, undefined])
    },
  )
})
