import type { Where } from '../../ir/graph.js'
import { show } from '../../ir/show.js'
import { type BoundSpec, elements, showSpec, type TensorSpec } from '../../ir/tensor.js'
import { type Builder, piped } from '../builder.js'
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

/**
 * The previous value of the flow (of the previous tick, where the flow comes once a tick); `init` for the
 * first value. Adds a state on the device.
 */
export const delay = (init: Init) => {
  const at = here()
  const later = (x: unknown): unknown => {
    const { builder, id, spec, hint } = piped(x, 'device', at, 'delay')
    const attrs = { init: initOf(builder, at, 'delay', spec, init) }
    return builder.flow({ op: 'delay', inputs: [id], attrs, spec, place: 'device', lane: hint, at }, hint)
  }
  return later as <A extends AnyTensor>(x: Flow<'device', A>) => Flow<'device', A>
}
