import type { OpenOptions } from './options.js'

/** Milliseconds between two reports. */
const period = 100

/**
 * Waits for a program that opens, and reports meanwhile how far it has come. `prepared` is what the addon
 * counts in: runs whose kernels are prepared, and all runs.
 */
export const reporting = async <A>(
  opening: Promise<A>,
  prepared: Int32Array,
  report: OpenOptions['onProgress'],
): Promise<A> => {
  if (report === undefined) return opening
  const timer = setInterval(() => report({ prepared: prepared[0]!, operations: prepared[1]! }), period)
  try {
    return await opening
  } finally {
    clearInterval(timer)
  }
}
