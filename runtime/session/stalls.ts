import { warnLeasesOut } from './messages.js'

/** A run that may wait for its leases. */
export interface Watched {
  /** The plan's name, and where the run was started. */
  readonly name: string
  readonly at: string
  stalled(): boolean
  /** The ticks whose leases are out. */
  leased(): readonly number[]
  /** The ticks whose leases were given back, and whose slots graphs keep. */
  kept(): readonly number[]
}

// A run whose leases are never returned stalls, by design. Nothing keeps the process alive then, so the
// warning must also come when the event loop runs empty, not only after a time.
const watched = new Set<Watched>()
const warnEach = (): void => {
  for (const run of watched) if (run.stalled()) warn(run)
}

const unwatch = (run: Watched): boolean => {
  const was = watched.delete(run)
  if (was && watched.size === 0) process.removeListener('beforeExit', warnEach)
  return was
}

const warn = (run: Watched): void => {
  if (unwatch(run)) warnLeasesOut(run.name, run.at, run.leased(), run.kept())
}

/**
 * Warns once if the run has waited for its leases for `afterMs`. Returns a function that stops the timer.
 * Never keeps the process alive.
 */
export const watch = (run: Watched, afterMs: number): (() => void) => {
  let quarters = 0
  const timer = setInterval(() => {
    quarters = run.stalled() ? quarters + 1 : 0
    if (quarters < 4) return
    clearInterval(timer)
    warn(run)
  }, afterMs / 4)
  timer.unref()
  if (watched.size === 0) process.on('beforeExit', warnEach)
  watched.add(run)
  return () => {
    clearInterval(timer)
    unwatch(run)
  }
}
