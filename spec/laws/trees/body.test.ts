// Compiled plans in a tree: their ports on the device, their places, and the proof of both.

import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, it } from 'vitest'
import {
  add,
  after,
  compile,
  download,
  graph,
  lane,
  matmul,
  mul,
  orThrow,
  type Plan,
  param,
  relu,
  tensor,
  upload,
} from '../../../dsl/index.js'
import { bodyOf, placed, proofOf } from '../../../dsl/trees/body.js'
import type { ByteRange } from '../../../dsl/trees/byte-ranges.js'
import { layOut } from '../../../dsl/trees/layout.js'
import { type ResidentPlan, residentPlan } from '../../../dsl/trees/resident.js'
// As trees do: what a tree makes of plans has offsets that no plan file may have.
import { verifyLoaded as verify } from '../../../dsl/verify/verify.js'
import { sample } from '../../fixtures/graphs/random.js'
import { roomy } from '../../fixtures/machines/roomy.js'
import { often, runs } from '../../fixtures/runs.js'

const row = tensor('f32', [16, 16])
const copy = lane('copy')
const math = lane('math')
const layer = graph('layer', { x: row, bias: row }, ({ x, bias }) => {
  const w = param('w', row)
  const y = x.pipe(upload(copy), matmul(w), add(bias.pipe(upload(copy))), relu())
  return { x: y.pipe(download(copy)), sum: y.pipe(mul(y), download(math)) }
})
const planned = (g: typeof layer): Plan => orThrow(compile(g, { storage: 'planned', inFlight: 2 })) as Plan
const all = (plan: Plan, life: 'input' | 'output'): Set<string> =>
  new Set(
    plan.buffers.flatMap(buffer => (buffer.life === life && buffer.alias === undefined ? [buffer.name] : [])),
  )
const residentOf = (plan: Plan, inputs: Iterable<string>, outputs: Iterable<string>): ResidentPlan =>
  orThrow(residentPlan(plan, { inputs: new Set(inputs), outputs: new Set(outputs) }))
const copiesIn = ({ commands, nodes }: Plan): number =>
  commands.filter(([kind, node]) => kind === 'run' && nodes[node]!.kernel?.kind === 'copy').length

describe('a plan whose ports stay on the device', () => {
  it('loses the copies from and to the host', () => {
    const plan = planned(layer)
    expect(copiesIn(plan)).toBe(4)
    expect(copiesIn(residentOf(plan, ['x'], ['x']).plan)).toBe(2)
    expect(copiesIn(residentOf(plan, ['x', 'bias'], ['x', 'sum']).plan)).toBe(0)
  })

  it('keeps what comes after a copy that it loses behind what that came after', () => {
    const made = graph('ordered', { x: row }, ({ x }) => {
      const up = x.pipe(upload(copy))
      const y = up.pipe(relu())
      const out = y.pipe(download(copy))
      const w = param('w', row, { on: 'host' }).pipe(after(up), upload(lane('weights')))
      return { x: out, z: w.pipe(mul(2), download(copy)) }
    })
    const plan = planned(made as never)
    const { plan: moved } = residentOf(plan, ['x'], ['x'])
    expect(copiesIn(moved)).toBe(copiesIn(plan) - 2)
    expect(verify(moved, { safety: true }).filter(({ law }) => law === 'L10')).toEqual([])
  })

  it('reports a port that it does not have, and a plan without places', () => {
    const plan = planned(layer)
    const wrong = residentPlan(plan, { inputs: new Set(['z']), outputs: new Set(['x']) })
    expect(E.isLeft(wrong) && wrong.left.map(({ _tag, found }) => [_tag, found])).toEqual([
      ['UnknownPort', 'z'],
    ])
    const pooled = orThrow(compile(layer, { storage: 'pooled' })) as Plan
    const none = residentPlan(pooled, { inputs: new Set(), outputs: new Set() })
    expect(E.isLeft(none) && none.left.map(({ _tag }) => _tag)).toEqual(['NotPlanned'])
  })

  it('obeys the laws in every layout, with whatever is kept beside it', () => {
    let withArenas = 0
    fc.assert(
      fc.property(
        sample(),
        fc.nat(),
        fc.integer({ min: 1, max: 4 }),
        fc.array(fc.tuple(fc.integer({ min: 0, max: 40 }), fc.integer({ min: 1, max: 6 })), { maxLength: 4 }),
        fc.constantFrom('eager' as const, 'graph' as const),
        fc.integer({ min: 1, max: 3 }),
        ({ graph: given }, choice, lanes, holes, mode, inFlight) => {
          const compiled = compile(given, { storage: 'planned', lanes, mode, inFlight, machine: roomy })
          if (E.isLeft(compiled)) return
          const plan = compiled.right as Plan
          if (plan.devices > 1) return
          if (plan.arenas !== undefined) withArenas++
          const some = (names: Set<string>) => [...names].filter((_, i) => (choice >> (i % 24)) & 1)
          const body = bodyOf(residentOf(plan, some(all(plan, 'input')), some(all(plan, 'output'))))
          const kept: ByteRange[] = []
          for (const [at, size] of holes) {
            const from = Math.max(at * 512, kept.at(-1)?.to ?? 0)
            kept.push({ from, to: from + size * 512 })
          }
          const contract = { inputs: new Map<string, number>(), kept, elsewhere: [] }
          const layout = layOut(body.body, contract, [...body.body.outputs.keys()])
          const proof = proofOf(body, layout, kept)
          expect(verify(proof, { safety: true }).map(({ message }) => message)).toEqual([])
          expect(placed(body, layout).arena).toEqual([layout.top])
          const { graphs = [] } = placed(body, layout)
          expect(graphs.length).toBeLessThanOrEqual(plan.graphs?.length ?? 0)
          if (mode === 'graph') expect(verify(proof).filter(({ law }) => law === 'L11')).toEqual([])
        },
      ),
      { numRuns: runs(150) },
    )
    expect(withArenas).toBeGreaterThan(often(0))
  })

  it('obeys them where an input is kept as well', () => {
    const body = bodyOf(residentOf(planned(layer), ['x', 'bias'], ['x']))
    const kept = [{ from: 1024, to: 3072 }]
    const contract = { inputs: new Map([['x', 1024]]), kept, elsewhere: [] }
    const layout = layOut(body.body, contract, ['x'])
    expect(verify(proofOf(body, layout, kept), { safety: true })).toEqual([])
    const offsets = layout.offsets.with(0, 1024)
    expect(verify(proofOf(body, { ...layout, offsets }, kept), { safety: true })).not.toEqual([])
  })

  it('breaks a law where a buffer lies over one that it may not share bytes with', () => {
    const body = bodyOf(residentOf(planned(layer), ['x', 'bias'], ['x', 'sum']))
    const contract = { inputs: new Map<string, number>(), kept: [], elsewhere: [] }
    const layout = layOut(body.body, contract, [...body.body.outputs.keys()])
    expect(verify(proofOf(body, layout, []), { safety: true })).toEqual([])
    const [input] = [...layout.inputs.values()]
    for (let at = 0; at < layout.offsets.length; at++) {
      const offsets = layout.offsets.with(at, input!)
      expect(verify(proofOf(body, { ...layout, offsets }, []), { safety: true }), `buffer ${at}`).not.toEqual(
        [],
      )
    }
    const kept = [{ from: layout.offsets[0]!, to: layout.offsets[0]! + 512 }]
    expect(verify(proofOf(body, layout, kept), { safety: true })).not.toEqual([])
  })
})
