import type { Observable } from 'rxjs'

/**
 * An Observable for `for await`. Values that arrive before they are requested are queued, so it is meant for
 * bounded sources, such as a run's leases. Leaving the loop unsubscribes and returns the queued leases.
 */
export const iterate = <A extends Disposable>(source: Observable<A>): AsyncIterator<A> => {
  const kept: A[] = []
  const asked: { resolve: (result: IteratorResult<A>) => void; reject: (error: unknown) => void }[] = []
  let end: { error: unknown } | 'complete' | undefined
  const done = { done: true, value: undefined } as const
  const subscription = source.subscribe({
    next: value => {
      const waiting = asked.shift()
      if (waiting) waiting.resolve({ done: false, value })
      else kept.push(value)
    },
    error: error => {
      end = { error }
      const waiting = asked.shift()
      if (waiting) {
        end = 'complete' // An error is reported once.
        waiting.reject(error)
      }
      for (const other of asked.splice(0)) other.resolve(done)
    },
    complete: () => {
      end = 'complete'
      for (const waiting of asked.splice(0)) waiting.resolve(done)
    },
  })
  return {
    next: () => {
      if (kept.length > 0) return Promise.resolve({ done: false, value: kept.shift()! })
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
      subscription.unsubscribe()
      for (const lease of kept.splice(0)) lease[Symbol.dispose]()
      for (const waiting of asked.splice(0)) waiting.resolve(done)
      return Promise.resolve(done)
    },
  }
}
