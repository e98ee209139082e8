import type { DType, FloatType } from '../../ir/tensor.js'
import { here } from '../where.js'
import { castTo } from './cast.js'
import { composed } from './composition.js'
import type { Expression } from './expression.js'
import { withOptions } from './options.js'
import { drawn, drawnBefore, type RandomOptions, randomOf, randomOptions } from './random.js'
import type { Device, Shape } from './types.js'

// The logarithm and the cosine of devices differ in their last bits. Those below are made of steps that each
// device rounds in the same way, for the few arguments that a uniform number of 24 bits gives.

/** The value of a polynomial, from the coefficients of the two highest powers down to the constant. */
const polynomial = (x: Expression, [highest, next, ...rest]: readonly number[]): Expression =>
  rest.reduce((sum, each) => sum.mul(x).add(each), x.mul(highest!).add(next!))

/**
 * -2 log w, for w from 2^-24 to 1: of w = m · 2^-e with m from √½ to √2, by the series of the inverse hyperbolic
 * tangent, log m = 2 artanh((m - 1) / (m + 1)).
 */
const minusTwiceLog = (w: Expression): Expression => {
  let m = w
  let e = w.mul(0)
  for (const step of [16, 8, 4, 2, 1]) {
    const isSmall = m.lt(2 ** -step)
    e = e.add(isSmall.mul(step))
    m = isSmall.select(m.mul(2 ** step), m)
  }
  const isSmall = m.lt(Math.SQRT1_2)
  e = e.add(isSmall)
  m = isSmall.select(m.mul(2), m)
  const s = m.sub(1).div(m.add(1))
  const series = polynomial(s.mul(s), [4 / 9, 4 / 7, 4 / 5, 4 / 3, 4])
  return e.mul(2 * Math.LN2).sub(s.mul(series))
}

/** cos 2πt, for t from 0 to 1: the cosine or sine of what is left to the nearest quarter of a turn. */
const cosOfTurn = (t: Expression): Expression => {
  const quarters = t.mul(4)
  const quarter = quarters.add(0.5).floor()
  const x = quarters.sub(quarter).mul(Math.PI / 2)
  const square = x.mul(x)
  const sine = x.mul(polynomial(square, [1 / 362880, -1 / 5040, 1 / 120, -1 / 6, 1]))
  const cosine = polynomial(square, [1 / 40320, -1 / 720, 1 / 24, -1 / 2, 1])
  const size = quarter.eq(1).add(quarter.eq(3)).select(sine, cosine)
  return quarter.eq(1).add(quarter.eq(2)).select(size.neg(), size)
}

/**
 * Random numbers of the normal distribution with mean 0 and variance 1, in the shape of the piped value
 * (torch.randn_like), from two uniform ones each (Box and Muller, 1958). Others in each tick, and the same on
 * every device and in every run: their counter is state of the plan.
 */
export const normal = <E extends FloatType = 'f32'>(options: RandomOptions<E>) => {
  const at = here()
  return composed(
    'normal',
    at,
    withOptions(options, randomOptions, () => randomOf(options)),
    (parts, x, draw) => {
      const { seed, to } = draw.attrs
      const counter = drawnBefore(parts, x, draw)
      const [radius, turn] = [0, 1].map(stream => drawn(at, x, counter, { seed, to: 'f32', stream }))
      // 1 - u is never 0.
      const made = parts.map((u, v) => minusTwiceLog(u.neg().add(1)).sqrt().mul(cosOfTurn(v)), radius!, turn!)
      return castTo(to, at, made)
    },
  ) as unknown as <S extends Shape>(x: Device<DType, S>) => Device<E, S>
}
