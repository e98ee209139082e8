import * as all from './all.js'
import type { Operator } from './operator.js'

/**
 * The operators by the name that their nodes carry. Without a prototype, since a node may be named
 * `constructor`.
 */
export const operators: Readonly<Record<string, Operator>> = Object.freeze(
  Object.assign(
    Object.create(null),
    Object.fromEntries(Object.values<Operator>(all).map(operator => [operator.name, operator])),
  ),
)
