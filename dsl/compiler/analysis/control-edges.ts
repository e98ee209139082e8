import type { ControlEdge, Operation, Ordered } from './ir.js'
import { changed } from './operations.js'

/**
 * By later operation: the operations whose start it waits for. Undefined where no operation waits for a
 * start.
 */
export const startsOf = ({
  control = [],
}: Pick<Ordered, 'control'>): ReadonlyMap<number, readonly number[]> | undefined => {
  const starts = new Map<number, number[]>()
  for (const { later, earlier, when } of control) {
    if (when === 'finish') continue
    const list = starts.get(later)
    if (list === undefined) starts.set(later, [earlier])
    else list.push(earlier)
  }
  return starts.size === 0 ? undefined : starts
}

/**
 * The operations without the dependencies on a start alone: an operation runs concurrently with one whose
 * start it waits for, so it does not continue its chain.
 */
export const withoutStartEdges = (
  operations: readonly Operation[],
  control: readonly ControlEdge[] | undefined,
): readonly Operation[] => {
  const starts = startsOf(control === undefined ? {} : { control })
  if (starts === undefined) return operations
  return operations.map((operation, i) => {
    const started = starts.get(i)
    return started === undefined
      ? operation
      : changed(operation, { after: operation.after.filter(before => !started.includes(before)) })
  })
}
