// The meaning of collectives among ranks: each law for all element types, sizes and groups.
import fc from 'fast-check'
import { lastValueFrom } from 'rxjs'
import { describe, expect, it } from 'vitest'
import {
  add,
  allGather,
  allReduce,
  allToAll,
  broadcast,
  type Communicator,
  communicator,
  download,
  graph,
  interpret,
  interpretRanks,
  mul,
  permute,
  reduceScatter,
  relu,
  tensor,
  upload,
} from '../../../dsl/index.js'
import { type BoundSpec, type DType, elements } from '../../../dsl/ir/tensor.js'
import { joinTolerance } from '../../../dsl/language/operators/reduce-op.js'
import { type HostArray, hostArray, numbers, writer } from '../../../dsl/language/values.js'
import { runs } from '../../fixtures/runs.js'

// biome-ignore lint/suspicious/noExplicitAny: flows of every shape and element type pass through here.
type Anything = any
type Body = (x: Anything) => Anything

const dtypes: readonly DType[] = ['u8', 'i32', 'f16', 'bf16', 'f32']
const floats: readonly DType[] = ['f16', 'bf16', 'f32']
const hows = ['sum', 'product', 'min', 'max', 'mean'] as const

/** Ranks in groups of one size, dealt out in any order. */
const worlds: fc.Arbitrary<Communicator> = fc
  .record({ size: fc.integer({ min: 1, max: 5 }), count: fc.integer({ min: 1, max: 3 }) })
  .chain(({ size, count }) =>
    fc
      .shuffledSubarray(
        Array.from({ length: size * count }, (_, rank) => rank),
        { minLength: size * count },
      )
      .map(ranks =>
        communicator('world', {
          groups: Array.from({ length: count }, (_, g) => ranks.slice(g * size, (g + 1) * size)),
        }),
      ),
  )
const groupsIn = (world: Communicator): readonly (readonly number[])[] =>
  world.groups ?? [Array.from({ length: world.size }, (_, rank) => rank)]
const ranksIn = (world: Communicator): number => groupsIn(world).flat().length

const arrayOf = (dtype: DType, values: readonly number[]): HostArray => {
  const array = hostArray(dtype, values.length)
  const write = writer(dtype)
  for (const [i, value] of values.entries()) array[i] = write(value)
  return array
}
const asNumbers = (dtype: DType, values: HostArray): number[] => Array.from(numbers(values, dtype))

/** The result of each rank after one tick of a body, from the value of each rank. */
const run = async (
  spec: BoundSpec,
  given: readonly HostArray[],
  body: Body,
): Promise<readonly HostArray[]> => {
  const net = graph({ x: tensor(spec.dtype, spec.shape) }, ({ x }) => ({
    y: body(x.pipe(upload())).pipe(download()),
  }))
  const rows = await lastValueFrom(interpretRanks(net)(given.map(value => ({ x: [value] })) as never))
  return rows.map(({ y }) => y as HostArray)
}

interface Case {
  readonly world: Communicator
  readonly spec: BoundSpec
  /** By rank. */
  readonly given: readonly HostArray[]
}

/**
 * Values of every rank, small enough that sums of them are whole in every type. `led`: the leading dimension
 * has a part for each rank of a group.
 */
const cases = (types: readonly DType[], led: boolean): fc.Arbitrary<Case> =>
  fc
    .record({
      world: worlds,
      dtype: fc.constantFrom(...types),
      shape: fc.array(fc.integer({ min: 1, max: 3 }), { maxLength: 2 }),
    })
    .chain(({ world, dtype, shape }) => {
      const spec = { dtype, shape: led ? [world.size, ...shape] : shape }
      const value = fc.array(fc.integer({ min: dtype === 'u8' ? 0 : -3, max: 3 }), {
        minLength: elements(spec.shape),
        maxLength: elements(spec.shape),
      })
      return fc
        .array(value, { minLength: ranksIn(world), maxLength: ranksIn(world) })
        .map(all => ({ world, spec, given: all.map(own => arrayOf(dtype, own)) }))
    })

/** By rank, from the values of its group by place, and its own place. */
const meant = (
  { world, given }: Case,
  of: (given: readonly HostArray[], place: number) => HostArray,
): HostArray[] => {
  const result: HostArray[] = []
  for (const group of groupsIn(world))
    for (const [place, rank] of group.entries())
      result[rank] = of(
        group.map(other => given[other]!),
        place,
      )
  return result
}

const holds = async (arbitrary: fc.Arbitrary<Case>, law: (given: Case) => Promise<void>): Promise<void> =>
  fc.assert(fc.asyncProperty(arbitrary, law), { numRuns: runs(60) })

describe('collectives by their definition', () => {
  const join: Readonly<Record<(typeof hows)[number], (values: number[]) => number>> = {
    sum: values => values.reduce((a, b) => a + b),
    product: values => values.reduce((a, b) => a * b),
    min: values => [...values].sort((a, b) => a - b)[0]!,
    max: values => [...values].sort((a, b) => b - a)[0]!,
    mean: values => values.reduce((a, b) => a + b) / values.length,
  }
  const joined = (dtype: DType, given: readonly HostArray[], how: (typeof hows)[number]): number[] => {
    const all = given.map(value => asNumbers(dtype, value))
    return all[0]!.map((_, i) => join[how](all.map(value => value[i]!)))
  }
  const near = (dtype: DType, size: number, how: string, got: HostArray, wanted: readonly number[]): void => {
    const allowed = joinTolerance({ dtype, shape: [] }, size, { how })
    for (const [i, value] of asNumbers(dtype, got).entries())
      expect(Math.abs(value - wanted[i]!)).toBeLessThanOrEqual(allowed * Math.abs(wanted[i]!))
  }

  for (const how of hows)
    it(`allReduce and reduceScatter join by ${how}, element by element`, async () => {
      await holds(cases(how === 'mean' ? floats : dtypes, true), async given => {
        const { world, spec } = given
        const all = await run(spec, given.given, x => x.pipe(allReduce(world, how)))
        const parts = await run(spec, given.given, x => x.pipe(reduceScatter(world, how)))
        const wanted = meant(
          given,
          values => joined(spec.dtype, values, how) as never,
        ) as unknown as number[][]
        for (const group of groupsIn(world))
          for (const [place, rank] of group.entries()) {
            const length = wanted[rank]!.length / world.size
            near(spec.dtype, world.size, how, all[rank]!, wanted[rank]!)
            near(
              spec.dtype,
              world.size,
              how,
              parts[rank]!,
              wanted[rank]!.slice(place * length, (place + 1) * length),
            )
          }
      })
    })

  it('whole numbers wrap in their own type, at every join', async () => {
    const world = communicator('world', 3)
    const given = (dtype: DType, ...values: number[]) => values.map(value => arrayOf(dtype, [value]))
    const reduce = async (dtype: DType, how: 'sum' | 'product', ...values: number[]) =>
      (await run({ dtype, shape: [1] }, given(dtype, ...values), x => x.pipe(allReduce(world, how)))).map(
        ([y]) => y,
      )
    expect(await reduce('u8', 'sum', 200, 100, 1)).toEqual([45, 45, 45])
    expect(await reduce('u8', 'product', 200, 100, 3)).toEqual([96, 96, 96])
    expect(await reduce('i32', 'sum', 2 ** 31 - 1, 1, 1)).toEqual(Array(3).fill(-(2 ** 31) + 1))
    expect(await reduce('i32', 'product', 65537, 65537, 65537)).toEqual(Array(3).fill(196609))
  })

  it('floats are joined wide and rounded once; a NaN is never lost', async () => {
    const world = communicator('world', 3)
    const reduce = async (dtype: DType, how: (typeof hows)[number], ...values: number[]) => {
      const given = values.map(value => arrayOf(dtype, [value]))
      return (await run({ dtype, shape: [] }, given, x => x.pipe(allReduce(world, how)))).map(
        y => asNumbers(dtype, y)[0],
      )
    }
    expect(await reduce('bf16', 'sum', 256, 1, 1)).toEqual([258, 258, 258])
    expect(await reduce('f32', 'sum', 2 ** 24, 1, 1)).toEqual(Array(3).fill(2 ** 24 + 2))
    expect(await reduce('f16', 'mean', 60000, 60000, 60000)).toEqual(Array(3).fill(60000))
    for (const how of hows)
      expect(await reduce('f32', how, 1, Number.NaN, 2)).toEqual(Array(3).fill(Number.NaN))
    expect(await reduce('f32', 'min', 0, -0, 0)).toEqual([-0, -0, -0])
    expect(await reduce('f32', 'max', -0, 0, -0)).toEqual([0, 0, 0])
  })

  it('allGather is all values by place, allToAll part p to place p, broadcast that of the root', async () => {
    await holds(cases(dtypes, true), async given => {
      const { world, spec } = given
      const concat = (values: readonly HostArray[]): HostArray =>
        arrayOf(
          spec.dtype,
          values.flatMap(v => asNumbers(spec.dtype, v)),
        )
      const part = (value: HostArray, place: number): HostArray => {
        const length = value.length / world.size
        return value.slice(place * length, (place + 1) * length)
      }
      expect(await run(spec, given.given, x => x.pipe(allGather(world)))).toEqual(meant(given, concat))
      expect(await run(spec, given.given, x => x.pipe(allToAll(world)))).toEqual(
        meant(given, (values, place) => concat(values.map(value => part(value, place)))),
      )
      for (let root = 0; root < world.size; root++)
        expect(await run(spec, given.given, x => x.pipe(broadcast(world, root)))).toEqual(
          meant(given, values => values[root]!),
        )
    })
  })

  it('permute gives each place what was sent to it, and zeros where nothing was', async () => {
    const sent = cases(dtypes, false).chain(given =>
      fc
        .array(fc.option(fc.nat(given.world.size - 1)), {
          minLength: given.world.size,
          maxLength: given.world.size,
        })
        .map(from => ({ ...given, from })),
    )
    await fc.assert(
      fc.asyncProperty(sent, async ({ from, ...given }) => {
        const { world, spec } = given
        const pairs = from.flatMap((sender, place) => (sender === null ? [] : [[sender, place] as const]))
        expect(await run(spec, given.given, x => x.pipe(permute(world, pairs)))).toEqual(
          meant(given, (values, place) =>
            from[place] === null ? hostArray(spec.dtype, elements(spec.shape)) : values[from[place]!]!,
          ),
        )
      }),
      { numRuns: runs(60) },
    )
  })
})

describe('what collectives are of each other', () => {
  const times =
    (n: number, operator: Body): Body =>
    x =>
      Array.from({ length: n }).reduce(operator, x)

  it('reduceScatter of allGather is the value times the number of ranks', async () => {
    await holds(cases(dtypes, false), async ({ world, spec, given }) => {
      expect(await run(spec, given, x => x.pipe(allGather(world), reduceScatter(world, 'sum')))).toEqual(
        given.map(value =>
          arrayOf(
            spec.dtype,
            asNumbers(spec.dtype, value).map(one => one * world.size),
          ),
        ),
      )
    })
  })

  it('allReduce is reduceScatter, then allGather', async () => {
    for (const how of hows)
      await holds(cases(how === 'mean' ? floats : dtypes, true), async ({ world, spec, given }) => {
        expect(await run(spec, given, x => x.pipe(allReduce(world, how)))).toEqual(
          await run(spec, given, x => x.pipe(reduceScatter(world, how), allGather(world))),
        )
      })
  })

  it('allToAll twice is the value; permute by a cycle too, as often as there are ranks', async () => {
    await holds(cases(dtypes, true), async ({ world, spec, given }) => {
      const cycle = Array.from(
        { length: world.size },
        (_, place) => [place, (place + 1) % world.size] as const,
      )
      expect(await run(spec, given, x => x.pipe(allToAll(world), allToAll(world)))).toEqual(given)
      expect(
        await run(
          spec,
          given,
          times(world.size, x => x.pipe(permute(world, cycle))),
        ),
      ).toEqual(given)
    })
  })

  it('a value that was broadcast is its own minimum, maximum and broadcast from anywhere', async () => {
    await holds(cases(dtypes, false), async ({ world, spec, given }) => {
      const once = await run(spec, given, x => x.pipe(broadcast(world, 0)))
      for (const group of groupsIn(world))
        for (const rank of group) expect(once[rank]).toEqual(once[group[0]!])
      for (const again of [
        broadcast(world, world.size - 1),
        allReduce(world, 'min'),
        allReduce(world, 'max'),
      ])
        expect(await run(spec, given, x => x.pipe(broadcast(world, 0), again))).toEqual(once)
    })
  })

  it('groups are independent: the result in each depends on its own ranks only', async () => {
    const bodies: readonly ((world: Communicator) => Body)[] = [
      world => x => x.pipe(allReduce(world, 'sum'), relu()),
      world => x => x.pipe(reduceScatter(world, 'max'), allGather(world)),
      world => x => x.pipe(allToAll(world), mul(2), broadcast(world, world.size - 1)),
      world => x => x.pipe(permute(world, [[0, world.size - 1]]), add(x)),
    ]
    await holds(cases(dtypes, true), async ({ world, spec, given }) => {
      for (const body of bodies) {
        const together = await run(spec, given, body(world))
        for (const group of groupsIn(world)) {
          const own = group.map(rank => given[rank]!)
          const alone = await run(spec, own, body(communicator('alone', group.length)))
          expect(group.map(rank => together[rank])).toEqual(alone)
        }
      }
    })
  })

  it('of one rank they are the value itself, for interpret as well', async () => {
    const self = communicator('self', 1)
    const net = graph({ x: tensor('bf16', [1, 3]) }, ({ x }) => {
      const y = x.pipe(upload())
      return {
        same: y.pipe(
          allReduce(self, 'mean'),
          allGather(self),
          reduceScatter(self, 'product'),
          allToAll(self),
          broadcast(self, 0),
          permute(self, [[0, 0]]),
          download(),
        ),
        zeros: y.pipe(permute(self, []), download()),
      }
    })
    // Bits that arithmetic would not keep: of a NaN, and of -0.
    const x = Uint16Array.of(0x7fc1, 0x8000, 0x3f80)
    const wanted = { same: x, zeros: new Uint16Array(3) }
    expect(await lastValueFrom(interpret(net)({ x: [x] }))).toEqual(wanted)
    expect(await lastValueFrom(interpretRanks(net)([{ x: [x] }, { x: [x] }]))).toEqual([wanted, wanted])
  })
})
