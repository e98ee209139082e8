import type { Where } from '../../ir/graph.js'
import { show } from '../../ir/show.js'
import { type BoundSpec, elements, showSpec, type TensorSpec } from '../../ir/tensor.js'
import { type Builder, type FlowValue, piped } from '../builder.js'
import type { Flow } from '../flow.js'
import { badAttribute, type UnplacedError } from '../messages.js'
import type { AnyTensor } from '../tensor.js'
import { here } from '../where.js'
import { isOperandNumber } from './arithmetic.js'
import { isFloat } from './elementwise.js'

/** What a state holds before the first value: one number for all elements, or each element, row-major. */
export type Init = number | ArrayLike<number>

const isBadInit = (value: number, spec: TensorSpec): boolean =>
  !isOperandNumber(value) || (!isFloat(spec.dtype) && !Number.isInteger(value))

/** The init of a delay node; 0 where the argument is invalid. */
export const initOf = (
  builder: Builder,
  at: Where,
  subject: string,
  spec: TensorSpec,
  init: unknown,
): number | number[] => {
  const report = (found: string): number => {
    builder.report(
      at,
      subject,
      badAttribute(
        `an initial value of ${showSpec(spec)}: a finite number, or an array with one for each element`,
        found,
        'give 0, or an array of the right length',
      ),
    )
    return 0
  }
  if (typeof init === 'number') return isBadInit(init, spec) ? report(show(init)) : init
  const listed = Array.isArray(init) || (ArrayBuffer.isView(init) && !(init instanceof DataView))
  if (!listed) return report(show(init))
  const values = Array.from(init as unknown as ArrayLike<number>)
  const bound = spec.shape.every(size => typeof size === 'number')
  const count = spec.shape.reduce<number>(
    (product, size) => product * (typeof size === 'number' ? size : 1),
    1,
  )
  // With symbols, the length is known only at `compile`; it is a multiple of the product of the sizes known
  // here.
  if (bound ? values.length !== count : values.length === 0 || values.length % count !== 0)
    return report(`${values.length} numbers`)
  const bad = values.findIndex(value => isBadInit(value, spec))
  return bad < 0 ? values : report(`${show(values[bad])} as element ${bad}`)
}

/** The error of the length of a delay's init, once the symbols of its type are bound. */
export const initLength = (init: unknown, spec: BoundSpec): UnplacedError | undefined => {
  const wanted = elements(spec.shape)
  return !Array.isArray(init) || init.length === wanted
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
   * The state's name: `session.state.read(name)`. A graph has one state of each name. Without one it is called by
   * its number: `delay[0]`, in the order of the calls of `delay` and `scan`.
   */
  readonly name?: string
}

/** The given name of a state; undefined without one, or, with an error reported, for options that are invalid. */
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

/** A state whose next value is the node `next`, on the lane of the flow `x`. */
export const stateNode = (
  x: FlowValue,
  at: Where,
  subject: string,
  spec: TensorSpec,
  state: { readonly next: number; readonly init: unknown; readonly options: unknown },
): FlowValue => {
  const { builder, hint } = x
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

/**
 * The previous value of the flow (of the previous tick, where the flow comes once a tick); `init` for the
 * first value. Adds a state on the device.
 */
export const delay = (init: Init, options?: StateOptions) => {
  const at = here()
  const later = (x: unknown): unknown => {
    const value = piped(x, 'device', at, 'delay')
    return stateNode(value, at, 'delay', value.spec, { next: value.id, init, options })
  }
  return later as <A extends AnyTensor>(x: Flow<'device', A>) => Flow<'device', A>
}
