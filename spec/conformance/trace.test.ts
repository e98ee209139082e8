// The trace of what ran, as a viewer reads it.
import { describe, expect, it } from 'vitest'
import { download, graph, lane, matmul, tensor, upload } from '../../dsl/index.js'
import { chromeTrace, perfettoTrace, pulled, traceChunks, traceFile } from '../../runtime/index.js'
import { opened } from './devices.js'

interface Event {
  readonly ph: string
  readonly name: string
  readonly cat?: string
  readonly pid: number
  readonly tid: number
  readonly ts: number
  readonly dur: number
  readonly id?: number
  readonly args: Readonly<Record<string, unknown>>
}

const net = graph('traced', { x: tensor('f32', [8, 8]), w: tensor('f32', [8, 8]) }, ({ x, w }) => {
  const b = w.pipe(upload(lane('copy')))
  return { y: x.pipe(upload(lane('math')), matmul(b), download(lane('back'))) }
})

const traced = async () => {
  await using session = await opened(net, 'host', { trace: true })
  const values = Array.from({ length: 4 }, () => new Float32Array(64).fill(1))
  await session.run({ x: pulled(values), w: pulled(values) }).forEach(lease => void lease[Symbol.dispose]())
  return { plan: session.plan, records: session.trace() }
}

describe('a trace', () => {
  it('has a row a lane, a slice a run, arrows of waits, and counters', async () => {
    const { plan, records } = await traced()
    const { traceEvents } = JSON.parse(chromeTrace(records, plan)) as { traceEvents: Event[] }
    const of = (phase: string) => traceEvents.filter(({ ph }) => ph === phase)
    const rows = of('M').filter(({ name }) => name === 'thread_name')
    expect(rows.map(({ args }) => args['name'])).toEqual(plan.lanes.map(({ name }) => name))
    const slices = of('X')
    expect(slices.map(({ name, tid, cat, args }) => [name, tid, cat, args['tick'], args['at']])).toEqual(
      records.map(({ name, laneId, op, tick, at }) => [name, laneId, op, tick, at]),
    )
    const origin = Math.min(0, ...records.map(({ startMs }) => startMs))
    slices.forEach(({ ts, dur }, i) => {
      expect(ts).toBeGreaterThanOrEqual(0)
      expect(ts).toBeCloseTo((records[i]!.startMs - origin) * 1000, 2)
      expect(ts + dur).toBeCloseTo((records[i]!.endMs - origin) * 1000, 2)
    })
    // A lane does one thing at a time.
    for (const { id } of plan.lanes) {
      const own = slices.filter(({ tid }) => tid === id).sort((a, b) => a.ts - b.ts)
      for (let i = 1; i < own.length; i++)
        expect(own[i]!.ts).toBeGreaterThanOrEqual(own[i - 1]!.ts + own[i - 1]!.dur - 1e-6)
    }
    // Each arrow goes from within one run to within another, on another lane.
    const starts = of('s')
    expect(starts.length).toBeGreaterThan(0)
    expect(of('f').map(({ id }) => id)).toEqual(starts.map(({ id }) => id))
    for (const arrow of [...starts, ...of('f')])
      expect(
        slices.some(
          ({ tid, ts, dur }) => tid === arrow.tid && ts <= arrow.ts + 1e-6 && arrow.ts <= ts + dur + 1e-6,
        ),
      ).toBe(true)
    starts.forEach(({ tid }, i) => void expect(tid).not.toBe(of('f')[i]!.tid))
    const levels = of('C').map(({ args }) => args['in use'] as number)
    expect(Math.max(...levels)).toBeGreaterThan(levels.at(-1)!)
    // After the last tick only what lives on across ticks is left.
    expect(levels.at(-1)).toBe(Math.min(...levels))
  })

  it('is the same text, whole, in chunks, and as the bytes of a file of any name', async () => {
    const { plan, records } = await traced()
    const many = Array.from({ length: 2000 }, () => records).flat()
    const text = chromeTrace(many, plan)
    const chunks = [...traceChunks(many, plan)]
    expect(chunks.length).toBeGreaterThan(2)
    expect(chunks.join('')).toBe(text)
    expect(JSON.parse(text)).toHaveProperty('traceEvents')
    for (const bytes of [
      perfettoTrace(records, plan),
      traceFile('a.json', records, plan),
      traceFile('a.json', records, plan),
    ])
      expect(new TextDecoder().decode(bytes)).toBe(chromeTrace(records, plan))
    expect(JSON.parse(chromeTrace([], plan))).toHaveProperty('traceEvents')
  })
})
