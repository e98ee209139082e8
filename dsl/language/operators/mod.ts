import { arithmetic } from './arithmetic.js'
import { elementwise } from './elementwise.js'

export const modOperator = elementwise('mod')

/**
 * What remains of `floorDiv`, with the sign of the operand, elementwise: `x.pipe(mod(y))` or `x.pipe(mod(7))`
 * (Python's %, numpy.mod, torch.remainder). Of whole numbers divided by 0 it is 0, as in NumPy; of floats NaN.
 */
export const mod = arithmetic(modOperator, 'mod')
