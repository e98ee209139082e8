import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import { type Choices, choicesFrom, rememberChoices } from '../explain/choices.js'
import type { GraphIR } from '../ir/graph.js'
import type { Plan, Violation } from '../ir/plan.js'
import type { TensorSpec } from '../ir/tensor.js'
import type { Graph } from '../language/graph.js'
import type { Ports } from '../language/tensor.js'
import type { Peak } from '../memory/peak.js'
import { packedOf } from '../order/packed.js'
import { withScratchArena } from '../order/scratch-arena.js'
import { fingerprintOf } from '../verify/fingerprint.js'
import { verifyCompiled } from '../verify/verify.js'
import { fail, fault } from './analysis/faults.js'
import type { Bounded } from './analysis/ir.js'
import type { CompileOptions } from './analysis/options.js'
import { type Passed, pass } from './analysis/pass.js'
import type { BoundKernel } from './analysis/vocabulary.js'
import { check } from './passes/check.js'
import { devices } from './passes/devices.js'
import { type Draft, draft, emit } from './passes/emit.js'
import { lower } from './passes/lower.js'
import { rates } from './passes/rates.js'
import { simplify } from './passes/simplify.js'
import { unroll } from './passes/unroll.js'
import { fitToMemory } from './search/fit-to-memory.js'
import { mostRedundantWaits, withoutRedundantWait } from './search/redundant-waits.js'

export type { CompileOptions, Machine } from './analysis/options.js'
export type { Passed } from './analysis/pass.js'

/** By plan, the fingerprint of the commands that were proved. */
const proved = new WeakMap<object, number>()
const references = new WeakMap<object, ReadonlyMap<number, BoundKernel>>()

/** Whether this process compiled the plan, and so proved every law of it, and nobody has changed it since. */
export const isProved = (plan: Plan): boolean => {
  const known = proved.get(plan)
  return known !== undefined && (packedOf(plan) !== undefined || known === fingerprintOf(plan.commands))
}

/** The meaning of each user's kernel in a plan that this process compiled, by the plan's node: its types, and what fills its writes. */
export const referencesOf = (plan: Plan): ReadonlyMap<number, BoundKernel> =>
  references.get(plan) ?? new Map()

const written = new WeakMap<object, ReadonlyMap<string, TensorSpec>>()

/** What an input, an output or a parameter of a plan that this process compiled is in the graph: with its symbols, which a plan does not carry. */
export const writtenOf = (
  plan: Plan,
  kind: 'input' | 'output' | 'param',
  name: string,
): TensorSpec | undefined => written.get(plan)?.get(`${kind} ${name}`)

const isList = (value: unknown): value is readonly unknown[] => Array.isArray(value)

const isIR = (value: unknown): value is GraphIR => {
  const { name, nodes, outputs, problems } = (value ?? {}) as Partial<Record<keyof GraphIR, unknown>>
  if (typeof name !== 'string' || !isList(nodes) || !isList(outputs) || !isList(problems)) return false
  return nodes.every((node, id) => {
    const {
      id: own,
      op,
      name: called,
      inputs,
      attrs,
      spec,
    } = (node ?? {}) as Partial<GraphIR['nodes'][number]>
    const known = own === id && typeof op === 'string' && typeof called === 'string' && isList(inputs)
    return known && typeof attrs === 'object' && attrs !== null && isList(spec?.shape)
  })
}

const sourceOf = (graph: unknown): Passed<GraphIR> => {
  const ir: unknown = typeof graph === 'object' && graph !== null && 'ir' in graph ? graph.ir : graph
  if (isIR(ir)) return E.right(ir)
  const found =
    graph === null
      ? 'null'
      : isList(graph)
        ? 'an array'
        : typeof graph === 'object'
          ? 'an object'
          : typeof graph
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

/** A plan that is not proved yet, and the peak that its bound was found from. */
interface Emitted {
  readonly plan: Plan
  readonly peak: Peak
  /** The same without a wait that is found to be needless, where that is all that is wrong; absent of a plan so large that its commands are flat. */
  readonly leaner?: (violations: readonly Violation[]) => Emitted | undefined
}

const verified = ({ plan, peak, leaner }: Emitted, left = mostRedundantWaits): Passed<Plan> => {
  // Of a plan so large that its commands are flat the peak that `bound` found is not found once more. All else is proved anew, of a smaller plan the peak too.
  const { violations, fingerprint } = verifyCompiled(plan, packedOf(plan) === undefined ? undefined : peak)
  const [violation] = violations
  if (violation === undefined) {
    proved.set(plan, fingerprint)
    return E.right(plan)
  }
  const next = left > 0 ? leaner?.(violations) : undefined
  if (next !== undefined) return verified(next, left - 1)
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

/** A draft, and what is asked about its plan later. */
interface Drafted {
  readonly draft: Draft
  readonly choices: Choices
  readonly ports: ReadonlyMap<string, TensorSpec>
}

const drafted =
  (ir: Bounded) =>
  (source: GraphIR): Drafted => ({ draft: draft(ir), choices: choicesFrom(ir), ports: portsOf(source) })

const emitted = (drafted: Drafted): Emitted => {
  const { draft, choices, ports } = drafted
  const plan = emit(draft)
  rememberChoices(plan, choices)
  written.set(plan, ports)
  references.set(plan, draft.users)
  // What a large plan is made from is let go of before it is proved.
  if (packedOf(plan) !== undefined) return { plan, peak: draft.peak }
  const leaner = (violations: readonly Violation[]): Emitted | undefined => {
    const found = withoutRedundantWait(draft, plan, violations)
    return found === undefined ? undefined : emitted({ ...drafted, draft: found })
  }
  return { plan, peak: draft.peak, leaner }
}

/**
 * The whole compiler: a graph becomes a plan that every law holds for, or every mistake at once. Pure and total: nothing is thrown,
 * whatever is given, and the same graph and options give the same plan to the byte.
 */
export const compile = <I extends Ports, O extends Ports>(
  graph: Graph<I, O>,
  options?: CompileOptions,
): Passed<Plan<I, O>> =>
  // What passes need for a while is taken from one memory.
  withScratchArena(() => {
    // In steps: while commands are made nothing holds the operations any more, and while the plan is proved nothing what commands are made from.
    const plan = emittedOf(sourceOf(graph), options)
    return pipe(plan, E.chain(pass('verify', (plan: Emitted) => verified(plan))))
  })

const emittedOf = (source: Passed<GraphIR>, options: unknown): Passed<Emitted> =>
  pipe(draftOf(source, options), E.map(emitted))

const draftOf = (source: Passed<GraphIR>, options: unknown): Passed<Drafted> =>
  pipe(
    source,
    E.chain(check(options)),
    E.chain(simplify),
    E.chain(rates),
    E.chain(unroll),
    E.chain(devices),
    E.chain(lower),
    // place, order, synchronize, lifetimes, bound: as often as it takes to find what fits the memory that was given
    E.chain(fitToMemory),
    E.chain(ir => pipe(source, E.map(drafted(ir)))),
  )
