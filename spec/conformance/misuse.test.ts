// Wrong calls of the runtime's public functions from JavaScript: each ends in an error with the wanted and
// the found value and the remedy; none throws anything else, and none harms the session.
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, it } from 'vitest'
import { add, compile, download, graph, orThrow, param, tensor, upload } from '../../dsl/index.js'
import * as runtime from '../../runtime/index.js'
import { isFault, rejectionOf, unreadable } from '../fixtures/errors.js'

// biome-ignore lint/suspicious/noExplicitAny: what a JavaScript caller sees
type Anything = any
const { open, pulled, pushed, safetensors, writeSafetensors, traceFile, chromeTrace, perfettoTrace } =
  runtime as Anything

const row = tensor('f32', [16])
const net = graph('biased', { x: row }, ({ x }) => ({
  y: x.pipe(upload(), add(param('bias', row)), download()),
}))
const plan = orThrow(compile(net))
const bias = new Float32Array(16)
const good = { device: 'host', params: { bias } }
const circular: Anything = {}
circular.self = circular
const throwing = {
  get bias() {
    throw new Error('gone')
  },
}

describe('open', () => {
  const nothing: readonly Anything[] = [
    undefined,
    null,
    5,
    'plan',
    [],
    {},
    Symbol('plan'),
    net,
    compile(net),
    unreadable,
    circular,
  ]
  it.each(nothing.map((given, i) => [i, given]))('takes no plan %i', async (_, given) => {
    const result = await open(given, good)()
    expect(E.isLeft(result)).toBe(true)
    for (const fault of runtime.errorsOf(result.left)) isFault(fault)
  })

  it('names what to do with a graph, and with what compile yields', async () => {
    expect((await open(net, good)()).left).toMatchObject({
      found: 'a graph',
      next: expect.stringContaining('compile'),
    })
    expect((await open(compile(net), good)()).left).toMatchObject({
      next: expect.stringContaining('orThrow'),
    })
  })

  const options: readonly Anything[] = [
    null,
    5,
    [],
    'host',
    unreadable,
    { device: 5 },
    { device: null },
    { device: '' },
    { device: 'cuda:1e9' },
    { device: 'cuda:-1' },
    { inFlight: Number.NaN },
    { inFlight: 1n },
    { inFlight: '2' },
    { inFlight: 2 ** 60 },
    { params: null },
    { params: [] },
    { params: { bias: null } },
    { params: { bias: [1] } },
    { params: { bias: new Float64Array(16) } },
    { params: { bias: Symbol('x') } },
    { params: throwing },
    { params: { bias: circular } },
    { params: { bias: unreadable } },
    {
      params: {
        bias: () => {
          throw undefined
        },
      },
    },
    { params: { bias: () => Promise.reject(Object.create(null)) } },
    { signal: {} },
    { references: 5 },
    { leaseWarningMs: 0 },
    { trace: 1 },
    { poison: 'yes' },
    { host: null },
    { host: { memory: Number.POSITIVE_INFINITY } },
    { host: { copyRate: -1 } },
    { host: { faults: [5] } },
    { host: { jitterMicroseconds: 1e300 } },
  ]
  it.each(options.map((given, i) => [i, given]))('refuses option %i', async (_, given) => {
    const plain = typeof given === 'object' && given !== null && !Array.isArray(given) && given !== unreadable
    const result = await open(plan, plain ? { ...good, ...given } : given)()
    expect(E.isLeft(result)).toBe(true)
    for (const fault of runtime.errorsOf(result.left)) isFault(fault)
  })
})

describe('feeds and traces', () => {
  const sentence = /wanted .*; found .+\. Next: ./
  const record = { tick: 0, node: 0, laneId: 0, startMs: 0, endMs: 'soon' }
  const calls: readonly (readonly [string, () => unknown])[] = [
    ...[undefined, null, 5, 'abc', bias, bias.buffer, () => 1, {}, Symbol('x')].flatMap(
      (given, i): (readonly [string, () => unknown])[] => [
        [`pulled ${i}`, () => pulled(given)],
        [`pushed ${i}`, () => pushed(given, 'fail')],
      ],
    ),
    ...[undefined, null, 'dropAll', 5n, Symbol('x'), circular].map(
      (given, i): readonly [string, () => unknown] => [`pushed, policy ${i}`, () => pushed([bias], given)],
    ),
    ['pushed, what only looks like an Observable', () => pushed({ subscribe() {} }, 'fail')],
    ['pushed, a false interop point', () => pushed({ [Symbol.for('observable')]: 5 }, 'fail')],
    ['traceFile, no path', () => traceFile()],
    ['traceFile, a number', () => traceFile(5, [], plan)],
    ['traceFile, no records', () => traceFile('a.json')],
    ['traceFile, no plan', () => traceFile('a.json', [], {})],
    ['traceFile, other records', () => traceFile('a.json', [{}], plan)],
    ['chromeTrace, a time that is none', () => chromeTrace([record], plan)],
    ['perfettoTrace, nothing', () => perfettoTrace()],
  ]
  it.each(calls)('%s: a TypeError with the next step', (_, call) => {
    let error: unknown
    try {
      call()
    } catch (thrown) {
      error = thrown
    }
    expect(error).toBeInstanceOf(TypeError)
    expect((error as Error).message).toMatch(sentence)
  })
})

describe('safetensors', () => {
  const path = join(tmpdir(), `braid-misuse-${process.pid}.safetensors`)
  const entry = { name: 'a', dtype: 'f32', shape: [2], bytes: new Uint8Array(8) }
  const calls: readonly (readonly [string, () => Promise<Anything>])[] = [
    ...[undefined, 5, {}, tmpdir(), '/nowhere/x', 'a\0b', '/dev/null'].map(
      (given, i): readonly [string, () => Promise<Anything>] => [`reads no file ${i}`, safetensors(given)],
    ),
    ['writes to no path', writeSafetensors(undefined, [entry])],
    ['writes to no folder', writeSafetensors('/nowhere/x', [entry])],
    ...[
      undefined,
      5,
      { a: entry },
      [null],
      [{}],
      [{ ...entry, dtype: 'f64' }],
      [{ ...entry, shape: [-1] }],
      [{ ...entry, bytes: [1] }],
    ].map((given, i): readonly [string, () => Promise<Anything>] => [
      `writes no entries ${i}`,
      writeSafetensors(path, given),
    ]),
    ['writes too few bytes', writeSafetensors(path, [{ ...entry, bytes: new Uint8Array(4) }])],
  ]
  it.each(calls)('%s', async (_, call) => {
    const result = await call()
    expect(E.isLeft(result)).toBe(true)
    for (const fault of [result.left].flat()) isFault(fault)
  })
})

describe('a session', () => {
  it('answers every misuse of run with a RunError, and runs on', async () => {
    await using session: Anything = orThrow(await open(plan, good)())
    const x = () => ({ x: pulled([bias]) })
    const each = (next: () => unknown) => ({ x: pulled({ [Symbol.iterator]: () => ({ next }) }) })
    const thrower = (thrown: unknown) =>
      each(() => {
        throw thrown
      })
    const detached = new Float32Array(16)
    structuredClone(detached, { transfer: [detached.buffer] })
    const calls: readonly (readonly [feeds: Anything, options?: Anything])[] = [
      [undefined],
      [null],
      [5],
      [[]],
      [{}],
      [{ x: [bias] }],
      [{ x: null }],
      [{ ...x(), z: pulled([]) }],
      [{ x: { feed: 'pulled', source: 5 } }],
      [{ x: { feed: 'pushed', source: 7, whenFull: 'fail' } }],
      [{ x: { feed: 'else' } }],
      [x(), null],
      [x(), 5],
      [x(), []],
      [x(), { tick: 3 }],
      [x(), { ticks: -1 }],
      [x(), { ticks: '3' }],
      [x(), { ticks: 1n }],
      [x(), { ticks: null }],
      [x(), { signal: {} }],
      ...[
        5,
        undefined,
        null,
        Symbol('q'),
        () => 1,
        5n,
        Object.create(null),
        circular,
        unreadable,
        detached,
        [1, 2],
      ].map((value): readonly [Anything] => [{ x: pulled([value]) }]),
      ...[undefined, null, 7, Symbol('s'), Object.create(null), unreadable, new Error('dry')].map(
        (thrown): readonly [Anything] => [thrower(thrown)],
      ),
      [each(() => 5)],
      [{ x: pulled({ [Symbol.iterator]: () => 5 }) }],
    ]
    for (const [index, [feeds, options]] of calls.entries()) {
      const error = await rejectionOf(
        session.run(feeds, options).forEach((lease: Disposable) => void lease[Symbol.dispose]()),
      )
      expect(error, `call ${index}`).toBeInstanceOf(runtime.RunError)
      isFault(error)
    }
    for (const name of [undefined, 5, Symbol('x'), 'none'])
      await expect(session.read(name)).rejects.toThrow(/wanted the name .* found /)
    let outputs = 0
    await session.run(x()).forEach((lease: Disposable) => {
      outputs++
      lease[Symbol.dispose]()
      lease[Symbol.dispose]()
    })
    expect(outputs).toBe(1)
  })
})
