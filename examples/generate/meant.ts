// Whether the first ticks of a run are what the graph means: `interpret`, and what rounding allows on a
// device.
import { distance, type Graph, type InputsOf, meaning, type OutputsOf } from 'braid-gpu'
import type { ParamSource } from 'braid-gpu/runtime'
import { lastValueFrom, toArray } from 'rxjs'
import { type Model, tensorsOf } from './checkpoint.js'
import type { decoder } from './network.js'

type Decoder = ReturnType<typeof decoder>

/** What a tick yields: the byte that was chosen after the one it has read, and the scores of all. */
export interface Written {
  readonly byte: number
  readonly logits: Float32Array
}

export interface Compared {
  readonly ticks: number
  /**
   * The largest difference of a score, relative to the largest score of its tick, and what is allowed there.
   */
  readonly apart: number
  readonly allowed: number
  /** Whether all scores are as near as rounding allows, and all bytes the same. */
  readonly holds: boolean
}

/**
 * The most weights that a few ticks are interpreted of: for each tick every one is used three times, in
 * JavaScript.
 */
const mostWeights = 2 ** 20

/** Whether `interpret` is quick enough for a model. */
export const isInterpreted = (model: Model): boolean => {
  const sizes = Object.values(tensorsOf(model)).map(shape => shape.reduce((product, size) => product * size))
  return sizes.reduce((sum, size) => sum + size) <= mostWeights
}

/**
 * Compares the first ticks with their meaning. Each tick is told the byte that the run has read, so a byte
 * that rounding chooses otherwise counts once.
 */
export const compareWithMeaning = async (
  net: Graph<InputsOf<Decoder>, OutputsOf<Decoder>>,
  params: Readonly<Record<string, ParamSource>>,
  text: Int32Array,
  found: readonly Written[],
): Promise<Compared> => {
  const forced = [...text].map(byte => Int32Array.of(byte))
  const meant = await lastValueFrom(meaning(net, { params })({ forced }).pipe(toArray()))
  let worst = { share: -1, apart: 0, allowed: 0 }
  let holds = meant.length === text.length
  for (const [tick, { values, allowed }] of meant.entries()) {
    const { byte, logits } = found[tick]!
    const scores = distance(logits, values['logits']!, allowed['logits']!)
    const chosen = distance(Int32Array.of(byte), values['byte']!, allowed['byte']!)
    holds &&= scores.wrong === undefined && chosen.wrong === undefined
    const [apart, most] = [scores.difference / scores.scale, allowed['logits']! / scores.scale]
    if (apart / most > worst.share) worst = { share: apart / most, apart, allowed: most }
  }
  return { ticks: text.length, apart: worst.apart, allowed: worst.allowed, holds }
}
