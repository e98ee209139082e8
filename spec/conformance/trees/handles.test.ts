// What a caller may do with the memory of a handle, and when.
import { describe, expect, it } from 'vitest'
import { add, download, graph, mul, orThrow, tree, upload } from '../../../dsl/index.js'
import { hold } from '../../../runtime/device/testing.js'
import {
  AllocatorError,
  type Block,
  Device,
  GraphBuilder,
  GraphDefinition,
  type Handle,
  type Lane,
  type Span,
  StaleHandleError,
} from '../../../runtime/index.js'
import { present } from '../devices.js'
import { all, copy, only, planned, row, treeOn, width } from './kit.js'

const prompt = planned(
  graph('prompt', { x: row }, ({ x }) => ({ state: x.pipe(upload(copy), mul(2), download(copy)) })),
)
const step = planned(
  graph('step', { state: row, token: row }, ({ state, token }) => ({
    state: state.pipe(upload(copy), add(token.pipe(upload(copy))), download(copy)),
  })),
)
const decoder = tree({
  plans: { prompt, step },
  start: ['prompt'],
  then: { prompt: ['step'], step: ['step'] },
})

describe.each(present)('a handle of a tree on %s', device => {
  const opened = async () => {
    const own = orThrow(await Device.open(device)())
    const t = await treeOn('', decoder, { device: own })
    return { own, t, lane: own.lane({ name: 'mine' }), host: own.pinned(4 * width) }
  }

  it('gives no span that outlives the body of use, nor a block of the arena', async () => {
    const { own, t, lane, host } = await opened()
    const { handles } = t.launch('prompt', { x: all(1) })
    let kept: Span | undefined
    await handles.state.use(lane, span => {
      kept = span
      expect(span.bytes).toBe(4 * width)
      expect([span.offset, span.block.bytes]).toEqual([0, 4 * width])
      expect(() => span.block.free()).toThrow("the tree's")
      lane.copy(host, span)
    })
    // The handle is not stale: the span is no longer good all the same.
    const uses: readonly (() => unknown)[] = [
      () => lane.copy(host, kept!),
      () => lane.copy(host, kept!.block),
      () => kept!.address,
      () => kept!.block.recordUse(lane),
      () => GraphDefinition.create(own).copy(host, kept!),
    ]
    for (const use of uses) {
      expect(use).toThrow(StaleHandleError)
      expect(use).toThrow(/prompt\.state, made at .*handles\.test.*[\s\S]*a body that has returned/)
    }
    expect(kept!.block.disposed).toBe(true)
    await lane.synchronize()
    expect(only(new Float32Array(host.view()))).toBe(2)
    // What an async body does after its first await comes too late.
    await expect(
      handles.state.use(lane, async span => {
        await null
        lane.copy(host, span)
      }),
    ).rejects.toThrow(StaleHandleError)
    expect(only(await handles.state.read())).toBe(2)
    await t.close()
    await own.close()
  })

  it('gives no operand to a graph, which would show another value when it is launched', async () => {
    const { own, t, lane, host } = await opened()
    const { handles } = t.launch('prompt', { x: all(1) })
    const definition = GraphDefinition.create(own)
    const captured = own.lane({ name: 'captured' })
    await handles.state.use(lane, span => {
      const refused = /prompt\.state[\s\S]*copy the value into a block of your own/i
      expect(() => definition.copy(host, span)).toThrow(refused)
      expect(() => definition.copy(host, span.block)).toThrow(refused)
      using builder = GraphBuilder.create(captured).begin()
      expect(() => captured.copy(host, span)).toThrow(refused)
      expect(() => span.block.recordUse(captured)).toThrow(refused)
      builder.end()
    })
    expect(definition.nodes.length).toBe(0)
    await t.close()
    await own.close()
  })

  it('refuses a lane under capture, of another device or none, and a body that is none', async () => {
    const { own, t, lane, host } = await opened()
    const { handles } = t.launch('prompt', { x: all(1) })
    const { state } = handles
    const builder = GraphBuilder.create(lane).begin()
    expect(() => state.use(lane, span => lane.copy(host, span))).toThrow(AllocatorError)
    expect(() => state.use(lane, span => lane.copy(host, span))).toThrow(/handle\.use[\s\S]*captured/)
    lane.fill32(host, 7)
    builder.end()
    // The capture went on undisturbed.
    expect(builder.definition.nodes.map(({ kind }) => kind)).toEqual(['fill'])
    for (const wrong of [undefined, null, {}, 'lane'])
      expect(() => state.use(wrong as never, () => 0)).toThrow(/handle\.use: lane[\s\S]*a Lane/)
    expect(() => state.use(lane, undefined as never)).toThrow(/handle\.use: body[\s\S]*a function/)
    // A lane that is being captured by the time that it is its turn.
    t.launch('step', { token: all(1) })
    const late = t.launch('step', { token: all(1) }).handles.state.use(lane, () => 0)
    const again = GraphBuilder.create(lane).begin()
    await expect(late).rejects.toThrow('captured')
    again.end()
    expect(only(await t.launch('step', { token: all(1) }).handles.state.read())).toBe(5)
    await t.close()
    await own.close()
  })

  it('copies its value into a block that outlives launches and the tree, in order on the device', async () => {
    const { own, t, lane, host } = await opened()
    const other = own.lane({ name: 'other' })
    const held = () => own.stats()['allocation.all.current']
    const before = held()
    let last: { readonly handles: { readonly state: Pick<Handle, 'copy' | 'stale'> } } = t.launch('prompt', {
      x: all(1),
    })
    // The lane is held up, so that the copies come after the launches that follow, as far as the host knows.
    const gate = hold(own, lane)
    const copies = [last.handles.state.copy(lane)]
    for (let i = 0; i < 4; i++) {
      last = t.launch('step', { token: all(1) })
      copies.push(i % 2 === 0 ? last.handles.state.copy(lane) : last.handles.state.copy())
    }
    copies.push(last.handles.state.copy(other))
    setTimeout(() => gate.open(), 2)
    const blocks: readonly Block[] = await Promise.all(copies)
    expect(new Set(blocks.map(({ address }) => address)).size).toBe(6)
    expect(blocks.map(block => block.lane.name)).toEqual(
      [lane, lane, own.defaultLane, lane, own.defaultLane, other].map(({ name }) => name),
    )
    expect(held()).toBe(before! + 6)
    expect(blocks.every(({ bytes }) => bytes === 4 * width)).toBe(true)
    expect(t.stats().staged).toBe(0)
    await t.close()
    const values: number[] = []
    for (const block of blocks) {
      // No wait: the lane of the block has made the copy.
      const home = block.lane as Lane
      home.copy(host, block)
      await home.synchronize()
      values.push(only(new Float32Array(host.view().slice(0))))
      block.free()
    }
    expect(values).toEqual([2, 3, 4, 5, 6, 6])
    await own.close()
  })

  it.each(['launched just now', 'launched and evicted'])(
    'is read before the tree is closed, %s',
    async how => {
      const { own, t, lane, host } = await opened()
      for (const reading of ['read', 'copy', 'use'] as const) {
        const other = await treeOn('', decoder, { device: own })
        const { handles, values } = other.launch('prompt', { x: all(1) })
        if (how === 'launched and evicted') {
          await values
          await other.evict()
        }
        const { state } = handles
        const ways = {
          read: () => state.read(),
          copy: async () => {
            const block = await state.copy(lane)
            lane.copy(host, block)
            block.free()
            await lane.synchronize()
            return new Float32Array(host.view())
          },
          use: () =>
            state.use(lane, async span => {
              lane.copy(host, span)
              // A body may wait for the end of the tree that its work is given before.
              await other.close()
              await lane.synchronize()
              return new Float32Array(host.view())
            }),
        }
        const read = ways[reading]()
        read.catch(() => undefined)
        await other.close()
        expect(only(await read)).toBe(2)
      }
      await t.close()
      await own.close()
    },
  )

  it('is read by an async body that waits for a launch over the value', async () => {
    const { own, t, lane, host } = await opened()
    const { state } = t.launch('prompt', { x: all(1) }).handles
    const seen = await state.use(lane, async span => {
      lane.copy(host, span)
      return only(await t.launch('prompt', { x: all(2) }).handles.state.read())
    })
    expect(seen).toBe(4)
    await lane.synchronize()
    expect(only(new Float32Array(host.view()))).toBe(2)
    await t.close()
    await own.close()
  })

  it('copies no value that is gone, nor by a lane that is none, and leaves no block where it fails', async () => {
    const { own, t, lane } = await opened()
    const first = t.launch('prompt', { x: all(1) })
    for (const wrong of [null, {}, 'lane', own])
      expect(() => first.handles.state.copy(wrong as never)).toThrow(/handle\.copy: lane[\s\S]*a Lane/)
    const builder = GraphBuilder.create(lane).begin()
    expect(() => first.handles.state.copy(lane)).toThrow(/handle\.copy[\s\S]*captured/)
    builder.end()
    t.launch('prompt', { x: all(2) })
    expect(() => first.handles.state.copy()).toThrow(StaleHandleError)
    await t.close()
    await own.close()
  })
})
