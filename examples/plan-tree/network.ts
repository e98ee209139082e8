// The plans of a decoder for one shape of batch: a prompt, a step, and a step that thinks wider. All shapes
// share the parameters, by name.
import {
  add,
  compile,
  download,
  graph,
  lane,
  matmul,
  mul,
  orThrow,
  param,
  relu,
  tensor,
  upload,
} from 'braid-gpu'

export const width = 64
export const wide = 512
export const words = 16

const copy = lane('copy')
const math = lane('math')

export const plansFor = (batch: number) => {
  const state = tensor('f32', [batch, width])
  const w = () => param('w', tensor('f32', [width, width]))
  const v = () => param('v', tensor('f32', [width, words]))
  const compiled = { storage: 'planned' } as const
  const prompt = graph(`prompt of ${batch}`, { tokens: state }, ({ tokens }) => {
    const first = tokens.pipe(upload(copy), matmul(w()), relu())
    return { state: first.pipe(download(copy)), logits: first.pipe(matmul(v()), download(copy)) }
  })
  const step = graph(`step of ${batch}`, { state, token: state }, inputs => {
    const token = inputs.token.pipe(upload(copy))
    const next = inputs.state.pipe(upload(math), add(token), matmul(w()), relu())
    return { state: next.pipe(download(copy)), logits: next.pipe(matmul(v()), download(copy)) }
  })
  const think = graph(`think of ${batch}`, { state, token: state }, inputs => {
    const token = inputs.token.pipe(upload(copy))
    const given = inputs.state.pipe(upload(math), add(token))
    const hidden = given.pipe(matmul(param('up', tensor('f32', [width, wide]))), relu())
    const down = hidden.pipe(matmul(param('down', tensor('f32', [wide, width]))), mul(0.5))
    const next = down.pipe(add(given), relu())
    return { state: next.pipe(download(copy)), logits: next.pipe(matmul(v()), download(copy)) }
  })
  return {
    prompt: orThrow(compile(prompt, compiled)),
    step: orThrow(compile(step, compiled)),
    think: orThrow(compile(think, compiled)),
  }
}

/** Numbers that follow from a seed, small enough for sums of many of their products to stay small. */
export const values = (length: number, seed: number, scale: number): Float32Array => {
  let state = seed
  return Float32Array.from({ length }, () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0
    return ((state >>> 8) / 2 ** 24 - 0.4) * scale
  })
}

export const params = {
  w: values(width * width, 1, 0.3),
  v: values(width * words, 2, 0.3),
  up: values(width * wide, 3, 0.2),
  down: values(wide * width, 4, 0.1),
}

export const embedding = (batch: number, word: number): Float32Array => values(batch * width, 100 + word, 1)

// ---- the same by plain loops ------------------------------------------------------------------------------

const product = (a: Float32Array, b: Float32Array, rows: number, inner: number): Float32Array => {
  const columns = b.length / inner
  const out = new Float32Array(rows * columns)
  for (let i = 0; i < rows; i++)
    for (let j = 0; j < columns; j++) {
      let sum = 0
      for (let k = 0; k < inner; k++) sum += a[i * inner + k]! * b[k * columns + j]!
      out[i * columns + j] = sum
    }
  return out
}
const positive = (a: Float32Array): Float32Array => a.map(value => Math.max(0, value))
const sum = (a: Float32Array, b: Float32Array): Float32Array => a.map((value, i) => value + b[i]!)

export type Kind = 'prompt' | 'step' | 'think'

/** The state after a launch, and its logits. */
export const expected = (kind: Kind, batch: number, token: Float32Array, state?: Float32Array) => {
  const given = state === undefined ? token : sum(state, token)
  const next =
    kind === 'think'
      ? positive(
          sum(
            product(positive(product(given, params.up, batch, width)), params.down, batch, wide).map(
              value => value * 0.5,
            ),
            given,
          ),
        )
      : positive(product(given, params.w, batch, width))
  return { state: next, logits: product(next, params.v, batch, width) }
}
