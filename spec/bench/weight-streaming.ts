// Weight streaming on a GPU beside PyTorch's hand-written stash, in the same run and on the same values: 32
// layers of relu(x · w), w 8192 × 8192 bf16 (128 MiB) from pinned memory, x 6,144 × 8192 resident, a slice of
// the last y downloaded each tick on its own lane. Both have as many ticks in flight. Weights have variance
// 2^-10 / 3, so the mean square grows by 4/3 a layer: outputs stay finite, far inside bf16.
//
// Memory is counted alike: `peakReservedMiB` is what the allocator holds, with the libraries' workspaces and
// without the context, its modules and the libraries' handles; `deviceMiB` is all that the process has taken,
// by nvidia-smi.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { lastValueFrom, map } from 'rxjs'
import { compile } from '../../dsl/compiler/compile.js'
import { download, graph, lane, matmul, on, param, relu, slice, tensor, upload } from '../../dsl/index.js'
import { orThrow } from '../../dsl/ir/braid-error.js'
import { Device } from '../../runtime/device/device.js'
import { open } from '../../runtime/session/open.js'
import { reasonOf, scriptOf } from './python.js'
import { bf16Values, difference, turned } from './stream-values.js'

const layers = 32
const width = 8192
const rows = 6144
const kept = 4
/** Ticks in flight, of Braid's plan and of PyTorch's loops. */
const inFlight = 2
const shift = 2_000_003
const steps = 20
const warm = 3
const script = scriptOf('weight_streaming.py')
const mebibytes = (bytes: number) => bytes / 2 ** 20
/**
 * What the runs are held to: the step beside PyTorch's best, MiB with two weight buffers, relative
 * difference, and µs a tick.
 */
const bars = { step: 1.01, reserved: 576, difference: 1e-2, enqueue: 100 } as const

export const network = (ahead: number) =>
  graph(`weight-streaming, ahead ${ahead}`, {}, () => {
    const copy = lane('copy')
    const math = lane('math', { priority: 'high' })
    const out = lane('out')
    let y = param('x', tensor('bf16', [rows, width])).pipe(on(math))
    for (let layer = 0; layer < layers; layer++) {
      const w = param(`w[${layer}]`, tensor('bf16', [width, width]), { on: 'host' }).pipe(
        upload(copy, { ahead }),
      )
      y = y.pipe(matmul(w), relu())
    }
    return { y: y.pipe(slice(0, 0, kept), download(out)) }
  })

interface Row {
  readonly [figure: string]: number | string | null
}

/** MiB in use on the first GPU by all processes; null without nvidia-smi. */
const deviceMiB = (): number | null => {
  const query = ['--query-gpu=memory.used', '--format=csv,noheader,nounits', '-i', '0']
  const { status, stdout } = spawnSync('nvidia-smi', query, { encoding: 'utf8', timeout: 20_000 })
  const used = Number(stdout)
  return status === 0 && stdout.trim() !== '' && Number.isFinite(used) ? used : null
}

const ours = async (
  ahead: number,
  params: Record<string, Uint16Array | ((into: Uint8Array) => void)>,
  idleMiB: number | null,
  log: (line: string) => void,
) => {
  // x, two activations, the matmul's workspace, and ahead + 1 weights: what a hand would hold. The compiler
  // finds the waits for it.
  const memory = (576 + (ahead - 1) * 128) * 2 ** 20
  const plan = orThrow(compile(network(ahead), { mode: 'eager', memory, inFlight, fuse: false }))
  let output = new Uint16Array(0)
  const run = async (inFlight: number) => {
    await using device = orThrow(await Device.open('cuda:0')())
    await using session = orThrow(await open(plan, { device, params, inFlight })())
    const drain = (ticks: number) =>
      lastValueFrom(
        session.run({}, { ticks }).pipe(
          map(lease => {
            using held = lease
            output = held.y.slice()
          }),
        ),
      )
    await drain(warm)
    const began = performance.now()
    await drain(steps)
    const wallMs = (performance.now() - began) / steps
    const used = deviceMiB()
    const taken = used === null || idleMiB === null ? null : used - idleMiB
    const reserved = device.stats()['reserved_bytes.all.peak']!
    return { wallMs, taken, reserved, stats: session.stats() }
  }
  const pipelined = await run(inFlight)
  const synced = await run(1)
  const { stats } = pipelined
  const row = {
    variant: `braid, ahead ${ahead}`,
    stepMs: stats.tickMs.median,
    stepMsP90: stats.tickMs.p90,
    wallMs: pipelined.wallMs,
    syncedMs: synced.wallMs,
    enqueueUs: stats.enqueueUs.median,
    issueUs: stats.issueUs.median,
    peakAllocatedMiB: mebibytes(stats.peak.allocated),
    peakReservedMiB: mebibytes(pipelined.reserved),
    deviceMiB: pipelined.taken,
    boundMiB: mebibytes(plan.bound.device[0]!),
  }
  log(
    `  ${row.variant.padEnd(29)} ${row.stepMs.toFixed(2).padStart(8)} ms a step, ` +
      `${row.peakReservedMiB.toFixed(1).padStart(8)} MiB reserved`,
  )
  return { row, output }
}

const pytorch = (log: (line: string) => void): { rows: Row[]; output: Uint16Array } => {
  const folder = mkdtempSync(join(tmpdir(), 'braid-bench-'))
  try {
    const file = join(folder, 'slice.bf16')
    const args = [
      script,
      '--json',
      '--layers',
      layers,
      '--width',
      width,
      '--rows',
      rows,
      '--slice',
      kept,
      '--shift',
      shift,
      '--steps',
      steps,
      '--warm',
      warm,
      '--in-flight',
      inFlight,
      '--out',
      file,
    ]
    const result = spawnSync('python3', args.map(String), {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
      maxBuffer: 1 << 26,
    })
    if (result.status !== 0)
      throw new Error(`python3 ${script} failed: ${result.error?.message ?? reasonOf(result.stderr)}`)
    const report = JSON.parse(result.stdout) as { torch: string; device: string; rows: Row[] }
    log(`  PyTorch ${report.torch} on ${report.device}`)
    for (const line of result.stderr.trimEnd().split('\n')) log(line)
    return { rows: report.rows, output: new Uint16Array(new Uint8Array(readFileSync(file)).buffer) }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

export const bench = {
  name: 'weight-streaming',
  title: `Weight streaming on cuda:0: ${layers} × 128 MiB bf16, ${rows} rows, beside PyTorch by hand`,
  run: async (log: (line: string) => void): Promise<{ rows: Row[]; ok: boolean }> => {
    const idleMiB = deviceMiB()
    log(`PyTorch, with lifetimes written by hand, ${inFlight} steps in flight:`)
    const theirs = pytorch(log)
    log('Braid, with none:')
    const base = bf16Values(width * width, 0, 2 ** -5)
    const params: Record<string, Uint16Array | ((into: Uint8Array) => void)> = {
      x: bf16Values(rows * width, 0x40000000, 1),
    }
    for (let layer = 0; layer < layers; layer++) params[`w[${layer}]`] = turned(base, layer * shift)
    const one = await ours(1, params, idleMiB, log)
    const two = await ours(2, params, idleMiB, log)

    const best = Math.min(...theirs.rows.map(row => Number(row['stepMs'])))
    const twoBuffers = Math.min(
      ...theirs.rows
        .filter(row => String(row['variant']).includes('2 buffers'))
        .map(row => Number(row['peakReservedMiB'])),
    )
    const gap = Math.max(difference(one.output, theirs.output), difference(two.output, theirs.output))
    const checks: [string, number, number][] = [
      ["step beside PyTorch's best (ratio)", one.row.stepMs / best, bars.step],
      ['reserved, MiB', one.row.peakReservedMiB, bars.reserved],
      ["reserved beside PyTorch's two buffers, MiB", one.row.peakReservedMiB, twoBuffers],
      ['largest relative difference of the outputs', gap, bars.difference],
      ['enqueue on the calling thread, µs a tick', one.row.enqueueUs, bars.enqueue],
    ]
    for (const [name, found, wanted] of checks)
      log(
        `  ${found <= wanted ? '✓' : '✗'} ${name}: ${found.toPrecision(4)} ` +
          `(wanted: at most ${wanted.toPrecision(4)})`,
      )
    return {
      rows: [one.row, two.row, ...theirs.rows],
      ok: checks.every(([, found, wanted]) => found <= wanted),
    }
  },
}
