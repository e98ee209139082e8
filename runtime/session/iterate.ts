import type { Observable } from 'rxjs'
import type { Lease } from '../../dsl/index.js'
import { DisposedError } from '../errors.js'
import { copyOfLease } from './lease.js'

/**
 * A run's leases for `for await`. Those that arrive before they are requested are queued. Leaving the loop
 * unsubscribes and returns the queued leases. `closing` is aborted before the session frees the memory of its
 * leases: those in the queue become copies, and are handed out as they came; a block cannot be copied, so the
 * iteration ends in an error before the first lease that has one.
 */
export const iterate = (
  source: Observable<Lease<unknown>>,
  closing: AbortSignal,
): AsyncIterator<Lease<unknown>> => {
  const queue: Lease<unknown>[] = []
  const asked: {
    resolve: (result: IteratorResult<Lease<unknown>>) => void
    reject: (error: unknown) => void
  }[] = []
  let end: { error: unknown } | 'complete' | undefined
  const done = { done: true, value: undefined } as const
  const copyQueue = (): void => {
    for (const lease of queue.splice(0)) {
      const copy = copyOfLease(lease)
      if (copy !== undefined) {
        queue.push(copy)
        continue
      }
      // A run that has not completed ends in an error of its own.
      if (end === 'complete') end = { error: notTaken() }
      break
    }
  }
  closing.addEventListener('abort', copyQueue, { once: true })
  const unwatch = (): void => closing.removeEventListener('abort', copyQueue)
  const subscription = source.subscribe({
    next: lease => {
      const waiting = asked.shift()
      if (waiting) waiting.resolve({ done: false, value: lease })
      else queue.push(lease)
    },
    error: error => {
      end = { error }
      const waiting = asked.shift()
      if (waiting) {
        end = 'complete' // An error is reported once.
        waiting.reject(error)
      }
      for (const other of asked.splice(0)) other.resolve(done)
      if (queue.length === 0) unwatch()
    },
    complete: () => {
      end = 'complete'
      for (const waiting of asked.splice(0)) waiting.resolve(done)
      if (queue.length === 0) unwatch()
    },
  })
  return {
    next: () => {
      const value = queue.shift()
      if (end !== undefined && queue.length === 0) unwatch()
      if (value !== undefined) return Promise.resolve({ done: false, value })
      if (end === 'complete') return Promise.resolve(done)
      if (end) {
        const { error } = end
        end = 'complete'
        return Promise.reject(error)
      }
      return new Promise((resolve, reject) => asked.push({ resolve, reject }))
    },
    return: () => {
      end = 'complete'
      unwatch()
      subscription.unsubscribe()
      for (const lease of queue.splice(0)) lease[Symbol.dispose]()
      for (const waiting of asked.splice(0)) waiting.resolve(done)
      return Promise.resolve(done)
    },
  }
}

const notTaken = (): DisposedError =>
  new DisposedError('the session of these leases', 'take every lease of a run before its session is closed')
