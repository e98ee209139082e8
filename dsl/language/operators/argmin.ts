import { type Choose, chooseAlong } from './choose.js'
import { reduction } from './reduce.js'

export const argminOperator = reduction('argmin')

/**
 * The position along an axis of the smallest element, as i32: of equal ones the first, and of a NaN before
 * all numbers (torch.argmin, numpy.argmin). `argmin({ axis: 1, keepDims: true })`.
 */
export const argmin = chooseAlong(argminOperator) as Choose
