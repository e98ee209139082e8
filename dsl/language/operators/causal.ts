import * as E from 'fp-ts/lib/Either.js'
import type { MapSpec } from '../../ir/kernel-spec.js'
import { type BoundSpec, elements, tensorBytes } from '../../ir/tensor.js'
import { mapFlops } from './elementwise.js'
import { runMap } from './map-reference.js'
import type { Attrs, Operator } from './operator.js'

// An index is a float here, exact up to 2^24.
const spec = (x: BoundSpec, { scale }: Attrs): MapSpec => {
  const [rows, columns] = x.shape.slice(-2) as [number, number]
  return {
    kind: 'map',
    shape: [elements(x.shape.slice(0, -2)), rows, columns],
    compute: 'f32',
    operands: [{ dtype: x.dtype, offset: 0, strides: [rows * columns, columns, 1] }],
    code: [
      ['operand', 0],
      ['const', scale as number],
      ['mul', 0, 1],
      ['index', 1],
      ['const', columns - rows],
      ['add', 3, 4],
      ['index', 2],
      ['le', 6, 5],
      ['const', Number.NEGATIVE_INFINITY],
      ['select', 7, 2, 8],
    ],
    results: [{ value: 9, dtype: x.dtype }],
  }
}

/**
 * Scores of queries (rows) and keys (columns) times a scale, and -Infinity for the keys that come after the
 * query: the last query sees all keys.
 */
export const causalOperator: Operator = {
  name: 'causal',
  infer: ([x]) => E.right(x!),
  lower: ([x], output, attrs) => ({
    as: 'run',
    kernel: spec(x!, attrs),
    flops: mapFlops(spec(x!, attrs).code, elements(output.shape)),
    movedBytes: tensorBytes(x!) + tensorBytes(output),
    workspace: 0,
  }),
  reference: (inputs, [x], _output, attrs) => runMap(spec(x!, attrs), inputs)[0]!,
  tolerance: () => 0,
}
