import type { MapInstruction } from '../../ir/kernel-spec.js'
import type { ElementwiseAttrs } from './elementwise.js'

/** Expressions that are kept at most. */
const most = 2 ** 16

const known = new Map<string, ElementwiseAttrs & Readonly<Record<string, unknown>>>()

// JSON does not tell -0 from 0.
const keyOf = (code: readonly MapInstruction[]): string =>
  code.map(([op, a, b, c]) => `${op} ${Object.is(a, -0) ? '-0' : a} ${b} ${c}`).join('|')

/**
 * The attributes of an elementwise node. Equal expressions have one and the same object: a large graph has
 * few expressions, and whatever the compiler finds out about one it finds out once.
 */
export const attrsOfCode = (code: readonly MapInstruction[]): Readonly<Record<string, unknown>> => {
  const key = keyOf(code)
  let attrs = known.get(key)
  if (attrs === undefined) {
    attrs = Object.freeze({ code: Object.freeze(code.map(each => Object.freeze(each))) })
    if (known.size >= most) known.clear()
    known.set(key, attrs)
  }
  return attrs
}
