import type { Where } from '../../ir/graph.js'
import { show } from '../../ir/show.js'
import type { Builder, FlowValue } from '../builder.js'

/** How far something runs ahead of its reader, as attributes of its node, from the options that its caller gave: `{ ahead }`, or nothing. */
export const aheadOf = (
  builder: Builder,
  at: Where,
  subject: string,
  options: unknown,
  source: FlowValue,
): { readonly ahead?: number } => {
  const ahead = (options as { readonly ahead?: unknown } | null | undefined)?.ahead
  if (ahead === undefined) return {}
  const known = typeof ahead === 'number' && Number.isSafeInteger(ahead) && ahead >= 0
  if (!known)
    builder.problem(at, subject, {
      _tag: 'BadAttribute',
      wanted: 'ahead: a whole number from 0',
      found: show(ahead),
      next: `say how many ${subject}s may run ahead of their reader, as in { ahead: 1 }`,
    })
  else if (builder.nodes[source.id]?.op === 'after')
    builder.problem(at, subject, {
      _tag: 'BadAttribute',
      wanted: 'ahead, or after, but not both',
      found: `ahead: ${show(ahead)}, of a value that comes after something`,
      next: `leave one of them out: each says when the ${subject} is issued`,
    })
  return known ? { ahead } : {}
}
