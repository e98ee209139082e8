// A model of two layers over the rows of a table, trained by gradient descent.
import {
  argmax,
  concat,
  download,
  embedding,
  type Flow,
  gradients,
  graph,
  linear,
  logSoftmax,
  mean,
  mul,
  neg,
  oneHot,
  param,
  reshape,
  slice,
  state,
  sub,
  sum,
  type Tensor,
  tanh,
  tensor,
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

const scores = (x: Rows<number>, first: Weight<'first'>, shift: Weight<'shift'>, last: Weight<'last'>) =>
  x.pipe(linear(first, shift), tanh(), linear(last))

/** One tick is one step of gradient descent. */
export const training = (rate: number) =>
  graph('train', { tokens: tensor('i32', [batch, context]), target: tensor('i32', [batch]) }, inputs => {
    const tokens = inputs.tokens.pipe(upload())
    const truth = inputs.target.pipe(upload(), oneHot({ classes: bytes }))
    const s = state(shapes, init)
    const x = tokens.pipe(embedding(s.table), reshape([batch, context * width]))
    const loss = scores(x, s.first, s.shift, s.last).pipe(logSoftmax(), mul(truth), sum(1), mean(0), neg())

    const by = gradients(loss, { table: s.table, first: s.first, shift: s.shift, last: s.last })
    s.next({
      table: s.table.pipe(sub(by.table.pipe(mul(rate)))),
      first: s.first.pipe(sub(by.first.pipe(mul(rate)))),
      shift: s.shift.pipe(sub(by.shift.pipe(mul(rate)))),
      last: s.last.pipe(sub(by.last.pipe(mul(rate)))),
    })
    return { loss: loss.pipe(download()) }
  })

/** One tick writes one byte, the likeliest after those before it. */
export const writing = (start: readonly number[]) =>
  graph('write', {}, () => {
    const s = state({ tokens: tensor('i32', [context]) }, { tokens: start })
    const x = s.tokens.pipe(embedding(param('table', shapes.table)), reshape([1, context * width]))
    const logits = scores(
      x,
      param('first', shapes.first),
      param('shift', shapes.shift),
      param('last', shapes.last),
    )
    const byte = logits.pipe(argmax({ axis: 1 }), reshape([1]))
    s.next({ tokens: s.tokens.pipe(slice(0, 1), concat([byte], { axis: 0 })) })
    return { byte: byte.pipe(download()) }
  })
