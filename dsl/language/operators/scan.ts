import type { Where } from '../../ir/graph.js'
import { show } from '../../ir/show.js'
import { FlowValue, piped } from '../builder.js'
import type { Flow } from '../flow.js'
import type { AnyTensor } from '../tensor.js'
import { here } from '../where.js'
import { closeState, type Init, type StateOptions, stateNode } from './state.js'

interface Scan {
  <A extends AnyTensor>(
    next: (acc: Flow<'device', A>, x: Flow<'device', A>) => Flow<'device', NoInfer<A>>,
    init: Init,
    options?: StateOptions,
  ): (x: Flow<'device', A>) => Flow<'device', A>
  <const B extends AnyTensor, A extends AnyTensor>(
    next: (acc: Flow<'device', B>, x: Flow<'device', A>) => Flow<'device', NoInfer<B>>,
    init: Init,
    state: B,
    options?: StateOptions,
  ): (x: Flow<'device', A>) => Flow<'device', B>
}

/**
 * State from value to value: `x.pipe(scan((acc, x) => acc.pipe(add(x)), 0))` yields each new `acc`. The state
 * has x's type, or that of the third argument: `scan(next, 0, tensor('f32', [64]))`. The last argument may
 * name it: `scan(next, 0, { name: 'total' })`.
 */
export const scan: Scan = ((next: unknown, init: unknown, third?: unknown, fourth?: unknown) => {
  const at = here()
  const [state, options] = isOptions(third) && fourth === undefined ? [undefined, third] : [third, fourth]
  return (x: unknown): unknown => {
    const source = piped(x, 'device', at, 'scan')
    const { builder, hint } = source
    const { bodies } = builder
    const spec = state === undefined ? source.spec : builder.spec(state, at, 'scan')
    // Until the body has run, the delay is its own input, so that the graph is well formed even if the body
    // throws.
    const isGuess = state === undefined && builder.guesses.has(source.id)
    const first = isGuess ? 0 : init
    const acc = stateNode(source, at, 'scan', spec, { next: builder.nodes.length, init: first, options })
    if (isGuess) builder.guesses.add(acc.id)
    if (!bodies.isTooDeep) {
      const value = nextOf(next, acc, source, at) ?? acc
      return new FlowValue(builder, value.id, value.spec, value.place, hint)
    }
    const later = builder.flow({ op: 'scan', inputs: [], spec, place: 'device', lane: hint, at }, hint)
    bodies.postpone(later.id, () => {
      const value = nextOf(next, acc, source, at) ?? acc
      if (!bodies.isCircle(later.id, value.id)) return value.id
      builder.report(at, 'scan', { ...unclosed, found: "the scan's own result" })
      return acc.id
    })
    return later
  }
}) as never

/** Whether the third argument is options: a tensor's type has other fields. */
const isOptions = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && !('dtype' in value) && !('shape' in value)

const unclosed = {
  _tag: 'UnboundDelay',
  wanted: 'a function (acc, x) => the next acc, a flow',
  next: 'return a flow of the same graph, as in (acc, x) => acc.pipe(add(x))',
} as const

/** A class is a function that cannot be called. */
const isClass = (value: unknown): boolean =>
  typeof value === 'function' && /^class\b/.test(Function.prototype.toString.call(value))

/**
 * Runs the body, and closes the delay with its result; undefined, with an error reported, where it has none.
 */
const nextOf = (next: unknown, acc: FlowValue, x: FlowValue, at: Where): FlowValue | undefined => {
  const { builder } = acc
  const isBody = typeof next === 'function' && !isClass(next)
  const result: unknown = isBody ? builder.bodies.run(() => next(acc, x)) : undefined
  if (!(result instanceof FlowValue)) {
    const found = isBody ? `a function that returned ${show(result)}` : isClass(next) ? 'a class' : show(next)
    builder.report(at, 'scan', { ...unclosed, found })
    return undefined
  }
  return closeState(acc, result, at, 'scan', {
    role: 'the next acc',
    advice: 'give the type of the state as the third argument of scan, or make next yield it',
  })
}
