import * as E from 'fp-ts/lib/Either.js'
import type { Where } from '../../ir/graph.js'
import { show } from '../../ir/show.js'
import type { FlowValue } from '../builder.js'
import { badAttribute } from '../messages.js'
import { named, withOptions } from './options.js'

/**
 * The attribute `ahead` of a copy or collective, from the options of its caller, which has `others` too:
 * `{ ahead }`, or nothing.
 */
export const aheadOf = (
  { builder, id, spec }: FlowValue,
  at: Where,
  subject: string,
  options: unknown,
  others: readonly string[] = [],
): { readonly ahead?: number } => {
  const read = withOptions(options, ['ahead', ...others], () => E.right(named(options)['ahead']))(spec)
  if (E.isLeft(read)) {
    builder.report(at, subject, read.left)
    return {}
  }
  const ahead = read.right
  if (ahead === undefined) return {}
  const known = typeof ahead === 'number' && Number.isSafeInteger(ahead) && ahead >= 0
  if (!known)
    builder.report(
      at,
      subject,
      badAttribute(
        'ahead: a whole number from 0',
        show(ahead),
        `say how many ${subject}s may run ahead of their reader, as in { ahead: 1 }`,
      ),
    )
  else if (builder.nodes[id]?.op === 'after')
    builder.report(
      at,
      subject,
      badAttribute(
        'ahead, or after, but not both',
        `ahead: ${show(ahead)}, of a value that comes after something`,
        `leave one of them out: each says when the ${subject} is issued`,
      ),
    )
  return known ? { ahead } : {}
}
