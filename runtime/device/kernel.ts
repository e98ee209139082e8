import type { HostArrayOf, Tensor } from '../../dsl/index.js'
import { checkedLaunch, lateFunction, lateResult, launchSizes, referenceForm } from '../../dsl/internal.js'
import { type DType, elementBytes } from '../../dsl/ir/tensor.js'
import type { NativeKernel } from '../addon.js'
import { DisposedError } from '../errors.js'
import { arrayOver, describe } from '../values.js'
import { badArgument, badUse, wrongDevice } from './allocator-error.js'
import { madeBy, reading, unreadable } from './arguments.js'
import type { Block, Span } from './block.js'
import { Core } from './core.js'
import { type Place, placeOf } from './place.js'

/** The operands of a kernel: the type of their elements, by name. */
export type Operands = Readonly<Record<string, DType>>
/** The scalars of a kernel, by name. */
export type Scalars = Readonly<Record<string, 'i32' | 'f32'>>

type Arrays<O extends Operands> = { readonly [K in keyof O]: HostArrayOf<Tensor<O[K], readonly []>> }
type Numbers<S extends Scalars> = { readonly [K in keyof S]: number }
type Memory<O extends Operands> = { readonly [K in keyof O]: Block | Span }

export interface DeviceKernelDefinition<R extends Operands, W extends Operands, S extends Scalars> {
  /** The name of the `extern "C" __global__` function in `cuda`. */
  readonly name: string
  /** CUDA C++. Arguments: a pointer for each read, then one for each write, then the scalars. */
  readonly cuda: string
  readonly reads?: R
  /** What it writes, wholly or in part. What it reads and writes stands here alone. */
  readonly writes: W
  readonly scalars?: S
  /**
   * The meaning, which the host device computes: fills `writes`, which hold what is in memory. It runs on the
   * JavaScript thread, on copies, when the lane has come to the launch.
   */
  readonly reference?: (reads: Arrays<R>, writes: Arrays<W>, scalars: Numbers<S>) => void
}

/** One launch of a kernel. Grid and block are 1 where a dimension is left out. */
export type KernelLaunch<R extends Operands, W extends Operands, S extends Scalars> = {
  readonly writes: Memory<W>
  readonly grid: number | readonly [number, number?, number?]
  readonly block: number | readonly [number, number?, number?]
  /** Bytes of dynamic shared memory; default 0. */
  readonly shared?: number
} & (keyof R extends never ? { readonly reads?: Memory<R> } : { readonly reads: Memory<R> }) &
  (keyof S extends never ? { readonly scalars?: Numbers<S> } : { readonly scalars: Numbers<S> })

/** A launch that is checked, as the addon takes it. */
export interface CheckedLaunch {
  readonly kernel: NativeKernel
  readonly words: Float64Array
  readonly places: readonly Place[]
}

type AnyKernel = Kernel<Operands, Operands, Scalars>

/** For `device.kernel`. */
export let makeKernel: (core: Core, definition: unknown) => Promise<AnyKernel>
/** The launch of a kernel of this device, by a lane or a node of a graph. Throws where it cannot be made. */
export let launchFor: (
  kernel: unknown,
  launch: unknown,
  core: Core,
  at: string,
  graph?: object,
) => CheckedLaunch

interface Shape {
  readonly name: string
  readonly cuda: string
  readonly reads: readonly (readonly [name: string, dtype: DType])[]
  readonly writes: readonly (readonly [name: string, dtype: DType])[]
  readonly scalars: readonly (readonly [name: string, type: 'i32' | 'f32'])[]
}

/**
 * A CUDA C++ kernel that is compiled for a device, from `device.kernel`. Lanes launch it with `lane.launch`,
 * each time with blocks, sizes and scalars of its own.
 */
export class Kernel<R extends Operands = Operands, W extends Operands = Operands, S extends Scalars = Scalars>
  implements Disposable
{
  readonly #core: Core
  readonly #shape: Shape
  // Laid out anew for each launch.
  readonly #words: Float64Array
  #native: NativeKernel | undefined
  declare protected readonly types: readonly [R, W, S]

  private constructor(core: Core, shape: Shape, native: NativeKernel) {
    madeBy(core instanceof Core, 'Kernel', 'device.kernel(definition)')
    this.#core = core
    this.#shape = shape
    this.#native = native
    const { reads, writes, scalars } = shape
    this.#words = new Float64Array(7 + scalars.length + 2 * (reads.length + writes.length))
  }

  static {
    makeKernel = async (core, definition) => {
      const { shape, reference } = reading('device.kernel', () => checkedDefinition(core, definition))
      const { name, cuda, reads, writes, scalars } = shape
      const spec = { name, source: cuda, reads: reads.length, writes: writes.length }
      const types = scalars.map(([, type]) => type)
      const native = await core.wait('device.kernel', `kernel ${name}`, () =>
        core.native.prepareKernel({ ...spec, scalars: types }, reference),
      )
      return new Kernel(core, shape, native)
    }
    launchFor = (kernel, launch, core, at, graph) => {
      if (!Kernel.is(kernel))
        throw badArgument(
          at,
          'kernel',
          'a Kernel, from device.kernel()',
          kernel,
          'pass what device.kernel() gave',
        )
      if (kernel.#core !== core) throw wrongDevice(at, 'a kernel', core.name)
      try {
        return kernel.#checked(launch, at, graph)
      } catch (error) {
        throw unreadable(error, at)
      }
    }
  }

  static is(value: unknown): value is AnyKernel {
    return typeof value === 'object' && value !== null && #core in value
  }

  get name(): string {
    return this.#shape.name
  }
  get disposed(): boolean {
    return this.#native === undefined || this.#core.closed
  }

  /** Launches that were made still run. */
  [Symbol.dispose](): void {
    this.#native = undefined
  }

  #checked(launch: unknown, at: string, graph: object | undefined): CheckedLaunch {
    const kernel = this.#native
    if (kernel === undefined)
      throw new DisposedError(`kernel ${this.name}`, `it was disposed of; call ${at} before that`)
    if (typeof launch !== 'object' || launch === null)
      throw badArgument(
        at,
        'launch',
        'an object of reads, writes, grid, block, scalars',
        launch,
        `say how kernel ${this.name} is launched`,
      )
    const given = launch as Readonly<Record<string, unknown>>
    const { reads, writes, scalars } = this.#shape
    const subject = (list: string): string => `${list} of kernel ${this.name}`
    const numbers = byName(given['scalars'], scalars, at, subject('scalars'))
    const found = checkedLaunch({
      grid: given['grid'],
      block: given['block'],
      shared: given['shared'],
      scalars: scalars.map(([, type], i) => ({ [type]: numbers[i] })),
    })
    if (found.launch === undefined) throw badLaunch(at, this.name, found.found ?? '', scalars, numbers)
    const places = [
      ...operands(given['reads'], reads, this.#core, at, subject('reads'), graph),
      ...operands(given['writes'], writes, this.#core, at, subject('writes'), graph),
    ]
    const overlap = overlapOf(places.slice(reads.length))
    if (overlap !== undefined) {
      const [one, other] = overlap.map(i => writes[i]![0])
      const share = `${one} and ${other} share bytes`
      throw badUse(at, subject('writes'), 'memory of its own for each', share, 'give them as one write')
    }
    this.#words.set([...launchSizes(found.launch.grid), ...launchSizes(found.launch.block)])
    this.#words[6] = found.launch.shared ?? 0
    let word = 7
    for (const number of numbers) this.#words[word++] = number as number
    for (const { address, bytes } of places) {
      this.#words[word++] = address
      this.#words[word++] = bytes
    }
    return { kernel, words: this.#words, places }
  }
}

/** The first two that share bytes, of which one alone would be there where each is computed apart. */
const overlapOf = (places: readonly Place[]): readonly [number, number] | undefined => {
  for (const [i, one] of places.entries())
    for (let j = 0; j < i; j++) {
      const other = places[j]!
      if (one.address < other.address + other.bytes && other.address < one.address + one.bytes) return [j, i]
    }
  return undefined
}

const badLaunch = (
  at: string,
  name: string,
  found: string,
  scalars: Shape['scalars'],
  numbers: readonly unknown[],
): Error => {
  const wrong = scalars.findIndex(([, type], i) => checkedScalar(type, numbers[i]))
  if (!found.startsWith('scalars') || wrong < 0)
    return badUse(
      at,
      `kernel ${name}`,
      'a grid of 1 to 2,147,483,647 × 65,535 × 65,535 blocks, and a block of at most 1,024 threads (1,024 × 1,024 × 64)',
      found,
      'correct the launch',
    )
  const [scalar, type] = scalars[wrong]!
  return badArgument(
    at,
    `scalars.${scalar}`,
    type === 'i32' ? 'a whole number of 32 bits' : 'a number that a float of 32 bits can hold',
    numbers[wrong],
    'correct the scalar, or its type in device.kernel',
  )
}

const checkedScalar = (type: 'i32' | 'f32', value: unknown): boolean =>
  checkedLaunch({ grid: 1, block: 1, scalars: [{ [type]: value }] }).launch === undefined

/** The values by name, in the order of the kernel's arguments. */
const byName = (
  given: unknown,
  wanted: readonly (readonly [name: string, type: string])[],
  at: string,
  subject: string,
): readonly unknown[] => {
  if (given === undefined && wanted.length === 0) return []
  const names = wanted.map(([name]) => name)
  const all = names.length === 0 ? 'none' : names.join(', ')
  if (typeof given !== 'object' || given === null)
    throw badArgument(at, subject, all, given, 'give each by its name')
  for (const name of Object.keys(given))
    if (!names.includes(name))
      throw badUse(at, subject, all, `${name} too`, 'leave it out, or correct its name')
  return names.map(name => {
    if (!Object.hasOwn(given, name)) throw badUse(at, subject, all, `none that is called ${name}`, 'give it')
    return (given as Readonly<Record<string, unknown>>)[name]
  })
}

const operands = (
  given: unknown,
  wanted: Shape['reads'],
  core: Core,
  at: string,
  subject: string,
  graph: object | undefined,
): readonly Place[] =>
  byName(given, wanted, at, subject).map((value, i) => {
    const [name, dtype] = wanted[i]!
    const place = placeOf(value, core, at, `${subject}: ${name}`, graph)
    const each = elementBytes[dtype]
    if (place.address % each !== 0)
      throw badUse(
        at,
        `${subject}: ${name}`,
        `memory of ${dtype}, aligned to ${each} bytes`,
        `${place.bytes} bytes at offset ${place.offset}`,
        `begin the part at a multiple of ${each}`,
      )
    return place
  })

type Native = Parameters<Core['native']['prepareKernel']>[1]

/** The definition in the order of the kernel's arguments. Throws what is wrong with it. */
const checkedDefinition = (
  core: Core,
  definition: unknown,
): { readonly shape: Shape; readonly reference: Native } => {
  core.open('a device')
  const at = 'device.kernel'
  const wrong = (subject: string, wanted: string, found: unknown, next: string): Error =>
    badArgument(at, subject, wanted, found, next)
  if (typeof definition !== 'object' || definition === null)
    throw wrong('definition', 'an object of name, cuda, reads, writes', definition, 'describe the kernel')
  const given = definition as Readonly<Record<string, unknown>>
  const { name, cuda, reference } = given
  if (typeof name !== 'string' || !/^[A-Za-z_]\w*$/.test(name))
    throw wrong('name', 'a name that C can have', name, 'name the extern "C" __global__ function of cuda')
  if (typeof cuda !== 'string' || cuda === '')
    throw wrong('cuda', 'CUDA C++', cuda, 'give the source as a string')
  const list = (key: string, types: string, fits: (type: unknown) => boolean) => {
    const entries = given[key] ?? {}
    if (typeof entries !== 'object') throw wrong(key, `${types}, by name`, entries, `as in { x: 'f32' }`)
    for (const [entry, type] of Object.entries(entries))
      if (!fits(type)) throw wrong(`${key}.${entry}`, types, type, `as in { ${entry}: 'f32' }`)
    return Object.entries(entries)
  }
  const types = 'u8, i32, f16, bf16 or f32'
  const isDType = (type: unknown): boolean => typeof type === 'string' && Object.hasOwn(elementBytes, type)
  const shape = {
    name,
    cuda,
    reads: list('reads', types, isDType) as Shape['reads'],
    writes: list('writes', types, isDType) as Shape['writes'],
    scalars: list('scalars', 'i32 or f32', type => type === 'i32' || type === 'f32') as Shape['scalars'],
  }
  if (shape.writes.length === 0)
    throw wrong('writes', 'at least one write by name', given['writes'], "as in { y: 'f32' }")
  const late = lateFunction(reference)
  if (late !== undefined) throw badUse(at, 'reference', referenceForm.wanted, late, referenceForm.next)
  if (reference !== undefined && typeof reference !== 'function')
    throw wrong('reference', 'a function', reference, 'as in ({ x }, { y }) => { y.set(x) }')
  if (core.native.info.kind !== 'host') return { shape, reference: undefined }
  if (reference === undefined)
    throw badUse(
      at,
      `kernel ${name}`,
      'its meaning in TypeScript: the host device does not run CUDA',
      'none',
      'give reference: (reads, writes, scalars) => …, or open a cuda device',
    )
  return { shape, reference: over(shape, reference as (...args: unknown[]) => unknown) }
}

const over =
  ({ name, reads, writes, scalars }: Shape, reference: (...args: unknown[]) => unknown): Native =>
  (readBytes, writeBytes, numbers) => {
    const arrays = (list: Shape['reads'], given: readonly ArrayBuffer[]) =>
      Object.fromEntries(
        list.map(([operand, dtype], i) => {
          const bytes = given[i]!
          const length = Math.floor(bytes.byteLength / elementBytes[dtype])
          const spec = { name: operand, dtype, shape: [length], bytes: bytes.byteLength }
          return [operand, arrayOver(bytes, 0, spec)]
        }),
      )
    const late = lateResult(
      reference(
        arrays(reads, readBytes),
        arrays(writes, writeBytes),
        Object.fromEntries(scalars.map(([scalar], i) => [scalar, numbers[i]])),
      ),
    )
    if (late !== undefined)
      throw new TypeError(
        `kernel ${name}: wanted ${referenceForm.wanted}; found ${describe(late)}. Next: ${referenceForm.next}`,
      )
  }
