// Traces of allocators, made up: the shapes of memory that programs have, for the allocator's replay.
import { xorshift } from './families.js'

/** [op, id, bytes, stream]: 0 allocates, 1 asks for a free, 2 is its completion. */
export type TraceRow = readonly [op: 0 | 1 | 2, id: number, bytes: number, stream: number]

export interface MadeTrace {
  readonly name: string
  readonly streams: number
  readonly ops: readonly TraceRow[]
}

const MiB = 2 ** 20

/** Writes a trace down; frees on the block's own stream complete at once, unless they are deferred. */
export class Recorder {
  readonly ops: TraceRow[] = []
  readonly #stream = new Map<number, number>()
  #next = 0

  allocate(bytes: number, stream = 0): number {
    const id = this.#next++
    this.#stream.set(id, stream)
    this.ops.push([0, id, Math.max(1, Math.round(bytes)), stream])
    return id
  }
  request(id: number): void {
    this.ops.push([1, id, 0, this.#stream.get(id)!])
  }
  complete(id: number): void {
    this.ops.push([2, id, 0, this.#stream.get(id)!])
    this.#stream.delete(id)
  }
  free(id: number): void {
    this.request(id)
    this.complete(id)
  }
}

type Make = (seed: number) => MadeTrace

const made = (
  name: string,
  streams: number,
  seed: number,
  write: (to: Recorder, random: () => number) => void,
): MadeTrace => {
  const to = new Recorder()
  write(to, xorshift(seed))
  return { name, streams, ops: to.ops }
}

/** Training of a transformer: weights and moments that stay, activations that a backward pass frees, last in first out; sequences of any length. */
export const training: Make = seed =>
  made(`training-${seed}`, 1, seed, (to, random) => {
    const layers = 8
    const hidden = 768
    const batch = 8
    const sizes = [3 * hidden * hidden, hidden * hidden, 4 * hidden * hidden, 4 * hidden * hidden, hidden, hidden].map(
      n => 4 * n,
    )
    const weights = Array.from({ length: layers }, () => sizes.map(size => to.allocate(size)))
    let moments: number[] = []
    for (let step = 0; step < 14; step++) {
      const length = 64 * (2 + Math.floor(random() * 15))
      const tokens = batch * length
      const kept: number[][] = []
      for (let layer = 0; layer < layers; layer++) {
        const scores = to.allocate(4 * batch * 12 * length * length)
        const keep = [tokens * hidden * 4, tokens * 3 * hidden * 4, tokens * 4 * hidden * 4, tokens * 8].map(size =>
          to.allocate(size),
        )
        keep.push(to.allocate(4 * batch * 12 * length * length))
        to.free(scores)
        kept.push(keep)
      }
      const logits = to.allocate(tokens * 8192 * 4)
      const loss = to.allocate(4)
      to.free(logits)
      const gradients: number[] = []
      for (let layer = layers - 1; layer >= 0; layer--) {
        const flowing = to.allocate(tokens * hidden * 4)
        for (const [i, id] of kept[layer]!.reverse().entries()) {
          const scratch = to.allocate(tokens * hidden * (1 + (i % 4)) * 4)
          to.free(id)
          to.free(scratch)
        }
        for (const size of sizes) gradients.push(to.allocate(size))
        to.free(flowing)
      }
      if (step === 0) moments = weights.flatMap(() => sizes.flatMap(size => [to.allocate(size), to.allocate(size)]))
      for (const id of gradients) to.free(id)
      to.free(loss)
    }
    for (const id of [...weights.flat(), ...moments]) to.free(id)
  })

/** Serving: caches of keys and values that grow, each a new block half as long again, and requests that come and go. */
export const serving: Make = seed =>
  made(`serving-${seed}`, 1, seed, (to, random) => {
    const weights = Array.from({ length: 24 }, () => to.allocate(24 * MiB))
    const requests: { caches: number[]; room: number; length: number; last: number }[] = []
    const token = 2 * 2 * 1024
    for (let step = 0; step < 1500; step++) {
      if (requests.length < 24 && random() < 0.08) {
        const length = 32 + Math.floor(random() * 900)
        requests.push({
          caches: Array.from({ length: 8 }, () => to.allocate(length * token)),
          room: length,
          length,
          last: length + 50 + Math.floor(random() * 700),
        })
        const prompt = to.allocate(length * 4096 * 4)
        to.free(prompt)
      }
      for (const request of requests) {
        if (++request.length <= request.room) continue
        request.room = Math.ceil(request.room * 1.5)
        request.caches = request.caches.map(old => {
          const grown = to.allocate(request.room * token)
          to.free(old)
          return grown
        })
      }
      const activations = [1, 4, 1].map(wide => to.allocate(Math.max(1, requests.length) * 4096 * wide * 2))
      for (const id of activations) to.free(id)
      for (let i = requests.length - 1; i >= 0; i--) {
        const request = requests[i]!
        if (request.length < request.last) continue
        for (const id of request.caches) to.free(id)
        requests.splice(i, 1)
      }
    }
    for (const { caches } of requests) for (const id of caches) to.free(id)
    for (const id of weights) to.free(id)
  })

/** Pictures of any size through a net of convolutions, with workspaces as large as the algorithm likes. */
export const pictures: Make = seed =>
  made(`pictures-${seed}`, 1, seed, (to, random) => {
    const weights = Array.from({ length: 40 }, (_, i) => to.allocate(4 * 9 * 64 * 64 * (1 + (i % 8))))
    for (let step = 0; step < 60; step++) {
      const side = 320 + 32 * Math.floor(random() * 24)
      const other = 320 + 32 * Math.floor(random() * 24)
      const kept: number[] = []
      let pixels = side * other
      for (let layer = 0; layer < 16; layer++) {
        const channels = 64 * 2 ** Math.min(3, Math.floor(layer / 4))
        if (layer > 0 && layer % 4 === 0) pixels /= 4
        const workspace = to.allocate(MiB * (1 + random() * 60))
        kept.push(to.allocate(4 * pixels * channels))
        to.free(workspace)
        kept.push(to.allocate(4 * channels * 2))
      }
      for (const id of kept.reverse()) {
        const gradient = to.allocate(MiB * (1 + random() * 20))
        to.free(id)
        to.free(gradient)
      }
    }
    for (const id of weights) to.free(id)
  })

/** Weights streamed on a stream of their own, ahead of the layers that read them: a free is complete when its layer is done. */
export const streaming: Make = seed =>
  made(`streaming-${seed}`, 2, seed, (to, random) => {
    const sizes = Array.from(
      { length: 12 },
      () => MiB * (8 + Math.floor(random() * 24)) + 512 * Math.floor(random() * 64),
    )
    const held = to.allocate(16 * MiB)
    for (let step = 0; step < 20; step++) {
      const ahead: number[] = []
      let input = to.allocate(16 * MiB)
      for (const [layer, size] of sizes.entries()) {
        const weight = to.allocate(size, 1)
        const output = to.allocate(16 * MiB - layer * 65536)
        to.free(input)
        input = output
        to.request(weight)
        ahead.push(weight)
        if (ahead.length > 2) to.complete(ahead.shift()!)
      }
      for (const id of ahead) to.complete(id)
      to.free(input)
    }
    to.free(held)
  })

/** Blocks of any size on many streams, freed in any order, some while others still use them. Harsher than programs are. */
export const mixture: Make = seed =>
  made(`mixture-${seed}`, 8, seed, (to, random) => {
    const live: number[] = []
    const bytes = new Map<number, number>()
    const pending: [due: number, id: number][] = []
    let held = 0
    for (let turn = 0; turn < 6000; turn++) {
      while (pending.length > 0 && pending[0]![0] <= turn) to.complete(pending.shift()![1])
      if (live.length > 0 && (held > 1024 * MiB || random() < 0.48)) {
        const [id] = live.splice(Math.floor(random() * live.length), 1) as [number]
        held -= bytes.get(id)!
        if (random() < 0.3) {
          to.request(id)
          pending.push([turn + 20, id])
        } else to.free(id)
      } else {
        const size = Math.floor(2 ** (9 + random() * 16))
        const id = to.allocate(size, Math.floor(random() * 8))
        bytes.set(id, size)
        live.push(id)
        held += size
      }
    }
    for (const [, id] of pending) to.complete(id)
    for (const id of live) to.free(id)
  })

/** Sizes in MiB. */
export interface PipelineShape {
  readonly layers: number
  /** The first layer's weights, and by how much those of each next layer are smaller. */
  readonly top: number
  readonly step: number
  readonly activation: number
  /** How many layers' weights are still being read when the next ones come. */
  readonly ahead: number
  readonly turns: number
}

/** A pipeline that goes round and round: weights come on a stream of their own, what a layer keeps is half as long as they are. */
export const pipelineOf = (name: string, shape: PipelineShape): MadeTrace => {
  const to = new Recorder()
  const { layers, top, step, activation, ahead, turns } = shape
  to.allocate(activation * MiB)
  const reading: number[] = []
  let input = to.allocate(activation * MiB)
  for (let turn = 0; turn < turns; turn++)
    for (let layer = 0; layer < layers; layer++) {
      const size = Math.max(1, top - layer * step) * MiB
      const weight = to.allocate(size, 1)
      while (reading.length >= ahead) to.complete(reading.shift()!)
      const kept = to.allocate(size / 2)
      to.request(weight)
      const output = to.allocate(activation * MiB)
      to.free(input)
      to.free(kept)
      reading.push(weight)
      input = output
    }
  for (const id of reading) to.complete(id)
  return { name, streams: 2, ops: to.ops }
}

export const pipeline: Make = seed => {
  const random = xorshift(seed)
  const upTo = (n: number) => Math.floor(random() * n)
  return pipelineOf(`pipeline-${seed}`, {
    layers: 3 + upTo(6),
    top: 8 + upTo(80),
    step: [0.5, 1, 2, 3][upTo(4)]!,
    activation: 4 + upTo(28),
    ahead: 1 + upTo(2),
    turns: 60,
  })
}

/** What programs do: the bar holds for each. `mixture` is beside them. */
export const programs: readonly Make[] = [training, serving, pictures, streaming, pipeline]
