// Launches of random trees, with handles that are disposed of at random and readers outside of the tree that are held
// up: no wrong value, no growth. BRAID_LAUNCHES=1000000 makes it a soak.
import { describe, expect, it } from 'vitest'
import {
  add,
  download,
  type Graph,
  graph,
  type Keep,
  mul,
  type Plan,
  ring,
  type Tensor,
  tree,
  until,
  upload,
} from '../../../dsl/index.js'
import { hold } from '../../../runtime/device/testing.js'
import { type Block, type Handle, type PlanTree, TreeError } from '../../../runtime/index.js'
import { numbersFrom } from '../../fixtures/trees.js'
import { present } from '../devices.js'
import { all, copy, only, planned, row, treeOn, width } from './kit.js'

const total = Number(process.env['BRAID_LAUNCHES'] ?? 1500)

interface Made {
  readonly inputs: readonly string[]
  readonly outputs: ReadonlyMap<string, number>
  readonly next: readonly string[]
  readonly keep: Readonly<Record<string, Keep>>
}

/** Every output is the sum of the inputs and of `x`, times a half, plus a number of its own. */
const planOf = (name: string, { inputs, outputs }: Made): Plan => {
  const ports = Object.fromEntries(['x', ...inputs].map(input => [input, row])) as Record<string, typeof row>
  const body = graph(name, ports, flows => {
    const x = flows['x']!.pipe(upload(copy))
    const sum = inputs.reduce((left, input) => left.pipe(add(flows[input]!.pipe(upload(copy)))), x)
    return Object.fromEntries(
      [...outputs].map(([output, more]) => [output, sum.pipe(mul(0.5), add(more), download(copy))]),
    )
  })
  return planned(body as unknown as Graph<Record<string, Tensor>, Record<string, Tensor>>) as Plan
}

const meaning = ({ inputs }: Made, x: number, given: ReadonlyMap<string, number>, more: number): number =>
  Math.fround(
    Math.fround(inputs.reduce((sum, input) => Math.fround(sum + given.get(input)!), x) * 0.5) + more,
  )

const randomTree = (random: () => number): Readonly<Record<string, Made>> => {
  const pick = (most: number): number => Math.floor(random() * most)
  const names = ['a', 'b', 'c'].slice(0, 1 + pick(3))
  const values = ['u', 'v', 'w']
  const some = <A>(items: readonly A[]): A[] => items.filter(() => pick(3) > 0)
  return Object.fromEntries(
    names.map(name => {
      const outputs = new Map(['out', ...some(values)].map((output, i) => [output, i + pick(10)] as const))
      const keep: Record<string, Keep> = {}
      for (const output of outputs.keys()) {
        const kind = pick(6)
        if (kind === 0) keep[output] = ring(1 + pick(2))
        if (kind === 1) keep[output] = until(names[pick(names.length)]!, 1 + pick(2))
        if (kind === 2) keep[output] = { lives: 'run' }
      }
      return [name, { inputs: some(values), outputs, next: some(names), keep }]
    }),
  )
}

interface Value {
  readonly plan: string
  readonly output: string
  readonly value: number
}

/** What the arena holds for the next launch, by what was declared. */
const survivors = (made: Readonly<Record<string, Made>>, held: readonly Value[], plan: string): Value[] => {
  const ages = new Map<string, number>()
  return [...held]
    .reverse()
    .filter(({ plan: from, output }) => {
      const key = `${from} ${output}`
      const age = ages.get(key) ?? 0
      ages.set(key, age + 1)
      const keep = made[from]!.keep[output]
      if (keep?.lives === 'until') return !(keep.plan === plan && age === 0)
      return keep?.lives === 'ring' && age + (from === plan ? 1 : 0) < keep.count
    })
    .reverse()
}

const walk = async (device: string, seed: number, launches: number): Promise<void> => {
  const random = numbersFrom(seed)
  const pick = (most: number): number => Math.floor(random() * most)
  const made = randomTree(random)
  const entries = Object.entries(made)
  const spec = tree({
    plans: Object.fromEntries(entries.map(([name, one]) => [name, planOf(name, one)])) as never,
    start: [Object.keys(made)[0]!] as never,
    then: Object.fromEntries(entries.map(([name, { next }]) => [name, next])) as never,
    keep: Object.fromEntries(entries.map(([name, { keep }]) => [name, keep])) as never,
  })
  const budget = pick(2) === 0 ? {} : { executables: 1 }
  const t = (await treeOn(device, spec, { poison: pick(2) === 0, ...budget })) as unknown as PlanTree
  const foreign = t.device.lane({ name: 'foreign' })
  const alive: { readonly handle: Handle; readonly value: number }[] = []
  const pending: Promise<void>[] = []
  let held: Value[] = []
  let last: string | undefined
  const blocks: Block[] = []
  for (let i = 0; i < launches; i++) {
    const name = Object.keys(made)[pick(entries.length)]!
    const one = made[name]!
    if (pick(30) === 0) {
      t.begin()
      held = []
      last = undefined
    }
    const x = pick(50)
    const follows = last !== undefined && made[last]!.next.includes(name)
    const before = follows ? held : []
    const given = new Map<string, number>()
    const feeds: Record<string, Float32Array> = { x: all(x) }
    for (const input of one.inputs) {
      const value = before.findLast(
        ({ plan, output }) => output === input && offered(made, last, plan, output),
      )
      if (value !== undefined) given.set(input, value.value)
      else {
        given.set(input, i % 7)
        feeds[input] = all(i % 7)
      }
    }
    let launched: ReturnType<PlanTree['launch']>
    try {
      launched = t.launch(name as never, feeds as never)
    } catch (error) {
      // The host may not launch it now: nothing has changed.
      expect(error).toBeInstanceOf(TreeError)
      const tag = (error as TreeError)._tag
      if (tag !== 'NotASuccessor' && tag !== 'TooManyKept') throw error
      continue
    }
    const kept = survivors(made, before, name)
    const results = [...one.outputs].map(([output, more]) => ({
      plan: name,
      output,
      value: meaning(one, x, given, more),
    }))
    held = [...kept, ...results]
    last = name
    const handles = launched.handles as unknown as Record<string, Handle>
    for (const { output, value } of results) {
      const handle = handles[output]
      if (handle === undefined)
        pending.push(
          launched.values.then(values =>
            expect(only((values as Record<string, Float32Array>)[output]!)).toBe(value),
          ),
        )
      else if (pick(8) === 0) handle[Symbol.dispose]()
      else alive.push({ handle, value })
    }
    // Old handles say that they are stale, or have their values.
    for (const { handle, value } of alive.splice(0, pick(3)))
      if (handle.stale) expect(() => handle.check('test')).toThrow('StaleHandle')
      else if (pick(2) === 0) pending.push(handle.read().then(found => expect(only(found)).toBe(value)))
      else {
        const block = t.device.pinned(4 * width, foreign)
        blocks.push(block)
        const gate = hold(t.device, foreign)
        const used = handle.use(foreign, span => foreign.copy(block, span))
        setTimeout(() => gate.open(), pick(3))
        pending.push(
          used
            .then(() => foreign.synchronize())
            .then(() => expect(only(new Float32Array(block.view().slice(0)).slice(0, width))).toBe(value)),
        )
      }
    if (i % 40 === 39) {
      await Promise.all(pending.splice(0))
      for (const block of blocks.splice(0)) block.free()
    }
  }
  await Promise.all(pending)
  for (const block of blocks) block.free()
  const { executables } = t.stats()
  expect(executables.made - executables.remade).toBeLessThanOrEqual(t.stats().layouts)
  foreign[Symbol.dispose]()
  await t.close()
}

/** Whether the value may be an input now: of the plan before, or kept longer. */
const offered = (
  made: Readonly<Record<string, Made>>,
  last: string | undefined,
  plan: string,
  output: string,
): boolean => {
  const lives = made[plan]!.keep[output]?.lives
  return plan === last || lives === 'until' || lives === 'ring'
}

describe.each(present)('random trees on %s', device => {
  const each = 150
  it(`yield their values in ${total} launches, whoever reads when`, async () => {
    for (let walked = 0, seed = 1; walked < total; walked += each, seed++) await walk(device, seed, each)
  }, 3_600_000)
})
