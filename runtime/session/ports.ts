import type { HostArray } from '../../dsl/index.js'
import type { Plan, PlanBuffer } from '../../dsl/ir/plan.js'
import type { TensorSpec } from '../../dsl/ir/tensor.js'
import type { NativeProgram } from '../addon.js'
import { arrayOver, type ValueSpec } from '../values.js'
import { rootOf } from './flatten.js'

/** One input or output of a plan: what it holds, and where its bytes lie in each slot. */
export interface Port {
  readonly spec: ValueSpec
  readonly root: number
  readonly offset: number
  /**
   * Values of an input in each tick: `spec` describes one value, and the values are contiguous. An output's
   * `spec` describes all of its values.
   */
  readonly rate: number
  /** Of an output that stays on a device: which one. */
  readonly device: number | undefined
}

/** Input and output specs as the graph's author wrote them, with symbols, where this process knows them. */
export type Written = (kind: 'input' | 'output' | 'param', name: string) => TensorSpec | undefined

/** The type of a buffer. Where a plan from elsewhere names no element type, the buffer holds bytes. */
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
    .map(buffer => {
      const { rate = 1 } = life === 'input' ? buffer : {}
      return {
        spec: specOf(oneOf(buffer, rate), written?.(life, buffer.name)),
        ...rootOf(plan, buffer.id),
        rate,
        device: buffer.space === 'device' ? buffer.device : undefined,
      }
    })

/** One of the values that a buffer holds. */
const oneOf = (buffer: PlanBuffer, rate: number): PlanBuffer => {
  if (rate === 1) return buffer
  const { shape, bytes } = buffer
  return { ...buffer, bytes: bytes / rate, ...(shape === undefined ? {} : { shape: shape.slice(1) }) }
}

/**
 * The inputs' memory in every slot, mapped once: `[slot][port][value of the tick]`. Feeds are copied straight
 * into it.
 */
export const inputViews = (
  program: NativeProgram,
  ports: readonly Port[],
  slots: number,
): readonly (readonly (readonly HostArray[])[])[] => {
  const views = viewsOf(program, ports)
  return Array.from({ length: slots }, (_, slot) =>
    views(slot).map((first, port) => {
      const { rate, spec } = ports[port]!
      const at = (value: number): number => first.byteOffset + value * spec.bytes
      return Array.from({ length: rate }, (_, value) =>
        arrayOver(first.buffer as ArrayBuffer, at(value), spec),
      )
    }),
  )
}

/**
 * The ports' memory in a slot. Ports that share a buffer share its one view, which a second call would detach.
 */
export const viewsOf = (
  program: NativeProgram,
  ports: readonly Port[],
): ((slot: number) => readonly HostArray[]) => {
  const numbers = new Map<number, number>()
  for (const [i, { root }] of ports.entries()) if (!numbers.has(root)) numbers.set(root, i)
  const firsts = ports.map(({ root }) => numbers.get(root)!)
  return slot => {
    const views = new Array<HostArray | undefined>(ports.length)
    ports.forEach(({ root, offset, spec }, i) => {
      const first = views[firsts[i]!]
      const buffer = first === undefined ? program.view(root, slot) : (first.buffer as ArrayBuffer)
      views[i] = arrayOver(buffer, offset, spec)
    })
    return views as HostArray[]
  }
}
