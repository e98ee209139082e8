// GPT-2 over bytes, written once for any number of tokens. `decoder` takes one token a tick, with a key-value
// cache in the plan's state; `forward` takes a whole text at once, and keeps nothing.
import {
  add,
  append,
  argmax,
  attention,
  cast,
  type DeviceFlow,
  download,
  embedding,
  type Flow,
  gelu,
  graph,
  greaterOrEqual,
  layerNorm,
  linear,
  map,
  matmul,
  mul,
  param,
  reshape,
  slice,
  split,
  state,
  type Tensor,
  tensor,
  transpose,
  uniform,
  upload,
  where,
} from 'braid-gpu'
import { type Model, vocabulary } from './checkpoint.js'

/** The type of activations, which is that of the checkpoint; TypeScript is told one of the three. */
type Rows = Flow<'device', Tensor<'f32', readonly [number, number]>>
type Heads = Flow<'device', Tensor<'f32', readonly [number, number, number]>>
type Attend = (layer: number, q: Heads, k: Heads, v: Heads) => Heads

/** The parts of the network that both graphs share. */
const partsOf = ({ dtype: own, width, heads, context }: Model) => {
  const dtype = own as 'f32'
  const size = width / heads
  const vector = (name: string, length = width) => param(name, tensor(dtype, [length]))
  const norm = (x: Rows, name: string): Rows =>
    x.pipe(layerNorm({ scale: vector(`${name}.weight`), shift: vector(`${name}.bias`) }))
  const product = (x: Rows, name: string, from: number, to: number): Rows =>
    x.pipe(matmul(param(`${name}.weight`, tensor(dtype, [from, to]))), add(vector(`${name}.bias`, to)))
  /** [tokens, width] as [heads, tokens, size], and back. */
  const apart = (x: Rows, tokens: number): Heads =>
    x.pipe(reshape([tokens, heads, size]), transpose([1, 0, 2]))
  const together = (x: Heads, tokens: number): Rows => x.pipe(transpose([1, 0, 2]), reshape([tokens, width]))

  const block = (x: Rows, layer: number, tokens: number, attend: Attend): Rows => {
    const h = `h.${layer}`
    const qkv = product(norm(x, `${h}.ln_1`), `${h}.attn.c_attn`, width, 3 * width)
    const [q, k, v] = qkv.pipe(split({ axis: 1, parts: 3 }))
    const seen = attend(layer, apart(q, tokens), apart(k, tokens), apart(v, tokens))
    const mixed = x.pipe(add(product(together(seen, tokens), `${h}.attn.c_proj`, width, width)))
    const wide = product(norm(mixed, `${h}.ln_2`), `${h}.mlp.c_fc`, width, 4 * width)
    return mixed.pipe(
      add(product(wide.pipe(gelu({ approximate: 'tanh' })), `${h}.mlp.c_proj`, 4 * width, width)),
    )
  }
  const table = param('wte.weight', tensor(dtype, [vocabulary, width]))
  const places = param('wpe.weight', tensor(dtype, [context, width]))
  const logits = (x: Rows): Rows => norm(x, 'ln_f').pipe(linear(table), cast('f32'))
  return { dtype, size, block, table, places, logits }
}

/** How the next byte is chosen: the likeliest at temperature 0, else at random. */
export interface Choice {
  readonly temperature: number
  readonly seed: number
}

/**
 * One token a tick. The input is the byte that is forced, as of a prompt, or -1 for the one that was chosen
 * the tick before: the choice stays on the device, so the host waits for nothing between two tokens.
 */
export const decoder = (model: Model, { temperature, seed }: Choice) =>
  graph('generate', { forced: tensor('i32', [1]) }, inputs => {
    const { dtype, size, block, table, places, logits } = partsOf(model)
    const { layers, heads, context } = model
    const cache = tensor(dtype, [heads, context, size])
    const s = state({ length: tensor('i32', []), chosen: tensor('i32', [1]) })
    const caches = Array.from({ length: layers }, (_, i) => [`h.${i}.keys`, `h.${i}.values`]).flat()
    const kv = state(Object.fromEntries(caches.map(name => [name, cache])) as Record<string, typeof cache>)
    const grown: Record<string, DeviceFlow<typeof cache>> = {}

    const forced = inputs.forced.pipe(upload())
    const token = forced.pipe(greaterOrEqual(0), where(forced, s.chosen))
    const position = s.length.pipe(reshape([1]))
    // The keys that the caches have, with this token's.
    const length = s.length.pipe(add(1))
    const attend: Attend = (layer, q, k, v) => {
      const [keys, values] = ([`h.${layer}.keys`, `h.${layer}.values`] as const).map((name, i) => {
        const rows = i === 0 ? k : v
        return (grown[name] = kv[name]!.pipe(append(rows, { axis: 1, at: s.length })))
      }) as [Heads, Heads]
      return q.pipe(attention(keys, values, { length }))
    }
    let x: Rows = token.pipe(embedding(table), add(position.pipe(embedding(places))))
    for (let layer = 0; layer < layers; layer++) x = block(x, layer, 1, attend)
    const scores = logits(x)
    // Gumbel's way to draw: the largest of the scores, each with noise of its own.
    const noisy = scores.pipe(
      mul(1 / (temperature || 1)),
      add(
        scores.pipe(
          uniform({ seed }),
          map(u => u.log().neg().log().neg()),
        ),
      ),
    )
    const chosen = (temperature === 0 ? scores : noisy).pipe(argmax({ axis: 1 }))
    s.next({ length, chosen: chosen.pipe(reshape([1])) })
    kv.next(grown)
    return { byte: chosen.pipe(download()), logits: scores.pipe(download()) }
  })

/** The logits of every token of a text, each from those up to it: without a cache, to compare with. */
export const forward = (model: Model, tokens: number) =>
  graph('forward', { text: tensor('i32', [tokens]) }, ({ text }) => {
    const { block, table, places, logits } = partsOf(model)
    const attend: Attend = (_, q, k, v) => q.pipe(attention(k, v, { causal: true }))
    let x: Rows = text.pipe(upload(), embedding(table), add(places.pipe(slice(0, 0, tokens))))
    for (let layer = 0; layer < model.layers; layer++) x = block(x, layer, tokens, attend)
    return { logits: logits(x).pipe(download()) }
  })
