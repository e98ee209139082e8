// braid simulate as a user meets it, and the trace that it is held against.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { isRight } from 'fp-ts/lib/Either.js'
import { describe, expect, it } from 'vitest'
import {
  compile,
  download,
  graph,
  lane,
  mul,
  orThrow,
  simulate,
  tensor,
  toJSON,
  upload,
} from '../../dsl/index.js'
import { compareWith, ticksOf } from '../../dsl/machine/simulate/compare.js'
import { perfettoTrace, type TraceRecord } from '../../runtime/trace/trace.js'
import { readTrace } from '../../runtime/trace/trace-read.js'
import { braid, language, runtime, scratch } from '../fixtures/command.js'

const { folder, file } = scratch()

const net = graph('doubling', { x: tensor('f32', [1 << 20]) }, ({ x }) => ({
  y: x.pipe(upload(lane('up')), mul(2), download(lane('down'))),
}))
const plan = orThrow(compile(net))
const planFile = file('plan.json', toJSON(plan))
const program = file(
  'program.mts',
  `import { download, graph, lane, mul, program, tensor, upload } from ${JSON.stringify(language)}
import { pulled } from ${JSON.stringify(runtime)}
const net = graph('doubling', { x: tensor('f32', [1 << 20]) }, ({ x }) => ({
  y: x.pipe(upload(lane('up')), mul(2), download(lane('down'))),
}))
export default program({ graph: net, feeds: () => ({ x: pulled([new Float32Array(1 << 20)]) }) })
`,
)

/** As a device that takes twice as long as planned for each run would report it. */
const slow = (ticks: number): TraceRecord[] => {
  const { timeline } = simulate(plan, 'h200')
  const runs = plan.commands.filter(command => command[0] === 'run')
  return Array.from({ length: ticks * runs.length }, (_, i) => {
    const node = plan.nodes[timeline.node[i]!]!
    const laneId = timeline.lane[i]!
    const lane = plan.lanes[laneId]!.name
    const [startMs, endMs] = [2e-6 * timeline.start[i]!, 2e-6 * timeline.end[i]!]
    return {
      tick: timeline.tick[i]!,
      node: node.id,
      name: node.name,
      op: node.op,
      at: node.at,
      lane,
      laneId,
      device: 0,
      startMs,
      endMs,
    }
  })
}

describe('braid simulate', () => {
  it('writes one object with the fields of the design, of a program and of its plan alike', () => {
    const { status, stdout, stderr } = braid('simulate', program, '--machine', 'h200', '--json')
    expect([status, stderr]).toEqual([0, ''])
    const result = JSON.parse(stdout) as Record<string, unknown>
    expect(Object.keys(result)).toEqual(
      expect.arrayContaining(['machine', 'tickMs', 'criticalPathMs', 'busy', 'exposed', 'peak', 'bound']),
    )
    const { tickMs, busy, exposed, peak, bound } = simulate(plan, 'h200')
    expect(result).toMatchObject({ machine: 'h200', program: 'doubling', tickMs, busy, exposed, peak, bound })
    expect(Object.keys(busy).sort()).toEqual(['down', 'main', 'up'])
    expect(JSON.parse(braid('simulate', planFile, '--machine', 'h200', '--json').stdout)).toEqual(result)
  })

  it('draws a tick, a row a lane', () => {
    const { status, stdout } = braid('simulate', planFile, '--machine', 'h200x2')
    expect(status).toBe(0)
    expect(stdout).toContain('doubling on h200x2')
    for (const [name, mark] of [
      ['up', '>'],
      ['main', ':'],
      ['down', '<'],
    ])
      expect(stdout.split('\n').find(line => line.startsWith(`${name} `) && line.includes('|'))).toContain(
        mark,
      )
  })

  it('takes a machine file, comments and all', () => {
    const machine = file(
      'slow.jsonc',
      '{ "extends": "h200", "name": "slow", // half a link\n "device": { "h2d": { "rate": "5 GB/s" } } }',
    )
    const { status, stdout } = braid('simulate', planFile, '--machine', machine, '--json')
    expect(status).toBe(0)
    const { machine: name, tickMs } = JSON.parse(stdout) as { machine: string; tickMs: number }
    expect(name).toBe('slow')
    expect(tickMs).toBeGreaterThan(0.8)
    expect(braid('simulate', planFile, '--machine', 'examples/machines/h200.jsonc', '--json').stdout).toBe(
      braid('simulate', planFile, '--machine', 'h200', '--json').stdout,
    )
  })

  it('reports where a machine file is wrong, what was wanted and what was found', () => {
    const machine = file(
      'bad.jsonc',
      '{ "extends": "h200", "name": "bad", "device": { "bandwidth": "3 us" }, "hosts": 1 }',
    )
    const { status, stdout, stderr } = braid('simulate', planFile, '--machine', machine, '--json')
    expect([status, stdout]).toEqual([1, ''])
    const { errors } = JSON.parse(stderr) as { errors: readonly Record<string, string>[] }
    expect(errors.map(({ _tag, at, found }) => [_tag, at, found]).sort()).toEqual([
      ['BadMachine', `${machine}.device.bandwidth`, '"3 us"'],
      ['BadMachine', `${machine}.hosts`, 'a field called "hosts"'],
    ])
    expect(errors.find(({ at }) => at!.endsWith('bandwidth'))!['wanted']).toContain('GB/s')
  })

  it('ends with 2 for an unknown name, and with 1 for a file that cannot be read', () => {
    const unknown = braid('simulate', planFile, '--machine', 'h2000')
    expect(unknown.status).toBe(2)
    expect(unknown.stderr).toContain('h200, h200x2, h200x8')
    expect(braid('simulate', planFile).status).toBe(2)
    expect(braid('simulate', '--machine', 'h200').status).toBe(2)
    const missing = braid('simulate', planFile, '--machine', join(folder, 'none.jsonc'))
    expect([missing.status, missing.stdout]).toEqual([1, ''])
    expect(missing.stderr).toContain('npx braid doctor --machine FILE')
    expect(braid('simulate', join(folder, 'none.json'), '--machine', 'h200').status).toBe(1)
    expect(braid('simulate', file('no-plan.json', '{}'), '--machine', 'h200').status).toBe(1)
  })

  it('compares a trace of a real run with the plan', () => {
    const trace = join(folder, 'run.json')
    expect(braid('run', program, '--device', 'host', '--trace', trace).status).toBe(0)
    const { status, stdout } = braid('simulate', program, '--machine', 'h200', '--against', trace, '--json')
    expect(status).toBe(0)
    const { against } = JSON.parse(stdout) as {
      against: { ticks: number; operations: readonly { name: string }[] }
    }
    expect(against.ticks).toBe(1)
    expect(against.operations.map(({ name }) => name).sort()).toEqual(
      plan.nodes.map(({ name }) => name).sort(),
    )
    const other = braid('simulate', program, '--machine', 'h200', '--against', planFile)
    expect([other.status, other.stdout]).toEqual([1, ''])
    expect(other.stderr).toContain('braid run')
  })
})

describe('a trace', () => {
  it('is read as it was written', () => {
    const records = slow(6)
    const trace = readTrace(perfettoTrace(records, plan), 'run.json')
    if (!isRight(trace)) throw new Error(JSON.stringify(trace.left))
    const ticks = ticksOf(plan, trace.right)
    if (typeof ticks === 'string') throw new Error(ticks)
    expect(ticks).toHaveLength(6)
    for (const [i, run] of ticks.flat().entries()) {
      expect([run.tick, run.name, run.laneId]).toEqual([
        records[i]!.tick,
        records[i]!.name,
        records[i]!.laneId,
      ])
      expect(run.startMs).toBeCloseTo(records[i]!.startMs, 5)
      expect(run.endMs).toBeCloseTo(records[i]!.endMs, 5)
    }
  })

  it('in the protobuf form of earlier versions is refused by name', () => {
    const trace = readTrace(Uint8Array.of(0x0a, 0x08, 0x50, 0x01, 0x68, 0x01), 'run.pftrace')
    if (isRight(trace)) throw new Error('read')
    expect(trace.left.found).toContain('protobuf')
    expect(trace.left.next).toContain('--trace FILE')
  })

  it('of a device half as fast is twice the plan, in the tick, each lane and each operation', () => {
    const ticks = ticksOf(plan, slow(7))
    if (typeof ticks === 'string') throw new Error(ticks)
    const { tick, lanes, operations } = compareWith(plan, simulate(plan, 'h200'), ticks)
    expect(tick.ratio).toBeCloseTo(2, 3)
    for (const { ratio } of [...Object.values(lanes), ...operations]) expect(ratio).toBeCloseTo(2, 3)
    const differences = operations.map(({ differenceMs }) => Math.abs(differenceMs))
    expect(differences).toEqual([...differences].sort((a, b) => b - a))
  })

  it('without its first runs is read from the first whole tick on; one of another plan is refused', () => {
    const ticks = ticksOf(plan, slow(5).slice(1))
    expect(ticks).toHaveLength(4)
    expect(
      ticksOf(
        plan,
        slow(3).map(run => ({ ...run, name: 'else' })),
      ),
    ).toContain("'else'")
    expect(ticksOf(plan, [])).toBe('no tick with all runs of the plan')
  })

  it('is never a reason to crash, whatever it holds', () => {
    const bytes = perfettoTrace(slow(4), plan)
    let refused = 0
    for (let length = 0; length < bytes.length; length += 7) {
      const trace = readTrace(bytes.slice(0, length), 'cut')
      if (!isRight(trace)) refused++
    }
    expect(refused).toBeGreaterThan(0)
    for (let at = 0; at < bytes.length; at += 5) {
      const changed = bytes.slice()
      changed[at]! ^= 0xff
      readTrace(changed, 'changed')
    }
    for (const text of ['', '{', '[]', '{"traceEvents":[{"ph":"X"}]}', '{"traceEvents":7}'])
      expect(isRight(readTrace(new TextEncoder().encode(text), 'text'))).toBe(false)
    expect(isRight(readTrace(readFileSync(planFile), 'plan'))).toBe(false)
  })
})
