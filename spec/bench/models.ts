// Models and what they are made of on a GPU: fused plans beside the best of four ways of PyTorch's,
// torch.compile among them; the share of the bandwidth that a copy reaches; and the tick that the compiler
// predicts.
import { spawnSync } from 'node:child_process'
import { lastValueFrom, map } from 'rxjs'
import { compile, orThrow, simulate } from '../../dsl/index.js'
import { type Block, Device, open } from '../../runtime/index.js'
import { acrossRows, type Body, bodies, longLines, valuesOf } from './model-bodies.js'
import { middle } from './pipeline-runs.js'
import { reasonOf, scriptOf } from './python.js'
import { bf16ToNumber } from './stream-values.js'

/** Of each end of an output, so many elements are compared; as models.py has it. */
const sampled = 4096
/**
 * Ticks in flight. PyTorch's loops queue as many calls as the driver takes. Ticks of one or few kernels take as
 * long as the way to JavaScript and back, or some times that, so 3 of them would leave gaps on the device, and
 * 8 of 35 µs last for less than a collection of garbage.
 */
const inFlightOf = ({ kind }: Body): number =>
  kind === 'chain' || kind === 'rows' || kind === 'columns' || kind === 'lines' ? 16 : 3
const seconds = 0.1
/** Of the bandwidth that a copy reaches: what rows move at least. */
const rowsShare = 0.8

interface Theirs {
  readonly ways: readonly { readonly way: string; readonly ms?: number; readonly error?: string }[]
  readonly ends: readonly (readonly number[])[]
}

/** Runs all bodies in PyTorch, in a process of its own. */
export const pytorch = (all: readonly Body[]) => {
  const jobs = all.map(({ graph: _, ...job }) => job)
  const args = [scriptOf('models.py'), JSON.stringify({ seconds, jobs })]
  const result = spawnSync('python3', args, { encoding: 'utf8', maxBuffer: 2 ** 30 })
  if (result.status !== 0)
    throw new Error(`models.py failed: ${result.error?.message ?? reasonOf(result.stderr)}`)
  const [first, ...rest] = result.stdout
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as unknown)
  return { ...(first as { torch: string; bandwidth: number }), jobs: rest as readonly Theirs[] }
}

/** The first and the last elements of a block of f32 or bf16. */
const endsOf = async (device: Device, block: Block, { dtype }: Body): Promise<readonly number[][]> => {
  const host = device.pinned(block.bytes)
  device.defaultLane.copy(host, block)
  await device.defaultLane.synchronize()
  const bytes = host.view()
  const values = dtype === 'f32' ? new Float32Array(bytes) : Uint16Array.from(new Uint16Array(bytes))
  const numbers = (part: Float32Array | Uint16Array) =>
    Array.from(part, value => (dtype === 'f32' ? value : bf16ToNumber(value)))
  const ends = [numbers(values.subarray(0, sampled)), numbers(values.subarray(-sampled))]
  host.free()
  return ends
}

/** A body on a device, in the mode that the compiler takes. */
export const ours = async (body: Body, device: Device, least = seconds, inFlight = inFlightOf(body)) => {
  const plan = orThrow(compile(body.graph, { inFlight, fuse: true, mode: 'auto' }))
  const params = Object.fromEntries(
    Object.entries(body.weights).map(([name, weight]) => [name, valuesOf(weight)] as const),
  )
  await using session = orThrow(await open(plan, { device, params: params as never })())
  let ends: readonly number[][] = []
  /**
   * Milliseconds a tick, from the end of the first ticks in flight to the end of the last of so many more:
   * PyTorch's are from the first call's begin to the last one's end, both on the device.
   */
  const drain = async (ticks: number) => {
    let last: Promise<unknown> | undefined
    let began = Number.NaN
    let ended = Number.NaN
    let left = ticks + inFlight
    await lastValueFrom(
      session.run({} as never, { ticks: left }).pipe(
        map(lease => {
          const held = lease as unknown as Disposable & { readonly y: Block }
          if (--left === ticks) began = performance.now()
          if (left > 0) return held[Symbol.dispose]()
          ended = performance.now()
          last = endsOf(device, held.y, body).then(found => {
            ends = found
            held[Symbol.dispose]()
          })
        }),
      ),
    )
    await last
    return (ended - began) / ticks
  }
  await drain(inFlight)
  const ticks = Math.max(10, Math.floor((1000 * least) / (await drain(inFlight * 3))))
  const times: number[] = []
  for (let i = 0; i < 5; i++) times.push(await drain(ticks))
  return {
    ms: middle(times),
    least: Math.min(...times),
    most: Math.max(...times),
    predictedMs: simulate(plan, 'h200').tickMs,
    kernels: plan.commands.filter(([command]) => command === 'run').length,
    mode: (plan.graphs?.length ?? 0) > 0 ? 'graph' : 'eager',
    ends,
  }
}

/** The largest difference of two outputs, relative to the largest value; infinite where one is not finite. */
export const differenceOf = (
  ours: readonly (readonly number[])[],
  theirs: readonly (readonly number[])[],
): number => {
  const [a, b] = [ours.flat(), theirs.flat()]
  const scale = Math.max(...b.map(Math.abs))
  const most = Math.max(...a.map((value, i) => Math.abs(value - b[i]!)))
  return a.length === b.length && Number.isFinite(most / scale) ? most / scale : Number.POSITIVE_INFINITY
}

const rowOf = (body: Body, own: Awaited<ReturnType<typeof ours>>, theirs: Theirs, bandwidth: number) => {
  const best = theirs.ways.filter(({ ms }) => ms !== undefined).sort((a, b) => a.ms! - b.ms!)[0]
  const ratio = own.ms / (best?.ms ?? Number.NaN)
  const difference = differenceOf(own.ends, theirs.ends)
  const share = body.bytes === 0 ? undefined : (body.bytes / own.ms / bandwidth) * 1e3
  const least = body.kind === 'rows' ? rowsShare : 0
  const held = ratio <= body.bar && (share ?? 1) >= least && difference <= body.allowed
  const row = {
    body: body.name,
    dtype: body.dtype,
    kernels: own.kernels,
    mode: own.mode,
    'Braid, ms': own.ms,
    spread: `${own.least.toFixed(3)} to ${own.most.toFixed(3)}`,
    'PyTorch, ms': best?.ms ?? Number.NaN,
    'its best way': best?.way ?? 'failed',
    ratio,
    bar: `≤ ${body.bar}${least === 0 ? '' : `, ≥ ${least} of bandwidth`}: ${held ? 'held' : 'missed'}`,
    'of bandwidth': share ?? '',
    'predicted, of measured': own.predictedMs / own.ms,
    difference,
    allowed: body.allowed,
  }
  return { row, held }
}

export const bench = {
  name: 'models',
  title: 'Fused plans on cuda:0, and the best of PyTorch, torch.compile and CUDA graphs: milliseconds a step',
  run: async (log: (line: string) => void) => {
    const all = [...bodies(), ...longLines(), ...acrossRows()]
    const { torch, bandwidth, jobs } = pytorch(all)
    log(`PyTorch ${torch}; a copy of 512 MiB moves ${(bandwidth / 1e12).toFixed(2)} TB/s, read and written`)
    const results = []
    for (const [i, body] of all.entries()) {
      await using device = orThrow(await Device.open('cuda:0')())
      const result = rowOf(body, await ours(body, device), jobs[i]!, bandwidth)
      log(Object.values(result.row).join(' | '))
      for (const { way, ms, error } of jobs[i]!.ways) log(`    ${way}: ${ms?.toFixed(4) ?? error}`)
      results.push(result)
    }
    return { rows: results.map(({ row }) => row), ok: results.every(({ held }) => held) }
  },
}
