import { AsyncLocalStorage } from 'node:async_hooks'
import type { Core } from './core.js'
import type { MemPool } from './mem-pool.js'
import { poolFor } from './mem-pool.js'

interface Scope {
  readonly core: Core
  readonly pool: MemPool
  readonly outer: Scope | undefined
}

// Follows what a scope's body awaits, so that two of them under way at once do not mix. It is entered only by `pool.use`, and asked only
// by devices of which some pool has been used so.
const scopes = new AsyncLocalStorage<Scope>()

export const inScope = <T>(core: Core, pool: MemPool, body: () => T): T => {
  core.careful = true
  return scopes.run({ core, pool, outer: scopes.getStore() }, body)
}

/** The handle of the innermost pool of this device that is in use here; 0 where there is none. */
export const poolInScope = (core: Core, at: string): number => {
  for (let scope = scopes.getStore(); scope !== undefined; scope = scope.outer)
    if (scope.core === core) return poolFor(scope.pool, core, at)
  return 0
}
