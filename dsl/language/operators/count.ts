import type { Where } from '../../ir/graph.js'
import { limits } from '../../ir/limits.js'
import { show } from '../../ir/show.js'
import type { Builder } from '../builder.js'
import { badAttribute } from '../messages.js'

export const isCount = (n: unknown): n is number =>
  Number.isSafeInteger(n) && (n as number) >= 1 && (n as number) <= limits.rate

/** The n of `window`, `every`, `hold` and `repeat`; 1 where the argument is invalid. */
export const countOf = (builder: Builder, at: Where, subject: string, n: unknown): number => {
  if (isCount(n)) return n
  builder.report(
    at,
    subject,
    badAttribute(
      `a whole number from 1 to ${limits.rate}`,
      show(n),
      `say how many values go together, as in ${subject}(4)`,
    ),
  )
  return 1
}
