import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import { type CompileOptions, type Graph, renderAll } from '../../dsl/index.js'
import { check } from '../../dsl/passes/check.js'
import { clocks } from '../../dsl/passes/clocks.js'
import { fit } from '../../dsl/passes/fit.js'
import type { Bounded } from '../../dsl/passes/ir.js'
import { lower } from '../../dsl/passes/lower.js'
import { simplify } from '../../dsl/passes/simplify.js'

/** What `compile` knows of a plan before it is one: what was chosen, and what was tried. */
export const fitted = (graph: Graph, options: CompileOptions): Bounded => {
  const found = pipe(check(options)(graph.ir), E.chain(simplify), E.chain(clocks), E.chain(lower), E.chain(fit))
  if (E.isLeft(found)) throw new Error(renderAll(found.left))
  return found.right
}
