import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import fc from 'fast-check'
import { beforeAll, describe, expect, test } from 'vitest'
import { compile } from '../../../dsl/compiler/compile.js'
import { reasonsOf } from '../../../dsl/explain/facts/reasons.js'
import {
  add,
  delay,
  download,
  graph,
  lane,
  matmul,
  on,
  orThrow,
  param,
  relu,
  slice,
  tensor,
  upload,
} from '../../../dsl/index.js'
import type { Plan } from '../../../dsl/ir/plan.js'
import { sample } from '../../fixtures/graphs/random.js'
import { streamed, streamedLeast } from '../../fixtures/graphs/streamed.js'
import { runs } from '../../fixtures/runs.js'

// To update the golden texts: BRAID_GOLDEN=write npx vitest run spec/laws/explain/explain.test.ts
const write = process.env['BRAID_GOLDEN'] === 'write'
const golden = (name: string) => new URL(`../../golden/${name}`, import.meta.url)
let explained: Readonly<Record<string, string>> = {}
beforeAll(() => {
  const script = fileURLToPath(golden('explained.ts'))
  const root = fileURLToPath(new URL('../../../', import.meta.url))
  const { stdout, stderr } = spawnSync(process.execPath, ['--import', 'tsx', script], {
    cwd: root,
    encoding: 'utf8',
  })
  expect(stderr).toBe('')
  explained = JSON.parse(stdout) as Record<string, string>
})

describe('explain', () => {
  test.each(['weight-streaming', 'diamond', 'state', 'windowed', 'diamond.graph', 'two-devices.graph'])(
    'gives the golden text of %s',
    name => {
      const file = golden(`${name}.explain.txt`)
      if (write) writeFileSync(file, explained[name]!)
      expect(explained[name]).toBe(readFileSync(file, 'utf8'))
    },
  )

  test('distinguishes waits for memory from those for data, and names the two buffers of a reuse', () => {
    const { waits } = reasonsOf(
      orThrow(compile(streamed(6, 1), { mode: 'eager', memory: streamedLeast(1) })) as Plan,
    )
    for (const wait of waits) {
      // Uploads read pinned parameters, which no operation writes; math reuses the bytes that the previous
      // tick's download has read.
      const memory = wait.lane === 'copy' || wait.before.endsWith('of the tick before')
      expect(wait.for).toBe(memory ? 'memory' : 'data')
      expect(wait.because).toMatch(memory ? /^\S+ takes the bytes that \S+ leaves$/ : /^it reads \S+$/)
    }
    expect(waits.find(({ after }) => after === 'w4')!.because).toBe('w4 takes the bytes that w2 leaves')
  })

  test('names the buffer of a reuse where the reader read another part of it', () => {
    const net = graph('parts', { x: tensor('f32', [2, 4]) }, ({ x }) => {
      const there = x.pipe(upload())
      const made = there.pipe(matmul(param('w', tensor('f32', [1, 4])), { transpose: true }))
      const last = made.pipe(matmul(param('v', tensor('f32', [1, 1]))))
      return { part: there.pipe(slice(0, 1, 2), download()), made: last.pipe(download(lane('copy'))) }
    })
    const plan = orThrow(
      compile(net, { mode: 'eager', inFlight: 1, memory: 'small', storage: 'planned' }),
    ) as Plan
    const waits = reasonsOf(plan).waits.filter(wait => wait.for === 'memory')
    expect(waits.map(({ because }) => because)).toEqual(['matmul[1] takes the bytes that x leaves'])
  })

  test('finds waits for state across ticks', () => {
    const square = tensor('f32', [64, 64])
    const net = graph('fed-back', { x: square }, ({ x }) => {
      const now = x.pipe(upload(lane('copy')), on(lane('math')), relu())
      const before = now.pipe(on(lane('side')), delay(0))
      return { y: now.pipe(on(lane('math')), add(before), download(lane('copy'))) }
    })
    // One fused kernel would make the next value in the memory of the state.
    const { waits } = reasonsOf(orThrow(compile(net, { mode: 'eager', fuse: false })) as Plan)
    expect(waits.filter(wait => wait.for === 'state')).toEqual([
      expect.objectContaining({
        before: expect.stringContaining('of the tick before'),
        because: expect.stringContaining('delay[0]'),
      }),
    ])
  })

  test('finds the purpose of every wait of generated plans', () => {
    fc.assert(
      fc.property(
        sample({ steps: 10 }),
        fc.constantFrom('fast' as const, 'small' as const),
        fc.constantFrom('pooled' as const, 'planned' as const),
        ({ graph: net, dims, inFlight }, memory, storage) => {
          const plan = orThrow(compile(net, { mode: 'eager', dims, inFlight, memory, storage })) as Plan
          for (const wait of reasonsOf(plan).waits) expect(wait.for, JSON.stringify(wait)).not.toBe('order')
        },
      ),
      { numRuns: runs(100) },
    )
  })

  test('gives the origin of every lane of generated plans, and the chosen order of every plan', () => {
    fc.assert(
      fc.property(sample({ steps: 10 }), ({ graph: net, dims, inFlight }) => {
        const plan = orThrow(compile(net, { mode: 'eager', dims, inFlight })) as Plan
        const { lanes, choices } = reasonsOf(plan)
        for (const { because } of lanes) expect(because).toMatch(/named in the program|chosen: |share it/)
        expect(choices.order).toMatch(/bytes|[MG]iB/)
      }),
      { numRuns: runs(60) },
    )
  })

  test('names lanes that share a CUDA stream, and lanes that the compiler chose', () => {
    const square = tensor('f32', [64, 64])
    const net = graph('lanes', { x: square }, ({ x }) => {
      const a = x.pipe(upload(), on(lane('left')), relu())
      return { y: a.pipe(on(lane('right')), relu(), download()) }
    })
    const spread = reasonsOf(orThrow(compile(net, { mode: 'eager' })) as Plan).lanes
    expect(spread.map(({ name, because }) => [name, because.split(':')[0]])).toEqual(
      expect.arrayContaining([
        ['left', 'named in the program'],
        ['right', 'named in the program'],
        ['h2d', 'chosen'],
        ['d2h', 'chosen'],
      ]),
    )
    const [folded] = reasonsOf(orThrow(compile(net, { mode: 'eager', lanes: 1 })) as Plan).lanes
    expect(folded!.because).toMatch(
      /lanes left and right of the program share it, since there are to be 1 at most/,
    )
  })

  test("distinguishes the compiler's windows from the user's, and lists none for a plan from a file", () => {
    const square = tensor('f32', [64, 64])
    const net = (ahead?: number) =>
      graph('windows', { x: square }, ({ x }) => {
        let y = x.pipe(upload(lane('rows')), on(lane('math')))
        const copy = lane('copy')
        for (let i = 0; i < 6; i++) {
          const w = param(`w${i}`, square, { on: 'host' })
          y = y.pipe(matmul(w.pipe(ahead === undefined ? upload(copy) : upload(copy, { ahead }))))
        }
        return { y: y.pipe(download(lane('rows'))) }
      })
    const users = orThrow(compile(net(2), { mode: 'eager' })) as Plan
    expect(reasonsOf(users).choices.windows).toEqual([
      expect.objectContaining({ lane: 'copy', ahead: 2, automatic: false }),
    ])
    const memory = 5 * 64 * 64 * 4
    const found = orThrow(compile(net(), { mode: 'eager', memory })) as Plan
    expect(found.bound.device[0]).toBeLessThanOrEqual(memory)
    expect(reasonsOf(found).choices.windows).toEqual([
      expect.objectContaining({ lane: 'copy', automatic: true }),
    ])
    expect(reasonsOf({ ...found }).choices).toEqual({ lanes: [], order: '', others: [], windows: [] })
  })
})
