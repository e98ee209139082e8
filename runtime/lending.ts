// Memory that Braid gives back and that others fill. A read of a file writes it outside of JavaScript, so an
// abort, a free or the closing of its device does not stop the write: the memory goes to nobody else before
// the write has ended.
import { isThenable } from './values.js'

const lend = Symbol('lend')

interface Lent extends ArrayBuffer {
  readonly [lend]?: () => () => void
}

/** `begin` keeps the memory of this buffer in use until the function that it returns is called. */
export const makeLendable = (buffer: ArrayBuffer, begin: () => () => void): void => {
  Object.defineProperty(buffer, lend, { value: begin })
}

/**
 * Calls what fills these bytes. Whatever becomes of their owner, the memory stays as it is until the call has
 * returned and, where it returns a promise, that has settled.
 */
export const lending = (bytes: Uint8Array, fill: () => unknown): unknown => {
  const end = (bytes.buffer as Lent)[lend]?.() ?? (() => undefined)
  let returned: unknown
  try {
    returned = fill()
  } catch (error) {
    end()
    throw error
  }
  if (isThenable(returned)) return new Promise(resolve => resolve(returned)).finally(end)
  end()
  return returned
}

/** What `work` resolves to, unless the signal is aborted before: then its reason is thrown. */
export const untilAborted = async <A>(work: PromiseLike<A>, signal: AbortSignal | undefined): Promise<A> => {
  if (signal === undefined) return work
  let stop: (() => void) | undefined
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason)
    if (signal.aborted) stop()
    else signal.addEventListener('abort', stop, { once: true })
  })
  try {
    return await Promise.race([work, aborted])
  } finally {
    signal.removeEventListener('abort', stop!)
  }
}
