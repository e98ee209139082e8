import type { Where } from '../../ir/graph.js'
import { show } from '../../ir/show.js'
import { type BoundSpec, elements, isFloat, showSpec, type TensorSpec } from '../../ir/tensor.js'
import { type Builder, current, FlowValue } from '../builder.js'
import type { Flow } from '../flow.js'
import { type FillState, type InitData, isInitData, mostInPlan } from '../initial-value.js'
import { badAttribute, dtypeMismatch, shapeMismatch, type UnplacedError } from '../messages.js'
import { lateFunction } from '../reference.js'
import type { AnyTensor } from '../tensor.js'
import { hostArray, numbers, writer } from '../values.js'
import { here } from '../where.js'
import { isOperandNumber } from './arithmetic.js'
import { holdsWhole, wholeText } from './elementwise.js'

/**
 * What a state holds before the first value: one number for all elements; each element, row-major; or a
 * function that fills its bytes when a session opens. Functions, and arrays of more than 1,024 elements,
 * accompany the plan and are not in it: a plan that is read from a file is given such a state by `open(plan,
 * { state })`.
 */
export type Init = number | ArrayLike<number> | FillState

const isBadInit = (value: number, { dtype }: TensorSpec): boolean =>
  isFloat(dtype) ? !isOperandNumber(value) : !holdsWhole(dtype as 'u8' | 'i32', value)

const oneOf = ({ dtype }: TensorSpec): string =>
  isFloat(dtype) ? 'a number that f32 can hold or ±Infinity' : wholeText(dtype as 'u8' | 'i32')

/** Elements as they are stored, so that millions of them cost their bytes. */
const storedFrom = (values: ArrayLike<number>, { dtype }: TensorSpec): InitData => {
  const stored = hostArray(dtype, values.length)
  const write = writer(dtype)
  for (let i = 0; i < stored.length; i++) stored[i] = write(values[i]!)
  return stored
}

/** The init of a delay node; 0 where the argument is invalid. */
export const initOf = (
  builder: Builder,
  at: Where,
  subject: string,
  spec: TensorSpec,
  init: unknown,
): number | number[] | InitData => {
  const report = (found: string): number => {
    builder.report(
      at,
      subject,
      badAttribute(
        `an initial value of ${showSpec(spec)}: ${oneOf(spec)}, an array with one for each element, or a function`,
        found,
        'give 0, or an array of the right length',
      ),
    )
    return 0
  }
  if (typeof init === 'number') return isBadInit(init, spec) ? report(show(init)) : init
  if (typeof init === 'function') {
    const late = lateFunction(init)
    return late === undefined ? (init as FillState) : report(late)
  }
  const listed = Array.isArray(init) || (ArrayBuffer.isView(init) && !(init instanceof DataView))
  if (!listed) return report(show(init))
  // Elements of 16 bits are given as their bits, as everywhere else on the host.
  const isBits = init instanceof Uint16Array && (spec.dtype === 'f16' || spec.dtype === 'bf16')
  const values = isBits ? numbers(init, spec.dtype) : (init as unknown as ArrayLike<number>)
  const bound = spec.shape.every(size => typeof size === 'number')
  const count = spec.shape.reduce<number>(
    (product, size) => product * (typeof size === 'number' ? size : 1),
    1,
  )
  // With symbols, the length is known only at `compile`; it is a multiple of the product of the sizes known
  // here.
  if (bound || count === 0 ? values.length !== count : values.length % count !== 0)
    return report(`${values.length} numbers`)
  for (let i = 0; i < values.length; i++)
    if (isBadInit(values[i]!, spec)) return report(`${show(values[i])} as element ${i}`)
  return values.length > mostInPlan ? storedFrom(values, spec) : Array.from(values)
}

/** The error of the length of a delay's init, once the symbols of its type are bound. */
export const initLength = (init: unknown, spec: BoundSpec): UnplacedError | undefined => {
  const wanted = elements(spec.shape)
  return !(Array.isArray(init) || (isInitData(init) && typeof init !== 'function')) || init.length === wanted
    ? undefined
    : badAttribute(
        `${wanted} initial values, for ${showSpec(spec)}`,
        `${init.length}`,
        'give one for each element, or one number for all; ' +
          'or bind the symbols of the shape by the option dims',
      )
}

export interface StateOptions {
  /**
   * The state's name: `session.state.read(name)`. A graph has one state of each name. Without one it is
   * called by its number: `delay[0]`, in the order of the calls of `delay` and `scan`.
   */
  readonly name?: string
}

/**
 * The given name of a state; undefined without one, or, with an error reported, for options that are invalid.
 */
export const stateName = (
  builder: Builder,
  at: Where,
  subject: string,
  options: unknown,
): string | undefined => {
  if (options === undefined) return undefined
  const given = typeof options === 'object' && options !== null ? options : {}
  const { name } = given as StateOptions
  const isValid = given === options && Object.keys(given).every(key => key === 'name')
  if (isValid && name === undefined) return undefined
  if (isValid && typeof name === 'string' && name !== '') return name
  builder.report(
    at,
    subject,
    badAttribute('options of a state, such as { name }', show(options), "name it: { name: 'total' }"),
  )
  return undefined
}

/** A state whose next value is the node `next`, on the lane that is hinted. The one way to make one. */
export const stateNode = (
  { builder, hint }: Pick<FlowValue, 'builder' | 'hint'>,
  at: Where,
  subject: string,
  spec: TensorSpec,
  state: { readonly next: number; readonly init: unknown; readonly options: unknown },
): FlowValue => {
  const name = stateName(builder, at, subject, state.options)
  const init = initOf(builder, at, name ?? subject, spec, state.init)
  const attrs = name === undefined ? { init } : { init, name }
  const node = { op: 'delay', inputs: [state.next], attrs, spec, place: 'device', lane: hint, at } as const
  const value = builder.flow(name === undefined ? node : { ...node, name }, hint)
  const label = builder.nodes[value.id]!.name
  if (builder.states.has(label))
    builder.report(at, label, {
      _tag: 'DuplicateName',
      wanted: 'one state of this name',
      found: 'two',
      next: 'rename one of them',
    })
  builder.states.add(label)
  return value
}

/** Gives a state its next value: the result of the user's function, or what the user gave for it. */
export const closeState = (
  state: FlowValue,
  next: unknown,
  at: Where,
  subject: string,
  { role, advice }: { readonly role: string; readonly advice: string },
): FlowValue => {
  const { builder, spec } = state
  const value = builder.take(next, 'device', at, subject, role, spec)
  if (showSpec(value.spec) !== showSpec(spec) && !builder.guesses.has(value.id))
    builder.report(
      at,
      subject,
      (value.spec.dtype === spec.dtype ? shapeMismatch : dtypeMismatch)(
        `${role.replace(/^the/, 'a')} of ${showSpec(spec)}, as ${role.replace(/^the next /, '')} is`,
        showSpec(value.spec),
        advice,
      ),
    )
  builder.close(state.id, value.id)
  return value
}

/** Types of states by name. `next` is the method that sets them. */
export type States = Readonly<Record<string, AnyTensor>> & { readonly next?: never }

/** What states hold before the first value: 0 where nothing is given, or one number for all. */
export type Inits<S extends States> = number | { readonly [K in keyof S]?: Init }

/** The next value of every state. */
export type NextStates<S extends States> = { readonly [K in keyof S]: Flow<'device', S[K]> }

/** Several states: each one's value before, and `next`, which sets all of them at once. */
export type State<S extends States> = NextStates<S> & { readonly next: (values: NextStates<S>) => void }

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** The init of one state of a group. */
const initIn = (builder: Builder, at: Where, types: object, inits: unknown): ((name: string) => unknown) => {
  if (inits === undefined) return () => 0
  if (typeof inits === 'number') return () => inits
  const stranger = isRecord(inits) ? Object.keys(inits).find(name => !Object.hasOwn(types, name)) : undefined
  if (!isRecord(inits) || stranger !== undefined) {
    const found = stranger === undefined ? show(inits) : `one of ${show(stranger)}`
    const names = Object.keys(types).join(', ')
    builder.report(
      at,
      'state',
      badAttribute(
        `a number for all, or initial values of ${names}`,
        found,
        'give them by name, or leave them out',
      ),
    )
    return () => 0
  }
  return name => (Object.hasOwn(inits, name) && inits[name] !== undefined ? inits[name] : 0)
}

const setter =
  (builder: Builder, made: ReadonlyMap<string, FlowValue>) =>
  (values: unknown): void => {
    const at = here()
    const names = [...made.keys()].join(', ')
    const bad = (wanted: string, found: string, next: string): void =>
      builder.report(at, 'state', badAttribute(wanted, found, next))
    const [first] = made.values()
    if (!builder.unset.delete(first!.id)) {
      bad('one call of next', 'another one', 'set all states in one call')
      return
    }
    const given = isRecord(values) && !(values instanceof FlowValue) ? values : {}
    if (given !== values) bad(`the next values of ${names}`, show(values), `call next({ ${names} })`)
    const stranger = Object.keys(given).find(name => !made.has(name))
    if (stranger !== undefined) bad(`the next values of ${names}`, `one of ${show(stranger)}`, 'leave it out')
    for (const [name, state] of made)
      if (given === values)
        closeState(state, Object.hasOwn(given, name) ? given[name] : undefined, at, name, {
          role: `the next ${name}`,
          advice: 'give a value of the type of the state; one that stays as it is, its value before',
        })
  }

/**
 * States by name, of the graph whose body is running: `const s = state({ w: tensor('f32', [8]), n:
 * tensor('i32', []) }, { w: 1 })`. `s.w` is the value before (of the tick before, where the flow that it
 * meets comes once a tick), and `s.next({ w: …, n: … })` sets all of them, once in the body. A value that
 * stays is set to its value before. `scan` and `delay` are short forms of it. `init`: 0 where nothing is
 * given. `session.state` reads and writes them.
 *
 * Errors of `compile`: `UnboundDelay` without a call of `next`, `BadAttribute` for names and initial values
 * that are invalid, `ShapeMismatch`, `DTypeMismatch`, `DuplicateName`.
 */
export const state = <const S extends States>(types: S, init?: Inits<S>): State<S> => {
  const at = here()
  const builder = current()
  const given: Readonly<Record<string, unknown>> = isRecord(types) ? types : {}
  const names = Object.keys(given)
  if (names.length === 0 || names.includes('next') || names.includes(''))
    builder.report(
      at,
      'state',
      badAttribute(
        'types of states by name, none of which is next',
        show(types),
        "write state({ w: tensor('f32', [8]) })",
      ),
    )
  const initOf = initIn(builder, at, given, init)
  const made = new Map<string, FlowValue>()
  for (const name of names) {
    if (name === 'next' || name === '') continue
    const spec = builder.spec(given[name], at, name)
    // Its own input until `next` gives another, so that the graph is well formed.
    const self = { next: builder.nodes.length, init: initOf(name), options: { name } }
    made.set(name, stateNode({ builder, hint: undefined }, at, 'state', spec, self))
  }
  const [first] = made.values()
  const missing = { wanted: 'a call of next, with the next values', found: 'none' }
  const next = `call next({ ${[...made.keys()].join(', ')} }) in the body`
  if (first)
    builder.unset.set(first.id, () =>
      builder.report(at, names.join(', '), { _tag: 'UnboundDelay', ...missing, next }),
    )
  return Object.freeze(
    Object.fromEntries([...made, ['next', first ? setter(builder, made) : () => undefined]]),
  ) as never
}
