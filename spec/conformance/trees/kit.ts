// Plans and trees that the tests of plan trees share.
import {
  type AnyTree,
  add,
  type CompileOptions,
  compile,
  download,
  type Graph,
  graph,
  lane,
  mul,
  orThrow,
  type Plan,
  type Ports,
  ring,
  type Tensor,
  tensor,
  tree,
  upload,
} from '../../../dsl/index.js'
import { type PlanTree, planTree, TreeError, type TreeOptions } from '../../../runtime/index.js'

export const width = 64
export const row = tensor('f32', [width])
export type Row = Tensor<'f32', readonly [64]>
export const copy = lane('copy')
export const math = lane('math')

export const planned = <I extends Ports, O extends Ports>(
  g: Graph<I, O>,
  options: CompileOptions = {},
): Plan<I, O> => orThrow(compile(g, { ...options, storage: 'planned' }))

/** The two plans of a decoder: its state comes from a prompt, and each step adds a token to it. */
export const prompt = planned(
  graph('prompt', { x: row }, ({ x }) => ({ state: x.pipe(upload(copy), mul(2), download(copy)) })),
)
export const step = planned(
  graph('step', { state: row, token: row }, ({ state, token }) => {
    const next = state.pipe(upload(copy), add(token.pipe(upload(copy))))
    return { state: next.pipe(download(copy)), seen: next.pipe(mul(10), download(copy)) }
  }),
)

export const treeOn = async <R extends AnyTree>(
  device: string,
  spec: R,
  options: TreeOptions = {},
): Promise<PlanTree<R>> => orThrow(await planTree(spec, { device, poison: true, ...options })())

export const all = (value: number, length = width): Float32Array => new Float32Array(length).fill(value)
/** The one value that an array has everywhere. */
export const only = (array: ArrayLike<number>): number => {
  for (let i = 1; i < array.length; i++)
    if (!Object.is(array[i], array[0])) throw new Error(`element ${i} is ${array[i]}, not ${array[0]}`)
  return array[0]!
}

/** out = in · factor + more, by two kernels with a value between them. */
export const affine = <const In extends string, const Out extends string>(
  name: string,
  input: In,
  output: Out,
  factor: number,
  more: number,
  size = width,
): Plan<Record<In, Row>, Record<Out, Row>> => {
  const type = tensor('f32', [size])
  const body = graph(name, { x: type }, ({ x }) => {
    const d = x.pipe(upload(copy))
    return { y: d.pipe(mul(factor), add(more), download(copy)) }
  })
  return renamed(planned(body), { x: input, y: output })
}

/** A plan with other names for its ports: names are all that connects the plans of a tree. */
export const renamed = <A, B>(plan: Plan, names: Readonly<Record<string, string>>): Plan<A, B> => {
  const buffers = plan.buffers.map(buffer => {
    const isPort = buffer.life === 'input' || buffer.life === 'output'
    return isPort ? { ...buffer, name: names[buffer.name] ?? buffer.name } : buffer
  })
  return { ...plan, buffers } as Plan as Plan<A, B>
}

export const large = 64 * width

/** The tag of the TreeError that a call throws; undefined where it throws nothing. */
export const tagOf = (run: () => unknown): string | undefined => {
  try {
    run()
    return undefined
  } catch (error) {
    return error instanceof TreeError ? error._tag : String(error)
  }
}

/** a = 2x, b = 3x */
export const pair = planned(
  graph('pair', { x: row }, ({ x }) => {
    const d = x.pipe(upload(copy))
    return { a: d.pipe(mul(2), download(copy)), b: d.pipe(mul(3), download(copy)) }
  }),
)

export const double = affine('double', 'x', 'y', 2, 0)

export const plusOne = affine('plusOne', 'y', 'z', 1, 1)

export const chain = tree({
  plans: { double, plusOne, last: affine('last', 'z', 'w', 10, 0) },
  start: ['double'],
  then: { double: ['plusOne'], plusOne: ['last'] },
  keep: { plusOne: { z: ring(1) } },
})
