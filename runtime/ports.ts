import type { Plan, PlanBuffer } from '../dsl/ir/plan.js'
import type { TensorSpec } from '../dsl/ir/tensor.js'
import type { HostArray } from '../dsl/operators/operator.js'
import type { NativeProgram } from './native.js'
import { rootOf } from './program.js'
import { arrayOver, type ValueSpec } from './values.js'

/** One input or output of a plan: what it holds, and where its bytes lie in each slot. */
export interface Port {
  readonly spec: ValueSpec
  readonly root: number
  readonly offset: number
}

/** Input and output specs as the graph's author wrote them, symbols and all, where this process knows. */
export type Written = (kind: 'input' | 'output' | 'param', name: string) => TensorSpec | undefined

/** What a buffer holds. A plan from elsewhere may not say its element type: then it holds bytes. */
export const specOf = (buffer: PlanBuffer, written?: TensorSpec): ValueSpec => {
  const typed = buffer.dtype !== undefined && buffer.shape !== undefined
  return {
    name: buffer.name,
    dtype: typed ? buffer.dtype! : 'u8',
    shape: typed ? buffer.shape! : [buffer.bytes],
    bytes: buffer.bytes,
    ...(typed && written ? { written } : {}),
  }
}

/** A view of an input's or output's buffer is no port of its own. */
export const portsOf = (plan: Plan, life: 'input' | 'output', written?: Written): readonly Port[] =>
  plan.buffers
    .filter(buffer => buffer.life === life && buffer.alias === undefined)
    .map(buffer => ({ spec: specOf(buffer, written?.(life, buffer.name)), ...rootOf(plan, buffer.id) }))

/** The inputs' memory in every slot, mapped once: `[slot][port]`. Feeds are copied straight into it. */
export const inputViews = (
  program: NativeProgram,
  ports: readonly Port[],
  slots: number,
): readonly (readonly HostArray[])[] => Array.from({ length: slots }, (_, slot) => viewsOf(program, ports, slot))

/** The ports' memory in one slot. Ports that share a buffer share its one view, which a second call would detach. */
export const viewsOf = (program: NativeProgram, ports: readonly Port[], slot: number): readonly HostArray[] => {
  const roots = new Map<number, ArrayBuffer>()
  return ports.map(({ root, offset, spec }) => {
    let buffer = roots.get(root)
    if (buffer === undefined) roots.set(root, (buffer = program.view(root, slot)))
    return arrayOver(buffer, offset, spec)
  })
}
