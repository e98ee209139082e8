import * as E from 'fp-ts/lib/Either.js'
import { type BoundSpec, isEmpty, tensorBytes } from '../../ir/tensor.js'
import { reader, writer } from '../values.js'
import type { ElementwiseAttrs } from './code.js'
import { mapSpec } from './elementwise.js'
import { runMap } from './map-reference.js'
import type { Attrs, Operator } from './operator.js'

/** The type of the result, and an expression without operands. */
export interface FillAttrs extends ElementwiseAttrs {
  readonly to: BoundSpec
}

const attrsFrom = (attrs: Attrs): FillAttrs => attrs as unknown as FillAttrs

/** A value of which every element is one number, as it is stored. */
export const fillAttrs = (to: BoundSpec, value: number): Attrs => {
  const attrs: FillAttrs = { to, code: [['const', reader(to.dtype)(writer(to.dtype)(value))]] }
  return { ...attrs }
}

/**
 * What the compiler makes in place of a value that depends on nothing. A value without elements has room for
 * one, which is written: a user's kernel is given its address.
 */
export const fillOperator: Operator = {
  name: 'fill',
  infer: (_, attrs) => E.right(attrsFrom(attrs).to),
  lower: (_, output, attrs) => ({
    as: 'run',
    kernel: mapSpec([], isEmpty(output) ? { ...output, shape: [] } : output, attrsFrom(attrs).code),
    flops: 0,
    movedBytes: tensorBytes(output),
    workspace: 0,
  }),
  reference: (_inputs, _specs, output, attrs) => runMap(mapSpec([], output, attrsFrom(attrs).code), [])[0]!,
  tolerance: () => 0,
}
