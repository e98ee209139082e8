import { type Choose, chooseAlong } from './choose.js'
import { reduction } from './reduce.js'

export const argmaxOperator = reduction('argmax')

/**
 * The position along an axis of the largest element, as i32: of equal ones the first, and of a NaN before all
 * numbers (torch.argmax, numpy.argmax). `argmax({ axis: 1, keepDims: true })`.
 */
export const argmax = chooseAlong(argmaxOperator) as Choose
