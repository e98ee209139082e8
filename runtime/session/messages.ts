// Every sentence about opening a plan and running it: the errors of `open`, the errors of a run, and the
// warnings.

import { referenceForm } from '../../dsl/internal.js'
import type { Fault } from '../../dsl/ir/fault.js'
import type { Plan, PlanBuffer, PlanNode, Violation } from '../../dsl/ir/plan.js'
import { shown } from '../../dsl/ir/show.js'
import type { NativeFailure } from '../addon.js'
import type { Block } from '../device/block.js'
import { failureText, isNativeFailure } from '../device/open-failure.js'
import { type DeviceError, DisposedError, RunError, type RunErrorTag } from '../errors.js'
import { SafetensorsError, type SafetensorsFault } from '../files/safetensors.js'
import { describe, type Mismatch, thrown, type ValueSpec } from '../values.js'

// ---- open -------------------------------------------------------------------------------------------------

export const unreadable = (cause: unknown): DeviceError => ({
  _tag: 'BadOption',
  at: 'options',
  subject: 'options',
  wanted: 'a plan and options that can be read',
  found: `what throws when it is read: ${thrown(cause)}`,
  next: 'pass plain objects; its error is the cause',
  cause,
})

export const cancelled = (cause: unknown): DeviceError => ({
  _tag: 'Cancelled',
  at: 'signal',
  subject: 'open',
  wanted: 'time to open',
  found: 'an aborted signal',
  next: 'open again without aborting',
  cause,
})

export const tooManyInFlight = (plan: Plan, inFlight: number): DeviceError => ({
  _tag: 'BadOption',
  at: 'inFlight',
  subject: 'inFlight',
  wanted: `at most ${plan.inFlight}, the slots that the plan was compiled with`,
  found: String(inFlight),
  next: `compile(graph, { inFlight: ${inFlight} })`,
})

export const tooFewDevices = (plan: Plan, [wanted, found, next]: readonly string[]): DeviceError => ({
  _tag: 'NoDevice',
  at: 'device',
  subject: plan.name,
  wanted: wanted!,
  found: found!,
  next: next!,
})

// ---- the plan ---------------------------------------------------------------------------------------------

const notAPlan = { _tag: 'BadPlan', at: 'plan', subject: 'plan', wanted: 'a plan' } as const

export const eitherForPlan: DeviceError = {
  ...notAPlan,
  found: 'an Either, as compile yields it',
  next: 'unwrap it: open(orThrow(compile(graph)))',
}

export const noPlan = (given: unknown): DeviceError => ({
  ...notAPlan,
  found: describe(given),
  next: 'pass what compile makes of a graph: orThrow(compile(graph)), or a plan that parsePlan has read',
})

export const graphForPlan: DeviceError = {
  ...notAPlan,
  found: 'a graph',
  next: 'compile it first: open(orThrow(compile(graph)))',
}

export const brokenLaws = (plan: Plan, violations: readonly [Violation, ...Violation[]]): DeviceError => {
  const sentences = violations.slice(0, 3).map(({ law, message }) => `${law}: ${message}`)
  if (violations.length > 3) sentences.push(`and ${violations.length - 3} more`)
  const [{ command }] = violations
  return {
    _tag: 'BadPlan',
    at: command >= 0 ? `commands[${command}]` : 'plan',
    subject: plan.name,
    wanted: 'a plan that obeys the laws about safety',
    found: sentences.join('; '),
    next: 'run: npx braid verify PLAN.json --safety, which lists all of them',
    violations,
  }
}

/** `needed`: by device, the bytes that the session's pool takes. */
export const boundBelowPool = (
  plan: Plan,
  needed: readonly number[],
  device: number,
  granule: number,
): DeviceError => ({
  _tag: 'BadPlan',
  at: `bound.device[${device}]`,
  subject: plan.name,
  wanted:
    `at least ${needed[device]} bytes, which the session's pool takes: ` +
    `whole granules of ${granule} bytes, each buffer in one piece`,
  found: `${plan.bound.device[device] ?? 0} bytes`,
  next: `raise bound.device to [${needed.join(', ')}] in the plan, or compile the graph again`,
})

export const pinnedOfTick = ({ id, name }: PlanBuffer): DeviceError => ({
  _tag: 'BadPlan',
  at: `buffers[${id}].space`,
  subject: name,
  wanted: 'device memory, where a session has the buffers of its ticks',
  found: 'pinned',
  next: 'give the buffer "device", or make it an output',
})

const badNode = ({ at, name }: PlanNode, wanted: string, found: string, next: string): DeviceError => ({
  _tag: 'BadPlan',
  at,
  subject: name,
  wanted,
  found,
  next,
})

export const noKernel = (node: PlanNode): DeviceError =>
  badNode(
    node,
    'a kernel for every node that runs',
    `a node "${node.op}" without one`,
    'this plan can be verified and explained, not run: compile the graph again',
  )

/** `others`: how many more collectives the plan has. */
export const otherRanks = (plan: Plan, node: PlanNode, others: number): DeviceError => {
  const { kind, communicator } = node.collective!
  const { name, groups, size } = plan.communicators?.[communicator] ?? {}
  const ranks = groups?.[0]?.length ?? size
  const more = others === 0 ? '' : `, and ${others === 1 ? 'one more' : `${others} others`}`
  return badNode(
    node,
    'a plan of one rank: a session talks to no other ranks so far',
    `${kind} over '${name}' of ${ranks === undefined ? 'all' : ranks} ranks${more}`,
    'verify the plans of all ranks together (verifyRanks, or braid verify with all their files), ' +
      'explain and simulate them; to run the graph here, make its communicators of one rank',
  )
}

export const severalTypes = (node: PlanNode): DeviceError =>
  badNode(
    node,
    "operands of the same element types and shapes in every run of a user's kernel",
    'runs of this node on others',
    'give each kind of operands a node of its own',
  )

export const missingReference = ({ at, name }: PlanNode, kernel: string): DeviceError => ({
  _tag: 'MissingReference',
  at,
  subject: name,
  wanted: `what the kernel ${kernel} means in TypeScript: the host device does not run CUDA`,
  found: 'none: a plan that is read from a file carries only the CUDA source',
  next: `open(plan, { references: { ${kernel}: (reads, writes) => … } }), or a cuda device`,
})

export const lateReference = ({ at, name }: PlanNode, found: string): DeviceError => ({
  _tag: 'BadOption',
  at,
  subject: name,
  found,
  ...referenceForm,
})

// ---- another plan -----------------------------------------------------------------------------------------

/** Why a plan cannot go on where another one runs. */
export const cannotFollow = (
  at: string,
  subject: string,
  wanted: string,
  found: string,
  next: string,
): DeviceError => ({ _tag: 'CannotFollow', at, subject, wanted, found, next })

export const otherDevices = (plan: Plan, devices: number): DeviceError =>
  cannotFollow(
    'devices',
    plan.name,
    `a plan for ${devices === 1 ? 'one device' : `${devices} devices`}, those of the session`,
    `one for ${plan.devices}`,
    'open another session',
  )

export const copyRefused = (plan: Plan, failure: NativeFailure): DeviceError => ({
  _tag: 'DriverFailed',
  at: 'session.swap',
  subject: plan.name,
  wanted: 'a copy of the states on the device',
  found: failureText(failure),
  next: 'the plan before it goes on; where it fails too, open the plan again',
  code: failure.code,
  cause: failure,
})

// ---- parameters -------------------------------------------------------------------------------------------

/** `strangers`: given names that the plan does not have; one of them may be a misspelling of this name. */
export const missingParam = (
  { name, dtype, shape }: ValueSpec,
  strangers: readonly string[],
): DeviceError => ({
  _tag: 'MissingParam',
  at: `params.${name}`,
  subject: name,
  wanted: `a value of ${dtype}[${shape.join(', ')}]`,
  found: strangers.length === 0 ? 'none' : `none, but ${strangers.join(', ')}, which the plan does not have`,
  next:
    `open(plan, { params: { ${JSON.stringify(name)}: … } }): ` +
    `a typed array, or a function that fills the bytes`,
})

/** A parameter that the file of all given parameters does not have, which has `names`. */
export const missingTensor = (
  { name, dtype, shape }: ValueSpec,
  path: string,
  names: readonly string[],
): DeviceError => ({
  _tag: 'MissingParam',
  at: path,
  subject: name,
  wanted: `a tensor of this name, ${dtype}[${shape.join(', ')}]`,
  found: names.slice(0, 8).join(', ') + (names.length > 8 ? ', …' : '') || 'none at all',
  next: `name the parameter as the file does, or give { ${JSON.stringify(name)}: file.source('…') }`,
})

/** Values by name that `open` takes: the option of that name. */
export type Kind = 'params' | 'state'
const wrongTag = { params: 'WrongParam', state: 'WrongState' } as const

export const wrongParam = (name: string, mismatch: Mismatch, kind: Kind = 'params'): DeviceError => ({
  _tag: wrongTag[kind],
  at: `${kind}.${name}`,
  subject: name,
  ...mismatch,
})

/**
 * Parameters that sessions share, where their owner has disposed of them: open sessions keep what they read.
 */
export const disposedParams = (names: readonly string[]): DeviceError => ({
  _tag: 'WrongParam',
  at: 'params',
  subject: names.join(', '),
  wanted: 'shared parameters that are not disposed of',
  found: 'disposed parameters: open sessions keep theirs, and no further plan can be opened with them',
  next: 'dispose of them after the last plan that reads them has been opened',
})

/** What a file has wrong, as an error of the values that it was to give. */
export const fromFile = (fault: SafetensorsFault, kind: Kind): DeviceError => ({
  ...fault,
  _tag: wrongTag[kind],
})

export const paramThrew = (name: string, cause: unknown, kind: Kind = 'params'): DeviceError =>
  cause instanceof SafetensorsError
    ? { ...fromFile(cause.fault, kind), cause }
    : {
        _tag: wrongTag[kind],
        at: `${kind}.${name}`,
        subject: name,
        wanted: 'a source that fills the bytes',
        found: `one that threw: ${thrown(cause)}`,
        next: 'correct the source; its error is the cause',
        cause,
      }

/** `found`: a generator, or what its call returned. */
export const neverFills = (found: string): Mismatch => ({
  wanted: 'a source that fills the bytes: a function, which may be async',
  found,
  next: 'make it no generator: what one yields is not read, and the bytes would stay 0',
})

export const bytesAway: Mismatch = {
  wanted: 'a source that fills the bytes it is given',
  found: 'one that detached their buffer, or transferred it away',
  next: 'write into the bytes; to pass them on, copy them first: into.slice()',
}

const runError =
  (_tag: RunErrorTag) =>
  (at: string, subject: string, fault: Mismatch, cause?: unknown): RunError =>
    new RunError({ _tag, at, subject, ...fault }, { cause })

// ---- states -----------------------------------------------------------------------------------------------

const listed = (names: readonly string[], none: string): string =>
  names.length === 0 ? none : names.length <= 32 ? names.join(', ') : `${names.slice(0, 32).join(', ')}, …`

export const unknownState = (name: string, names: readonly string[]): DeviceError => ({
  _tag: 'WrongState',
  at: `state.${name}`,
  subject: name,
  wanted: `a state of the plan: ${listed(names, 'it has none')}`,
  found: 'another name',
  next: 'correct the name, or leave it out: a plan leaves out states without a name that nothing needs',
})

/** A state that `from` does not have: a file of states, or a plan that is given its first values. */
export const missingState = (
  { name, dtype, shape }: ValueSpec,
  from: 'the file of states' | 'the plan, which was not compiled in this process',
): DeviceError => ({
  _tag: 'MissingState',
  at: `state.${name}`,
  subject: name,
  wanted: `a value of ${dtype}[${shape.join(', ')}]`,
  found: `none in ${from}`,
  next:
    from === 'the file of states'
      ? `write all states to the file (session.state.save), or give some by name: { ${JSON.stringify(name)}: … }`
      : `give it by name, or a file of all states: open(plan, { state: { ${JSON.stringify(name)}: … } })`,
})

const nameOf = { params: 'parameter', state: 'state' } as const

const about = (kind: Kind, name: string): string => `session.${kind}: ${name}`

export const unknownName = (at: string, kind: Kind, name: unknown, names: readonly string[]): RunError =>
  runError('UnknownName')(at, about(kind, typeof name === 'string' ? name : describe(name)), {
    wanted: `the name of a ${nameOf[kind]}: ${listed(names, 'this plan has none')}`,
    found: describe(name),
    next:
      kind === 'state'
        ? 'use one of the names; a plan leaves out states without a name that nothing needs'
        : 'use one of the names; a plan leaves out parameters that nothing needs',
  })

export const wrongWrite = (
  at: string,
  kind: Kind,
  name: string,
  { wanted, found, next }: Mismatch,
  cause?: unknown,
): RunError => runError('WrongWrite')(at, about(kind, name), { wanted, found, next }, cause)

export const notValues = (at: string, kind: Kind, found: unknown): RunError =>
  wrongWrite(at, kind, 'write', {
    wanted: 'a name and a value, or an object of values by name',
    found: describe(found),
    next: `write session.${kind}.write('name', value)`,
  })

/** A write to shared parameters that was called on them. */
export const wrongSharedWrite = (at: string, name: string, mismatch: Mismatch, cause?: unknown): RunError =>
  runError('WrongWrite')(at, `params: ${name}`, mismatch, cause)

export const notSharedValues = (at: string, found: unknown): RunError =>
  wrongSharedWrite(at, 'write', {
    wanted: 'a name and a value, or an object of values by name',
    found: describe(found),
    next: "write weights.write('name', value)",
  })

export const notASource = (at: string, name: string, found: unknown): RunError =>
  wrongSharedWrite(at, name, {
    wanted: 'a typed array, or a function that fills the bytes',
    found: describe(found),
    next: 'correct it',
  })

export const unknownShared = (at: string, name: unknown, names: readonly string[]): RunError =>
  runError('UnknownName')(at, `params: ${typeof name === 'string' ? name : describe(name)}`, {
    wanted: `the name of a shared parameter: ${listed(names, 'there are none')}`,
    found: describe(name),
    next: 'use one of the names',
  })

/** Sessions that share a name have parameters of two types under it. */
export const severalSharedTypes = (at: string, wanted: ValueSpec, found: ValueSpec): RunError =>
  wrongSharedWrite(at, wanted.name, {
    wanted: `a value of ${wanted.dtype}[${wanted.shape.join(', ')}], as a session has it`,
    found: `one of ${found.dtype}[${found.shape.join(', ')}], as another session has it`,
    next: 'give one of the parameters another name, or open its plan with parameters of its own',
  })

/** `over`: whose memory may be written in part. */
export const copyFailed = (
  at: string,
  op: string,
  failure: NativeFailure,
  over?: 'the session' | 'all sessions that read it',
): RunError =>
  runError('CopyFailed')(
    at,
    op,
    {
      wanted: 'a copy between two ticks',
      found: isNativeFailure(failure) ? failureText(failure) : thrown(failure),
      next:
        over === undefined
          ? 'try again, or open the plan again'
          : `the value may be written in part, so ${over} ${over === 'the session' ? 'is' : 'are'} over and freed: ` +
            `open the ${over === 'the session' ? 'plan' : 'plans'} again`,
    },
    failure,
  )

// ---- a run ------------------------------------------------------------------------------------------------

const wrongFeeds = runError('WrongFeeds')
const badOption = runError('BadOption')

/** A value of the wrong type or length for its input. `at`: where the caller called `run`. */
export const wrongValue = runError('WrongValue')

/** A Block was fed: a session copies a value when it takes it, and cannot know whose lanes still write it. */
export const blockFed = (block: Block, mismatch: Mismatch): Mismatch => ({
  wanted: mismatch.wanted,
  found: `a Block of ${block.pinned ? 'pinned' : 'device'} memory`,
  next: `${block.pinned ? '' : 'copy it into a pinned block, '}await the lane that writes it, and give an array over its view()`,
})

export const closedSession = (): DisposedError => new DisposedError('this session', 'open the plan again')

export const sessionFailed = (at: string, plan: Plan, failure: RunError): RunError =>
  runError('SessionFailed')(at, `the session of "${plan.name}"`, {
    wanted: 'a device that works',
    found: `an earlier failure: ${failure.found}`,
    next: 'open the plan again: the process and other sessions live on',
  })

export const alreadyRunning = (at: string, plan: Plan, started: string): RunError =>
  runError('AlreadyRunning')(at, `the session of "${plan.name}"`, {
    wanted: 'one run at a time',
    found: `a run started at ${started} that has not ended`,
    next: 'unsubscribe from it or let it end first, or open a second session',
  })

const feedsNeeded = (names: readonly string[]): string =>
  names.length === 0 ? 'no feeds: the graph has no inputs' : `a feed for each input: ${names.join(', ')}`

export const notFeeds = (at: string, names: readonly string[], found: unknown): RunError =>
  wrongFeeds(at, 'feeds', {
    wanted: feedsNeeded(names),
    found: describe(found),
    next: 'pass an object of feeds by input name',
  })

export const otherFeeds = (
  at: string,
  names: readonly string[],
  missing: readonly string[],
  extra: readonly string[],
): RunError =>
  wrongFeeds(at, 'feeds', {
    wanted: feedsNeeded(names),
    found: [
      missing.length > 0 ? `none for ${missing.join(', ')}` : '',
      extra.length > 0 ? `one for ${extra.join(', ')}, which is no input` : '',
    ]
      .filter(Boolean)
      .join('; '),
    next: 'give exactly one feed by each name',
  })

export const notAFeed = (at: string, name: string, found: unknown): RunError =>
  wrongFeeds(at, name, {
    wanted: 'a feed: a source that has said what it does when the session is full',
    found: describe(found),
    next: "wrap it: pulled(iterable), or pushed(observable, 'dropOldest' | 'dropNewest' | 'fail')",
  })

export const badRunOptions = (at: string, subject: string, found: string): RunError =>
  badOption(at, subject, {
    wanted: 'an object with the options ticks and signal, or nothing',
    found,
    next: 'write { ticks: 10 }, or leave it out',
  })

export const badTicks = (at: string, found: unknown): RunError =>
  badOption(at, 'ticks', {
    wanted: 'a whole number from 0',
    found: describe(found),
    next: 'leave it out to run until the feeds end',
  })

export const badSignal = (at: string, found: unknown): RunError =>
  badOption(at, 'signal', {
    wanted: 'an AbortSignal',
    found: describe(found),
    next: 'pass controller.signal',
  })

export const feedFailed = (at: string, name: string, cause: unknown): RunError =>
  runError('FeedFailed')(
    at,
    name,
    {
      wanted: 'a value for each tick, or the end',
      found: `an error of the feed's source: ${thrown(cause)}`,
      next: "look at the error's `cause`; the session can run again",
    },
    cause,
  )

/** `most`: the most values that a feed may be ahead of the returned leases. */
export const feedFull = (at: string, name: string, most: number): RunError =>
  runError('FeedFull')(at, name, {
    wanted: `at most ${most} values ahead of the leases that are given back`,
    found: 'one more',
    next: "give leases back sooner, open with more inFlight, or say pushed(source, 'dropOldest')",
  })

export const tickFailed = (failure: NativeFailure, plan: Plan): RunError => {
  const node = failure.node === undefined || failure.node < 0 ? undefined : plan.nodes[failure.node]
  const where = [
    node ? `${node.op} ${node.name}` : '',
    failure.lane ? `lane ${failure.lane}` : '',
    failure.device && plan.devices > 1 ? failure.device : '',
  ].filter(Boolean)
  const fault: Fault<RunErrorTag> = {
    _tag: 'TickFailed',
    at: node?.at ?? plan.name,
    subject: node?.name ?? plan.name,
    wanted: `a tick without a failure${where.length === 0 ? '' : ` (${where.join(', ')})`}`,
    found: isNativeFailure(failure) ? failureText(failure) : String((failure as Error).message ?? failure),
    next: 'this session is over and freed; the process lives on: open the plan again',
  }
  return new RunError(fault, {
    cause: failure,
    ...(isNativeFailure(failure) ? { code: failure.code } : {}),
    ...(failure.lane ? { lane: failure.lane } : {}),
    ...(node ? { node: node.name } : {}),
  })
}

// ---- warnings ---------------------------------------------------------------------------------------------

const warn = (message: string): void => process.emitWarning(shown(message), { type: 'BraidWarning' })

export const warnUnfinishedTick = (input: string, had: number, wanted: number): void =>
  warn(
    `the feed ${input} ended with ${had} of the ${wanted} values of a tick, which are dropped: ` +
      'a tick runs with all of its values. ' +
      `Next: end the feed after a multiple of ${wanted} values`,
  )

/** `started`: where the active run was started, if there is one. */
export const warnLostLease = (tick: number, started: string | undefined): void =>
  warn(
    `the lease of tick ${tick} was lost without being given back` +
      `${started === undefined ? '' : `, in the run started at ${started}`}. ` +
      'Its slot was free again only when the garbage collector noticed. ' +
      'Next: `using lease = out`, or lease[Symbol.dispose]()',
  )

export const warnReturnThrew = (error: unknown): void =>
  warn(`a feed's return() threw: ${error instanceof Error ? error.message : String(error)}`)

export const warnCloseFailed = (error: unknown): void =>
  warn(`closing a session failed: ${error instanceof Error ? error.message : String(error)}`)

const ofTicks = (what: string, ticks: readonly number[]): string =>
  ticks.length === 1 ? `the ${what} of tick ${ticks[0]}` : `the ${what}s of ticks ${ticks.join(', ')}`

/** `kept`: ticks whose leases were given back, and whose outputs graphs refer to. */
export const warnLeasesOut = (
  name: string,
  started: string,
  leased: readonly number[],
  kept: readonly number[],
): void => {
  const held = [
    ...(leased.length === 0 ? [] : [`${ofTicks('lease', leased)}: every slot is lent out`]),
    ...(kept.length === 0
      ? []
      : [`graphs, which refer to ${ofTicks('output', kept)}: a graph keeps the slot of an output`]),
  ]
  const next = [
    'dispose each lease when you are done with it: `using lease = out`, or lease[Symbol.dispose](), ' +
      'and copy what must live longer',
    'dispose of the definitions and executables that refer to an output, or make them over a block of your own ' +
      'that a lane copies it to, or compile with more inFlight',
  ].filter((_, of) => (of === 0 ? leased : kept).length > 0)
  process.emitWarning(
    `a run of "${shown(name)}" waits for ${held.join('; and for ')}, ` +
      `so no tick can run until one is given back. ` +
      `Next: ${next.join('; and ')}`,
    {
      type: 'BraidWarning',
      code: leased.length === 0 ? 'BRAID_SLOTS_IN_GRAPHS' : 'BRAID_LEASES_OUT',
      detail: `the run was started at ${shown(started)}`,
    },
  )
}
