import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import type { ReadonlyNonEmptyArray } from 'fp-ts/lib/ReadonlyNonEmptyArray.js'
import { withScratchArena } from '../collections/scratch-arena.js'
import type { CompileError, GraphIR } from '../ir/graph.js'
import type { Plan } from '../ir/plan.js'
import type { CompileOptions } from '../language/compile-options.js'
import type { Graph } from '../language/graph.js'
import type { Ports } from '../language/tensor.js'
import type { Checked, Lowered } from './analysis/ir.js'
import type { Passed } from './analysis/pass.js'
import type { Provenance } from './analysis/provenance.js'
import { readGraph } from './passes/check/read-graph.js'
import { check } from './passes/check.js'
import { devices } from './passes/devices.js'
import { draft } from './passes/emit.js'
import { empty } from './passes/empty.js'
import { lower } from './passes/lower.js'
import { rates } from './passes/rates.js'
import { shapes } from './passes/shapes.js'
import { simplify } from './passes/simplify.js'
import { unroll } from './passes/unroll.js'
import { chooseArenas } from './search/choose-arenas.js'
import { chooseMode } from './search/choose-mode.js'
import { chooseParts } from './search/choose-parts.js'
import { fitToMemory } from './search/fit-to-memory.js'
import { emitted, nowProved, unproved } from './search/prove.js'

// On the right is what each step gets.
//
//                   the graph, as the user wrote it
//     check         ▼ GraphIR        names, shapes, dtypes, effects and options agree, or all errors at once
//     simplify      ▼ Checked        no dead node, no duplicate pure node
//     rates         ▼ Checked        every flow has a rate
//     unroll        ▼ Rated          one node an instance, everything at one rate
//     devices       ▼ Checked        every value has a device, peer copies stand between devices
//     empty         ▼ Checked        no value without elements is computed
//     shapes        ▼ Checked        no value is computed or read for its shape alone
//     chooseParts   ▼ Checked        all that follows is done with and without the next step
//     split         ▼ Checked        reductions of few long lines are made of their parts
//     chooseMode    ▼ Checked        `mode: 'auto'`: all that follows is done eagerly and as a graph
//     chooseFusion  ▼ Checked        what follows is done without fusing, and with more and less of it
//     fuse          ▼ Checked        chains and reductions of rows are one kernel; with `fuse: false` nothing
//     lower         ▼ Checked        operations over buffers
//     chooseArenas  ▼ Lowered        `mode: 'graph'`: what follows is done for one arena, and for one a tick
//   ┌ fitToMemory ──▼ Lowered        a search: candidates in, the best that fits out
//   │ place         ▼ Lowered        every operation has a lane
//   │ order         ▼ Placed         one issue order for the tick
//   │ synchronize   ▼ Ordered        the fewest waits that order every dependency
//   │ lifetimes     ▼ Synchronized   where each buffer is allocated, used and freed
//   │ bound         ▼ Lifetimes      the bytes that the plan holds at most
//   │ arena         ▼ Ordered        planned storage, in place of the last three: a place for every buffer
//   └───────────────▼ Bounded
//     emit          ▼ Draft          the commands, and with them the plan
//     prove         ▼ Plan           of the plans that were made the one that is taken: every law holds
//                   Plan

/** The types of inputs, parameters and outputs with their symbols, for which a plan has only numbers. */
const portsOf = ({ nodes, outputs }: GraphIR): Provenance['ports'] =>
  new Map([
    ...nodes
      .filter(({ op }) => op === 'input' || op === 'param')
      .map(({ op, name, spec }) => [`${op} ${name}`, spec] as const),
    ...outputs.map(({ name, node }) => [`output ${name}`, nodes[node]!.spec] as const),
  ])

const compiled = (source: GraphIR, options: unknown): Passed<Plan> =>
  pipe(
    E.right(source),
    // 1. The graph agrees with itself, and has nothing superfluous.
    E.chain(check(options)),
    E.chain(simplify),
    // 2. Every value exists once a tick, on one device. It has elements, and something reads them.
    E.chain(rates),
    E.chain(unroll),
    E.chain(devices),
    E.chain(empty),
    E.chain(shapes),
    // 3. The plan, with long reductions in parts or as wholes; under `mode: 'auto'` for each mode, of which one is
    // chosen. Chains of operations become one kernel each, where that makes the plan no worse.
    E.chain(chooseParts(chooseMode(lowered(portsOf(source))))),
    // 4. Of all plans that were made only the one that is taken is proved.
    E.chain(nowProved),
  )

const lowered =
  (ports: Provenance['ports']) =>
  (ir: Checked): Passed<Plan> =>
    pipe(
      E.right(ir),
      // 3a. The graph becomes operations over buffers.
      E.chain(lower),
      // 3b. In graph mode ticks in flight share an arena, or have one each.
      E.chain(chooseArenas(planned(ports))),
    )

const planned =
  (ports: Provenance['ports']) =>
  (ir: Lowered): Passed<Plan> =>
    pipe(
      E.right(ir),
      // 3c. Lanes, issue order, waits, lifetimes and the bound: place, order, synchronize, lifetimes, bound.
      E.chain(fitToMemory),
      // 3d. The plan. Each step frees what it was made from, so that large graphs need the memory of one form
      // only.
      E.map(draft),
      E.map(emitted),
      E.chain(unproved(ports)),
    )

/**
 * The whole compiler: a graph becomes a plan for which every law holds, or every error at once. Pure and
 * total: it throws for no argument, and the same graph and options give the same plan to the byte.
 */
export const compile = <I extends Ports, O extends Ports>(
  graph: Graph<I, O>,
  options?: CompileOptions,
): E.Either<ReadonlyNonEmptyArray<CompileError>, Plan<I, O>> =>
  withScratchArena(() =>
    pipe(
      readGraph(graph),
      E.chain(source => compiled(source, options)),
    ),
  )
