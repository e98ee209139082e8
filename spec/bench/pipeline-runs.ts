// Runs pipelines on a device and by PyTorch, the same number of ticks in flight. In each tick the input is
// copied in from pinned memory and the outputs out to it; no copy is made by the program's own thread. All
// outputs of the last tick are compared.
import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { lastValueFrom, map } from 'rxjs'
import { type CompileOptions, compile, orThrow, simulate } from '../../dsl/index.js'
import { Device, open } from '../../runtime/index.js'
import type { Pipeline } from './pipeline-shapes.js'
import { reasonOf, scriptOf } from './python.js'
import { difference } from './stream-values.js'

/** Ticks in flight, of a Braid plan and of PyTorch's loops. */
export const inFlight = 3

export const middle = (values: readonly number[]): number =>
  [...values].sort((a, b) => a - b)[values.length >> 1] ?? Number.NaN

/** How long to run: three times, each of `steps` ticks, or of as many as `seconds` last, ten at least. */
export interface Lengths {
  readonly warm: number
  readonly steps: number
  readonly seconds: number
}

type Output = Uint16Array | Int32Array

/** Braid's figures of a pipeline. */
export interface Own {
  /** The median of the three times. */
  readonly wallMs: number
  readonly tickMs: number
  readonly tickP90Ms: number
  readonly predictedMs: number
  readonly issueUs: number
  readonly lanes: number
  readonly waits: number
  readonly kernels: number
  readonly graphs: number
  readonly boundMiB: number
  /** What the device's allocator held at the peak, parameters and workspaces included, as PyTorch's does. */
  readonly reservedMiB: number
  readonly outputs: readonly Output[]
}

export const ours = async (
  { graph, values }: Pick<Pipeline, 'graph' | 'values'>,
  { warm, steps, seconds }: Lengths,
  options: CompileOptions = {},
  name = 'cuda:0',
): Promise<Own> => {
  // Both sides have a kernel an operation, unless the options say otherwise, and each call is issued by
  // itself.
  const plan = orThrow(compile(graph, { inFlight, fuse: false, mode: 'eager', ...options }))
  await using device = orThrow(await Device.open(name)())
  await using session = orThrow(await open(plan, { device, params: values() as never })())
  let outputs: readonly Output[] = []
  /**
   * Milliseconds a tick, from the end of the first ticks in flight to the end of the last of so many more; its
   * outputs are copied after that.
   */
  const drain = async (ticks: number) => {
    let left = ticks + inFlight
    let began = Number.NaN
    let ended = Number.NaN
    await lastValueFrom(
      session.run({} as never, { ticks: left }).pipe(
        map(lease => {
          using held = lease as unknown as Disposable & Readonly<Record<string, Output>>
          if (--left === ticks) began = performance.now()
          if (left > 0) return
          ended = performance.now()
          const named = Object.entries(held).sort(([a], [b]) => (a < b ? -1 : 1))
          outputs = named.map(([, value]) => value.slice())
        }),
      ),
    )
    return (ended - began) / ticks
  }
  await drain(warm)
  const ticks = Math.min(steps, Math.max(10, Math.floor((1000 * seconds) / (await drain(inFlight)))))
  const wall: number[] = []
  for (let time = 0; time < 3; time++) wall.push(await drain(ticks))
  const stats = session.stats()
  const count = (kind: string) => plan.commands.filter(([command]) => command === kind).length
  return {
    wallMs: middle(wall),
    // Ticks end in groups where copies of several are done together: then the median is less than the mean,
    // which is what a step takes.
    tickMs: stats.tickMs.median,
    tickP90Ms: stats.tickMs.p90,
    predictedMs: simulate(plan, 'h200').tickMs,
    issueUs: stats.issueUs.median,
    lanes: plan.lanes.length,
    waits: count('wait'),
    kernels: count('run'),
    graphs: plan.graphs?.length ?? 0,
    boundMiB: plan.bound.device[0]! / 2 ** 20,
    reservedMiB: device.stats()['reserved_bytes.all.peak']! / 2 ** 20,
    outputs,
  }
}

interface Way {
  readonly way: string
  readonly ms?: number
  readonly reservedMiB?: number
  /** Whether its outputs are those of the first way, bit for bit. */
  readonly equal?: boolean
  readonly error?: string
}

/** One turn of PyTorch: the ways of each pipeline, and the bytes of its outputs. */
export interface Theirs {
  readonly torch: string
  readonly ways: readonly (readonly Way[])[]
  readonly outputs: readonly Uint8Array<ArrayBuffer>[]
}

/**
 * Runs the pipelines, whose values lie in a folder each, in a process of its own: all ways, or those said.
 */
const pytorch = (
  pipelines: readonly Pipeline[],
  folders: readonly string[],
  lengths: Lengths,
  ways?: readonly (readonly string[])[],
): Theirs => {
  const jobs = pipelines.map(({ name, shape }, i) => ({
    pipeline: name,
    shape,
    folder: folders[i],
    ways: ways?.[i],
  }))
  const args = [scriptOf('pipelines.py'), JSON.stringify({ ...lengths, inFlight, jobs })]
  const result = spawnSync('python3', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] })
  if (result.status !== 0)
    throw new Error(`python3 ${args.join(' ')} failed: ${result.error?.message ?? reasonOf(result.stderr)}`)
  const { torch, jobs: done } = JSON.parse(result.stdout) as {
    torch: string
    jobs: readonly { ways: readonly Way[] }[]
  }
  const outputs = folders.map(folder => new Uint8Array(readFileSync(join(folder, 'outputs'))))
  return { torch, ways: done.map(({ ways }) => ways), outputs }
}

/** The two fastest, by name. */
const fastest = (ways: readonly Way[]): readonly string[] =>
  [...ways]
    .sort((a, b) => (a.ms ?? Number.POSITIVE_INFINITY) - (b.ms ?? Number.POSITIVE_INFINITY))
    .slice(0, 2)
    .map(({ way }) => way)

/**
 * Gives `use` what runs PyTorch once through all of the pipelines: first each of the eight ways, then the two
 * of each pipeline that were fastest. The pipelines' values are written once.
 */
export const withPytorch = async <A>(
  pipelines: readonly Pipeline[],
  lengths: Lengths,
  use: (turn: () => Theirs) => Promise<A>,
): Promise<A> => {
  const top = mkdtempSync(join(tmpdir(), 'braid-bench-'))
  try {
    const folders = pipelines.map(({ name, values }) => {
      const folder = join(top, name)
      mkdirSync(folder)
      for (const [value, array] of Object.entries(values()))
        writeFileSync(join(folder, value.replace(/\W/g, '_')), new Uint8Array(array.buffer))
      return folder
    })
    let wanted: readonly (readonly string[])[] | undefined
    return await use(() => {
      const all = pytorch(pipelines, folders, lengths, wanted)
      wanted ??= all.ways.map(fastest)
      return all
    })
  } finally {
    rmSync(top, { recursive: true, force: true })
  }
}

/** A way of PyTorch's, over the turns. */
export interface Timed {
  readonly way: string
  readonly ms: number
  readonly least: number
  readonly most: number
  readonly reservedMiB: number
}

/** By way, the median of its turns; a way that failed in one is left out, and reported. */
export const waysOf = (turns: readonly (readonly Way[])[], log: (line: string) => void): readonly Timed[] =>
  turns[0]!.flatMap(({ way }) => {
    const each = turns.flatMap(ways => ways.filter(other => other.way === way))
    const wrong = each.find(({ error, equal }) => error !== undefined || equal !== true)
    if (wrong !== undefined)
      log(`  PyTorch, ${way}: ${wrong.error ?? 'its outputs differ from those of the first way'}`)
    const times = each.map(({ ms }) => ms!)
    const [least, most] = [Math.min(...times), Math.max(...times)]
    return wrong === undefined
      ? [{ way, ms: middle(times), least, most, reservedMiB: each[0]!.reservedMiB! }]
      : []
  })

export const logWays = (ways: readonly Timed[], log: (line: string) => void): void => {
  for (const { way, ms, reservedMiB } of ways)
    log(`    PyTorch, ${way.padEnd(46)} ${ms.toFixed(3)} ms, ${reservedMiB.toFixed(0)} MiB reserved`)
}

/** The outputs of both sides, one after the other: how many elements differ in bits, and by how much. */
export const compared = (ours: readonly Output[], theirs: Uint8Array<ArrayBuffer>) => {
  let unequal = 0
  let gap = 0
  let from = 0
  for (const own of ours) {
    const bytes = theirs.slice(from, from + own.byteLength)
    from += own.byteLength
    const other = own instanceof Int32Array ? new Int32Array(bytes.buffer) : new Uint16Array(bytes.buffer)
    let wrong = 0
    for (let i = 0; i < own.length; i++) if (own[i] !== other[i]) wrong++
    unequal += wrong
    if (own instanceof Uint16Array) gap = Math.max(gap, difference(own, other as Uint16Array))
    else if (wrong > 0) gap = Number.POSITIVE_INFINITY
  }
  return { unequal, difference: from === theirs.length ? gap : Number.POSITIVE_INFINITY }
}

/** The relative difference that is allowed between the outputs of both sides. */
export const allowedOf = ({ roundings }: Pipeline): number => roundings * 2 ** -8
