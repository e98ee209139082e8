// First values of states: numbers that are in the plan, and data that accompanies it.
import * as E from 'fp-ts/lib/Either.js'
import { lastValueFrom, toArray } from 'rxjs'
import { describe, expect, it } from 'vitest'
import {
  add,
  compile,
  type DType,
  download,
  type Graph,
  graph,
  type Init,
  interpret,
  orThrow,
  parsePlan,
  state,
  tensor,
  toJSON,
  tree,
  upload,
} from '../../dsl/index.js'
import { hostArray, writer } from '../../dsl/language/values.js'
import { open, planTree } from '../../runtime/index.js'
import { opened, present } from './devices.js'
import { outputsOf } from './meant.js'

const length = 3000
const numbers = Array.from({ length }, (_, i) => i % 251)

/** The elements that are summed up, from what a state holds first. */
const counting = (init: Init, dtype: DType = 'f32', many = length): Graph =>
  graph('counting', { x: tensor(dtype, [many]) }, ({ x }) => {
    const s = state({ w: tensor(dtype, [many]) }, { w: init })
    const w = s.w.pipe(add(x.pipe(upload())))
    s.next({ w })
    return { w: w.pipe(download()) }
  }) as unknown as Graph

const zeros = (dtype: DType = 'f32', many = length) => [hostArray(dtype, many), hostArray(dtype, many)]

const fill = (into: Uint8Array): void => new Float32Array(into.buffer, into.byteOffset).set(numbers)

describe.each(present)('first values on %s', device => {
  it.each(['f32', 'bf16', 'i32', 'u8'] as const)('of data are those of interpret: %s', async dtype => {
    const made = counting(numbers, dtype)
    await using session = await opened(made, device)
    const feeds = { x: zeros(dtype) }
    const meant = await lastValueFrom(interpret(made)(feeds as never).pipe(toArray()))
    const got = await outputsOf(session as never, { feeds })
    expect(got).toEqual(meant)
    const write = writer(dtype)
    expect(Array.from(got[1]!['w']!)).toEqual(numbers.map(write))
  })

  it('are filled by a function, again at each reset', async () => {
    const seen: object[] = []
    let by = 1
    const made = counting((into, spec) => {
      seen.push(spec)
      new Float32Array(into.buffer, into.byteOffset).fill(by++)
    })
    const plan = orThrow(compile(made))
    expect(seen).toEqual([])
    await using session = orThrow(await open(plan, { device })())
    expect(seen).toEqual([{ name: 'w', dtype: 'f32', shape: [length], bytes: 4 * length }])
    expect((await session.state.read('w'))[7]).toBe(1)
    await session.state.reset()
    expect((await session.state.read('w'))[7]).toBe(2)
  })

  it('are not in the plan, which says so', async () => {
    const plan = orThrow(compile(counting(numbers)))
    const text = toJSON(plan)
    expect(text.length).toBeLessThan(4000)
    const loaded = orThrow(parsePlan(JSON.parse(text)))
    expect(toJSON(loaded)).toBe(text)
    const failed = await open(loaded, { device })()
    expect(E.isLeft(failed) && failed.left).toMatchObject({ _tag: 'MissingState', subject: 'w' })
    await using session = orThrow(await open(loaded, { device, state: { w: Float32Array.from(numbers) } })())
    expect(Array.from(await session.state.read('w'))).toEqual(numbers)
    await expect(session.state.reset()).rejects.toMatchObject({
      _tag: 'WrongWrite',
      subject: 'session.state: w',
    })
    expect(Array.from(await session.state.read('w'))).toEqual(numbers)
  })

  it('of few elements are in the plan', async () => {
    const few = numbers.slice(0, 1024)
    const loaded = orThrow(parsePlan(JSON.parse(toJSON(orThrow(compile(counting(few, 'f32', 1024)))))))
    await using session = orThrow(await open(loaded, { device })())
    expect(Array.from(await session.state.read('w'))).toEqual(few)
  })

  it('are those of a plan in a tree too', async () => {
    const plan = orThrow(compile(counting(fill), { storage: 'planned' }))
    await using made = orThrow(
      await planTree(tree({ plans: { one: plan as never }, start: ['one'] }), { device })(),
    )
    const [x] = zeros()
    const launched: unknown = made.launch('one' as never, { x } as never)
    const { w } = await (launched as { readonly values: Promise<{ w: Float32Array }> }).values
    expect(Array.from(w)).toEqual(numbers)
  })

  it('of a function that throws, or is late, are an error that names the state', async () => {
    for (const bad of [
      () => {
        throw new Error('no such file')
      },
      () => Promise.resolve(),
    ]) {
      const failed = await open(orThrow(compile(counting(bad as never))), { device })()
      expect(E.isLeft(failed) && failed.left).toMatchObject({ _tag: 'WrongState', subject: 'w' })
    }
    expect(E.isLeft(compile(counting(async () => undefined)))).toBe(true)
  })
})

it('a graph of 20 million first values compiles to a small plan', () => {
  const many = 20_000_000
  const plan = orThrow(compile(counting(new Float32Array(many), 'f32', many)))
  expect(toJSON(plan).length).toBeLessThan(4000)
})
