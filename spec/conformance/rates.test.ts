// Graphs of several rates, on every device: the values of feeds and when they are pulled, the values of a
// lease, the end of a run.
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { lastValueFrom, map, Subject, toArray } from 'rxjs'
import { afterEach, describe, expect, it } from 'vitest'
import {
  add,
  compile,
  download,
  gradients,
  graph,
  hold,
  lane,
  mul,
  orThrow,
  param,
  parsePlan,
  repeat,
  state,
  sub,
  sum,
  tensor,
  toJSON,
  upload,
  window,
} from '../../dsl/index.js'
import { feeds, training } from '../../examples/gradient-accumulation/program.js'
import { features, micro, sample, step } from '../../examples/gradient-accumulation/samples.js'
import { open as openPlan, pulled, pushed, RunError, type Session } from '../../runtime/index.js'
import { braid, language, runtime } from '../fixtures/command.js'
import { listenForWarnings } from '../fixtures/warnings.js'
import { opened, present, turn, until } from './devices.js'

const two = tensor('f32', [2])
const copy = lane('copy')
/** Of four values of x each, their sum with a slower z that is held; and each value of x doubled. */
const sensors = graph('sensors', { x: two, z: two }, ({ x, z }) => {
  const fast = x.pipe(upload(copy))
  const level = z.pipe(upload(copy))
  return {
    total: fast.pipe(window(4), sum(0), add(level), download(copy)),
    each: fast.pipe(mul(2), add(level.pipe(hold(100))), download(copy)),
  }
})
type Sensors = Session<{ x: typeof two; z: typeof two }, { total: typeof two; each: typeof two }>

const pair = (value: number): Float32Array => new Float32Array([value, -value])
const pairs = (count: number, from = 1) => Array.from({ length: count }, (_, i) => pair(from + i))
interface Answer {
  readonly total: number
  readonly each: readonly number[]
}
const answer = (
  lease: { readonly total: Float32Array; readonly each: Float32Array } & Disposable,
): Answer => {
  using held = lease
  return { total: held.total[0]!, each: Array.from(held.each).filter((_, i) => i % 2 === 0) }
}
/** What tick t of x = 1, 2, 3 … and z = 1000, 1001 … is. */
const meant = (tick: number): Answer => ({
  total: 16 * tick + 10 + 1000 + tick,
  each: [1, 2, 3, 4].map(
    (i, at) => 2 * (4 * tick + i) + (at < 3 ? (tick === 0 ? 100 : 999 + tick) : 1000 + tick),
  ),
})
const ticks = (count: number) => Array.from({ length: count }, (_, tick) => meant(tick))

describe.each(present)('rates on %s', device => {
  const open: { close(): Promise<void> }[] = []
  const start = async (options: Parameters<typeof opened>[2] = {}): Promise<Sensors> => {
    const session = await opened(sensors, device, options)
    open.push(session)
    return session
  }
  afterEach(async () => {
    for (const session of open.splice(0)) await session.close()
  })

  it('takes as many values of a feed as its input comes times, and gives an output as often', async () => {
    const session = await start()
    const run = session.run({ x: pulled(pairs(40)), z: pulled(pairs(10, 1000)) })
    expect(await lastValueFrom(run.pipe(map(answer), toArray()))).toEqual(ticks(10))
    expect(session.stats()).toMatchObject({ ticks: 10, drops: { x: 0, z: 0 } })
  })

  it('takes them from sources that answer later, and from those that push', async () => {
    const session = await start()
    async function* slowly() {
      for (const value of pairs(8)) {
        await turn()
        yield value
      }
    }
    const run = session.run({ x: pulled(slowly()), z: pulled(pairs(9, 1000)) })
    expect(await lastValueFrom(run.pipe(map(answer), toArray()))).toEqual(ticks(2))

    // State lives on from run to run: what was held last is held now.
    const x = new Subject<Float32Array>()
    const answers = lastValueFrom(
      session.run({ x: pushed(x, 'fail'), z: pulled([pair(1000)]) }).pipe(map(answer), toArray()),
    )
    for (const value of pairs(4)) x.next(value)
    expect(await answers).toEqual([{ total: 1010, each: [1003, 1005, 1007, 1008] }])
  })

  it('shows the init of a hold that counts, of what follows from a parameter, in the first instants alone', async () => {
    const net = graph('counted', { x: two }, ({ x }) => {
      const level = param('w', two).pipe(mul(10), hold(7, 3))
      return { y: x.pipe(upload(copy), mul(0), add(level), window(2), download(copy)) }
    })
    const session = await opened(net, device, { params: { w: pair(2) }, compile: { inFlight: 2 } })
    open.push(session)
    for (const wanted of [[7, 7, 20, 20, 20, 20, ...Array(6).fill(20)], Array(12).fill(20)]) {
      const run = session.run({ x: pulled(pairs(12)) })
      const copied = map((lease: Disposable & { readonly y: Float32Array }) => {
        using held = lease
        return [...held.y]
      })
      const seen = await lastValueFrom(run.pipe(copied, toArray()))
      expect(seen.flat().filter((_, i) => i % 2 === 0)).toEqual(wanted)
    }
  })

  it('asks a feed for the values of ticks that have a slot, and for no more', async () => {
    const session = await start({ compile: { inFlight: 2 } })
    let asked = 0
    function* counted() {
      for (const value of pairs(100)) {
        asked++
        yield value
      }
    }
    const leases: Disposable[] = []
    const run = session.run({ x: pulled(counted()), z: pulled(pairs(25, 1000)) })
    const subscription = run.subscribe(lease => void leases.push(lease))
    await until(() => leases.length === 2)
    await turn()
    expect(asked).toBe(8)
    leases[0]![Symbol.dispose]()
    await until(() => leases.length === 3)
    expect(asked).toBe(12)
    for (const lease of leases) lease[Symbol.dispose]()
    subscription.unsubscribe()
  })

  it('drops and refuses pushed values by the slots that their ticks have', async () => {
    const session = await start({ compile: { inFlight: 2 } })
    const x = new Subject<Float32Array>()
    const leases: (Disposable & Parameters<typeof answer>[0])[] = []
    let error: unknown
    session.run({ x: pushed(x, 'fail'), z: pulled(pairs(10, 1000)) }).subscribe({
      next: lease => void leases.push(lease),
      error: thrown => {
        error = thrown
      },
    })
    for (const value of pairs(8)) x.next(value)
    await until(() => leases.length === 2)
    expect(error).toBeUndefined()
    x.next(pair(9))
    await until(() => error !== undefined)
    expect(error).toBeInstanceOf(RunError)
    expect(error).toMatchObject({ _tag: 'FeedFull', wanted: expect.stringContaining('at most 8 values') })
    expect(leases.map(answer)).toEqual(ticks(2))
  })

  it('ends after the last tick that has all of its values, and reports those that are left', async () => {
    using warned = await listenForWarnings()
    const session = await start()
    const run = session.run({ x: pulled(pairs(11)), z: pulled(pairs(9, 1000)) })
    expect(await lastValueFrom(run.pipe(map(answer), toArray()))).toEqual(ticks(2))
    expect(session.stats().drops).toEqual({ x: 3, z: 0 })
    await until(() => warned.messages.length > 0)
    expect(warned.messages[0]).toContain('the feed x ended with 3 of the 4 values of a tick')
    // Nothing of them is left for the next run.
    const again = await lastValueFrom(
      session.run({ x: pulled(pairs(4)), z: pulled(pairs(1, 1000)) }).pipe(map(answer)),
    )
    expect(again.total).toBe(1010)
  })

  it('warns of no value that was taken for a tick which another feed ends', async () => {
    using warned = await listenForWarnings()
    const session = await start()
    const run = session.run({ x: pulled(pairs(100)), z: pulled(pairs(2, 1000)) })
    expect(await lastValueFrom(run.pipe(map(answer), toArray()))).toEqual(ticks(2))
    await turn()
    expect(warned.messages).toEqual([])
  })

  it('names the input of a value that is wrong in the midst of a tick', async () => {
    const session = await start()
    const run = session.run({ x: pulled([pair(1), pair(2), new Float32Array(3)]), z: pulled(pairs(1)) })
    await expect(lastValueFrom(run)).rejects.toMatchObject({
      _tag: 'WrongValue',
      subject: 'x',
      wanted: expect.stringContaining('2 elements'),
    })
    const after = session.run({ x: pulled(pairs(4)), z: pulled(pairs(1, 1000)) })
    expect((await lastValueFrom(after.pipe(map(answer)))).total).toBe(1010)
  })

  it('keeps a state with a name that no output needs', async () => {
    const counted = graph('counted', { x: two }, ({ x }) => {
      const sums = x.pipe(upload(), window(2), sum(0))
      const s = state({ w: two, seen: tensor('i32', []) })
      s.next({ w: s.w.pipe(add(sums)), seen: s.seen.pipe(add(1)) })
      return { w: s.w.pipe(download()) }
    })
    await using session = await opened(counted, device)
    await session.run({ x: pulled(pairs(6)) }).forEach(lease => {
      lease[Symbol.dispose]()
    })
    expect(session.state.names).toEqual(['w', 'seen'])
    expect([...(await session.state.read('seen')), ...(await session.state.read('w'))]).toEqual([3, 21, -21])
  })

  it('reads a state that is set once a tick for each value of a tick, and saves it by its name alone', async () => {
    const steps = graph('steps', { x: two }, ({ x }) => {
      const s = state({ w: two }, { w: 16 })
      const w = s.w.pipe(repeat(4))
      const error = w.pipe(sub(x.pipe(upload())))
      const { w: gradient } = gradients(error.pipe(mul(error), sum(), mul(0.5)), { w: s.w })
      s.next({ w: s.w.pipe(sub(gradient.pipe(mul(0.125)))) })
      return { seen: w.pipe(download()), error: error.pipe(download()) }
    })
    const poison = device === 'host' ? { host: { poison: true, jitter: 3 } } : {}
    await using session = await opened(steps, device, poison)
    const seen: number[][] = []
    const run = async (values: Float32Array[]) =>
      session.run({ x: pulled(values) }).forEach(lease => {
        using held = lease
        seen.push([...held.seen])
      })
    await run(pairs(8))
    // The means of 1 … 4 and of 5 … 8; each step goes half of the way.
    const [first, second] = [(16 + 2.5) / 2, (16 - 2.5) / 2]
    expect(seen).toEqual([new Array(8).fill(16), new Array(4).fill([first, second]).flat()])
    expect(session.state.names).toEqual(['w'])
    await session.state.write('w', pair(8))
    await run(pairs(4))
    expect(seen[2]).toEqual(new Array(4).fill([8, -8]).flat())
  })

  it('runs from a file as it does from the compiler', async () => {
    const plan = orThrow(parsePlan(toJSON(orThrow(compile(sensors)))))
    const session = orThrow(await openPlan(plan, { device })()) as Sensors
    open.push(session)
    const run = session.run({ x: pulled(pairs(8)), z: pulled(pairs(2, 1000)) })
    expect(await lastValueFrom(run.pipe(map(answer), toArray()))).toEqual(ticks(2))
  })

  it('accumulates gradients as plain loops do, under jitter', async () => {
    const host = device === 'host' ? { host: { jitter: 7, jitterMicroseconds: 40, poison: true } } : {}
    await using session = await opened(training, device, { poison: true, ...host })
    let weights: Float64Array = new Float64Array(features)
    let steps = 0
    await session.run(feeds(), { ticks: 6 }).forEach(lease => {
      using held = lease
      weights = step(
        weights,
        Array.from({ length: micro }, (_, i) => sample(steps * micro + i)),
      )
      steps++
      held.weights.forEach((weight, f) => {
        expect(Math.abs(weight - weights[f]!)).toBeLessThan(1e-5)
      })
    })
    expect(steps).toBe(6)
  })
})

describe('braid, of a program with rates', () => {
  const program = join(mkdtempSync(join(tmpdir(), 'braid-rates-')), 'rates.mts')
  writeFileSync(
    program,
    `import { add, download, every, graph, hold, program, relu, sum, tensor, upload, window } from
  ${JSON.stringify(language)}
import { pulled } from ${JSON.stringify(runtime)}
const net = graph('two-rates', { x: tensor('f32', [8]), z: tensor('f32', [8]) }, ({ x, z }) => {
  const fast = x.pipe(upload())
  const held = z.pipe(upload(), hold(1))
  return {
    y: fast.pipe(relu(), add(held), download()),
    s: fast.pipe(window(3), sum(0), add(z.pipe(upload())), download()),
    e: x.pipe(every(3)),
  }
})
const rows = n => Array.from({ length: n }, (_, i) => new Float32Array(8).fill(i - 4))
export default program({ graph: net, feeds: () => ({ x: pulled(rows(20)), z: pulled(rows(10)) }) })
`,
  )
  it('runs it, checks each of its values, and counts those that are no tick', () => {
    const { status, stdout, stderr } = braid('run', program, '--device', 'host', '--check', '--json')
    expect(stderr).toContain('the feed x ended with 2 of the 3 values')
    expect(status).toBe(0)
    expect(JSON.parse(stdout)).toMatchObject({
      ticks: 6,
      check: { outputs: 18, maxRelativeError: 0 },
      drops: { x: 2, z: 0 },
    })
  })

  it('explains and predicts it, copies by name', () => {
    const explained = braid('explain', program)
    expect(explained.status).toBe(0)
    expect(explained.stdout).toContain('relu[0][2]')
    const simulated = braid('simulate', program, '--machine', 'h200', '--json')
    expect(simulated.status).toBe(0)
    expect((JSON.parse(simulated.stdout) as { tickMs: number }).tickMs).toBeGreaterThan(0)
  })
})
