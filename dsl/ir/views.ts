import type { Plan } from './plan.js'

/** An error of one view, in the words of a fault. */
export interface ViewError {
  readonly wanted: string
  readonly found: string
  readonly next: string
}

/**
 * The errors of buffer b as a view: it lies inside its root, which is another buffer and no view itself, and
 * in the same memory. None where it is no view, or where its root is not in the plan.
 */
export const viewErrors = ({ buffers }: Plan, b: number): readonly ViewError[] => {
  const { alias, aliasOffset = 0, bytes, space, device, life } = buffers[b]!
  const root = alias === undefined ? undefined : buffers[alias]
  if (root === undefined) return []
  const errors: ViewError[] = []
  if (alias === b) errors.push({ wanted: 'another buffer', found: 'itself', next: 'leave alias out' })
  else if (root.alias !== undefined)
    errors.push({
      wanted: 'a buffer that is no view',
      found: `'${root.name}', a view`,
      next: 'name the root itself',
    })
  if (!(aliasOffset >= 0 && aliasOffset + bytes <= root.bytes))
    errors.push({
      wanted: `bytes within the ${root.bytes} of '${root.name}'`,
      found: `bytes ${aliasOffset} to ${aliasOffset + bytes}`,
      next: 'shorten or move the view',
    })
  if (root.space !== space || root.device !== device)
    errors.push({
      wanted: `the memory of '${root.name}' (${root.space} ${root.device})`,
      found: `${space} ${device}`,
      next: 'give a view the space and device of its root',
    })
  // A part of what lasts longer is a buffer of the tick where only the tick uses it.
  if (root.life !== life && life !== 'tick')
    errors.push({
      wanted: `the life of '${root.name}' (${root.life}), or tick`,
      found: String(life),
      next: 'give a view the life of its root',
    })
  return errors
}
