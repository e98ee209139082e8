import * as E from 'fp-ts/lib/Either.js'
import { show } from '../../ir/show.js'
import type { DType } from '../../ir/tensor.js'
import { badAttribute } from '../messages.js'
import { here } from '../where.js'
import { composed, ofFloats } from './composition.js'
import { named, withOptions } from './options.js'
import { type Draw, drawn, drawnBefore, type RandomOptions, randomOf } from './random.js'
import type { Device, Floats, Shape } from './types.js'

export interface DropoutOptions extends Omit<RandomOptions, 'dtype'> {
  /** How likely an element becomes 0: from 0, which draws nothing, to less than 1. */
  readonly p: number
}

const dropsOf = (
  options: unknown,
): E.Either<ReturnType<typeof badAttribute>, Draw & { readonly p: number }> => {
  const { p, seed, name } = named(options)
  return typeof p === 'number' && p >= 0 && p < 1
    ? E.map((draw: Draw) => ({ ...draw, p }))(randomOf({ seed, name }))
    : E.left(badAttribute('p: a number from 0 to less than 1', show(p), 'as in { p: 0.1, seed: 7 }'))
}

/**
 * Each element is 0 with the probability `p`, and else divided by 1 - p, of floats, computed in f32
 * (torch.nn.functional.dropout). Others in each tick, and the same on every device and in every run, as
 * `uniform` draws them.
 */
export const dropout = (options: DropoutOptions) => {
  const at = here()
  const read = withOptions(options, ['p', 'seed', 'name'], x => E.chain(() => dropsOf(options))(ofFloats(x)))
  return composed('dropout', at, read, (parts, given, draw) => {
    const { p, attrs } = draw
    if (p === 0) return given
    const draws = drawn(at, given, drawnBefore(parts, given, draw), { ...attrs, stream: 0 })
    return parts.inFloat(given, x => parts.map((a, u) => u.lt(p).select(0, a.mul(1 / (1 - p))), x, draws))
  }) as unknown as <D extends DType, S extends Shape>(x: Device<D, S> & Floats<D>) => Device<D, S>
}
