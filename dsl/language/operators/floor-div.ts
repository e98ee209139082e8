import { arithmetic } from './arithmetic.js'
import { elementwise } from './elementwise.js'

export const floorDivOperator = elementwise('floorDiv')

/**
 * x / operand rounded down, elementwise: `x.pipe(floorDiv(y))` or `x.pipe(floorDiv(2))` (numpy.floor_divide,
 * torch.floor_divide). Whole numbers divided by 0 are 0, as in NumPy, and -2^31 divided by -1 wraps; floats divided
 * by 0 are infinite or NaN.
 */
export const floorDiv = arithmetic(floorDivOperator, 'floorDiv')
