// Cases 122 and 123: what PyTorch's graph trees do by checkpoints of a pool, Braid's plan trees do by layouts
// that are known before anything runs. Each behaviour of graph trees by itself is a test of
// spec/conformance/trees.
import { describe, expect, test } from 'vitest'
import { tree } from '../../dsl/index.js'
import { present } from '../conformance/devices.js'
import { affine, all, only, treeOn } from '../conformance/trees/kit.js'

const double = affine('double', 'x', 'y', 2, 0)
const plus = affine('plus', 'y', 'z', 1, 1)
const minus = affine('minus', 'y', 'z', 1, -1)
const spec = tree({
  plans: { double, plus, minus },
  start: ['double'],
  then: { double: ['plus', 'minus'] },
})

describe.each(present)('plan trees on %s', device => {
  test('122: memory lies where it lay before, whichever branch ran and whatever was given up since', async () => {
    await using t = await treeOn(device, spec)
    const { layouts } = t
    const places = new Set<number>()
    for (const next of ['plus', 'minus', 'plus'] as const) {
      const first = t.launch('double', { x: all(5) })
      places.add(await first.handles.y.use(t.device.defaultLane, ({ address }) => address))
      const { values } = first.next(next)
      expect(only((await values).z)).toBe(next === 'plus' ? 11 : 9)
      await t.evict()
    }
    expect(places.size).toBe(1)
    expect(t.layouts).toEqual(layouts)
  })

  test('123: one root and two children are three recordings, in whatever order they run', async () => {
    await using t = await treeOn(device, spec)
    for (const next of ['plus', 'minus', 'minus', 'plus'] as const) {
      const { values } = t.launch('double', { x: all(1) }).next(next)
      expect(only((await values).z)).toBe(next === 'plus' ? 3 : 1)
    }
    // A path that ends early needs no more.
    expect(only(await t.launch('double', { x: all(4) }).handles.y.read())).toBe(8)
    expect(t.stats().executables).toMatchObject({ made: 3, remade: 0 })
  })
})
