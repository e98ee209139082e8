import type { TreeFormFault } from '../../dsl/internal.js'
import type { Fault } from '../../dsl/ir/fault.js'
import { FaultError } from '../../dsl/ir/fault-error.js'
import type { Where } from '../../dsl/ir/graph.js'
import { render } from '../../dsl/ir/messages.js'
import { AllocatorError, badArgument } from '../device/allocator-error.js'
import { failureText, isNativeFailure } from '../device/open-failure.js'
import { type DeviceError, DisposedError } from '../errors.js'
import { describe, type Mismatch, size, thrown, type ValueSpec } from '../values.js'

export type TreeErrorTag =
  | 'StaleHandle' // a handle whose value is gone
  | 'NotASuccessor' // a plan that may not come after the one before
  | 'TooManyKept' // one more value of an output than may exist
  | 'WrongFeeds' // an input without a value, or a value without an input
  | 'WrongValue' // a value of another type or length than its input
  | 'ArenaTooSmall' // a layout that was not found ahead, and does not fit
  | 'NotMade' // an executable that could not be made
  | 'NotLaunched' // a launch that could not begin, or was to follow such a one
  | 'TreeFailed' // the device failed in a launch
  | 'QueueFull' // a launch beyond what may wait
  | 'Reentered' // a launch from inside a launch
  | 'UnknownLayout' // a number that no layout has

/** The name of a plan, as JavaScript may give it. */
const describedName = (plan: unknown): string => (typeof plan === 'string' ? plan : describe(plan))

/**
 * A launch, or a use of a handle, that is refused: nothing has changed. Or, as `TreeFailed`, one that the
 * device has failed in: the tree has ended.
 */
export class TreeError extends FaultError<TreeErrorTag> {
  constructor(fault: Fault<TreeErrorTag>, cause?: unknown) {
    super(render(fault), fault, cause === undefined ? undefined : { cause })
    this.name = fault._tag === 'StaleHandle' ? 'StaleHandleError' : 'TreeError'
  }
}

/** A handle whose value is gone. */
export class StaleHandleError extends TreeError {}

export const notATree = ({ at, wanted, found }: TreeFormFault): DeviceError => ({
  _tag: 'BadPlan',
  at: at || 'tree',
  subject: 'tree',
  wanted,
  found: describe(found),
  next: 'make it with tree({ plans, start, then, keep })',
})

export const staleHandle = (
  at: Where | string,
  output: string,
  origin: { readonly plan: string; readonly at: Where },
  problem: string,
  failure: TreeError | undefined,
): StaleHandleError =>
  new StaleHandleError(
    {
      _tag: 'StaleHandle',
      at: String(at),
      subject: `${origin.plan}.${output}, made at ${origin.at}`,
      wanted: 'a value that is still in the arena',
      found: problem,
      next:
        failure?.next ??
        "read it before the next launch, or declare how long it is kept: until('plan'), ring(n) or owned",
    },
    failure,
  )

/** A span, or its block, after the body of `handle.use` that it was for. */
export const endedUse = (
  at: string,
  output: string,
  origin: { readonly plan: string; readonly at: Where },
): StaleHandleError =>
  new StaleHandleError({
    _tag: 'StaleHandle',
    at,
    subject: `${origin.plan}.${output}, made at ${origin.at}`,
    wanted: 'a span inside of the body of handle.use',
    found: 'a span of a body that has returned: other bytes may lie there',
    next: 'give the lane its work before the body returns; for later copy the value into a block of your own',
  })

export const notABody = (found: unknown): AllocatorError =>
  badArgument(
    'handle.use',
    'body',
    'a function of the span',
    found,
    'pass one that gives the lane its work: span => lane.copy(block, span)',
  )

export const notASuccessor = (
  at: Where,
  plan: string,
  last: string | undefined,
  allowed: readonly string[],
): TreeError =>
  new TreeError({
    _tag: 'NotASuccessor',
    at: String(at),
    subject: describedName(plan),
    wanted:
      last === undefined
        ? `a plan that a run may begin with: ${allowed.join(', ')}`
        : `a plan that may come after ${last}, or begin a run: ${allowed.join(', ') || 'there is none'}`,
    found: describedName(plan),
    next: 'launch one of these, or declare it: tree({ then: { … } })',
  })

export const tooManyKept = (at: Where, plan: string, output: string, count: number): TreeError =>
  new TreeError({
    _tag: 'TooManyKept',
    at: String(at),
    subject: `${plan}.${output}`,
    wanted: `at most ${count} values of ${output} alive at once, each until the plan that until() names is launched`,
    found: `a launch of ${plan}, which would make one more`,
    next: 'launch that plan first, declare more: until(plan, count), or begin a new run: tree.begin()',
  })

export const notADecision = (at: Where, found: unknown): TreeError =>
  new TreeError({
    _tag: 'WrongValue',
    at: String(at),
    subject: 'drive: a decision',
    wanted: 'the next plan and its inputs: { plan, feeds }',
    found: describe(found),
    next: 'leave out what is no decision: filter(decision => …)',
  })

export const notAnOpenTree = (at: Where, found: unknown): TreeError =>
  new TreeError({
    _tag: 'WrongValue',
    at: String(at),
    subject: 'drive',
    wanted: 'an open tree, from planTree',
    found: describe(found),
    next: 'drive(tree) with what planTree gave: orThrow(await planTree(…)())',
  })

export const wrongFeeds = (
  at: Where,
  plan: string,
  missing: readonly string[],
  extra: readonly string[],
  known: readonly string[],
): TreeError =>
  new TreeError({
    _tag: 'WrongFeeds',
    at: String(at),
    subject: plan,
    wanted: `a value for each input that is not in the arena: ${known.join(', ') || 'there is none'}`,
    found: [
      ...(missing.length > 0 ? [`none for ${missing.join(', ')}`] : []),
      ...(extra.length > 0 ? [`one for ${extra.join(', ')}, which is no input`] : []),
    ].join('; '),
    next: 'give a value for each of these inputs, and no other',
  })

export const wrongFeed = (at: Where, plan: string, input: string, mismatch: Mismatch): TreeError =>
  new TreeError({ _tag: 'WrongValue', at: String(at), subject: `${plan}.${input}`, ...mismatch })

/** No shape of a plan takes what is given. */
export const noShape = (
  at: Where,
  plan: string,
  shapes: readonly { readonly key: string; readonly inputs: readonly ValueSpec[] }[],
  given: Readonly<Record<string, unknown>>,
): TreeError =>
  new TreeError({
    _tag: 'WrongValue',
    at: String(at),
    subject: plan,
    wanted: `values of one of its shapes: ${shapes
      .map(
        ({ key, inputs }) => `${key} (${inputs.map(({ name, shape }) => `${name} [${shape}]`).join(', ')})`,
      )
      .join(', ')}`,
    found: describedFeeds(given),
    next: 'give values of one of these sizes',
  })

const describedFeeds = (given: unknown): string =>
  typeof given !== 'object' || given === null
    ? describe(given)
    : Object.entries(given)
        .map(([name, value]) => `${name}: ${describe(value)}`)
        .join(', ') || 'no values'

export const foreignHandle = (at: Where, plan: string, input: string): TreeError =>
  new TreeError({
    _tag: 'WrongValue',
    at: String(at),
    subject: `${plan}.${input}`,
    wanted: 'a handle of this tree, whose value has the type of the input',
    found: 'a handle of another tree, or of a value of another type',
    next: 'read the handle, and give its values',
  })

export const noHandle = (at: Where, plan: string, input: string): TreeError =>
  new TreeError({
    _tag: 'WrongValue',
    at: String(at),
    subject: `${plan}.${input}`,
    wanted: 'an array: no plan that may come before this one leaves this value in the arena',
    found: 'a handle',
    next: 'give an array, or declare the plan that makes the value as one that may come before',
  })

export const arenaTooSmall = (at: Where, plan: string, wanted: number, found: number): TreeError =>
  new TreeError({
    _tag: 'ArenaTooSmall',
    at: String(at),
    subject: plan,
    wanted: `an arena of ${size(wanted)} for this launch, whose state of the arena was not laid out ahead`,
    found: size(found),
    next: `planTree(tree, { arena: ${wanted} })`,
  })

/** A launch, as errors name it. */
interface Launched {
  readonly plan: string
  readonly at: Where
}
const named = ({ plan, at }: Launched): string => `the launch of ${plan} at ${at}`

interface Failed {
  readonly origin: Launched
  readonly cause: unknown
}

/** What failed, in one line: an error that is data says it without its title. */
const reasonOf = (cause: unknown): string =>
  cause instanceof AllocatorError || cause instanceof TreeError ? cause.found : thrown(cause)

const toOpenAgain = 'close the tree and open it again: nothing is known of what its arena holds'

/** A launch that the device had begun, or that came after it. */
export const launchFailed = (launch: Launched, { origin, cause }: Failed): TreeError =>
  new TreeError(
    {
      _tag: 'TreeFailed',
      at: String(launch.at),
      subject: launch.plan,
      wanted: 'a launch that the device completes',
      found: launch === origin ? reasonOf(cause) : `${named(origin)} failed before it: ${reasonOf(cause)}`,
      next: toOpenAgain,
    },
    cause,
  )

/** What is asked of a tree after that. */
export const treeFailed = (at: Where | string, { origin, cause }: Failed): TreeError =>
  new TreeError(
    {
      _tag: 'TreeFailed',
      at: String(at),
      subject: 'tree',
      wanted: 'a tree whose launches the device has all completed',
      found: `${named(origin)} failed: ${reasonOf(cause)}`,
      next: toOpenAgain,
    },
    cause,
  )

/** A launch of which the device has nothing, or one that was to follow it. */
export const notLaunched = (launch: Launched, first: Launched, reason: DeviceError): TreeError =>
  new TreeError(
    {
      _tag: 'NotLaunched',
      at: String(launch.at),
      subject: launch.plan,
      wanted: launch === first ? reason.wanted : `${named(first)}, which it was to follow`,
      found: reason.found,
      next: `${reason.next}; then launch again: the tree is as it was before ${launch === first ? 'the launch' : 'that one'}`,
    },
    reason.cause ?? reason,
  )

/** A launch that was to follow one that could not begin. */
export const notFollowed = (at: Where, plan: string, before: Launched, failure: TreeError): TreeError =>
  new TreeError(
    {
      _tag: failure._tag,
      at: String(at),
      subject: describedName(plan),
      wanted: `${named(before)}, which it was to follow`,
      found: failure.found,
      next: failure.next,
    },
    failure,
  )

/** Memory that a launch takes beside the arena: of its executable, or for what is copied before it. */
export const noRoomFor = (layout: number, reason: DeviceError, open: number): DeviceError => ({
  ...reason,
  wanted: `memory beside the arena for a launch of layout ${layout}`,
  found: isNativeFailure(reason.cause) ? failureText(reason.cause) : reason.found,
  next: `${open > 0 ? 'await tree.evict(), which closes executables' : 'free memory of the device'}, or open the tree with a budget: planTree(tree, { executables: BYTES })`,
})

/** The arena itself; `least` bytes are what the launches need that were laid out ahead. */
export const noArena = (reason: DeviceError, bytes: number, least: number): DeviceError => ({
  ...reason,
  at: 'arena',
  subject: 'tree',
  wanted: `device memory for an arena of ${size(bytes)}`,
  next:
    bytes > least
      ? `planTree(tree, { arena: ${least} }): that much the launches take that are laid out ahead`
      : `compile the plans with memory: 'small', or ${reason.next}`,
})

export const notMade = (at: Where, plan: string, layout: number, reason: DeviceError): TreeError =>
  new TreeError(
    {
      _tag: 'NotMade',
      at: String(at),
      subject: `${plan}, layout ${layout}`,
      wanted: reason.wanted,
      found: reason.found,
      next: `${reason.next}; then call prepare again, or launch: the tree is as it was`,
    },
    reason.cause ?? reason,
  )

export const queueFull = (
  at: Where,
  plan: string,
  count: number,
  waiting: number,
  limit: number,
): TreeError =>
  new TreeError({
    _tag: 'QueueFull',
    at: String(at),
    subject: describedName(plan),
    wanted: `launches that wait for their turn with at most ${size(limit)} of values`,
    found: `one more, where ${count} that wait have ${size(waiting)}`,
    next: 'await tree.room() before it, or allow more: planTree(tree, { waiting: BYTES })',
  })

export const reentered = (at: Where, plan: string): TreeError =>
  new TreeError({
    _tag: 'Reentered',
    at: String(at),
    subject: describedName(plan),
    wanted: 'one launch at a time',
    found: 'a launch from inside another one: a feed has a getter that launches',
    next: 'launch after that launch has returned',
  })

export const closedTree = (at: string): DisposedError =>
  new DisposedError('this tree', `open it again; call ${at} before it is closed`)

export const sourceGivenUp = (plan: string): DeviceError => ({
  _tag: 'Cancelled',
  at: 'params',
  subject: plan,
  wanted: 'the values of its parameters before the tree is closed',
  found: 'a call of tree.close while a source of them had not answered',
  next: 'await tree.prepare() or the launch before you close the tree; open it again',
})

export const noLayout = (at: Where, found: unknown, count: number): TreeError =>
  new TreeError({
    _tag: 'UnknownLayout',
    at: String(at),
    subject: 'tree.explain',
    wanted: `the number of a layout, of which there are ${count}`,
    found: describe(found),
    next: 'take the id of one of tree.layouts',
  })

export const warnLostTree = (arena: number, opened: Where): void =>
  process.emitWarning(
    `the plan tree opened at ${opened} was lost without being closed. Its arena of ${size(arena)} was free again ` +
      'only when the garbage collector noticed. Next: `await using tree = …`, or await tree.close()',
    { type: 'BraidWarning' },
  )
