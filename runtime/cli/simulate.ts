import { readFileSync } from 'node:fs'
import * as E from 'fp-ts/lib/Either.js'
import { parsePlan } from '../../dsl/ir/load.js'
import type { Plan } from '../../dsl/ir/plan.js'
import { machines, parseMachine } from '../../dsl/machine/load.js'
import type { Machine } from '../../dsl/machine/machine.js'
import { type Comparison, compareWith, ticksOf } from '../../dsl/simulate/compare.js'
import { type Simulation, simulate as simulatePlan } from '../../dsl/simulate.js'
import { readTrace } from '../trace-read.js'
import { oneWord, parse } from './args.js'
import { compiled, compileFlags, compilerOf } from './compiled.js'
import { Failed, Misuse, type Output } from './io.js'
import { loadProgram } from './program.js'
import { picture } from './simulate-picture.js'
import { bytes, table } from './table.js'

export const usage =
  'braid simulate PROGRAM|PLAN.json --machine NAME|FILE [--against TRACE] [--memory BYTES|fast|small] [--storage pooled|planned] [--json]'

const flags = { ...compileFlags, machine: { type: 'string' }, against: { type: 'string' } } as const

const read = (path: string, subject: string, wanted: string, next: string): Buffer => {
  try {
    return readFileSync(path)
  } catch (error) {
    throw new Failed([{ _tag: 'BadFile', at: path, subject, wanted, found: (error as Error).message, next }])
  }
}

const looksLikeFile = (text: string): boolean => /[./\\]/.test(text)

/** A name that is known, or a file. */
const machineFrom = (text: string): Machine => {
  const names = Object.keys(machines).join(', ')
  if (Object.hasOwn(machines, text)) return machines[text]!
  if (!looksLikeFile(text)) throw new Misuse(`--machine: wanted ${names}, or a file; found "${text}"\nusage: ${usage}`)
  const file = read(
    text,
    'machine',
    'a machine file that can be read',
    `give one of ${names}, or copy examples/machines/h200.jsonc`,
  )
  const machine = parseMachine(file.toString('utf8'), text)
  if (E.isLeft(machine)) throw new Failed(machine.left)
  return machine.right
}

const planFrom = async (path: string, compiler: Parameters<typeof compiled>[1]): Promise<Plan> => {
  if (!path.endsWith('.json')) return compiled(await loadProgram(path), compiler)
  const next = 'write one with: braid plan PROGRAM --as json -o PLAN.json'
  const parsed = parsePlan(read(path, 'plan', 'a plan file that can be read', next).toString('utf8'))
  if (E.isLeft(parsed)) throw new Failed(parsed.left)
  return parsed.right
}

const comparison = (plan: Plan, simulation: Simulation, path: string): Comparison => {
  const next = 'write one with: braid run PROGRAM --ticks 20 --trace FILE'
  const trace = readTrace(read(path, 'trace', 'a trace that can be read', next), path)
  if (E.isLeft(trace)) throw new Failed([trace.left])
  const ticks = ticksOf(plan, trace.right)
  if (typeof ticks !== 'string') return compareWith(plan, simulation, ticks)
  throw new Failed([
    {
      _tag: 'BadFile',
      at: path,
      subject: 'trace',
      wanted: `a trace of the plan "${plan.name}", with the same options`,
      found: ticks,
      next,
    },
  ])
}

export const simulate = async (args: readonly string[], out: Output): Promise<number> => {
  const { values, positionals } = parse(args, flags, usage)
  const path = oneWord(positionals, 'PROGRAM', usage)
  if (values.machine === undefined)
    throw new Misuse(`--machine is missing: ${Object.keys(machines).join(', ')}, or a file\nusage: ${usage}`)
  const machine = machineFrom(values.machine)
  const plan = await planFrom(path, compilerOf(values))
  const simulation = simulatePlan(plan, machine)
  const against = values.against === undefined ? undefined : comparison(plan, simulation, values.against)
  const { chain, timeline, ...figures } = simulation
  out.result({
    ...figures,
    program: plan.name,
    ticks: timeline.ticks,
    ...(against === undefined ? {} : { against: { file: values.against, ...against } }),
  })
  out.say(describe(plan, simulation, out))
  if (against !== undefined) out.say(`\n${describeComparison(against, out)}`)
  return 0
}

const ms = (value: number): string =>
  value >= 100 ? value.toFixed(1) : value >= 0.1 ? value.toFixed(3) : value.toFixed(5)
const percent = (part: number, whole: number): string => (whole > 0 ? ((100 * part) / whole).toFixed(1) : '0.0')

const describe = (plan: Plan, simulation: Simulation, { styles }: Output): string => {
  const { machine, tickMs, criticalPathMs, latencyMs, issueMs, busy, exposed, bounds, peak, bound, settled } =
    simulation
  const largest = Object.entries(bounds).sort(([, a], [, b]) => b - a)
  const goesTo = largest
    .filter(([, part]) => part >= 0.001 * tickMs)
    .map(([what, part]) => `${what} ${percent(part, tickMs)} %`)
  const rows = [
    ['tick', `${ms(tickMs)} ms${settled ? '' : ', not settled yet after the ticks that were replayed'}`],
    ['goes to', goesTo.join(', ') || 'nothing'],
    ['critical path', `${ms(criticalPathMs)} ms`],
    ['from issue to end', `${ms(latencyMs)} ms; issuing takes ${ms(issueMs)} ms`],
    [
      'peak',
      `${sizes(peak.device)}, pinned ${bytes(peak.pinned)}; bound ${sizes(bound.device)}, pinned ${bytes(bound.pinned)}`,
    ],
  ]
  const lanes = [
    ['lane', 'busy ms', '%', 'exposed ms'],
    ...Object.entries(busy).map(([lane, time]) => [lane, ms(time), percent(time, tickMs), ms(exposed[lane]!)]),
  ]
  return [
    `${styles.bold(plan.name)} on ${machine}`,
    table(rows.map(([label, text]) => [styles.bold(label!), text!])),
    '',
    table(lanes),
    '',
    picture(plan, simulation),
  ].join('\n')
}

const sizes = (each: readonly number[]): string => each.map(bytes).join(' + ')

const most = 20

const describeComparison = ({ ticks, tick, lanes, operations }: Comparison, { styles }: Output): string => {
  const cells = ({ plannedMs, measuredMs, ratio }: Comparison['tick']): string[] => [
    ms(plannedMs),
    ms(measuredMs),
    Number.isFinite(ratio) ? ratio.toFixed(3) : 'never planned',
  ]
  const head = (what: string): string[] => [what, 'planned ms', 'measured ms', 'ratio']
  const shown = operations.slice(0, most)
  const rest = operations.length - shown.length
  return [
    styles.bold(`against ${ticks} measured ${ticks === 1 ? 'tick' : 'ticks'}`),
    table([head('tick'), ['', ...cells(tick)]]),
    '',
    table([head('lane'), ...Object.entries(lanes).map(([lane, both]) => [lane, ...cells(both)])]),
    '',
    table([[...head('operation'), 'lane', 'at'], ...shown.map(run => [run.name, ...cells(run), run.lane, run.at])]),
    ...(rest > 0 ? [`and ${rest} more, whose times differ less`] : []),
  ].join('\n')
}
