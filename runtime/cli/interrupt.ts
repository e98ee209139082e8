/** What a shell expects of a process that a signal ended: 128 and the signal's number. */
export const exitStatus = { SIGINT: 130, SIGTERM: 143 } as const
export type EndingSignal = keyof typeof exitStatus

/** The reason of an abort that a signal asked for. */
export class Interrupted extends Error {
  constructor(readonly by: EndingSignal) {
    super(`interrupted by ${by}`)
  }
}

/**
 * Runs `work` with a signal that SIGINT and SIGTERM abort, with an `Interrupted` as its reason. A second one
 * ends the process at once, for work that does not end. `ending`: what the first one begins, in words.
 */
export const interruptible = async <A>(
  work: (signal: AbortSignal) => Promise<A>,
  ending = 'finishing the ticks in flight',
): Promise<A> => {
  const aborting = new AbortController()
  const stop = (by: EndingSignal): void => {
    if (aborting.signal.aborted) process.exit(exitStatus[by])
    process.stderr.write(`braid: ${by}: ${ending}; once more ends at once\n`)
    aborting.abort(new Interrupted(by))
  }
  const names = Object.keys(exitStatus) as EndingSignal[]
  for (const name of names) process.on(name, stop)
  try {
    return await work(aborting.signal)
  } finally {
    for (const name of names) process.off(name, stop)
  }
}
