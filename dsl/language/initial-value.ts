// What a state holds before the first tick: numbers that are in the plan, or data that only accompanies it.

import { type BoundSpec, type DType, elements, tensorBytes } from '../ir/tensor.js'
import { lateResult } from './reference.js'
import { type HostArray, hostArray, writer } from './values.js'

/** The state whose bytes a function fills. */
export interface FilledState {
  readonly name: string
  readonly dtype: DType
  readonly shape: readonly number[]
  readonly bytes: number
}

/** Fills the bytes of a state (little-endian, row-major), and has done so when it returns. */
export type FillState = (into: Uint8Array, state: FilledState) => void

/** Data beside a plan: elements as they are stored, or a function that fills them. */
export type InitData = HostArray | FillState

/** The most elements that are written into a plan one by one. */
export const mostInPlan = 1024

export const isInitData = (init: unknown): init is InitData =>
  typeof init === 'function' || ArrayBuffer.isView(init)

/** A fresh array of what a state holds before the first tick. Throws what the user's function throws. */
export const initialValue = (
  init: number | readonly number[] | InitData,
  { dtype, shape }: BoundSpec,
  name: string,
): HostArray => {
  const value = hostArray(dtype, elements(shape))
  const write = writer(dtype)
  if (typeof init === 'number') return value.fill(write(init))
  if (typeof init === 'function') {
    const bytes = tensorBytes({ dtype, shape })
    const late = lateResult(init(new Uint8Array(value.buffer), { name, dtype, shape, bytes }))
    if (late !== undefined)
      throw new TypeError(
        `the function that fills the state ${name} must have done so when it returns, found ${late}`,
      )
    if (value.byteLength < bytes)
      throw new TypeError(`the function that fills the state ${name} detached the buffer of its bytes`)
  } else if (isInitData(init)) value.set(init)
  else for (let i = 0; i < value.length; i++) value[i] = write(init[i]!)
  return value
}
