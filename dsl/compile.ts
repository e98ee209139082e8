import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import { rememberChoices } from './explain/choices.js'
import type { Graph } from './graph.js'
import type { GraphIR } from './ir/graph.js'
import { peakOf } from './ir/peak.js'
import type { Plan } from './ir/plan.js'
import type { TensorSpec } from './ir/tensor.js'
import { verifyOutlined } from './ir/verify.js'
import { aliveAt } from './passes/alive.js'
import { arena } from './passes/arena.js'
import { bound } from './passes/bound.js'
import { check } from './passes/check.js'
import { clocks } from './passes/clocks.js'
import { emit } from './passes/emit.js'
import { fail, fault } from './passes/faults.js'
import type { Bounded, Lifetimes, Passed, Placed } from './passes/ir.js'
import { lifetimes } from './passes/lifetimes.js'
import { lower } from './passes/lower.js'
import type { CompileOptions } from './passes/options.js'
import { type Ordering, order } from './passes/order.js'
import { place } from './passes/place.js'
import { simplify } from './passes/simplify.js'
import { squeeze } from './passes/squeeze.js'
import { synchronize } from './passes/synchronize.js'
import type { BoundKernel } from './passes/vocabulary.js'
import type { Ports } from './tensor.js'

export type { Passed } from './passes/ir.js'
export type { CompileOptions, Machine } from './passes/options.js'

const proved = new WeakSet<object>()
const references = new WeakMap<object, ReadonlyMap<number, BoundKernel>>()

/** Whether this process compiled the plan, and so proved every law of it. */
export const isProved = (plan: Plan): boolean => proved.has(plan)

/** The meaning of each user's kernel in a plan that this process compiled, by the plan's node: its types, and what fills its writes. */
export const referencesOf = (plan: Plan): ReadonlyMap<number, BoundKernel> => references.get(plan) ?? new Map()

const ports = new WeakMap<object, ReadonlyMap<string, TensorSpec>>()

/** What an input, an output or a parameter of a plan that this process compiled is in the graph: with its symbols, which a plan does not carry. */
export const writtenOf = (plan: Plan, kind: 'input' | 'output' | 'param', name: string): TensorSpec | undefined =>
  ports.get(plan)?.get(`${kind} ${name}`)

const isList = (value: unknown): value is readonly unknown[] => Array.isArray(value)

const isIR = (value: unknown): value is GraphIR => {
  const { name, nodes, outputs, problems } = (value ?? {}) as Partial<Record<keyof GraphIR, unknown>>
  if (typeof name !== 'string' || !isList(nodes) || !isList(outputs) || !isList(problems)) return false
  return nodes.every((node, id) => {
    const { id: own, op, name: called, inputs, attrs, spec } = (node ?? {}) as Partial<GraphIR['nodes'][number]>
    const known = own === id && typeof op === 'string' && typeof called === 'string' && isList(inputs)
    return known && typeof attrs === 'object' && attrs !== null && isList(spec?.shape)
  })
}

const sourceOf = (graph: unknown): Passed<GraphIR> => {
  const ir: unknown = typeof graph === 'object' && graph !== null && 'ir' in graph ? graph.ir : graph
  if (isIR(ir)) return E.right(ir)
  const found =
    graph === null ? 'null' : isList(graph) ? 'an array' : typeof graph === 'object' ? 'an object' : typeof graph
  return fail(
    fault(
      'NotAFlow',
      'compile',
      'graph',
      'a graph, as graph(...) makes it',
      found,
      'compile(graph({ … }, ({ … }) => ({ … })))',
    ),
  )
}

const scheduled =
  (ordering: Ordering) =>
  (ir: Placed): Passed<Bounded> =>
    ir.settings.storage === 'planned'
      ? pipe(order(ordering)(ir), E.chain(arena))
      : pipe(order(ordering)(ir), E.chain(synchronize), E.chain(lifetimes), E.map(within), E.chain(bound))

/** An ordering but for `keep`, which is tried both ways. */
type Choice = Omit<Ordering, 'keep'>

/** With windows, their memory is their own unless that holds more than sharing it; in an arena it is whoever's may have it. */
const schedule =
  (ordering: Choice) =>
  (ir: Placed): Passed<Bounded> => {
    if (ir.settings.storage === 'planned') return scheduled({ ...ordering, keep: false })(ir)
    const kept = scheduled({ ...ordering, keep: true })(ir)
    if (E.isLeft(kept) || kept.right.operations.every(({ ahead }) => ahead === undefined)) return kept
    const shared = scheduled({ ...ordering, keep: false })(ir)
    return E.isRight(shared) && shared.right.bound.device[0]! < kept.right.bound.device[0]! ? shared : kept
  }

/** Under `memory: BYTES` allocations wait for freed bytes rather than grow beyond it. */
const within = (ir: Lifetimes): Lifetimes => {
  const { memory } = ir.settings
  return typeof memory === 'number' ? squeeze(ir, memory) : ir
}

/** The orderings to try, best for time first, least for memory last. */
const orderings = ({ settings, operations }: Placed): readonly Choice[] => {
  const small: Choice = { by: 'program', ahead: 0 }
  if (settings.memory === 'small') return [small]
  const fast: Choice = { by: 'critical path', ahead: Number.POSITIVE_INFINITY }
  if (settings.memory === 'fast') return [fast]
  const widest = operations.reduce((most, { ahead }) => Math.max(most, ahead ?? 0), 0)
  const between: Choice[] = [{ by: 'program', ahead: widest }]
  for (let ahead = widest >> 1; ahead > 0; ahead >>= 1) between.push({ by: 'program', ahead })
  return [fast, ...between, small]
}

const mebibytes = (bytes: number): string =>
  bytes < 2 ** 20 ? `${bytes} bytes` : `${(bytes / 2 ** 20).toFixed(1)} MiB`

const overBudget = (ir: Bounded, memory: number): Passed<never> => {
  const plan = ir.outline
  const alive = aliveAt(plan, peakOf(plan).reachedAt[0] ?? -1)
  const largest = [...alive].sort((a, b) => b.bytes - a.bytes || a.id - b.id).slice(0, 8)
  const names = largest.map(({ name, bytes }) => `${name} ${mebibytes(bytes)}`).join(', ')
  const more = alive.length > largest.length ? ` and ${alive.length - largest.length} more` : ''
  const [least] = ir.bound.device
  return fail(
    fault(
      'OverBudget',
      'options.memory',
      ir.settings.name,
      `at most ${memory} bytes of device memory`,
      `${least} bytes at the least; in memory at the peak: ${names}${more}`,
      `give at least ${least} bytes, fewer inFlight, or smaller dims`,
    ),
  )
}

/** The first ordering whose bound fits the memory that was asked for. */
const fit = (ir: Placed): Passed<Bounded> => {
  const { memory } = ir.settings
  let tried: Passed<Bounded> = E.left([fault('Unverified', 'compile', ir.settings.name, 'an ordering', 'none', '')])
  for (const ordering of orderings(ir)) {
    tried = schedule(ordering)(ir)
    if (E.isLeft(tried) || typeof memory !== 'number' || tried.right.bound.device[0]! <= memory) return tried
  }
  return pipe(
    tried,
    E.chain(ir => overBudget(ir, memory as number)),
  )
}

const verified =
  ({ outline, peak }: Bounded) =>
  (plan: Plan): Passed<Plan> => {
    const [violation] = verifyOutlined(plan, outline, peak)
    if (violation === undefined) return E.right(plan)
    return fail(
      fault(
        'Unverified',
        `commands[${violation.command}]`,
        plan.name,
        `law ${violation.law}`,
        violation.message,
        'report this graph; nothing was run',
      ),
    )
  }

const portsOf = ({ nodes, outputs }: GraphIR): ReadonlyMap<string, TensorSpec> =>
  new Map([
    ...nodes
      .filter(({ op }) => op === 'input' || op === 'param')
      .map(({ op, name, spec }) => [`${op} ${name}`, spec] as const),
    ...outputs.map(({ name, node }) => [`output ${name}`, nodes[node]!.spec] as const),
  ])

const remember =
  (ir: Bounded, source: Passed<GraphIR>) =>
  (plan: Plan): Plan => {
    proved.add(plan)
    rememberChoices(plan, ir)
    if (E.isRight(source)) ports.set(plan, portsOf(source.right))
    references.set(
      plan,
      new Map(ir.operations.flatMap(({ user }, i) => (user === undefined ? [] : [[i, user] as const]))),
    )
    return plan
  }

/**
 * The whole compiler: a graph becomes a plan that every law holds for, or every mistake at once. Pure and total: nothing is thrown,
 * whatever is given, and the same graph and options give the same plan to the byte.
 */
export const compile = <I extends Ports, O extends Ports>(
  graph: Graph<I, O>,
  options?: CompileOptions,
): Passed<Plan<I, O>> => {
  const source = sourceOf(graph)
  return pipe(
    source,
    E.chain(check(options)),
    E.chain(simplify),
    E.chain(clocks),
    E.chain(lower),
    E.chain(place()),
    // order, synchronize, lifetimes, bound: again with less ahead while the bound is over the memory that was given
    E.chain(fit),
    E.chain(ir => pipe(emit(ir), E.chain(verified(ir)), E.map(remember(ir, source)))),
  )
}
