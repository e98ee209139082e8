// What `braid run --watch` does when the program's files change.
import type { Program } from '../../dsl/index.js'
import type { Plan } from '../../dsl/ir/plan.js'
import { RunError } from '../errors.js'
import type { Session } from '../session/session.js'
import { SwapError } from '../session/swap.js'
import { Failed } from './io.js'

export interface Watching {
  readonly session: Session
  /** The program as its files are now, and its plan. */
  load(): Promise<{ readonly program: Program; readonly plan: Plan }>
  changed(signal: AbortSignal): Promise<void>
  /** A run on the feeds of a program. */
  run(program: Program, signal: AbortSignal): Promise<void>
  /** What happened, for people. */
  note(text: string): void
  problem(error: unknown): void
}

/**
 * Runs a program, and after each end of its feeds waits for a change and runs it again. A change during a run
 * goes over to the new plan in the middle of it. What is wrong with a program is reported, and the plan
 * before it goes on; a program that is not loaded yet when its files change again is dropped. Rejects with
 * the signal's reason, or with the error of a session that is over.
 */
export const watch = async (watching: Watching, first: Program, signal: AbortSignal): Promise<void> => {
  const ending = new AbortController()
  const either = AbortSignal.any([signal, ending.signal])
  let program = first
  let onSwap: (() => void) | undefined
  let run: Promise<unknown> = Promise.resolve()
  const running = async (): Promise<never> => {
    for (;;) {
      const current = watching.run(program, either)
      run = current.catch(() => undefined)
      try {
        await current
      } catch (error) {
        either.throwIfAborted()
        if (!isOfProgram(error)) throw error
        watching.problem(error)
      }
      const swapped = new Promise<void>(then => {
        onSwap = then
      })
      watching.note('the run has ended; waiting for a change')
      await swapped
    }
  }
  const following = follow(watching, either, next => {
    program = next
    onSwap?.()
  })
  try {
    await Promise.race([running(), following])
  } finally {
    ending.abort()
    await Promise.allSettled([run, following])
  }
}

/** Whether an error of a run is the program's, so that the session is as good as before. */
const isOfProgram = (error: unknown): boolean =>
  error instanceof Failed || (error instanceof RunError && !ofSession.includes(error._tag))

/** The errors after which a session is over. */
const ofSession: readonly RunError['_tag'][] = ['TickFailed', 'SessionFailed', 'CopyFailed']

/** Goes over to the program of each change. Rejects with the signal's reason. */
const follow = async (
  { session, load, changed, note, problem }: Watching,
  signal: AbortSignal,
  swapped: (program: Program) => void,
): Promise<never> => {
  let next = changed(signal)
  for (;;) {
    await next
    next = changed(signal)
    try {
      const loaded = await unlessChanged(load(), next, note)
      if (loaded === undefined) continue
      const { program, plan } = loaded
      const tick = await session.swap(plan, {
        ...(program.params ? { params: program.params } : {}),
        signal,
      })
      const states = session.state.names
      const kept = states.length === 0 ? '' : `, with the states ${states.join(', ')}`
      note(`changed: tick ${tick} is the first of the plan "${plan.name}"${kept}`)
      swapped(program)
    } catch (error) {
      signal.throwIfAborted()
      if (error instanceof SwapError) problem(new Failed(error.errors))
      else if (error instanceof Failed) problem(error)
      else throw error
      note('changed, and refused: the plan before goes on (to begin anew, end this and start it again)')
    }
  }
}

/** Milliseconds after which a program that does not end loading is reported. */
const patience = 3000

/** What has been loaded; undefined where the files have changed again before. Rejects with either's error. */
const unlessChanged = async <A>(
  loading: Promise<A>,
  changed: Promise<void>,
  note: (text: string) => void,
): Promise<A | undefined> => {
  const seconds = patience / 1000
  const slow = setTimeout(
    () =>
      note(
        `changed, and still loading after ${seconds} s: the plan before goes on ` +
          '(is there a top-level await that nothing settles?)',
      ),
    patience,
  )
  try {
    return await Promise.race([loading, changed.then(() => undefined)])
  } finally {
    clearTimeout(slow)
  }
}
