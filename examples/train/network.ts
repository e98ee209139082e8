// A model of two layers over the rows of a table, and its gradients, written out.
import {
  add,
  argmax,
  concat,
  download,
  embedding,
  type Flow,
  graph,
  linear,
  logSoftmax,
  map,
  matmul,
  mean,
  mul,
  neg,
  oneHot,
  param,
  reshape,
  scatterAdd,
  slice,
  softmax,
  state,
  sub,
  sum,
  type Tensor,
  tanh,
  tensor,
  transpose,
  upload,
} from 'braid-gpu'
import { batch, context } from './text.js'

const bytes = 256
const width = 16
const hidden = 64

/** The table has a row for each byte. */
export const shapes = {
  table: tensor('f32', [bytes, width]),
  first: tensor('f32', [hidden, context * width]),
  shift: tensor('f32', [hidden]),
  last: tensor('f32', [bytes, hidden]),
}

/** Numbers between -scale and scale, the same in every run. */
const seeded = (seed: number, scale: number) => (memory: Uint8Array) => {
  const into = new Float32Array(memory.buffer, memory.byteOffset, memory.byteLength / 4)
  let word = seed
  for (let i = 0; i < into.length; i++) {
    word = (Math.imul(word, 1664525) + 1013904223) >>> 0
    into[i] = (word / 2 ** 31 - 1) * scale
  }
}

const init = { table: seeded(1, 1), first: seeded(2, 0.1), shift: 0, last: seeded(3, 0.2) }

type Rows<N extends number> = Flow<'device', Tensor<'f32', readonly [number, N]>>
type Weight<N extends keyof typeof shapes> = Flow<'device', (typeof shapes)[N]>

const scores = (x: Rows<number>, first: Weight<'first'>, shift: Weight<'shift'>, last: Weight<'last'>) => {
  const h = x.pipe(linear(first, shift), tanh())
  return { h, logits: h.pipe(linear(last)) }
}

/** One tick is one step of gradient descent. */
export const training = (rate: number) =>
  graph('train', { tokens: tensor('i32', [batch, context]), target: tensor('i32', [batch]) }, inputs => {
    const tokens = inputs.tokens.pipe(upload())
    const truth = inputs.target.pipe(upload(), oneHot({ classes: bytes }))
    const s = state(shapes, init)
    const x = tokens.pipe(embedding(s.table), reshape([batch, context * width]))
    const { h, logits } = scores(x, s.first, s.shift, s.last)
    const loss = logits.pipe(logSoftmax(), mul(truth), sum(1), mean(0), neg())

    // Backward: what the loss changes by, for each value from the last one to the first.
    const byLogits = logits.pipe(softmax(), sub(truth), mul(1 / batch))
    const bySum = byLogits.pipe(
      matmul(s.last),
      map((d, a) => d.mul(a.mul(a).neg().add(1)), h),
    )
    const byX = bySum.pipe(matmul(s.first), reshape([batch, context, width]))
    const gradients = {
      table: byX.pipe(scatterAdd(tokens, { axis: 0, size: bytes })),
      first: bySum.pipe(transpose([1, 0]), matmul(x)),
      shift: bySum.pipe(sum(0)),
      last: byLogits.pipe(transpose([1, 0]), matmul(h)),
    }
    s.next({
      table: s.table.pipe(add(gradients.table.pipe(mul(-rate)))),
      first: s.first.pipe(add(gradients.first.pipe(mul(-rate)))),
      shift: s.shift.pipe(add(gradients.shift.pipe(mul(-rate)))),
      last: s.last.pipe(add(gradients.last.pipe(mul(-rate)))),
    })
    return { loss: loss.pipe(download()) }
  })

/** One tick writes one byte, the likeliest after those before it. */
export const writing = (start: readonly number[]) =>
  graph('write', {}, () => {
    const s = state({ tokens: tensor('i32', [context]) }, { tokens: start })
    const x = s.tokens.pipe(embedding(param('table', shapes.table)), reshape([1, context * width]))
    const { logits } = scores(
      x,
      param('first', shapes.first),
      param('shift', shapes.shift),
      param('last', shapes.last),
    )
    const byte = logits.pipe(argmax({ axis: 1 }), reshape([1]))
    s.next({ tokens: s.tokens.pipe(slice(0, 1), concat([byte], { axis: 0 })) })
    return { byte: byte.pipe(download()) }
  })
