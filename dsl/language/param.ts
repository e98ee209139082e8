import * as E from 'fp-ts/lib/Either.js'
import type { Place } from '../ir/graph.js'
import { show } from '../ir/show.js'
import type { DType } from '../ir/tensor.js'
import { current } from './builder.js'
import type { Flow } from './flow.js'
import { badAttribute } from './messages.js'
import { named, withOptions } from './operators/options.js'
import type { AnyTensor, HostArrayOf } from './tensor.js'
import { here } from './where.js'

export interface ParamOptions<P extends Place = Place> {
  /** `device`, the default: resident. `host`: pinned, streamed in by `upload(lane, { ahead })`. */
  readonly on?: P
}

/** The second argument of a parameter's function: the port that it fills. */
export interface ParamSpec {
  readonly name: string
  readonly dtype: DType
  readonly shape: readonly number[]
  readonly bytes: number
}

/**
 * A parameter's value: a typed array of its elements, or a function that fills its bytes (little-endian,
 * row-major).
 */
export type ParamValue<A extends AnyTensor = AnyTensor> =
  | HostArrayOf<A>
  | ((into: Uint8Array, spec: ParamSpec) => void | Promise<void>)

/** Values by parameter name, given when a plan is opened. */
export type ParamValues = Readonly<Record<string, ParamValue>>

interface Param {
  <const A extends AnyTensor>(
    name: string,
    spec: A,
    options: ParamOptions<'host'> & { readonly on: 'host' },
  ): Flow<'host', A>
  <const A extends AnyTensor>(name: string, spec: A, options?: ParamOptions<'device'>): Flow<'device', A>
}

/**
 * A value that is the same in every tick, as a flow of the graph whose body is running. Its value is given by
 * name at `open`.
 */
export const param: Param = ((name: unknown, spec: unknown, options?: ParamOptions) => {
  const at = here()
  const builder = current()
  const known = typeof name === 'string' && name.length > 0
  const label = known ? name : `?${builder.nodes.length}`
  if (!known) builder.report(at, 'param', badAttribute('a name', show(name), "name it: param('w', …)"))
  else if (builder.params.has(name))
    builder.report(at, name, {
      _tag: 'DuplicateName',
      wanted: 'one parameter of this name',
      found: 'another one',
      next: 'use the flow that the first param gave, or rename this one',
    })
  builder.params.add(label)
  const type = builder.spec(spec, at, label)
  const read = withOptions(options, ['on'], () => E.right(named(options)['on'] ?? 'device'))(type)
  if (E.isLeft(read)) builder.report(at, label, read.left)
  const place = E.isLeft(read) ? 'device' : read.right
  if (place !== 'host' && place !== 'device')
    builder.report(at, label, badAttribute("on: 'device' or 'host'", show(place), 'give one of the two'))
  return builder.flow({
    op: 'param',
    name: label,
    inputs: [],
    spec: type,
    place: place === 'host' ? 'host' : 'device',
    at,
  })
}) as never
