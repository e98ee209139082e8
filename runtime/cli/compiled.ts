import * as E from 'fp-ts/lib/Either.js'
import { compile } from '../../dsl/compile.js'
import type { Plan } from '../../dsl/ir/plan.js'
import type { Program } from '../../dsl/program.js'
import { memory, oneOf } from './args.js'
import { Failed } from './io.js'

/** The flags that concern the compiler, the same for every verb that takes a program. */
export const compileFlags = { memory: { type: 'string' }, storage: { type: 'string' } } as const

/** A program's plan: its own options, and before them those of the command line. */
export const compiled = (
  program: Program,
  flags: { memory?: string | undefined; storage?: string | undefined },
): Plan => {
  const { dims, inFlight, memory: budget, storage, lanes } = program.options ?? {}
  const plan = compile(program.graph, {
    dims,
    inFlight,
    lanes,
    memory: flags.memory === undefined ? budget : memory(flags.memory),
    storage: flags.storage === undefined ? storage : oneOf(flags.storage, '--storage', ['pooled', 'planned']),
  })
  if (E.isLeft(plan)) throw new Failed(plan.left)
  return plan.right
}
