import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { boundsOf } from '../../../dsl/explain/facts/bounds.js'
import { criticalPath } from '../../../dsl/explain/facts/critical.js'
import { highest, memoryInUse } from '../../../dsl/explain/facts/memory.js'
import { predicted } from '../../../dsl/explain/facts/predicted.js'
import { style } from '../../../dsl/explain/render/svg-parts.js'
import { compile, explain, orThrow } from '../../../dsl/index.js'
import type { Plan } from '../../../dsl/ir/plan.js'
import { sample } from '../../fixtures/graphs/random.js'
import { streamed, streamedLeast } from '../../fixtures/graphs/streamed.js'
import { slowMachine } from '../../fixtures/machines/plain.js'
import { bounded, planOf } from '../../fixtures/plans/by-hand.js'
import { planFrom, recipes } from '../../fixtures/plans/random.js'
import { often, runs } from '../../fixtures/runs.js'
import { parseXml } from '../../fixtures/xml.js'
import { goldens } from '../../golden/graphs.js'

const machine = slowMachine
const windowed = orThrow(compile(streamed(6, 1), { mode: 'eager', memory: streamedLeast(1) })) as Plan
const plans = Object.entries(goldens).map(
  ([name, net]) => [name, orThrow(compile(net as never, { mode: 'eager' })) as Plan] as const,
)
const generated = sample({ steps: 10 }).map(
  ({ graph, dims, inFlight }) => orThrow(compile(graph, { mode: 'eager', dims, inFlight })) as Plan,
)

describe('what sets the pace', () => {
  test('a chain that repeats takes as long as the ticks it spans, and its operations are in order', () => {
    let round = 0
    const holds = (plan: Plan): void => {
      const timeline = predicted(plan, machine)
      if (timeline === undefined) return
      const { spans, ticks, us } = criticalPath(timeline)
      for (let i = 1; i < spans.length; i++) {
        expect(spans[i]!.after).toBe(spans[i - 1]!.index)
        expect(spans[i]!.start).toBeGreaterThanOrEqual(spans[i - 1]!.end - 1e-6)
      }
      if (!timeline.steady || ticks === 0) return
      round++
      expect(us / (ticks * timeline.tickUs)).toBeCloseTo(1, 4)
    }
    for (const [, plan] of plans) holds(plan)
    fc.assert(fc.property(generated, holds), { numRuns: runs(60) })
    expect(round).toBeGreaterThan(often(20))
  })

  test('no lane is busy for longer than a tick, and exposed time is at most the time of copies', () => {
    fc.assert(
      fc.property(generated, plan => {
        const timeline = predicted(plan, machine)
        if (timeline === undefined) return
        const { lanes, exposedUs, exposed, tickUs } = boundsOf(timeline)
        for (const { us } of lanes) expect(us).toBeLessThanOrEqual(tickUs * (1 + 1e-9))
        expect(exposedUs).toBeLessThanOrEqual(exposed.reduce((sum, { us }) => sum + us, 0) + 1e-6)
      }),
      { numRuns: runs(60) },
    )
  })

  test('a stream of weights is reported as bound by its copies', () => {
    const timeline = predicted(windowed, machine)!
    const { path, lanes } = boundsOf(timeline)
    expect(new Set(path.spans.map(({ lane }) => windowed.lanes[lane]!.name))).toEqual(new Set(['copy']))
    expect(path.spans).toHaveLength(6)
    expect(lanes[0]).toMatchObject({ name: 'copy' })
    expect(explain(windowed, 'text', { machine })).toMatch(
      /copy {2}w0 … w5 \(6\) .* then one after the other/,
    )
  })
})

describe('memory in use over time', () => {
  test('is never more than the bound, on whatever machine', () => {
    const within = (plan: Plan, rate: number): void => {
      const { device } = machine
      const copies = { engines: 1, rate, latency: 1_000 }
      const timeline = predicted(plan, { ...machine, device: { ...device, h2d: copies, d2h: copies } })
      if (timeline === undefined) return
      for (let d = 0; d < plan.devices; d++)
        expect(highest(memoryInUse(plan, timeline.spans, d))).toBeLessThanOrEqual(plan.bound.device[d]!)
    }
    fc.assert(fc.property(generated, fc.constantFrom(1e7, 1e9, 1e12), within), { numRuns: runs(60) })
    for (const rate of [1e7, 1e9, 1e12]) within(windowed, rate)
  })
})

describe('the picture', () => {
  test.each([...plans, ['windowed', windowed] as const])(
    'of %s is XML without scripts, fonts or links',
    (_, plan) => {
      const svg = explain(plan, 'svg', { machine })
      const elements = parseXml(svg)
      expect(elements[0]).toMatchObject({ name: 'svg' })
      const names = new Set(elements.map(({ name }) => name))
      for (const name of ['script', 'a', 'image', 'foreignObject', 'use']) expect(names).not.toContain(name)
      expect(svg.replace('http://www.w3.org/2000/svg', '')).not.toMatch(
        /https?:|@import|@font-face|url\((?!#)/,
      )
      expect(explain(plan, 'svg', { machine })).toBe(svg)
    },
  )

  test('names every operation of the tick, its place and its cause, in the order of its lane', () => {
    const titles = parseXml(explain(windowed, 'svg', { machine }))
      .filter(({ name }) => name === 'title')
      .map(({ text }) => text)
    for (const { name, at } of windowed.nodes) {
      const title = titles.find(text => text.startsWith(`${name} on `) && !text.includes('tick before,'))
      expect(title, name).toContain(at)
    }
    expect(titles).toContain('w2 waits for relu[0]')
  })

  test('has room for names that XML and people do not expect', () => {
    const odd = '<w & "\u0000]]>\n…'
    const renamed = {
      ...windowed,
      name: odd,
      lanes: windowed.lanes.map(lane => ({ ...lane, name: `${odd}${'x'.repeat(80)}` })),
      nodes: windowed.nodes.map(node => ({ ...node, name: odd })),
    }
    const elements = parseXml(explain(renamed, 'svg', { machine }))
    const width = Number(elements[0]!.attributes.get('width'))
    for (const { name, attributes } of elements)
      if (name === 'text') expect(Number(attributes.get('x'))).toBeLessThan(width)
  })

  test('can be read in both schemes: text stands out from what it is written on', () => {
    const [day, night] = style.split('@media (prefers-color-scheme: dark)') as [string, string]
    for (const scheme of [day, night]) {
      const colour = (rule: string): string => new RegExp(`${rule} [^}]*?(#[0-9a-f]{6})`).exec(scheme)![1]!
      const ink = colour('text \\{ fill:')
      for (const under of ['.page', '.row', '.copy-in', '.copy-out', '.compute', '.moving', '.link', '.host'])
        expect(contrast(ink, colour(`\\${under} \\{ fill:`)), under).toBeGreaterThanOrEqual(4.5)
      expect(contrast(colour('\\.axis \\{ fill:'), colour('\\.page \\{ fill:'))).toBeGreaterThanOrEqual(4.5)
      expect(contrast(colour('\\.over \\{ fill:'), colour('\\.page \\{ fill:'))).toBeGreaterThanOrEqual(4.5)
    }
  })
})

/** The ratio that WCAG 2 asks 4.5 of, for text. */
const contrast = (a: string, b: string): number => {
  const luminance = (hex: string): number =>
    [1, 3, 5]
      .map(at => Number.parseInt(hex.slice(at, at + 2), 16) / 255)
      .map(c => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
      .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i]!, 0)
  const [dim, bright] = [luminance(a), luminance(b)].sort((x, y) => x - y) as [number, number]
  return (bright + 0.05) / (dim + 0.05)
}

interface TraceEvent {
  readonly ph: string
  readonly pid: number
  readonly tid: number
  readonly ts: number
  readonly dur: number
  readonly id: number
  readonly name: string
  readonly args: Readonly<Record<string, unknown>>
}

describe('the trace', () => {
  test('has every run of every tick, each wait as a flow between two runs, and memory within bound', () => {
    fc.assert(
      fc.property(generated, plan => {
        const { traceEvents } = JSON.parse(explain(plan, 'perfetto', { machine })) as {
          traceEvents: TraceEvent[]
        }
        const of = (phase: string) => traceEvents.filter(({ ph }) => ph === phase)
        const runs = plan.commands.filter(([kind]) => kind === 'run').length
        if (runs === 0) return
        expect(of('X').length).toBeGreaterThan(0)
        expect(of('X').length % runs).toBe(0)
        const inside = ({ pid, tid, ts }: TraceEvent) =>
          of('X').some(x => x.pid === pid && x.tid === tid && x.ts <= ts && ts <= x.ts + x.dur)
        for (const flow of [...of('s'), ...of('f')]) expect(inside(flow)).toBe(true)
        expect(of('s').map(({ id }) => id)).toEqual(of('f').map(({ id }) => id))
        for (const { args } of of('C')) expect(args['in use']).toBeLessThanOrEqual(args['bound'] as number)
      }),
      { numRuns: runs(25) },
    )
  })
})

describe('the graph', () => {
  test('has a node for each run in the cluster of its lane, and a labelled edge for each wait', () => {
    const dot = explain(windowed, 'dot')
    expect(dot.match(/subgraph cluster_/g)).toHaveLength(windowed.lanes.length)
    expect(dot.match(/^ {4}n\d+ \[label=/gm)).toHaveLength(windowed.nodes.length)
    const waits = windowed.commands.filter(([kind]) => kind === 'wait').length
    expect(
      dot.match(/style=dashed, constraint=(true|false), label="e\d+: (data|memory|state)/g),
    ).toHaveLength(waits)
    expect(dot).toContain('label="e')
  })

  test('quotes what would end a string', () => {
    const odd = { ...windowed, nodes: windowed.nodes.map(node => ({ ...node, name: 'a"b\\\n' })) }
    for (const line of explain(odd, 'dot').split('\n'))
      expect(line.replace(/\\./g, '').match(/"/g)?.length ?? 0).toSatisfy(
        (quotes: number) => quotes % 2 === 0,
      )
  })
})

describe('plans from elsewhere', () => {
  test('are explained in every form, without the facts that they lack', () => {
    fc.assert(
      fc.property(recipes(7), recipe => {
        const plan = planFrom(recipe)
        const bare = { ...plan, nodes: plan.nodes.map(({ id, op, name }) => ({ id, op, name, at: '' })) }
        for (const as of ['text', 'json', 'dot', 'perfetto', 'svg'] as const) {
          const said = explain(bare, as, { machine })
          expect(said).not.toMatch(/undefined|NaN|Infinity/)
          expect(said).toBe(explain(bare, as, { machine }))
        }
        const text = explain(bare, 'text', { machine })
        expect(text).not.toContain('what bounds the tick')
        expect(text).not.toContain('named in the program')
        expect(text).not.toMatch(/ $/m)
      }),
      { numRuns: runs(40) },
    )
  })

  test('of several devices have a strip of memory and a process for each, and an account for each', () => {
    const one = planOf({
      name: 'two devices',
      lanes: ['left', 'right'],
      buffers: [
        { name: 'a', life: 'state', init: 0 },
        { name: 'b', home: 0, bytes: 2048 },
        { name: 'c', life: 'state', init: 0, home: 1, bytes: 4096 },
      ],
      commands: [
        ['wait', 1, 0, -1],
        ['alloc', 1, 0],
        ['run', 0, 0, [0], [1]],
        ['record', 0, 0],
        ['wait', 0, 1],
        ['run', 1, 1, [1], [2]],
        ['record', 1, 1],
        ['use', 1, 1, 1],
        ['free', 1],
      ],
    })
    const plan = bounded({
      ...one,
      devices: 2,
      bound: { device: [0, 0], pinned: 0 },
      lanes: one.lanes.map(lane => ({ ...lane, device: lane.id })),
      buffers: one.buffers.map(buffer => ({ ...buffer, device: buffer.home })),
      nodes: one.nodes.map(node => ({ ...node, movedBytes: 1 << 16 })),
    })
    const two = { ...machine, devices: 2 }
    const titles = parseXml(explain(plan, 'svg', { machine: two })).filter(({ text }) =>
      /memory in use of device/.test(text),
    )
    expect(titles).toHaveLength(2)
    const text = explain(plan, 'text', { machine: two })
    expect(text).toMatch(/in memory of device 0 at the peak \(3072 bytes\)/)
    expect(text).toMatch(/in memory of device 1 at the peak \(4096 bytes\)/)
    expect(text).toMatch(/right {2}1 operation, waits once a tick, on device 1/)
    const { traceEvents } = JSON.parse(explain(plan, 'perfetto', { machine: two })) as {
      traceEvents: TraceEvent[]
    }
    expect(new Set(traceEvents.filter(({ ph }) => ph === 'X').map(({ pid }) => pid))).toEqual(new Set([0, 1]))
  })
})
