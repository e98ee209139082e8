import type { Where } from '../../ir/graph.js'
import { show } from '../../ir/show.js'
import type { Builder } from '../builder.js'
import { mostFirings } from '../rates.js'

export const isCount = (n: unknown): n is number =>
  Number.isSafeInteger(n) && (n as number) >= 1 && (n as number) <= mostFirings

/** How many values an operator takes together, whatever was given; 1 where that cannot be. */
export const countOf = (builder: Builder, at: Where, subject: string, n: unknown): number => {
  if (isCount(n)) return n
  builder.problem(at, subject, {
    _tag: 'BadAttribute',
    wanted: `a whole number from 1 to ${mostFirings}`,
    found: show(n),
    next: `say how many values go together, as in ${subject}(4)`,
  })
  return 1
}
