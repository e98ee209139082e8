import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import fc from 'fast-check'
import { isLeft, isRight } from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import { machineOf, machines, orThrow, parseMachine } from '../../../dsl/index.js'
import { costOf, demandOf } from '../../../dsl/machine/cost.js'
import { fillingOf, fillTime } from '../../../dsl/machine/filling.js'
import { h200 } from '../../../dsl/machine/h200.js'
import { placeIn, syntaxError, withoutComments } from '../../../dsl/machine/jsonc.js'
import { someMachines } from '../../fixtures/machines/random.js'
import { runs } from '../../fixtures/runs.js'

const faultsOf = (text: string) => {
  const machine = parseMachine(text, 'm.jsonc')
  if (isRight(machine)) throw new Error('that is a machine')
  return machine.left
}

describe('a machine file', () => {
  test('that Braid carries as an example is the machine of that name, figure for figure', () => {
    const path = fileURLToPath(new URL('../../../examples/machines/h200.jsonc', import.meta.url))
    expect(orThrow(parseMachine(readFileSync(path, 'utf8')))).toEqual(h200)
  })

  test('states its difference from a machine that is known', () => {
    const machine = orThrow(
      parseMachine(
        '{ "extends": "h200x8", "name": "slow", "device": { "h2d": { "rate": "25 GB/s", }, } } // done',
      ),
    )
    expect(machine).toEqual({
      ...machines['h200x8']!,
      name: 'slow',
      device: { ...h200.device, h2d: { ...h200.device.h2d, rate: 25e9 } },
    })
  })

  test('names each error with its place, the expected and the actual value', () => {
    const faults = faultsOf(`{ "extends": "h200", "name": "", "devices": 1.5, "ranks": "many",
      "device": { "bandwidth": "3 us", "memory": -1, "speed": 2, "h2d": 7, "kernelLatency": "1 GB/s",
        "queueDepth": 0 },
      "host": { "launch": -2 }, "peer": { "rate": 0 }, "collectives": { "multiprocessors": true } }`)
    expect(faults.map(({ at, found }) => `${at} ${found}`).sort()).toEqual(
      [
        'm.jsonc.name ""',
        'm.jsonc.devices 1.5',
        'm.jsonc.ranks "many"',
        'm.jsonc.device.bandwidth "3 us"',
        'm.jsonc.device.memory -1',
        'm.jsonc.device.speed a field called "speed"',
        'm.jsonc.device.h2d 7',
        'm.jsonc.device.kernelLatency "1 GB/s"',
        'm.jsonc.device.queueDepth 0',
        'm.jsonc.host.launch -2',
        'm.jsonc.peer.rate 0',
        'm.jsonc.collectives.multiprocessors true',
      ].sort(),
    )
    for (const { wanted, next } of faults) expect([wanted, next]).not.toContain('')
    expect(faults.find(({ at }) => at.endsWith('bandwidth'))!.wanted).toContain('GB/s')
    expect(faults.find(({ at }) => at.endsWith('kernelLatency'))!.wanted).toContain('us')
  })

  test('that is incomplete is refused with the missing fields', () => {
    expect(faultsOf('{ "name": "mine" }').map(({ at, found }) => [at, found])).toEqual(
      ['devices', 'ranks', 'device', 'host', 'peer', 'collectives'].map(field => [
        `m.jsonc.${field}`,
        'nothing',
      ]),
    )
    expect(faultsOf('[]')[0]).toMatchObject({ at: 'm.jsonc', found: 'a list of 0' })
    expect(faultsOf('"h300"')[0]).toMatchObject({ at: 'm.jsonc', found: '"h300"' })
    expect(faultsOf('{ "extends": "h300", "name": "x" }')[0]).toMatchObject({ at: 'm.jsonc.extends' })
  })

  test('that is older than the queues that lanes share has as many as CUDA makes', () => {
    const { queues, ...device } = h200.device
    expect(queues).toBe(8)
    expect(orThrow(machineOf({ ...h200, device }))).toEqual(h200)
  })

  test('that is no JSON is refused with its line and column', () => {
    expect(faultsOf('{\n  "name": // nothing\n}')[0].at).toBe('m.jsonc: line 3, column 1')
    expect(faultsOf('{ "name": "a" "b" }')[0].at).toBe('m.jsonc: line 1, column 15')
    expect(faultsOf('{ "name": "a"')[0].at).toBe('m.jsonc: line 1, column 14')
    expect(faultsOf('')[0].at).toBe('m.jsonc: line 1, column 1')
  })

  test('is read whatever it holds, and an error is where JSON.parse has one', () => {
    const pieces = fc.constantFrom(
      '{',
      '}',
      '[',
      ']',
      ',',
      ':',
      '"a"',
      '"\\"',
      '1',
      '-',
      '.5',
      'true',
      'nul',
      '//',
      '/*',
      '*/',
      '\n',
      ' ',
    )
    fc.assert(
      fc.property(fc.array(pieces, { maxLength: 12 }), list => {
        const text = list.join('')
        expect(isLeft(parseMachine(text))).toBe(true)
        const json = withoutComments(text)
        expect(json.length).toBe(text.length)
        let refused = false
        try {
          JSON.parse(json)
        } catch {
          refused = true
        }
        if (!refused) return
        // The text up to the place is a prefix of some JSON text; with the next character it is none.
        const at = syntaxError(json)
        expect(at).toBeLessThanOrEqual(json.length)
        expect(placeIn(json, at)).toMatch(/^line \d+, column \d+$/)
        expect(syntaxError(json.slice(0, at))).toBeGreaterThanOrEqual(json.slice(0, at).trimEnd().length)
      }),
      { numRuns: runs(500) },
    )
    fc.assert(
      fc.property(fc.jsonValue(), value => {
        expect(isLeft(machineOf(value)) || typeof value === 'string').toBe(true)
      }),
    )
  })

  test('holds comments and trailing commas where JSON has none, and strings that look like them', () => {
    const text = '{ "a": "// no", /* "b": */ "c": [1, 2, ], "d": "\\"/*", } // end'
    expect(JSON.parse(withoutComments(text))).toEqual({ a: '// no', c: [1, 2], d: '"/*' })
  })

  test('survives its description', () => {
    fc.assert(
      fc.property(someMachines, machine => {
        expect(orThrow(parseMachine(JSON.stringify(machine)))).toEqual(machine)
      }),
    )
  })
})

const product = (m: number, n: number, k: number, dtype: 'bf16' | 'f32' = 'bf16') => {
  const side = { dtype, batchStride: 0 }
  const kernel = {
    kind: 'matmul',
    m,
    n,
    k,
    batch: 1,
    transposeB: false,
    a: side,
    b: side,
    c: side,
    workspace: 0,
  } as const
  return { op: 'matmul', name: 'y', flops: 2 * m * n * k, movedBytes: 2 * (m * k + k * n + m * n), kernel }
}

describe('what a run costs', () => {
  test('is bound by what takes it longest', () => {
    expect(costOf(product(8192, 8192, 8192), h200).resource).toBe('tensor')
    expect(costOf(product(8, 8192, 8192), h200).resource).toBe('bandwidth')
    expect(costOf({ op: 'relu', movedBytes: 2 ** 28 }, h200).resource).toBe('bandwidth')
    expect(costOf({ op: 'upload', movedBytes: 2 ** 28 }, h200)).toEqual({
      resource: 'h2d',
      nanoseconds: h200.device.h2d.latency + (2 ** 27 / h200.device.h2d.rate) * 1e9,
    })
    expect(costOf({ op: 'download', movedBytes: 2 ** 28 }, h200).resource).toBe('d2h')
    expect(costOf({ op: 'copy', kind: 'peer', movedBytes: 2 ** 28 }, h200).resource).toBe('peer')
    expect(costOf({ op: 'all_gather', movedBytes: 2 ** 28 }, machines['h200x8']!).resource).toBe('link')
    expect(costOf({ op: 'adam', kind: 'host', movedBytes: 2 ** 28 }, h200).resource).toBe('host')
  })

  test('of a block gathered and reduced among two is what was measured', () => {
    const bytes = 256 * 2 ** 20
    const gathered = costOf({ op: 'allGather', movedBytes: 1.5 * bytes }, machines['h200x2']!)
    expect(Math.abs(gathered.nanoseconds / 607e3 - 1)).toBeLessThan(0.01)
    const reduced = costOf({ op: 'reduceScatter', movedBytes: 1.5 * bytes }, machines['h200x2']!)
    expect(Math.abs(reduced.nanoseconds / 627e3 - 1)).toBeLessThan(0.01)
  })

  test('of a collective follows from what each rank must send, whatever it is called', () => {
    const machine = { ...machines['h200x8']!, collectives: { ...h200.collectives, latency: 0 } }
    const time = (kind: string, count: number, ranks?: number) =>
      costOf({ op: 'x', collective: { kind, count, dtype: 'f32' }, ranks }, machine)
    const rate = h200.collectives.allReduce * 1e-9
    const bytes = 4 * 1e6
    // Each rank gives a million elements of 4 bytes: the result has eight times as many, seven eighths of
    // them from other ranks.
    expect(time('allGather', 1e6)).toEqual({
      resource: 'link',
      nanoseconds: expect.closeTo((7 * bytes) / rate),
    })
    expect(time('reduceScatter', 1e6).nanoseconds).toBeCloseTo((7 * bytes) / rate)
    expect(time('allReduce', 1e6).nanoseconds).toBeCloseTo((2 * (7 / 8) * bytes) / rate)
    expect(time('send', 1e6).nanoseconds).toBeCloseTo(bytes / rate)
    expect(time('broadcast', 1e6).nanoseconds).toBeCloseTo(bytes / rate)
    expect(time('allGather', 1e6, 2).nanoseconds).toBeCloseTo(bytes / rate)
    // A single rank sends nothing.
    expect(time('allReduce', 1e6, 1).resource).toBe('bandwidth')
    expect(costOf({ op: 'reduce', movedBytes: 2 ** 30 }, machine).resource).toBe('bandwidth')
    expect(costOf({ op: 'all-to-all', movedBytes: 2 ** 30 }, machine).resource).toBe('link')
  })

  test('is never less for more work, on any machine', () => {
    const dimension = fc.integer({ min: 1, max: 4096 })
    fc.assert(
      fc.property(
        someMachines,
        dimension,
        dimension,
        dimension,
        fc.integer({ min: 1, max: 4 }),
        (machine, m, n, k, by) => {
          const time = (m: number, n: number, k: number) =>
            costOf(product(m, n, k), machine).nanoseconds * (1 + 1e-9)
          expect(time(m * by, n, k)).toBeGreaterThanOrEqual(costOf(product(m, n, k), machine).nanoseconds)
          expect(time(m, n * by, k)).toBeGreaterThanOrEqual(costOf(product(m, n, k), machine).nanoseconds)
          expect(time(m, n, k * by)).toBeGreaterThanOrEqual(costOf(product(m, n, k), machine).nanoseconds)
          const moved = (bytes: number) => costOf({ op: 'relu', movedBytes: bytes }, machine).nanoseconds
          expect(moved(m * n * by) * (1 + 1e-9)).toBeGreaterThanOrEqual(moved(m * n))
        },
      ),
    )
  })

  test('asks for no more than all of a device, and for less where a kernel is small', () => {
    const dimension = fc.integer({ min: 1, max: 8192 })
    fc.assert(
      fc.property(someMachines, dimension, dimension, dimension, (machine, m, n, k) => {
        for (const work of [
          product(m, n, k),
          { op: 'relu', movedBytes: m * n },
          { op: 'upload', movedBytes: m * n },
        ]) {
          const { multiprocessors, arithmetic, bandwidth, latency, nanoseconds } = demandOf(work, machine)
          for (const share of [multiprocessors, arithmetic, bandwidth]) {
            expect(share).toBeGreaterThanOrEqual(0)
            expect(share).toBeLessThanOrEqual(1)
          }
          expect(latency).toBeLessThanOrEqual(nanoseconds)
        }
      }),
    )
    expect(demandOf(product(128, 256, 512), h200).multiprocessors).toBeCloseTo(4 / 132)
    expect(demandOf(product(8192, 8192, 512), h200).multiprocessors).toBeGreaterThan(0.95)
  })

  test('is what was measured where that is known', () => {
    const measured = new Map([['y', 1234]])
    expect(costOf(product(512, 512, 512), h200, measured)).toEqual({ resource: 'tensor', nanoseconds: 1234 })
    expect(costOf({ ...product(512, 512, 512), name: 'z' }, h200, measured).nanoseconds).not.toBe(1234)
  })
})

describe('how long inputs take to fill', () => {
  const sizes = [2 ** 18, 2 ** 20, 2 ** 22, 2 ** 24, 2 ** 26]
  const fillings = fc.record({
    cache: fc.constantFrom(...sizes.slice(0, -1)),
    cacheBandwidth: fc.double({ min: 5e9, max: 50e9, noNaN: true }),
    slower: fc.double({ min: 0.2, max: 0.8, noNaN: true }),
  })

  test('is found again from what a host of such rates would take', () => {
    fc.assert(
      fc.property(fillings, ({ cache, cacheBandwidth, slower }) => {
        const host = { cache, cacheBandwidth, bandwidth: cacheBandwidth * slower }
        const samples = sizes.map(bytes => ({ bytes, nanoseconds: fillTime(host, bytes) }))
        const found = fillingOf(samples)!
        for (const bytes of sizes) expect(fillTime(found, bytes) / fillTime(host, bytes)).toBeCloseTo(1, 6)
      }),
    )
  })

  test('is within the error of what was measured', () => {
    fc.assert(
      fc.property(
        fillings,
        fc.array(fc.double({ min: 0.95, max: 1.05, noNaN: true }), {
          minLength: sizes.length,
          maxLength: sizes.length,
        }),
        ({ cache, cacheBandwidth, slower }, errors) => {
          const host = { cache, cacheBandwidth, bandwidth: cacheBandwidth * slower }
          const samples = sizes.map((bytes, i) => ({
            bytes,
            nanoseconds: fillTime(host, bytes) * errors[i]!,
          }))
          const found = fillingOf(samples)!
          for (const bytes of sizes)
            expect(Math.abs(Math.log(fillTime(found, bytes) / fillTime(host, bytes)))).toBeLessThan(0.15)
        },
      ),
    )
  })

  test('is undefined without measurements', () => {
    expect(fillingOf([])).toBeUndefined()
    expect(fillingOf([{ bytes: 0, nanoseconds: 5 }])).toBeUndefined()
  })
})
