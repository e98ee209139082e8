import { MemPool } from '../device/mem-pool.js'
import { check, object } from '../device/settings/checks.js'

/** Checks of options that `open`, `swap` and `planTree` have in common. */
export const common = {
  pool: check('a MemPool, from device.pool()', value => MemPool.is(value)),
  references: object,
  signal: check('an AbortSignal', value => value instanceof AbortSignal),
}
