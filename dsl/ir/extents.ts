import { collectiveReach, type Seat, seatIn } from './collective-extents.js'
import {
  type AttentionOperand,
  attentionYields,
  auxiliaryAlignment,
  convOutput,
  type KernelSpec,
  type MatmulOperand,
  matmulReach,
} from './kernel-spec.js'
import { resultElements } from './map-rows.js'
import type { CollectiveSpec, Plan } from './plan.js'
import { type DType, elementBytes } from './tensor.js'

/** An access of a run outside its buffer, or at an address that the device cannot use. */
export interface OutOfBounds {
  readonly command: number
  readonly node: number
  /** The buffer; -1: the run has another number of reads or writes than its kernel. */
  readonly buffer: number
  readonly wanted: string
  readonly found: string
}

/**
 * Memory safety of every run whose node has a kernel: each reads and writes inside its buffers only, and at
 * addresses that are multiples of the element's size (anything else is a sticky error of the device). What a
 * `cuda` kernel accesses cannot be checked. Ids must be in range: the loader checks them first. Which bytes
 * hold values, and which ones a run may write over, is judged in run-bytes.ts. `seats`: of each communicator,
 * the rank's group as the plans of all ranks have it; absent: as far as this plan says.
 */
export const outOfBounds = (
  plan: Plan,
  most = 100,
  seats?: readonly (Seat | undefined)[],
): readonly OutOfBounds[] => {
  const found: OutOfBounds[] = []
  for (let command = 0; command < plan.commands.length && found.length < most; command++) {
    const run = plan.commands[command]!
    if (run[0] !== 'run') continue
    const { kernel, collective } = plan.nodes[run[1]] ?? {}
    const need = kernel && needsOf(kernel)
    const add = (buffer: number, wanted: string, is: string) =>
      found.push({ command, node: run[1], buffer, wanted, found: is })
    if (collective !== undefined) {
      const { communicator } = collective
      const seat = seats?.[communicator] ?? seatIn(plan.communicators?.[communicator])
      checkCollective(plan, collective, seat, run[3], run[4], add)
    }
    if (kernel === undefined || need === undefined) continue
    for (const [what, wants, gets] of [
      ['reads', need.reads, run[3]],
      ['writes', need.writes, run[4]],
    ] as const) {
      if (wants.length !== gets.length) {
        add(-1, `${wants.length} ${what} for its ${kernel.kind}`, `${gets.length}`)
        continue
      }
      wants.forEach((reach, i) => {
        const buffer = plan.buffers[gets[i]!]!
        const verb = `${what.slice(0, -1)} ${i}`
        if (!(reach.first >= 0))
          add(buffer.id, `${verb} from byte 0 on`, `its ${kernel.kind} starts at byte ${reach.first}`)
        if (!(reach.end <= buffer.bytes))
          add(
            buffer.id,
            `${verb} within its ${buffer.bytes} bytes`,
            `its ${kernel.kind} reaches to byte ${reach.end}`,
          )
        const place = (buffer.aliasOffset ?? 0) + (plan.buffers[buffer.alias ?? buffer.id]?.offset ?? 0)
        if (place % reach.align !== 0)
          add(buffer.id, `${verb} at a multiple of ${reach.align} bytes`, `it lies at byte ${place}`)
      })
    }
  }
  return found
}

/** Every buffer that the run of a collective reads or writes holds what its rank gives or gets. */
const checkCollective = (
  { buffers }: Plan,
  spec: CollectiveSpec,
  seat: Seat,
  reads: readonly number[],
  writes: readonly number[],
  add: (buffer: number, wanted: string, found: string) => void,
): void => {
  const reach = collectiveReach(spec, seat)
  const check = (id: number, needed: number, verb: string) => {
    const { bytes } = buffers[id]!
    if (needed <= bytes) return
    const elements = needed / elementBytes[spec.dtype]
    add(id, `${elements} ${spec.dtype} within its ${bytes} bytes`, `its ${spec.kind} ${verb} byte ${needed}`)
  }
  for (const id of reads) check(id, reach.reads.needed, 'reads to')
  for (const id of writes) check(id, reach.writes.needed, 'writes to')
}

/** Bytes [first, end) that an access touches, and the size that its address is a multiple of. */
export interface Reach {
  readonly first: number
  readonly end: number
  readonly align: number
  /** Of a write, how many bytes from the first one on it is sure to write; absent: all. */
  readonly covers?: number
}

export interface Needs {
  readonly reads: readonly Reach[]
  readonly writes: readonly Reach[]
  /** The writes that are the memory of the read of the same number. */
  readonly inPlace?: readonly number[]
}

const dense = (count: number, dtype: DType): Reach => ({
  first: 0,
  end: count * elementBytes[dtype],
  align: elementBytes[dtype],
})

/** The write that offers scratch to a library, where there is one. */
const scratch = (bytes = 0): readonly Reach[] =>
  bytes > 0 ? [{ first: 0, end: bytes, align: 1, covers: 0 }] : []

/** Elements that lie one after the other from the first one on: `row` of each of `sizes` at `strides`. */
const contiguous = (sizes: readonly number[], strides: readonly number[], row: number): number => {
  const dims = strides.map((stride, d) => ({ stride, size: sizes[d]! })).filter(({ size }) => size > 1)
  dims.sort((x, y) => x.stride - y.stride)
  let length = row
  for (const { stride, size } of dims) {
    if (stride !== length) break
    length *= size
  }
  return length
}

type NeedsOf<Spec> = (kernel: Spec) => Needs | undefined

// Products beyond 2^53 are not exact, but far beyond any buffer, whose bytes are.
const needs: {
  readonly [Kind in KernelSpec['kind']]: NeedsOf<Extract<KernelSpec, { readonly kind: Kind }>>
} = {
  copy: kernel => {
    const parts = kernel.parts ?? 1
    const source = { first: 0, end: kernel.bytes / parts, align: 1 }
    return {
      reads: new Array<Reach>(parts).fill(source),
      writes: [{ first: 0, end: kernel.bytes, align: 1 }],
    }
  },
  map: kernel => {
    return {
      reads: kernel.operands.map(operand => {
        let least = operand.offset
        let most = operand.offset
        const reach = (size: number, stride: number) => {
          const span = stride * (size - 1)
          if (span < 0) least += span
          else most += span
        }
        kernel.shape.forEach((size, d) => {
          reach(size, operand.strides[d] ?? 0)
        })
        if (operand.indexed !== undefined) reach(operand.indexed.length, operand.indexed.step)
        const bytes = elementBytes[operand.dtype]
        return { first: least * bytes, end: (most + 1) * bytes, align: bytes }
      }),
      writes: kernel.results.map(result => dense(resultElements(kernel, result), result.dtype)),
    }
  },
  matmul: kernel => {
    const { m, n, k, batch, transposeA, transposeB, a, b, c, workspace, epilogue = {} } = kernel
    const of = (operand: MatmulOperand, sizes: readonly [number, number]): Reach => {
      const bytes = elementBytes[operand.dtype]
      const [first, end] = matmulReach(operand, batch, sizes)
      return { first: first * bytes, end: end * bytes, align: bytes }
    }
    const covers = contiguous([batch], [c.batchStride], m * n) * elementBytes[c.dtype]
    const result = { ...of(c, [m, n]), covers }
    const bias = epilogue.bias ? [dense(n, c.dtype)] : []
    const auxiliary = epilogue.auxiliary ? [{ ...result, align: auxiliaryAlignment }] : []
    return {
      reads: [
        of(a, transposeA ? [k, m] : [m, k]),
        of(b, transposeB ? [n, k] : [k, n]),
        ...bias,
        ...(epilogue.residual ? [result] : []),
      ],
      writes: [result, ...auxiliary, ...scratch(workspace)],
    }
  },
  attention: kernel => {
    const { batch, heads, groups, queries, keys, size, valueSize, dtype, q, k, v, y, mask, length } = kernel
    const { appended = 0, result, dy, dv, logs } = kernel
    const reach = (
      operand: AttentionOperand,
      sizes: readonly number[],
      row: number,
      of: DType = dtype,
    ): Reach => {
      const end = operand.strides.reduce((sum, step, d) => sum + step * (sizes[d]! - 1), operand.offset + row)
      const bytes = elementBytes[of]
      const covers = contiguous(sizes, operand.strides, row) * bytes
      return { first: operand.offset * bytes, end: end * bytes, align: bytes, covers }
    }
    const seen = [batch, heads, queries, keys]
    const masks = mask?.strides.reduce((sum, step, d) => sum + step * (seen[d]! - 1), 1)
    const caches = [reach(k, [batch, groups, keys], size), reach(v, [batch, groups, keys], valueSize)]
    const rows = [size, valueSize].map(row => dense(batch * groups * appended * row, dtype))
    const sums = dense(batch * heads * queries, 'f32')
    const [yieldHeads, yieldRows, row] = attentionYields(kernel)
    return {
      reads: [
        reach(q, [batch, heads, queries], size),
        ...caches,
        ...(mask === undefined ? [] : [dense(masks!, mask.dtype)]),
        ...(length ? [dense(1, 'i32')] : []),
        ...(appended === 0 ? [] : [...rows, dense(1, 'i32')]),
        ...(dy === undefined ? [] : [reach(dy, [batch, heads, queries], valueSize), sums, sums]),
      ],
      writes: [
        reach(y, [batch, yieldHeads, yieldRows], row, result === 'logSumExp' ? 'f32' : dtype),
        ...(logs ? [sums] : []),
        ...(dv === undefined ? [] : [reach(dv, [batch, groups, keys], valueSize)]),
        ...(appended === 0 ? [] : caches),
        ...scratch(kernel.workspace),
      ],
      ...(appended === 0 ? {} : { inPlace: [1, 2] }),
    }
  },
  conv: kernel => {
    const { batch, groups, channels, filters, dtype, spatial } = kernel
    const sized = (sizes: readonly number[], first: number) =>
      dense(
        sizes.reduce((count, size) => count * size, first),
        dtype,
      )
    const [inputs, kernels] = [spatial.map(({ input }) => input), spatial.map(dim => dim.kernel)]
    return {
      reads: [sized(inputs, batch * groups * channels), sized(kernels, groups * filters * channels)],
      writes: [sized(spatial.map(convOutput), batch * groups * filters), ...scratch(kernel.workspace)],
    }
  },
  reduce: kernel => ({
    reads: [dense(kernel.outer * kernel.length * kernel.inner, kernel.input)],
    writes: [dense(kernel.outer * (kernel.count ?? 1) * kernel.inner, kernel.output)],
  }),
  scan: kernel => {
    const count = kernel.outer * kernel.length * kernel.inner
    return { reads: [dense(count, kernel.input)], writes: [dense(count, kernel.output)] }
  },
  join: kernel => {
    const { outer, inner, dtype, pieces } = kernel
    const of = (length: number) => dense(outer * length * inner, dtype)
    return {
      reads: pieces.filter(({ fill }) => fill === undefined).map(({ length }) => of(length)),
      writes: [of(pieces.reduce((total, { length }) => total + length, 0))],
    }
  },
  random: kernel => ({
    reads: [{ first: 0, end: 0, align: 1 }, dense(1, 'i32')],
    writes: [dense(kernel.count, kernel.dtype)],
  }),
  gather: kernel => {
    const { outer, length, inner, count, dtype, along = false } = kernel
    const indices = along ? outer * count * inner : count
    return {
      reads: [dense(outer * length * inner, dtype), dense(indices, 'i32')],
      writes: [dense(outer * count * inner, dtype)],
    }
  },
  scatterAdd: kernel => {
    const { outer, length, inner, count, input, output } = kernel
    return {
      reads: [dense(outer * count * inner, input), dense(count, 'i32'), dense(count, 'i32')],
      writes: [dense(outer * length * inner, output)],
    }
  },
  append: kernel => {
    const { outer, length, inner, count, dtype } = kernel
    const whole = dense(outer * length * inner, dtype)
    return {
      reads: [whole, dense(outer * count * inner, dtype), dense(1, 'i32')],
      writes: [whole],
      inPlace: [0],
    }
  },
  cuda: () => undefined,
}

export const needsOf = (kernel: KernelSpec): Needs | undefined =>
  (needs[kernel.kind] as NeedsOf<KernelSpec>)(kernel)
