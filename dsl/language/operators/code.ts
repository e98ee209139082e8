import type { MapInstruction } from '../../ir/kernel-spec.js'
import type { ElementwiseAttrs } from './elementwise.js'

/** Expressions that are kept at most. */
const most = 2 ** 16

type CodeAttrs = ElementwiseAttrs & Readonly<Record<string, unknown>>

/** By hash. */
const known = new Map<number, CodeAttrs[]>()
let kept = 0

const operations = new Map<string, number>()
const numberOf = (op: string): number => {
  let number = operations.get(op)
  if (number === undefined) operations.set(op, (number = operations.size))
  return number
}

const hashOf = (code: readonly MapInstruction[]): number => {
  let hash = code.length
  for (const instruction of code) {
    hash = Math.imul(hash ^ numberOf(instruction[0]), 0x85ebca6b)
    for (let i = 1; i < instruction.length; i++)
      hash = Math.imul(hash ^ (hash >>> 13) ^ ((instruction[i] as number) * 0x10000), 0xc2b2ae35)
  }
  return hash
}

/** Whether two instructions are one; of constants, -0 is not 0. */
export const isSame = (one: MapInstruction, other: MapInstruction): boolean => {
  if (one.length !== other.length) return false
  for (let i = 0; i < one.length; i++) if (!Object.is(one[i], other[i])) return false
  return true
}

const isSameCode = (one: readonly MapInstruction[], other: readonly MapInstruction[]): boolean => {
  if (one.length !== other.length) return false
  for (let i = 0; i < one.length; i++) if (!isSame(one[i]!, other[i]!)) return false
  return true
}

/**
 * The attributes of an elementwise node. Equal expressions have one and the same object: a large graph has
 * few expressions, and whatever the compiler finds out about one it finds out once.
 */
export const attrsOfCode = (code: readonly MapInstruction[]): Readonly<Record<string, unknown>> => {
  const hash = hashOf(code)
  const alike = known.get(hash)
  if (alike !== undefined) for (const attrs of alike) if (isSameCode(attrs.code, code)) return attrs
  const attrs: CodeAttrs = Object.freeze({ code: Object.freeze(code.map(each => Object.freeze(each))) })
  if (kept === most) {
    known.clear()
    kept = 0
  }
  known.set(hash, [...(known.get(hash) ?? []), attrs])
  kept++
  return attrs
}
