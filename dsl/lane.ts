import type { LaneSpec } from './ir/graph.js'

/** A logical stream, made by `lane`. Two lanes of one name are the same lane. */
export interface Lane extends LaneSpec {
  readonly name: string
  readonly priority: 'low' | 'normal' | 'high'
}

const priorities: readonly unknown[] = ['low', 'normal', 'high']

/** A logical stream by name. Lanes are cheap: several may fold into one CUDA stream. `priority` is `normal` unless given. */
export const lane = (name: string, options?: { readonly priority?: 'low' | 'normal' | 'high' }): Lane =>
  Object.freeze({ name, priority: options?.priority ?? 'normal' })

/** Whether a value can serve as a lane, whoever made it. */
export const isLane = (value: unknown): value is Lane => {
  if (typeof value !== 'object' || value === null) return false
  const { name, priority } = value as Partial<Lane>
  return typeof name === 'string' && name.length > 0 && priorities.includes(priority)
}
