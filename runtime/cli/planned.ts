import * as E from 'fp-ts/lib/Either.js'
import { type CompileOptions, compile, type Program, verify } from '../../dsl/index.js'
import type { Plan } from '../../dsl/ir/plan.js'
import { devices } from '../device/devices.js'
import { memory, oneOf } from './args.js'
import { planIn } from './files.js'
import { Failed, Misuse } from './io.js'
import { loadProgram } from './program.js'
import { profileFrom } from './traced.js'

/** The compiler's flags, the same for every verb that takes a program. */
export const compileFlags = {
  memory: { type: 'string' },
  storage: { type: 'string' },
  mode: { type: 'string' },
  fuse: { type: 'boolean' },
  'no-fuse': { type: 'boolean' },
  profile: { type: 'string' },
} as const

/**
 * The compiler's options on the command line. `profile`: nanoseconds by name of operation, read from a trace.
 */
export type CompileFlags = Pick<CompileOptions, 'memory' | 'storage' | 'mode' | 'fuse' | 'profile'>

/** The flags, checked before a program is loaded, since loading runs the program. */
export const compilerOf = (values: {
  memory?: string | undefined
  storage?: string | undefined
  mode?: string | undefined
  fuse?: boolean | undefined
  'no-fuse'?: boolean | undefined
  profile?: string | undefined
}): CompileFlags => ({
  ...(values.memory === undefined ? {} : { memory: memory(values.memory) }),
  ...(values.storage === undefined
    ? {}
    : { storage: oneOf(values.storage, '--storage', ['pooled', 'planned']) }),
  ...(values.mode === undefined ? {} : { mode: oneOf(values.mode, '--mode', ['eager', 'graph', 'auto']) }),
  ...(values.fuse === true ? { fuse: true } : {}),
  ...(values['no-fuse'] === true ? { fuse: false } : {}),
  ...(values.profile === undefined ? {} : { profile: profileFrom(values.profile) }),
})

/** Whether a program runs on the host device. `device`: what the command line names. */
const onHost = ({ options }: Program, device: string | readonly string[] = options?.device ?? 'auto') =>
  device === 'auto'
    ? !devices().some(({ kind }) => kind === 'cuda')
    : [device].flat().every(name => name.startsWith('host'))

/**
 * A program's plan. Options of the command line take precedence over the program's; `--mode graph` brings its
 * storage with it. A plan that is larger than the memory that the program's options give its device is made
 * again within that memory, unless `memory` asks for bytes or for little.
 */
export const compiled = (
  program: Program,
  flags: CompileFlags,
  device?: string | readonly string[],
): Plan => {
  const { dims, inFlight, memory, lanes, placement, mode, fuse, machine, profile, ...rest } =
    program.options ?? {}
  const storage = flags.mode === 'graph' ? undefined : rest.storage
  const options = {
    dims,
    inFlight,
    lanes,
    memory,
    storage,
    placement,
    mode,
    fuse,
    machine,
    profile,
    ...flags,
  }
  const plan = orFailed(compile(program.graph, options))
  const most = program.options?.host?.memory
  const isGiven = options.memory !== undefined && options.memory !== 'fast'
  if (isGiven || typeof most !== 'number' || Math.max(...plan.bound.device) <= most) return plan
  if (!onHost(program, device)) return plan
  return orFailed(compile(program.graph, { ...options, memory: most }))
}

const orFailed = (plan: ReturnType<typeof compile>): Plan => {
  if (E.isLeft(plan)) throw new Failed(plan.left)
  return plan.right
}

/**
 * A plan from a file of any origin: its form and the laws about safety are checked, since every report about
 * a plan assumes them.
 */
const readPlan = (path: string): Plan => {
  const plan = planIn(path)
  const [broken, ...others] = verify(plan, { safety: true })
  if (broken === undefined) return plan
  throw new Failed([
    {
      _tag: 'BadPlan',
      at: broken.command < 0 ? path : `${path}: commands[${broken.command}]`,
      subject: plan.name,
      wanted: `a plan for which law ${broken.law} holds`,
      found: others.length === 0 ? broken.message : `${broken.message} (and ${others.length} more)`,
      next: `correct it: braid verify ${path} --safety names all`,
    },
  ])
}

/** The plan that a verb works on: compiled from a PROGRAM with the flags, or read from a PLAN.json. */
export const planFrom = async (path: string, flags: CompileFlags, usage: string): Promise<Plan> => {
  if (!path.endsWith('.json')) return compiled(await loadProgram(path), flags)
  if (Object.keys(flags).length > 0)
    throw new Misuse(
      `${path} is a plan that is compiled already: ` +
        `--memory, --storage, --mode, --fuse, --no-fuse and --profile go with a PROGRAM\nusage: ${usage}`,
    )
  return readPlan(path)
}
