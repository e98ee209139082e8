import fc from 'fast-check'
import { isLeft } from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import type { Checked } from '../../../dsl/compiler/analysis/ir.js'
import { devices } from '../../../dsl/compiler/passes/devices.js'
import {
  add,
  type CompileOptions,
  compile,
  delay,
  device,
  download,
  explain,
  type Graph,
  graph,
  lane,
  matmul,
  mul,
  on,
  orThrow,
  param,
  relu,
  renderAll,
  reshape,
  scan,
  simulate,
  slice,
  sum,
  tensor,
  upload,
  verify,
} from '../../../dsl/index.js'
import type { Plan } from '../../../dsl/ir/plan.js'
import { split, twiceInPlace } from '../../fixtures/graphs/kernels.js'
import { sample } from '../../fixtures/graphs/random.js'
import { runs } from '../../fixtures/runs.js'

const vector = tensor('f32', [64])

/** By node of the plan, the device that it runs on. */
const ranOn = (plan: Plan): Readonly<Record<string, number>> =>
  Object.fromEntries(
    plan.commands.flatMap(command =>
      command[0] === 'run' ? [[plan.nodes[command[1]]!.name, plan.lanes[command[2]]!.device] as const] : [],
    ),
  )

const peersOf = (plan: Plan): readonly string[] =>
  plan.nodes.filter(({ op }) => op === 'peer').map(({ name }) => name)

/** What every peer copy reads and where to, by root. */
const crossings = (plan: Plan): readonly string[] =>
  plan.commands.flatMap(command => {
    if (command[0] !== 'run' || plan.nodes[command[1]]!.op !== 'peer') return []
    const { alias, aliasOffset = 0, bytes } = plan.buffers[command[3][0]!]!
    return [`${alias ?? command[3][0]} ${aliasOffset} ${bytes} to ${plan.lanes[command[2]]!.device}`]
  })

describe('plans for several devices', () => {
  test('of generated graphs are lawful and deterministic, and cross once for each value and device', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(2, 3).chain(count => sample({ devices: count })),
        fc.constantFrom(1, 2, 3),
        fc.constantFrom(1, 2, 99),
        fc.constantFrom('fast' as const, 'small' as const),
        fc.constantFrom('pooled' as const, 'planned' as const),
        fc.boolean(),
        fc.constantFrom('eager' as const, 'auto' as const),
        (made, inFlight, lanes, memory, storage, fuse, mode) => {
          const options: CompileOptions = { dims: made.dims, inFlight, lanes, memory, storage, fuse, mode }
          const found = compile(made.graph as Graph, options)
          if (isLeft(found)) throw new Error(renderAll(found.left))
          const plan = found.right
          expect(verify(plan)).toEqual([])
          expect(new Set(crossings(plan)).size).toBe(crossings(plan).length)
          expect(JSON.stringify(compile(made.graph as Graph, options))).toBe(JSON.stringify(found))
          for (let on = 0; on < plan.devices; on++)
            expect(plan.lanes.filter(({ device }) => device === on).length).toBeLessThanOrEqual(lanes)
          expect(plan.bound.device).toHaveLength(plan.devices)
          expect(explain(plan, 'text').length).toBeGreaterThan(0)
        },
      ),
      { numRuns: runs(60) },
    )
  })

  test('cross once for a value and a view of all of it', () => {
    const made = graph({ x: tensor('f32', [4, 2]) }, ({ x }) => {
      const there = x.pipe(upload(device(1)), relu())
      const viewed = there.pipe(reshape([8]))
      return {
        y: there.pipe(on(device(0)), relu(), download()),
        z: viewed.pipe(on(device(0)), relu(), download()),
      }
    })
    const plan = orThrow(compile(made))
    expect(verify(plan)).toEqual([])
    expect(crossings(plan)).toHaveLength(1)
  })

  test('cross for each result of a kernel', () => {
    const made = graph({ x: vector }, ({ x }) => {
      const there = split({ x: x.pipe(upload(device(1))) })
      return {
        low: there.low.pipe(on(device(0)), relu(), download()),
        high: there.high.pipe(download(device(0))),
      }
    })
    const plan = orThrow(compile(made))
    expect(verify(plan)).toEqual([])
    expect(crossings(plan)).toHaveLength(2)
  })

  test('go through as they are where a graph names no device but the first', () => {
    const named = graph({ x: vector }, ({ x }) => ({
      y: x.pipe(upload(lane('copy', { device: 0 })), on(device(0)), relu(), download(device(0))),
    }))
    const plain = graph({ x: vector }, ({ x }) => ({ y: x.pipe(upload(lane('copy')), relu(), download()) }))
    const [a, b] = [named, plain].map(made => orThrow(compile(made)))
    expect(a!.commands).toEqual(b!.commands)
    expect(a!.devices).toBe(1)
    const ir = { nodes: plain.ir.nodes } as unknown as Checked
    expect(devices(ir)).toMatchObject({ right: ir })
  })

  test('put a value where the user asks, an operator where most of its bytes are', () => {
    const made = graph({ x: tensor('f32', [64, 64]), b: vector }, ({ x, b }) => {
      const large = x.pipe(upload(device(1)))
      const small = b.pipe(upload(device(0)))
      return {
        y: small.pipe(add(large), download()),
        z: small.pipe(on(lane('here', { device: 0 })), mul(large), download()),
      }
    })
    const plan = orThrow(compile(made))
    expect(ranOn(plan)).toMatchObject({ 'add[0]': 1, 'mul[0]': 0, y: 1, z: 0 })
    expect(peersOf(plan)).toEqual(['b@1', 'x@0'])
  })

  test('bring uploads, parameters and states without a device to their readers', () => {
    const made = graph({ x: vector }, ({ x }) => {
      const w = param('w', vector)
      const now = x.pipe(upload())
      const one = now.pipe(
        on(device(1)),
        add(w),
        scan((acc, v) => acc.pipe(add(v)), 0),
      )
      return { y: one.pipe(download()), z: one.pipe(delay(3), download()) }
    })
    const plan = orThrow(compile(made))
    expect(plan.devices).toBe(2)
    expect(peersOf(plan)).toEqual([])
    expect(new Set(Object.values(ranOn(plan)))).toEqual(new Set([1]))
    expect(plan.bound.device[0]).toBe(0)
    expect(plan.buffers.every(({ space, device }) => space === 'pinned' || device === 1)).toBe(true)
  })

  test('have a parameter on every device that reads it, and copy only the read bytes', () => {
    const made = graph({ x: tensor('f32', [8, 8]) }, ({ x }) => {
      const w = param('w', tensor('f32', [2, 8]))
      const [first, second] = [w.pipe(slice(0, 0, 1)), w.pipe(slice(0, 1, 2), reshape([8]))]
      const whole = x.pipe(upload(device(0)), add(first))
      const half = whole.pipe(slice(0, 0, 4))
      return { y: half.pipe(on(device(1)), add(second), relu(), download()), z: whole.pipe(download()) }
    })
    const plan = orThrow(compile(made))
    const params = plan.buffers.filter(({ life, alias }) => life === 'param' && alias === undefined)
    expect(params.map(({ name, device }) => `${name} on ${device}`).sort()).toEqual(['w on 0', 'w on 1'])
    expect(peersOf(plan)).toEqual(['slice[2]@1'])
    expect(plan.buffers.find(({ name }) => name === 'slice[2]@1')?.bytes).toBe(4 * 8 * 4)
  })

  test('share one peer copy among all readers of a device, and need none for a value that returns', () => {
    const made = graph({ x: vector }, ({ x }) => {
      const a = x.pipe(upload(device(0)), relu())
      const far = a.pipe(on(device(1)), mul(2), add(a), mul(a))
      return { y: far.pipe(on(device(0)), add(a), download()) }
    })
    const plan = orThrow(compile(made))
    expect(peersOf(plan)).toEqual(['relu[0]@1', 'mul[1]@0'])
  })

  test('cross one value at a time: what gathers several stays on one device', () => {
    const made = graph({ x: vector }, ({ x }) => ({
      y: x.pipe(upload(device(0)), relu(), on(device(1)), relu(), download()),
    }))
    const plan = orThrow(compile(made))
    const gathering = plan.nodes.map(node =>
      node.op === 'peer' && node.kernel?.kind === 'copy'
        ? { ...node, kernel: { ...node.kernel, parts: 2 } }
        : node,
    )
    const [broken] = verify({ ...plan, nodes: gathering } as Plan, { safety: true })
    expect(broken).toMatchObject({
      law: 'L1',
      message: expect.stringContaining('only a copy of one source may'),
    })
  })

  test('give a kernel a copy of its own to take the memory of', () => {
    const made = graph({ x: vector }, ({ x }) => {
      const a = x.pipe(upload(device(0)), add(1))
      return { y: twiceInPlace({ x: a.pipe(on(device(1))) }).y.pipe(download()) }
    })
    const plan = orThrow(compile(made))
    expect(verify(plan)).toEqual([])
    const { name } = plan.nodes.find(({ op }) => op === 'kernel')!
    expect(ranOn(plan)[name]).toBe(1)
    expect(plan.buffers.find(buffer => buffer.name === name)).toMatchObject({ device: 1 })
  })

  test('keep the bytes of each device within the memory that is given', () => {
    const layers = 8
    const made = graph('streamed', { x: tensor('f32', [4, 64]) }, ({ x }) => {
      let flow = x.pipe(upload(device(0)))
      for (let i = 0; i < layers; i++) {
        const w = param(`w${i}`, tensor('f32', [64, 64]), { on: 'host' }).pipe(upload(device(i % 2)))
        flow = flow.pipe(on(device(i % 2)), matmul(w), relu()) as typeof flow
      }
      return { y: flow.pipe(download()) }
    })
    const fast = orThrow(compile(made))
    const small = orThrow(compile(made, { memory: 'small' }))
    const least = Math.max(...small.bound.device)
    expect(least).toBeLessThan(Math.max(...fast.bound.device))
    for (const storage of ['pooled', 'planned'] as const) {
      const memory =
        storage === 'pooled'
          ? least
          : Math.max(...orThrow(compile(made, { memory: 'small', storage })).bound.device)
      const plan = orThrow(compile(made, { memory, storage }))
      for (const bytes of plan.bound.device) expect(bytes).toBeLessThanOrEqual(memory)
      expect(verify(plan)).toEqual([])
    }
    const none = compile(made, { memory: 1024 })
    expect(isLeft(none) && none.left[0]).toMatchObject({ _tag: 'OverBudget' })
  })

  test('are predicted with copies over the link, and with processors of their own', () => {
    const wide = tensor('f32', [2048, 2048])
    const products = (second: number) =>
      graph({ x: tensor('f32', [2048]) }, ({ x }) => {
        const w = param('w', wide)
        const row = x.pipe(upload(device(0)))
        const chain = (where: number, plus: number) => {
          const first = w.pipe(on(device(where)), add(row), add(plus))
          return [0, 1, 2, 3, 4, 5, 6, 7].reduce(now => now.pipe(matmul(w)), first).pipe(sum(0), download())
        }
        return { y: chain(0, 1), z: chain(second, 2) }
      })
    const machine = { extends: 'h200', name: 'h200x2', devices: 2 }
    const [one, two] = [0, 1].map(second =>
      simulate(orThrow(compile(products(second), { machine })), machine as never),
    )
    expect(two!.tickMs).toBeLessThan(0.6 * one!.tickMs)
    const crossing = graph({ x: wide }, ({ x }) => ({
      y: x.pipe(upload(device(0)), relu(), on(device(1)), relu(), download()),
    }))
    const plan = orThrow(compile(crossing, { machine }))
    const { timeline } = simulate(plan, machine as never)
    const peer = plan.nodes.findIndex(({ op }) => op === 'peer')
    expect(peer).toBeGreaterThanOrEqual(0)
    const at = timeline.node.indexOf(peer)
    const seconds = (timeline.end[at]! - timeline.start[at]!) / 1e9
    // 16 MiB at 390 GB/s and 3 µs.
    expect(seconds).toBeGreaterThan(43e-6)
    expect(seconds).toBeLessThan(60e-6)
  })
})

describe('the language', () => {
  const problems = (body: (x: never) => never) => {
    const found = compile(graph({ x: vector }, body as never) as Graph)
    return isLeft(found) ? found.left.map(({ _tag, wanted, found }) => `${_tag}: ${wanted}; ${found}`) : []
  }

  test.each([[-1], [1.5], ['1'], [64], [Number.NaN], [null]])('refuses device(%s)', index => {
    const [problem] = problems(((flows: { x: never }) => ({
      y: (flows.x as { pipe: (...ops: unknown[]) => unknown }).pipe(
        upload(device(index as never)),
        relu(),
        download(),
      ),
    })) as never)
    expect(problem).toMatch(
      /^BadAttribute: a lane with a name, a priority of 'low', 'normal' or 'high', and a device from 0 to 63/,
    )
  })

  test('has one device for one lane', () => {
    const [problem] = problems(((flows: { x: never }) => ({
      y: (flows.x as { pipe: (...ops: unknown[]) => unknown }).pipe(
        upload(lane('copy')),
        on(lane('copy', { device: 1 })),
        relu(),
        download(),
      ),
    })) as never)
    expect(problem).toBe("BadAttribute: the lane 'copy' on one device, 0; device 1")
  })
})
