// Collectives through the compiler: every plan of theirs passes the laws of all its ranks together, with no
// wait too many; windows bound what is gathered ahead; lanes, costs and reasons are theirs.
import fc from 'fast-check'
import { isLeft } from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import {
  add,
  allGather,
  allReduce,
  type Communicator,
  type CompileOptions,
  communicator,
  compile,
  device,
  download,
  explain,
  type Graph,
  graph,
  lane,
  mul,
  on,
  orThrow,
  parsePlan,
  relu,
  reshape,
  scan,
  simulate,
  slice,
  tensor,
  toJSON,
  upload,
} from '../../../dsl/index.js'
import type { Plan } from '../../../dsl/ir/plan.js'
import { textOf } from '../../../dsl/ir/text.js'
import { poolPeakOf } from '../../../dsl/memory/pool-peak.js'
import { verify } from '../../../dsl/verify/verify.js'
import { verifyRanks } from '../../../dsl/verify/verify-ranks.js'
import {
  forward,
  type Move,
  mixed,
  moves,
  type Sharded,
  step,
  tensorParallel,
} from '../../fixtures/graphs/ranks.js'
import { fitted } from '../../fixtures/plans/fitted.js'
import { often, runs } from '../../fixtures/runs.js'
import { oracle, without } from '../../oracle/oracle.js'
import { canStop, execute } from '../../oracle/rendezvous.js'

const made = (net: Graph, options: CompileOptions = {}): Plan =>
  orThrow(compile(net, { mode: 'eager', ...options })) as Plan
const each = (plan: Plan, ranks: number): Plan[] => Array.from({ length: ranks }, () => plan)

const options: fc.Arbitrary<CompileOptions> = fc.record({
  storage: fc.constantFrom('pooled', 'planned'),
  inFlight: fc.integer({ min: 1, max: 3 }),
  lanes: fc.constantFrom(undefined, 1, 2, 3, 4, 8),
  memory: fc.constantFrom('fast', 'fast', 'small'),
})

/** Every law of every rank, the same from the file, and the same again. */
const whole = (net: Graph, ranks: number, chosen: CompileOptions = {}): Plan => {
  const plan = made(net, chosen)
  expect(verify(plan)).toEqual([])
  expect(verifyRanks(each(plan, ranks))).toEqual([])
  expect(toJSON(made(net, chosen))).toBe(toJSON(plan))
  expect(orThrow(parsePlan(toJSON(plan)))).toEqual(orThrow(parsePlan(JSON.stringify(plan))))
  const parsed = orThrow(parsePlan(toJSON(plan)))
  expect(parsed.communicators).toEqual(plan.communicators)
  expect(parsed.nodes.map(({ collective }) => collective)).toEqual(
    plan.nodes.map(({ collective }) => collective),
  )
  return plan
}

const sharded: fc.Arbitrary<Sharded> = fc.record(
  {
    layers: fc.integer({ min: 1, max: 5 }),
    ranks: fc.constantFrom(2, 4, 8),
    ahead: fc.integer({ min: 0, max: 3 }),
    offloaded: fc.boolean(),
    apart: fc.boolean(),
  },
  { requiredKeys: ['layers', 'ranks'] },
)

describe('plans of several ranks', () => {
  test('of sharded layers, forward and in training', () => {
    fc.assert(
      fc.property(sharded, options, (layers, chosen) => {
        whole(forward(layers), layers.ranks, chosen)
        whole(step(layers), layers.ranks, chosen)
      }),
      { numRuns: runs(30) },
    )
  })

  test('of tensor parallel layers', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 6 }), fc.constantFrom(2, 4), options, (layers, ranks, chosen) => {
        whole(tensorParallel(layers, ranks), ranks, chosen)
      }),
      { numRuns: runs(15) },
    )
  })

  test('of any mix over communicators that share ranks, on whichever lanes', () => {
    fc.assert(
      fc.property(moves(14), options, (mix, chosen) => {
        whole(mixed(mix), 4, chosen)
      }),
      { numRuns: runs(120) },
    )
  })

  test('come to an end, whatever ranks begin first, and have no wait too many by brute force', () => {
    let conflicting = 0
    fc.assert(
      fc.property(moves(7), options, (mix, chosen) => {
        const plan = made(mixed(mix), chosen)
        if (plan.commands.length > 70) return
        expect([...oracle(plan)]).toEqual([])
        const plans = each(plan, 4)
        expect(execute(plans)).toBe('done')
        const calls = plan.nodes.filter(({ collective }) => collective !== undefined)
        // Rows and columns share one rank each: that devices which hold one call at a time could stop over
        // those is known of every mesh.
        if (
          calls.length > 4 ||
          plan.inFlight === 1 ||
          plan.communicators?.some(({ name }) => name === 'columns')
        )
          return
        expect(canStop(plans)).toBe(false)
        if (new Set(calls.map(({ collective }) => collective!.communicator)).size > 1) conflicting++
      }),
      { numRuns: runs(150) },
    )
    expect(conflicting).toBeGreaterThan(often(5))
  })
})

describe('ranks that differ', () => {
  const small: fc.Arbitrary<readonly Move[]> = moves(6)

  test('two collectives swapped on one rank are rejected, or meet all the same', () => {
    let rejected = 0
    fc.assert(
      fc.property(small, options, fc.nat(), fc.nat(), fc.nat(3), (mix, chosen, one, other, rank) => {
        const plan = made(mixed(mix), chosen)
        const calls = plan.nodes.filter(({ collective }) => collective !== undefined)
        if (calls.length < 2) return
        const [a, b] = [calls[one % calls.length]!, calls[other % calls.length]!]
        const swapped = plan.nodes.map(node =>
          node === a
            ? { ...node, collective: b.collective! }
            : node === b
              ? { ...node, collective: a.collective! }
              : node,
        )
        const plans = each(plan, 4).with(rank, { ...plan, nodes: swapped })
        const found = verifyRanks(plans, { safety: true })
        if (found.length === 0) expect(execute(plans)).toBe('done')
        else rejected++
        // A call of another kind may also leave a part of its buffer unwritten (L1), or reach beyond it (L3).
        for (const { law } of found) expect(['L1', 'L3', 'L8']).toContain(law)
      }),
      { numRuns: runs(150) },
    )
    expect(rejected).toBeGreaterThan(often(30))
  })

  test('any wait dropped on one rank breaks a law, or takes more memory than the session has', () => {
    let met = 0
    fc.assert(
      fc.property(small, options, fc.nat(3), (mix, chosen, rank) => {
        const plan = made(mixed(mix), chosen)
        plan.commands.forEach(([kind], c) => {
          if (kind !== 'wait') return
          const broken = without(plan, c)
          const found = verifyRanks(each(plan, 4).with(rank, broken), { safety: true })
          if (found.some(({ law }) => law === 'L8')) met++
          if (found.length === 0) expect(poolPeakOf(broken).device[0]).toBeGreaterThan(plan.bound.device[0]!)
        })
      }),
      { numRuns: runs(60) },
    )
    expect(met).toBeGreaterThan(often(10))
  })
})

describe('gathers of states', () => {
  const world = communicator('world', 4)
  const shard = tensor('f32', [16])

  test.each([undefined, 0, 1])('come before this tick stores over them, %s ahead', ahead => {
    const gather = ahead === undefined ? allGather(world) : allGather(world, undefined, { ahead })
    const net = graph('states', { x: tensor('f32', [4, 16]) }, ({ x }) => {
      const fed = x.pipe(upload())
      const outputs: Record<string, unknown> = {}
      for (const name of ['a', 'b', 'c']) {
        // The next value needs none of what is gathered, so it could be stored long before it is needed for
        // that.
        let now = fed.pipe(slice(0, 0, 1), reshape([16]))
        const decay = scan(
          (w: typeof now) => {
            now = w
            return w.pipe(mul(0.9))
          },
          1,
          shard,
        )
        outputs[`${name}'`] = fed
          .pipe(decay)
          .pipe(relu(), mul(2), relu(), mul(3), relu(), mul(4), relu(), download())
        outputs[name] = fed.pipe(add(now.pipe(gather)), download())
      }
      return outputs as never
    }) as unknown as Graph
    for (const storage of ['pooled', 'planned'] as const)
      for (const inFlight of [1, 2, 3])
        for (const memory of ['fast', 'small'] as const) {
          const { commands, nodes } = whole(net, 4, { storage, inFlight, memory, fuse: false })
          // A gather that came after the store would be lawful too, and gather the next value.
          const runs = commands.flatMap(command => (command[0] === 'run' ? [command] : []))
          const gathers = runs.filter(([, node]) => nodes[node]!.op === 'allGather')
          expect(gathers).toHaveLength(3)
          for (const gather of gathers) {
            const store = runs.findIndex(
              ([, node, , , writes]) => nodes[node]!.op === 'store' && writes[0] === gather[3][0],
            )
            expect(store).toBeGreaterThan(runs.indexOf(gather))
          }
        }
  })
})

describe('the order of collectives', () => {
  const [all, other] = [communicator('all', 4), communicator('other', 4)]
  const [rows, columns] = [
    communicator('rows', {
      groups: [
        [0, 1],
        [2, 3],
      ],
    }),
    communicator('columns', {
      groups: [
        [0, 2],
        [1, 3],
      ],
    }),
  ]
  const row = tensor('f32', [16])
  /** Two values, each summed on a lane of its own. */
  const two = (a: Communicator = all, b: Communicator = other): Graph =>
    graph('two', { x: row, z: row }, ({ x, z }) => ({
      x: x.pipe(upload(), allReduce(a, 'sum', lane('one')), download()),
      z: z.pipe(upload(), allReduce(b, 'sum', lane('two')), download()),
    })) as unknown as Graph
  const between = (plan: Plan): number =>
    plan.commands.filter(
      command => command[0] === 'wait' && plan.lanes[command[2]]!.name.match(/^(one|two)$/),
    ).length

  test('is one on all ranks where they share two, around the tick too', () => {
    // Each lane waits for its upload; then one for the other, in the tick and around it.
    expect(between(whole(two(), 4))).toBe(4)
    expect(between(whole(two(), 4, { inFlight: 1 }))).toBe(3)
  })

  test('is for conflicting communicators: rows and columns of a mesh overlap', () => {
    expect(between(whole(two(rows, columns), 4))).toBe(2)
    expect(between(whole(two(all, all), 4))).toBe(2)
  })

  test('of one communicator on two lanes orders the conflicting one too', () => {
    const net = graph('served', { x: row, z: row }, ({ x, z }) => {
      const first = x.pipe(upload(), allReduce(other, 'sum', lane('three')), relu())
      const y = first.pipe(allReduce(all, 'sum', lane('one')), relu())
      return { y: y.pipe(download()), z: z.pipe(upload(), allReduce(all, 'max', lane('two')), download()) }
    }) as unknown as Graph
    whole(net, 4)
    whole(net, 4, { storage: 'planned' })
  })

  test('has its reason', () => {
    const text = explain(made(two()))
    expect(text).toContain('all and other share ranks, on all of which it comes after allReduce[0]')
    expect(text).toContain('2 for ranks')
  })
})

describe('windows of gathers', () => {
  const layer = 512 * 512 * 4

  const wide = { layers: 8, ranks: 8, width: 512 }
  const heldBy = (net: Graph, chosen: CompileOptions = {}): number => whole(net, 8, chosen).bound.device[0]!

  test('hold as many layers as they may and one more', () => {
    const alone = { inFlight: 1 }
    const differences = (held: readonly number[]): readonly number[] =>
      held.slice(1).map((bytes, i) => bytes - held[i]!)
    const ahead = [0, 1, 2, 3]
    const bounds = ahead.map(ahead => heldBy(forward({ ...wide, ahead }), alone))
    expect(differences(bounds)).toEqual([layer, layer, layer])
    // One layer, besides what all hold: parameters in shards, x, an activation, and the activation that it is
    // computed from.
    expect(bounds[0]! - layer).toBe(8 * (layer / 8) + 2 * 16 * 512 * 4)
    // An uploaded shard is as far ahead of its gather, and its bytes are had again once that is known to be
    // over.
    for (const more of differences(
      ahead.map(ahead => heldBy(forward({ ...wide, ahead, offloaded: true }), alone)),
    )) {
      expect(more).toBeGreaterThanOrEqual(layer)
      expect(more).toBeLessThanOrEqual(layer + 2 * (layer / 8))
    }
    expect(
      differences([0, 1].map(ahead => heldBy(forward({ ...wide, ahead }), { storage: 'planned' }))),
    ).toEqual([layer])
  })

  test('are in use at once as far as the window allows, of any step', () => {
    fc.assert(
      fc.property(sharded, fc.integer({ min: 0, max: 3 }), (of, ahead) => {
        const plan = made(step({ ...of, ahead }))
        const full = new Set(plan.nodes.flatMap(({ id, op }) => (op === 'allGather' ? [id] : [])))
        const readers = plan.commands.flatMap((command, c) => {
          if (command[0] !== 'run' || !full.has(command[1])) return []
          const [written] = command[4]
          const reads = plan.commands.flatMap((later, at) =>
            later[0] === 'run' && later[3].some(b => (plan.buffers[b]!.alias ?? b) === written) ? [at] : [],
          )
          return [{ from: c, to: Math.max(...reads) }]
        })
        // Where a layer's reader comes after that of a later layer, no window can be so narrow.
        for (const { from } of readers)
          expect(readers.filter(other => other.from <= from && from <= other.to).length).toBeLessThanOrEqual(
            ahead + 1,
          )
      }),
      { numRuns: runs(25) },
    )
  })

  test('make a tick shorter than gathers that come when they are asked for', () => {
    const alone = { machine: 'h200x8', inFlight: 1 }
    const tick = (ahead: number): number =>
      simulate(made(forward({ layers: 8, ranks: 8, width: 4096, rows: 512, ahead }), alone), 'h200x8').tickMs
    expect(tick(1)).toBeLessThan(tick(0) * 0.9)
    const stepped = (ahead: number): number =>
      simulate(made(step({ layers: 6, ranks: 8, width: 1024, apart: true, ahead }), alone), 'h200x8').tickMs
    expect(stepped(1)).toBeLessThan(stepped(0))
  })

  test('are found under a bound, as those of uploads are', () => {
    for (const ahead of [1, 3]) {
      const memory = heldBy(forward({ ...wide, ahead }), { inFlight: 1 })
      const found = made(forward(wide), { memory, inFlight: 1 })
      expect(found.bound.device[0]).toBeLessThanOrEqual(memory)
      // In more memory the order without windows fits too.
      if (ahead === 1) expect(explain(found)).toContain('at most 1 ahead')
      expect(verifyRanks(each(found, 8))).toEqual([])
    }
  })
})

describe('collectives in a plan', () => {
  const world = communicator('world', 8)
  const row = tensor('f32', [8, 16])
  const summed = (own?: Parameters<typeof allReduce>[2]): Graph =>
    graph('summed', { x: row }, ({ x }) => ({
      y: x.pipe(upload(), relu(), allReduce(world, 'sum', own), relu(), download()),
    })) as unknown as Graph

  test('are on the user’s lane, or on that of communication', () => {
    const laneOf = (plan: Plan): string => {
      const run = plan.commands.find(c => c[0] === 'run' && plan.nodes[c[1]]!.collective !== undefined)
      return plan.lanes[run![2] as number]!.name
    }
    expect(laneOf(made(summed()))).toBe('comm')
    expect(laneOf(made(summed(lane('links'))))).toBe('links')
    const lanes = (most: number): readonly string[] =>
      made(summed(), { lanes: most }).lanes.map(({ name }) => name)
    expect(lanes(4).toSorted()).toEqual(['comm', 'd2h', 'h2d', 'main'])
    expect(lanes(3).toSorted()).toEqual(['comm', 'h2d+d2h', 'main'])
    expect(lanes(2)).toHaveLength(2)
    expect(lanes(2)).toContain('main')
    expect(lanes(1)).toHaveLength(1)
  })

  test('name the ranks of their group', () => {
    const mesh = communicator('rows', {
      groups: [
        [0, 1],
        [2, 3],
      ],
    })
    const net = graph('said', { x: row }, ({ x }) => {
      const y = x.pipe(upload())
      return {
        a: y.pipe(allReduce(communicator('all', 4), 'mean'), download()),
        b: y.pipe(allGather(mesh), download()),
      }
    }) as unknown as Graph
    const plan = whole(net, 4)
    expect(plan.communicators).toEqual([
      { id: 0, name: 'all', size: 4 },
      {
        id: 1,
        name: 'rows',
        groups: [
          [0, 1],
          [2, 3],
        ],
      },
    ])
    const said = plan.nodes.flatMap(({ collective }) => collective ?? [])
    expect(said.toSorted((a, b) => a.communicator - b.communicator)).toEqual([
      { kind: 'allReduce', communicator: 0, count: 128, dtype: 'f32', how: 'mean' },
      { kind: 'allGather', communicator: 1, count: 128, dtype: 'f32' },
    ])
    expect(textOf(plan)).toContain('communicator all: all 4 ranks\ncommunicator rows: [0, 1] [2, 3]\n')
    // For as many ranks as it was made for, and no others.
    for (const ranks of [3, 5]) expect(verifyRanks(each(plan, ranks)).map(({ law }) => law)).toContain('L8')
  })

  test('are refused where one process has several devices, each where it stands', () => {
    const net = graph('several', { x: row }, ({ x }) => ({
      y: x.pipe(
        upload(),
        on(device(1)),
        relu(),
        allReduce(world, 'sum'),
        allReduce(world, 'max'),
        download(),
      ),
    })) as unknown as Graph
    const refused = compile(net, { mode: 'eager' })
    if (!isLeft(refused)) throw new Error('it compiles')
    expect(refused.left.map(({ _tag, subject }) => [_tag, subject])).toEqual([
      ['Unsupported', 'allReduce[0]'],
      ['Unsupported', 'allReduce[1]'],
    ])
    expect(refused.left[0].at).toContain('collectives.test.ts:')
  })

  test('take the time of their own group, whatever the machine has', () => {
    const chosen = (net: Graph): number => fitted(net, { machine: 'h200x8' }).choice!.chosen.tick
    const net = (ranks: number): Graph => {
      const big = tensor('f32', [2 ** 22])
      return graph('timed', { x: big }, ({ x }) => ({
        y: x.pipe(upload(), allReduce(communicator('some', ranks), 'sum'), download()),
      })) as unknown as Graph
    }
    const of = (ranks: number): number => {
      const plan = made(net(ranks), { machine: 'h200x8' })
      const { busy } = simulate(plan, 'h200x8')
      expect(simulate(orThrow(parsePlan(toJSON(plan))), 'h200x8').busy).toEqual(busy)
      return busy['comm']!
    }
    expect(chosen(net(2))).toBeLessThan(chosen(net(8)))
    expect(chosen(net(8))).toBeLessThan(chosen(net(64)))
    expect(of(2)).toBeLessThan(of(8))
    expect(of(8)).toBeLessThan(of(64))
    const latency = 0.03
    // Twice what all give, but for a rank's own part.
    expect((of(64) - latency) / (of(2) - latency)).toBeCloseTo((2 * 63) / 64, 1)
  })
})
