import { lastValueFrom, toArray } from 'rxjs'
import { distance, type HostArray, meaning, type Program } from '../../dsl/index.js'
import { numbers } from '../../dsl/internal.js'
import type { Plan } from '../../dsl/ir/plan.js'

export interface CheckResult {
  /** Output values compared: ticks times outputs. */
  readonly outputs: number
  /**
   * The largest difference of an element from what `interpret` yields, relative to the largest magnitude of
   * its tensor; 0 only where all are equal.
   */
  readonly maxRelativeError: number
  /** What rounding allows there, relative to the same; of the output that comes closest to it. */
  readonly tolerance: number
  readonly ok: boolean
  /** The output that is furthest beyond what is allowed, where the check fails. */
  readonly worst?: { readonly output: string; readonly tick: number; readonly relativeError: number }
}

export type Values = Readonly<Record<string, HostArray>>

/** By input, the values that were fed, in order: with as many values a tick as the input's rate. */
export type Fed = ReadonlyMap<string, readonly HostArray[]>

/** Compares the outputs of a run with those of `interpret` on the captured inputs, tick by tick. */
export const check = async (
  program: Program,
  plan: Plan,
  fed: Fed,
  got: readonly Values[],
): Promise<CheckResult> => {
  const inputs = plan.buffers.filter(({ life, alias }) => life === 'input' && alias === undefined)
  const feeds = Object.fromEntries(
    inputs.map(({ name, rate = 1 }) => [name, (fed.get(name) ?? []).slice(0, got.length * rate)]),
  )
  const { dims } = program.options ?? {}
  const options = {
    ticks: got.length,
    ...(program.params ? { params: program.params } : {}),
    ...(dims ? { dims } : {}),
  }
  const meant = await lastValueFrom(meaning(program.graph, options)(feeds as never).pipe(toArray()))
  const types = new Map(
    plan.buffers.filter(({ life }) => life === 'output').map(({ name, dtype }) => [name, dtype ?? 'u8']),
  )
  const compared = got.flatMap((values, tick) =>
    Object.entries(values).map(([output, value]) => {
      const row = meant[tick]
      const wanted = row?.values[output]
      if (row === undefined || wanted === undefined) return missing(output, tick)
      const dtype = types.get(output) ?? 'u8'
      const allowed = row.allowed[output] ?? 0
      const { difference, scale, wrong } = distance(numbers(value, dtype), numbers(wanted, dtype), allowed)
      const relativeError = relative(difference, scale)
      const tolerance = relative(allowed, scale)
      const share = difference === 0 ? 0 : relative(difference, allowed)
      return { output, tick, relativeError, tolerance, share, ok: wrong === undefined }
    }),
  )
  const none = { output: '', tick: 0, relativeError: 0, tolerance: 0, share: 0, ok: true }
  const { output, tick, relativeError, tolerance } = compared.reduce(
    (worst, one) => (one.share > worst.share ? one : worst),
    compared[0] ?? none,
  )
  const ok = meant.length === got.length && compared.every(one => one.ok)
  const maxRelativeError = Math.max(0, ...compared.map(one => one.relativeError))
  const result = { outputs: compared.length, maxRelativeError, tolerance, ok }
  return ok ? result : { ...result, worst: { output, tick, relativeError } }
}

const missing = (output: string, tick: number) => ({
  output,
  tick,
  relativeError: Number.POSITIVE_INFINITY,
  tolerance: 0,
  share: Number.POSITIVE_INFINITY,
  ok: false,
})

const relative = (of: number, scale: number): number =>
  of === 0 ? 0 : of / Math.max(scale, Number.MIN_VALUE)
