// Trees of plans that must compile, and launches that must not. `tsc --noEmit` is the test: a missing
// expected error is an error.

import { of } from 'rxjs'
import {
  add,
  byShape,
  compile,
  download,
  graph,
  mul,
  orThrow,
  owned,
  type Plan,
  ring,
  tensor,
  tree,
  until,
  upload,
} from '../../dsl/index.js'
import { type Decision, drive, type PlanTree } from '../../runtime/index.js'

const row = tensor('f32', [4])
const prompt = orThrow(
  compile(graph('prompt', { tokens: row }, ({ tokens }) => ({ state: tokens.pipe(upload(), download()) }))),
)
const step = orThrow(
  compile(
    graph('step', { state: row, token: row }, ({ state, token }) => {
      const next = state.pipe(upload(), add(token.pipe(upload())))
      return {
        state: next.pipe(download()),
        logits: next.pipe(download()),
        seen: next.pipe(mul(2), download()),
        out: next.pipe(mul(3), download()),
      }
    }),
  ),
)
const stop = orThrow(
  compile(graph('stop', { state: row }, ({ state }) => ({ words: state.pipe(upload(), download()) }))),
)
const plans = { prompt, step, stop }
const decoder = tree({
  plans,
  start: ['prompt'],
  then: { prompt: ['step'], step: ['step', 'stop'] },
  keep: { step: { seen: ring(2), out: owned } },
})
declare const t: PlanTree<typeof decoder>
const array = new Float32Array(4)

// ---- which plans, and which may follow --------------------------------------------------------------------
// @ts-expect-error no plan of that name may begin
tree({ plans, start: ['nothing'] })
// @ts-expect-error no plan of that name may follow
tree({ plans, start: ['prompt'], then: { prompt: ['nothing'] } })
// @ts-expect-error only outputs are kept
tree({ plans, start: ['prompt'], keep: { step: { token: ring(2) } } })
// @ts-expect-error it is kept until a plan of the tree
tree({ plans, start: ['prompt'], keep: { step: { seen: until('nothing') } } })
// @ts-expect-error a tree has no such plan
t.launch('nothing', {})
const first = t.launch('prompt', { tokens: array })
// @ts-expect-error a prompt is not followed by a stop
first.next('stop')
const second = first.next('step', { token: array })
const third = second.next('stop')

// ---- what a launch needs ----------------------------------------------------------------------------------
// @ts-expect-error every input from the host needs a value
t.launch('prompt', {})
// @ts-expect-error a step needs its token
first.next('step')
// @ts-expect-error of the type of its elements
first.next('step', { token: new Int32Array(4) })
// @ts-expect-error and no other value
first.next('step', { token: array, more: array })
// A value for what lies in the arena may be given all the same: an array, or a handle.
first.next('step', { token: array, state: array })
first.next('step', { token: array, state: first.handles.state })

// ---- what is alive where ----------------------------------------------------------------------------------
second.values.then(({ logits }): Float32Array => logits)
// @ts-expect-error the state stays on the device
second.values.then(({ state }) => state)
second.handles.state.read().then((state): Float32Array => state)
second.handles.seen.read()
// @ts-expect-error logits go to the host: there is no handle
second.handles.logits
// @ts-expect-error what is copied out is no handle
second.handles.out
second.owned.out.then(({ bytes }): number => bytes)
// @ts-expect-error a prompt copies nothing out
first.owned.state
third.values.then(({ words }): Float32Array => words)
// @ts-expect-error a stop leaves nothing on the device
third.handles.words

// ---- decisions --------------------------------------------------------------------------------------------
of<Decision<typeof decoder>>({ plan: 'step', feeds: { token: array } }).pipe(drive(t))
// @ts-expect-error no such plan
of<Decision<typeof decoder>>({ plan: 'other' }).pipe(drive(t))

// ---- what the launch before has left ----------------------------------------------------------------------
const one = tensor('f32', [4])
const planOf = <const I extends string, const O extends string>(input: I, output: O) =>
  orThrow(
    compile(
      graph(
        'plan',
        { [input]: one } as Record<I, typeof one>,
        inputs =>
          ({
            [output]: inputs[input]!.pipe(upload(), mul(2), download()),
          }) as never,
      ),
    ),
  ) as unknown as Plan<Record<I, typeof one>, Record<O, typeof one>>
const three = { a: planOf('i', 'x'), b: planOf('j', 'z'), c: planOf('x', 'w') }
const skips = tree({ plans: three, start: ['a'], then: { a: ['b', 'c'], b: ['c'] } })
declare const skipping: PlanTree<typeof skips>
const a = skipping.launch('a', { i: array })
a.next('c')
const b = a.next('b', { j: array })
// @ts-expect-error only a leaves x: after b it is gone
b.next('c')
b.next('c', { x: array })
b.next('c', { x: a.handles.x })
// @ts-expect-error a launch that does not say what came before may come after b
skipping.launch('c')
skipping.launch('c', { x: array })
declare const either: typeof a | typeof b
// @ts-expect-error after either of them it may be gone
either.next('c')

const lasting = tree({
  plans: three,
  start: ['a'],
  then: { a: ['b', 'c'], b: ['c'] },
  keep: { a: { x: until('c') } },
})
declare const keeping: PlanTree<typeof lasting>
// It lives until c.
keeping.launch('a', { i: array }).next('b', { j: array }).next('c')
keeping.launch('c')

const ringed = tree({
  plans: three,
  start: ['a'],
  then: { a: ['b'], b: ['c'] },
  keep: { a: { x: ring(2) } },
})
declare const ringing: PlanTree<typeof ringed>
ringing.launch('a', { i: array }).next('b', { j: array }).next('c')

const taken = tree({
  plans: three,
  start: ['a'],
  then: { a: ['b', 'c'], b: ['c'] },
  keep: { a: { x: owned } },
})
declare const taking: PlanTree<typeof taken>
taking.launch('a', { i: array }).next('c')
// @ts-expect-error what is copied out does not stay in the arena
taking.launch('a', { i: array }).next('b', { j: array }).next('c')

// A plan that a run may begin with finds nothing there when it does.
const again = tree({ plans: { loop: planOf('s', 's') }, start: ['loop'], then: { loop: ['loop'] } })
declare const looping: PlanTree<typeof again>
// @ts-expect-error a run begins without a state
looping.launch('loop')
looping.launch('loop', { s: array }).next('loop').next('loop')

// An input that no plan before it leaves is the host's: no handle is taken.
// @ts-expect-error nothing leaves j
a.next('b', { j: a.handles.x })

// ---- plans by shape ---------------------------------------------------------------------------------------
const pair = tensor('f32', [2, 4])
const pairs = orThrow(
  compile(graph('pairs', { tokens: pair }, ({ tokens }) => ({ state: tokens.pipe(upload(), download()) }))),
)
const shaped = tree({
  plans: { prompt: byShape({ 1: prompt, 2: pairs }), step },
  start: ['prompt'],
  then: { prompt: ['step'], step: ['step'] },
})
declare const shapes: PlanTree<typeof shaped>
const { values: given, shape } = shapes.launch('prompt', { tokens: array }).next('step', { token: array })
void given.then(({ logits }): Float32Array => logits)
void (shape satisfies string | undefined)
// @ts-expect-error every shape has this input
shapes.launch('prompt', {})
// @ts-expect-error only plans have shapes
byShape({ 1: 7 })
