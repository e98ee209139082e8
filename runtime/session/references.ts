import type { HostArray } from '../../dsl/index.js'
import { lateFunction, lateResult, provenanceOf, referenceForm } from '../../dsl/internal.js'
import type { Plan } from '../../dsl/ir/plan.js'
import type { NativeProgramOptions } from '../addon.js'
import type { DeviceError } from '../errors.js'
import { arrayOver } from '../values.js'
import type { FlatProgram } from './flatten.js'
import { lateReference, missingReference } from './messages.js'
import { specOf } from './ports.js'

/** The meaning of a user's kernel in TypeScript: reads and writes in the order of the kernel's arguments. */
export type Reference = (reads: readonly HostArray[], writes: readonly HostArray[]) => unknown
export type References = Readonly<Record<string, Reference>>

type Native = NonNullable<NativeProgramOptions['references']>

/**
 * The references that the host device calls for the plan's user kernels, by kernel index; or an error for
 * each that is missing.
 */
export const referencesFor = (
  plan: Plan,
  flat: FlatProgram,
  given: References,
): { readonly byKernel: Native } | { readonly errors: readonly [DeviceError, ...DeviceError[]] } => {
  const known = provenanceOf(plan)?.kernels
  const byKernel: Record<number, Native[number]> = {}
  const errors: DeviceError[] = []
  flat.spec.kernels.forEach((kernel, index) => {
    if (kernel.kind !== 'cuda') return
    const { node, reads, writes } = flat.kernelRuns[index]!
    const reference =
      (Object.hasOwn(given, kernel.name) ? given[kernel.name] : undefined) ?? known?.get(node)?.reference
    const late = lateFunction(reference)
    if (late !== undefined) errors.push(lateReference(plan.nodes[node]!, late))
    else if (typeof reference === 'function') byKernel[index] = over(plan, reads, writes, reference)
    else errors.push(missingReference(plan.nodes[node]!, kernel.name))
  })
  const [first, ...others] = errors
  return first ? { errors: [first, ...others] } : { byKernel }
}

// A donated write lies in its read's memory. The reference gets a copy of the read, which must not change
// while the reference writes.
const over = (
  plan: Plan,
  reads: readonly number[],
  writes: readonly number[],
  reference: Reference,
): Native[number] => {
  const specs = [...reads, ...writes].map(id => specOf(plan.buffers[id]!))
  const root = (id: number): number => plan.buffers[id]!.alias ?? id
  const shared = reads.map(read => writes.some(write => root(write) === root(read)))
  return (readBytes, writeBytes) => {
    const late = lateResult(
      reference(
        readBytes.map((bytes, i) => arrayOver(shared[i] ? bytes.slice(0) : bytes, 0, specs[i]!)),
        writeBytes.map((bytes, i) => arrayOver(bytes, 0, specs[reads.length + i]!)),
      ),
    )
    if (late !== undefined)
      throw new TypeError(`wanted ${referenceForm.wanted}; found ${late}. Next: ${referenceForm.next}`)
  }
}
