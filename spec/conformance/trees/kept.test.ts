// Inputs whose value is kept beyond the launch, and that are given another one.
import { describe, expect, it } from 'vitest'
import { ring, tree, until } from '../../../dsl/index.js'
import { TreeError } from '../../../runtime/index.js'
import { present } from '../devices.js'
import { affine, all, only, prompt, step, treeOn } from './kit.js'

const ringed = tree({
  plans: { prompt, step },
  start: ['prompt'],
  then: { prompt: ['step'], step: ['step'] },
  keep: { step: { state: ring(2) } },
})
const arena = 16 * 1024

describe.each(present)('a kept input of a tree on %s', device => {
  it('takes its own value as it lies there', async () => {
    await using t = await treeOn(device, ringed)
    let last = t.launch('prompt', { x: all(1) }).next('step', { token: all(1) })
    for (let i = 2; i <= 6; i++) last = last.next('step', { token: all(i), state: last.handles.state })
    expect(only((await last.values).seen)).toBe(10 * (2 + 21))
    expect(t.stats()).toMatchObject({ moves: 0, staged: 0 })
    await using fresh = await treeOn(device, ringed)
    expect(t.layouts).toEqual(fresh.layouts)
  })

  it('takes an older value, and one of the host, beside the kept ones, which stay', async () => {
    await using t = await treeOn(device, ringed, { arena })
    const first = t.launch('prompt', { x: all(1) }).next('step', { token: all(1) })
    const second = first.next('step', { token: all(10) })
    expect([only(await first.handles.state.read()), only(await second.handles.state.read())]).toEqual([3, 13])
    // The older one of the ring, which this launch would have written over.
    const third = second.next('step', { token: all(100), state: first.handles.state })
    expect(only((await third.values).seen)).toBe(1030)
    expect(only(await second.handles.state.read())).toBe(13)
    expect(first.handles.state.stale || only(await first.handles.state.read()) === 3).toBe(true)
    expect(t.stats()).toMatchObject({ moves: 0, staged: 0 })
    const fourth = third.next('step', { token: all(1), state: all(7) })
    expect(only((await fourth.values).seen)).toBe(80)
    expect(only(await third.handles.state.read())).toBe(103)
    expect(t.stats()).toMatchObject({ staged: 1 })
    // And on from there, with the newest.
    let last = fourth.next('step', { token: all(1) })
    for (let i = 0; i < 5; i++) last = last.next('step', { token: all(1) })
    expect(only((await last.values).seen)).toBe(140)
    expect(t.layouts.every(({ top }) => top <= t.stats().arena)).toBe(true)
    await t.evict()
    await t.prepare()
    expect(only((await last.next('step', { token: all(1) }).values).seen)).toBe(150)
  })

  it('takes a value that a later plan waits for, and leaves it to that plan', async () => {
    const both = tree({
      plans: {
        forward: affine('forward', 'x', 's', 2, 0),
        look: affine('look', 's', 'y', 1, 1),
        back: affine('back', 's', 'z', 3, 0),
      },
      start: ['forward'],
      then: { forward: ['look', 'back'], look: ['look', 'back'] },
      keep: { forward: { s: until('back') } },
    })
    await using t = await treeOn(device, both, { arena })
    const { handles } = t.launch('forward', { x: all(1) })
    expect(only((await t.launch('look', { s: handles.s }).values).y)).toBe(3)
    expect(only((await t.launch('look', { s: all(40) }).values).y)).toBe(41)
    expect(only((await t.launch('back').values).z)).toBe(6)
  })

  it('is refused where the arena has no room beside the kept values, and nothing has changed', async () => {
    await using t = await treeOn(device, ringed)
    const first = t.launch('prompt', { x: all(1) }).next('step', { token: all(1) })
    const second = first.next('step', { token: all(10) })
    const before = t.stats()
    const needed = /planTree\(tree, \{ arena: (\d+) \}\)/
    for (const state of [first.handles.state, all(7)]) {
      expect(() => second.next('step', { token: all(1), state })).toThrow(TreeError)
      expect(() => second.next('step', { token: all(1), state })).toThrow(needed)
    }
    expect({ ...t.stats(), inFlight: 0 }).toEqual({ ...before, inFlight: 0 })
    await t.prepare()
    expect(only((await second.next('step', { token: all(1) }).values).seen)).toBe(140)
    let message = ''
    try {
      t.launch('step', { token: all(1), state: all(7) })
    } catch (error) {
      message = (error as TreeError).message
    }
    await using roomy = await treeOn(device, ringed, { arena: Number(needed.exec(message)![1]) })
    const again = roomy.launch('prompt', { x: all(1) }).next('step', { token: all(1) })
    const { values } = again.next('step', { token: all(1) }).next('step', { token: all(1), state: all(7) })
    expect(only((await values).seen)).toBe(80)
  })
})
