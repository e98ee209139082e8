// A plan in which a run's result lies over one of its operands, at many distances, is refused, or it yields
// what `interpret` yields. The plans are the compiler's, of one graph for each kind of kernel and of generated
// graphs; then two buffers of a run become views of one, as a plan by another program may have them.
import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import * as braid from '../../dsl/index.js'
import { provenanceOf } from '../../dsl/internal.js'
import type { KernelSpec } from '../../dsl/ir/kernel-spec.js'
import type { Command, Plan, PlanBuffer } from '../../dsl/ir/plan.js'
import { open } from '../../runtime/index.js'
import { twiceInPlace } from '../fixtures/graphs/kernels.js'
import { type Sample, sample, valuesOf } from '../fixtures/graphs/random.js'
import { often, runs } from '../fixtures/runs.js'
import { present } from './devices.js'
import { meantOf, mismatch, outputsOf } from './meant.js'

type Run = Extract<Command, readonly ['run', ...unknown[]]>

interface Place {
  readonly run: Run
  readonly kind: KernelSpec['kind']
  /** Roots of a read and of a write. */
  readonly x: PlanBuffer
  readonly y: PlanBuffer
}

const { upload, download, tensor } = braid
const rootIn = ({ buffers }: Plan, id: number): number => buffers[id]!.alias ?? id

/** Runs that read a value for the last time, and a result of each that nothing has written before. */
const placesOf = (plan: Plan): readonly Place[] => {
  const list = plan.commands.filter((command): command is Run => command[0] === 'run')
  const own = (id: number): PlanBuffer | undefined => {
    const buffer = plan.buffers[rootIn(plan, id)]!
    return buffer.life === 'tick' && buffer.space === 'device' ? buffer : undefined
  }
  const touches = (run: Run, { id }: PlanBuffer) => [...run[3], ...run[4]].some(b => rootIn(plan, b) === id)
  return list.flatMap((run, c) => {
    const { kernel } = plan.nodes[run[1]]!
    const reads = [...new Set(run[3].map(own))].filter(b => b !== undefined)
    const writes = [...new Set(run[4].map(own))].filter(b => b !== undefined)
    return reads.flatMap(x =>
      writes.flatMap(y =>
        kernel !== undefined &&
        x !== y &&
        !list.slice(c + 1).some(later => touches(later, x)) &&
        !list.slice(0, c).some(earlier => touches(earlier, y))
          ? [{ run, kind: kernel.kind, x, y }]
          : [],
      ),
    )
  })
}

/** All on one lane, where issue order orders everything; x and y are views of one new buffer. */
const overlaid = (plan: Plan, { x, y }: Place, distance: number): Plan => {
  const id = plan.buffers.length
  const at = new Map([
    [x.id, Math.max(0, -distance)],
    [y.id, Math.max(0, distance)],
  ])
  const bytes = Math.max(at.get(x.id)! + x.bytes, at.get(y.id)! + y.bytes)
  const isPlanned = plan.storage === 'planned'
  const arena = 16 * Math.ceil((plan.arena?.[0] ?? 0) / 16)
  const base = { name: 'both', space: 'device', device: 0, home: 0, life: 'tick' } as const
  const buffers = plan.buffers.map((buffer): PlanBuffer => {
    const { offset, alias, aliasOffset = 0, ...rest } = buffer
    const moved = at.get(alias ?? buffer.id)
    if (moved === undefined) return { ...buffer, home: 0 }
    return { ...rest, home: 0, alias: id, aliasOffset: aliasOffset + moved }
  })
  const kept = plan.commands.flatMap((command): Command[] => {
    if (command[0] === 'run') return [['run', command[1], 0, command[3], command[4]]]
    if (command[0] === 'free') return at.has(command[1]) ? [] : [command]
    return command[0] === 'alloc' && !at.has(command[1]) ? [['alloc', command[1], 0]] : []
  })
  const commands: readonly Command[] = isPlanned ? kept : [['alloc', id, 0], ...kept, ['free', id]]
  const { boundKind: _, arenas: __, graphs, ...rest } = plan
  const total = buffers.reduce((sum, b) => sum + 512 * Math.ceil(b.bytes / 512), bytes) * plan.inFlight
  const edges = commands.slice(1).map((_, c) => [c, c + 1] as const)
  return {
    ...rest,
    inFlight: 1,
    bound: { device: [arena + bytes + total], pinned: plan.bound.pinned },
    ...(isPlanned ? { arena: [arena + bytes] } : {}),
    lanes: [plan.lanes[0]!],
    buffers: [...buffers, { ...base, id, bytes, ...(isPlanned ? { offset: arena } : {}) }],
    commands,
    ...(graphs === undefined ? {} : { graphs: [{ from: 0, to: commands.length, edges }] }),
  }
}

/** Places where the two begin together, share a part either way, or touch. */
const distancesOf = ({ x, y }: Place): readonly number[] => [
  ...new Set([0, 16, -16, 4, -4, y.bytes - x.bytes, x.bytes - 16, 16 - y.bytes, x.bytes, -y.bytes]),
]

/** What became of the plans, by kind. */
const tally = { accepted: new Set<string>(), inPlace: new Set<string>(), refused: new Set<string>(), all: 0 }

/** Runs the plan where it is accepted; parsePlan, verify and open must agree. */
const hold = async (one: Sample, plan: Plan, place: Place, distance: number, device: string) => {
  const made = overlaid(plan, place, distance)
  const parsed = braid.parsePlan(braid.toJSON(made))
  const broken = braid.verify(made, { safety: true })
  const isProved = broken.length === 0
  const meets = distance < place.x.bytes && -distance < place.y.bytes
  tally.all++
  // Both see the same bytes; parsePlan also asks for addresses that suit the elements.
  if (E.isLeft(parsed) && parsed.left.some(({ _tag }) => _tag !== 'Extent')) expect(isProved).toBe(false)
  if (!isProved || E.isLeft(parsed)) {
    tally.refused.add(place.kind)
    return
  }
  tally.accepted.add(place.kind)
  if (meets) tally.inPlace.add(place.kind)
  const references = Object.fromEntries(
    [...(provenanceOf(plan)?.kernels.values() ?? [])].map(({ kernel, reference }) => [
      kernel.name,
      reference,
    ]),
  )
  const session = braid.orThrow(
    await open(parsed.right, { device, params: one.params, references, poison: true } as never)(),
  )
  const got = await outputsOf(session, one)
  await session.close()
  const where = { kind: place.kind, distance, x: place.x.name, y: place.y.name, storage: plan.storage }
  expect({ where, ...mismatch(one, await meantOf(one), got) }).toEqual({ where })
}

const modes = [
  { mode: 'eager', storage: 'pooled' },
  { mode: 'eager', storage: 'planned' },
  { mode: 'graph' },
] as const

// biome-ignore lint/suspicious/noExplicitAny: operators of every type pass through here.
type Any = any
const x = tensor('f32', [4, 4])
/** A graph of each kind, of a value that a run makes. */
const kinds: Readonly<Record<KernelSpec['kind'], (x: Any, more: Record<string, Any>) => Any>> = {
  // A value that comes straight back stays on the device.
  copy: x => x.pipe(download(), upload(), braid.add(1)),
  map: x => x.pipe(braid.exp()),
  matmul: (x, { w }) => x.pipe(braid.matmul(w), braid.matmul(x)),
  attention: (x, { w }) => x.pipe(braid.reshape([1, 4, 4]), braid.attention(w3(w), w3(x))),
  conv: (x, { w }) => x.pipe(braid.reshape([1, 1, 16]), braid.conv(w.pipe(braid.reshape([4, 1, 4])))),
  reduce: x => x.pipe(braid.argmax({ axis: 0 })),
  scan: x => x.pipe(braid.cumsum({ axis: 0 })),
  gather: (x, { i }) => x.pipe(braid.gather(i, { axis: 0 })),
  scatterAdd: (x, { i }) => x.pipe(braid.scatterAdd(i, { axis: 0, size: 4 })),
  append: (x, { rows, at }) => x.pipe(braid.append(rows, { axis: 0, at }), braid.transpose([1, 0])),
  join: (x, { w }) => x.pipe(braid.concat([w], { axis: 0 })),
  random: x => x.pipe(braid.uniform({ seed: 7 })),
  cuda: x => twiceInPlace({ x: x.pipe(braid.reshape([16])) }).y,
}
const w3 = (w: Any): Any => w.pipe(braid.reshape([1, 4, 4]))

const sampleOf = (kind: KernelSpec['kind']): Sample => {
  const ports = { x, w: x, rows: tensor('f32', [2, 4]), i: tensor('i32', [4]), at: tensor('i32', []) }
  const graph = braid.graph(kind, ports, flows => {
    const [made, ...others] = Object.entries(flows).map(([, flow]) => (flow as Any).pipe(upload())) as Any[]
    const [w, rows, i, at] = others.map(other => other.pipe(braid.mul(1)))
    return { y: kinds[kind](made.pipe(braid.mul(2)), { w, rows, i, at }).pipe(download()) } as Any
  })
  const feeds = {
    x: [valuesOf('f32', 16, 1)],
    w: [valuesOf('f32', 16, 2)],
    rows: [valuesOf('f32', 8, 3)],
    i: [Int32Array.of(3, 0, 2, 1)],
    at: [Int32Array.of(1)],
  }
  const outputs = { y: kind === 'reduce' ? 'i32' : 'f32' } as const
  return { graph: graph as never, dims: {}, inFlight: 1, params: {}, feeds, ticks: 1, outputs, text: kind }
}

describe.each(present)('a run whose result lies over an operand, on %s', device => {
  // The record has a graph for each kind, so a new kind does not compile before it has one.
  test.each(Object.keys(kinds) as KernelSpec['kind'][])('of %s', async kind => {
    const one = sampleOf(kind)
    let met = 0
    for (const mode of modes) {
      const plan = braid.orThrow(braid.compile(one.graph, { inFlight: 1, fuse: false, ...mode })) as Plan
      const places = placesOf(plan).filter(place => place.kind === kind)
      met += places.length
      for (const place of places)
        for (const distance of distancesOf(place)) await hold(one, plan, place, distance, device)
    }
    // These two write their read's memory as they come: see spec/laws/verify/bytes.test.ts.
    if (kind !== 'append' && kind !== 'cuda') expect(met).toBeGreaterThan(0)
  })

  test('of generated graphs', async () => {
    await fc.assert(
      fc.asyncProperty(sample({ kernels: false, steps: 8 }), fc.nat(2), fc.nat(999), async (one, mode, n) => {
        const compiled = braid.compile(one.graph, { dims: one.dims, inFlight: 1, ...modes[mode]! })
        const plan = braid.orThrow(compiled) as Plan
        const places = placesOf(plan)
        if (places.length === 0) return
        const place = places[n % places.length]!
        for (const distance of distancesOf(place)) await hold(one, plan, place, distance, device)
      }),
      { numRuns: runs(40) },
    )
    expect(tally.all).toBeGreaterThan(often(300))
    // Of the first read of random numbers no byte is read. No other kind promises anything.
    expect([...tally.inPlace].filter(kind => kind !== 'map' && kind !== 'random')).toEqual([])
    expect(tally.inPlace.has('map')).toBe(true)
    expect(tally.refused.size).toBeGreaterThan(5)
  })
})
