import type { Plan, Violation } from '../../ir/plan.js'
import type { Draft } from '../passes/emit.js'

/** Waits that are taken out of one plan, one after the other: each is proved anew. */
export const mostRedundantWaits = 32

const without = <A extends Int32Array | Int8Array | Uint8Array>(list: A, at: number): A =>
  list.filter((_: number, i: number) => i !== at) as A

/**
 * The draft without the first wait that the proof of its plan found needless; undefined where that is not all that it found. A wait that memory asked for is tried while
 * lifetimes still follow from it: without it a use, or a later free, took its place, and more memory with that. Once they are settled, the proof sees that it may go alone.
 */
export const withoutRedundantWait = (
  draft: Draft,
  plan: Plan,
  violations: readonly Violation[],
): Draft | undefined => {
  const [first] = violations
  const isWait = ({ law, command }: Violation): boolean =>
    law === 'L6' && plan.commands[command]?.[0] === 'wait'
  if (first === undefined || !violations.every(isWait)) return undefined
  const { issued } = draft
  // Waits are written in the order in which they are listed.
  let at = 0
  for (let c = 0; c < first.command; c++) if (plan.commands[c]![0] === 'wait') at++
  const waitStart = issued.waitStart.map(start => (start > at ? start - 1 : start))
  const { begins } = issued
  return {
    ...draft,
    issued: {
      ...issued,
      waitStart,
      waitOn: without(issued.waitOn, at),
      waitTick: without(issued.waitTick, at),
      ...(begins === undefined ? {} : { begins: without(begins, at) }),
    },
  }
}
