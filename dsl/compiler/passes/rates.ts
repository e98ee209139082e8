import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import { type Rates, ratesOf } from '../../language/rates.js'
import type { Checked } from '../analysis/ir.js'
import { type Passed, pass } from '../analysis/pass.js'

//   x · window(x, 2)  →  x twice a tick · window(x, 2) once a tick
//
// After this pass every flow has a rate, and a repetition vector exists: flows of different rates meet only
// at window, every, hold and repeat.

/** The graph with the rates of its flows; undefined: every flow comes once a tick. */
export interface Rated extends Checked {
  readonly rates: Rates | undefined
}

export const rates = pass(
  'rates',
  (ir: Checked): Passed<Rated> =>
    pipe(
      ratesOf(ir),
      E.map(rates => ({ ...ir, rates })),
    ),
)
