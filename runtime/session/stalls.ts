/** What is watched: something that may wait for its leases. */
export interface Watched {
  readonly stalled: boolean
  /** The ticks whose leases are out, and where the run was started. */
  describe(): { readonly ticks: readonly number[]; readonly at: string; readonly subject: string }
}

// A run whose leases are never returned stops, by design. Nothing would be left to keep the process alive then, so it must also be
// said when the event loop runs empty, not only after a while.
const watched = new Set<Watched>()
const warnEach = (): void => {
  for (const run of watched) if (run.stalled) warn(run)
}

const warn = (run: Watched): void => {
  if (!watched.delete(run)) return
  if (watched.size === 0) process.removeListener('beforeExit', warnEach)
  const { ticks, at, subject } = run.describe()
  const names =
    ticks.length === 1 ? `the lease of tick ${ticks[0]}` : `the leases of ticks ${ticks.join(', ')}`
  process.emitWarning(
    `${subject} waits for ${names}: every slot is lent out, so no tick can run until one is given back. ` +
      'Next: dispose each lease when you are done with it: `using lease = out`, or lease[Symbol.dispose](), and copy what must live longer',
    { type: 'BraidWarning', code: 'BRAID_LEASES_OUT', detail: `the run was started at ${at}` },
  )
}

/** Warns once if the run has waited for its leases for `afterMs`. Returns what stops the watch. Never keeps the process alive. */
export const watch = (run: Watched, afterMs: number): (() => void) => {
  let since = 0
  const timer = setInterval(() => {
    since = run.stalled ? since + 1 : 0
    if (since >= 4) {
      clearInterval(timer)
      warn(run)
    }
  }, afterMs / 4)
  timer.unref()
  if (watched.size === 0) process.on('beforeExit', warnEach)
  watched.add(run)
  return () => {
    clearInterval(timer)
    watched.delete(run)
    if (watched.size === 0) process.removeListener('beforeExit', warnEach)
  }
}
