/** Runs what only tidies up after a failure: an error of its own would hide the one that is reported. */
export const quietly = (end: () => unknown): void => {
  try {
    end()
  } catch {
    // A device that has failed refuses this too.
  }
}

/**
 * Runs `end` after a body, as `finally` does, but where both fail the body's error is the one that counts.
 * `using` throws a SuppressedError then, whose message says nothing, and `finally` the later of the two.
 */
export const endingWith = async <A>(body: () => Promise<A>, end: () => unknown): Promise<A> => {
  let value: A
  try {
    value = await body()
  } catch (error) {
    quietly(end)
    throw error
  }
  end()
  return value
}
