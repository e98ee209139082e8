import { lastValueFrom, toArray } from 'rxjs'
import { type HostArray, interpret, type Program } from '../../dsl/index.js'
import { numbers } from '../../dsl/internal.js'
import type { Plan } from '../../dsl/ir/plan.js'
import type { DType } from '../../dsl/ir/tensor.js'

export interface CheckResult {
  /** Output values compared: ticks times outputs. */
  readonly outputs: number
  readonly maxRelativeError: number
  readonly tolerance: number
  readonly ok: boolean
  /** The output with the largest error, where the check fails. */
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
  const meant = await lastValueFrom(interpret(program.graph, options)(feeds as never).pipe(toArray()))
  const types = new Map(
    plan.buffers.filter(({ life }) => life === 'output').map(({ name, dtype }) => [name, dtype ?? 'u8']),
  )
  const tolerance = plan.tolerance ?? 0
  let worst = { output: '', tick: -1, relativeError: 0 }
  let outputs = 0
  got.forEach((values, tick) => {
    for (const [output, value] of Object.entries(values)) {
      outputs++
      const wanted = (meant[tick] as Values | undefined)?.[output]
      const error = wanted
        ? relativeError(value, wanted, types.get(output) ?? 'u8')
        : Number.POSITIVE_INFINITY
      if (error > worst.relativeError || worst.tick < 0) worst = { output, tick, relativeError: error }
    }
  })
  const ok = meant.length === got.length && worst.relativeError <= tolerance
  return { outputs, maxRelativeError: worst.relativeError, tolerance, ok, ...(ok ? {} : { worst }) }
}

/**
 * The largest difference of two values, relative to the largest magnitude of the second; 0 only where they
 * are equal bit for bit.
 */
export const relativeError = (got: HostArray, wanted: HostArray, dtype: DType): number => {
  if (got.length !== wanted.length) return Number.POSITIVE_INFINITY
  const found = numbers(got, dtype)
  const meant = numbers(wanted, dtype)
  let difference = 0
  let scale = 0
  for (let i = 0; i < meant.length; i++) {
    const a = found[i]!
    const b = meant[i]!
    if (Number.isFinite(b)) scale = Math.max(scale, Math.abs(b))
    if (a === b || (Number.isNaN(a) && Number.isNaN(b))) continue
    difference = Math.max(
      difference,
      Number.isFinite(a) && Number.isFinite(b) ? Math.abs(a - b) : Number.POSITIVE_INFINITY,
    )
  }
  return difference === 0 ? 0 : difference / Math.max(scale, Number.MIN_VALUE)
}
