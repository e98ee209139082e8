import type { Either } from 'fp-ts/lib/Either.js'
import type { TaskEither } from 'fp-ts/lib/TaskEither.js'

/**
 * Work that begins when it is called: `await open(plan)()`. Awaiting it calls it, so `await open(plan)` is the
 * same. It is a `TaskEither` of fp-ts; each call, and each `await`, runs it once more.
 */
export type AwaitableTask<E, A> = TaskEither<E, A> & PromiseLike<Either<E, A>>

export const task = <E, A>(run: TaskEither<E, A>): AwaitableTask<E, A> => {
  const call = () => run()
  const then: PromiseLike<Either<E, A>>['then'] = (resolved, rejected) => call().then(resolved, rejected)
  return Object.defineProperty(call, 'then', { value: then }) as AwaitableTask<E, A>
}

/** What a task does, and whether it was run. */
interface Effect {
  readonly call: string
  isRun: boolean
}

/** Of tasks that were not run, and are not collected. */
const waiting = new Set<Effect>()

const dropped = (effect: Effect): void => {
  waiting.delete(effect)
  if (effect.isRun) return
  const words = `${effect.call} was dropped and did nothing: it makes a task. Next: run it: await ${effect.call}`
  // Not `emitWarning`, which waits for a turn of the event loop: at the end of the process there is none.
  process.emit('warning', Object.assign(new Error(words), { name: 'BraidWarning', code: 'BRAID_TASK' }))
}

const collected = new FinalizationRegistry(dropped)
let isWatched = false

const watchTasks = (): void => {
  if (isWatched) return
  isWatched = true
  process.once('exit', () => {
    for (const effect of waiting) dropped(effect)
  })
}

/** A task that is run for its effect alone. If it is dropped without having been run, a warning says so. */
export const effectTask = <E, A>(called: string, run: TaskEither<E, A>): AwaitableTask<E, A> => {
  const effect: Effect = { call: called, isRun: false }
  waiting.add(effect)
  const made = task(() => {
    effect.isRun = true
    waiting.delete(effect)
    return run()
  })
  watchTasks()
  collected.register(made, effect)
  return made
}
