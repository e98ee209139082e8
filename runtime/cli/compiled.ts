import * as E from 'fp-ts/lib/Either.js'
import { compile, type Program } from '../../dsl/index.js'
import type { Plan } from '../../dsl/ir/plan.js'
import { memory, oneOf } from './args.js'
import { Failed } from './io.js'
import { profileFrom } from './traced.js'

/** The flags that concern the compiler, the same for every verb that takes a program. */
export const compileFlags = {
  memory: { type: 'string' },
  storage: { type: 'string' },
  profile: { type: 'string' },
} as const

export interface CompileFlags {
  readonly memory?: number | 'fast' | 'small'
  readonly storage?: 'pooled' | 'planned'
  /** Nanoseconds by name of operation, read from a trace. */
  readonly profile?: Readonly<Record<string, number>>
}

/** The flags, checked: before a program is loaded, since loading runs it. */
export const compilerOf = (values: {
  memory?: string | undefined
  storage?: string | undefined
  profile?: string | undefined
}): CompileFlags => ({
  ...(values.memory === undefined ? {} : { memory: memory(values.memory) }),
  ...(values.storage === undefined
    ? {}
    : { storage: oneOf(values.storage, '--storage', ['pooled', 'planned']) }),
  ...(values.profile === undefined ? {} : { profile: profileFrom(values.profile) }),
})

/** A program's plan: its own options, and before them those of the command line. */
export const compiled = (program: Program, flags: CompileFlags): Plan => {
  const { dims, inFlight, memory, storage, lanes, placement, machine, profile } = program.options ?? {}
  const options = { dims, inFlight, lanes, memory, storage, placement, machine, profile, ...flags }
  const plan = compile(program.graph, options)
  if (E.isLeft(plan)) throw new Failed(plan.left)
  return plan.right
}
