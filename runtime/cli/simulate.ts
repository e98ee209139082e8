import { machines, type Simulation, simulate as simulatePlan } from '../../dsl/index.js'
import { type Comparison, compareWith, ticksOf } from '../../dsl/internal.js'
import { planName } from '../../dsl/ir/names.js'
import type { Plan } from '../../dsl/ir/plan.js'
import { shown } from '../../dsl/ir/show.js'
import { oneWord, parse } from './args.js'
import { Failed, Misuse, type Output } from './io.js'
import { machineFrom } from './machine.js'
import { compileFlags, compilerOf, planFrom } from './planned.js'
import { picture } from './simulate-picture.js'
import { bytes, table } from './table.js'
import { nextTrace, traceFrom } from './traced.js'

export const usage =
  'braid simulate PROGRAM|PLAN.json --machine NAME|FILE [--against TRACE] ' +
  '[--memory BYTES|fast|small] [--storage pooled|planned] [--mode eager|graph|auto] [--fuse|--no-fuse] ' +
  '[--profile TRACE] [--json]'

const flags = { ...compileFlags, machine: { type: 'string' }, against: { type: 'string' } } as const

const comparison = (plan: Plan, simulation: Simulation, path: string): Comparison => {
  const ticks = ticksOf(plan, traceFrom(path))
  if (typeof ticks !== 'string') return compareWith(plan, simulation, ticks)
  throw new Failed([
    {
      _tag: 'BadFile',
      at: path,
      subject: 'trace',
      wanted: `a trace of the plan "${plan.name}", with the same options`,
      found: ticks,
      next: nextTrace,
    },
  ])
}

export const simulate = async (args: readonly string[], out: Output): Promise<number> => {
  const { values, positionals } = parse(args, flags, usage)
  const path = oneWord(positionals, 'PROGRAM', usage)
  if (values.machine === undefined)
    throw new Misuse(`--machine is missing: ${Object.keys(machines).join(', ')}, or a file\nusage: ${usage}`)
  const machine = machineFrom(values.machine)
  const compiler = compilerOf(values)
  out.reserve()
  const plan = await planFrom(path, compiler, usage)
  const measured = compiler.profile && new Map(Object.entries(compiler.profile))
  const simulation = simulatePlan(plan, machine, measured ? { measured } : {})
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
const percent = (part: number, whole: number): string =>
  whole > 0 ? ((100 * part) / whole).toFixed(1) : '0.0'

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
      `${sizes(peak.device)}, pinned ${bytes(peak.pinned)}; ` +
        `bound ${sizes(bound.device)}, pinned ${bytes(bound.pinned)}`,
    ],
  ]
  const lanes = [
    ['lane', 'busy ms', '%', 'exposed ms'],
    ...Object.entries(busy).map(([lane, time]) => [
      lane,
      ms(time),
      percent(time, tickMs),
      ms(exposed[lane]!),
    ]),
  ]
  return [
    `${styles.bold(planName(plan))} on ${shown(machine)}`,
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
  const listed = operations.slice(0, most)
  const rest = operations.length - listed.length
  return [
    styles.bold(`against ${ticks} measured ${ticks === 1 ? 'tick' : 'ticks'}`),
    table([head('tick'), ['', ...cells(tick)]]),
    '',
    table([head('lane'), ...Object.entries(lanes).map(([lane, both]) => [lane, ...cells(both)])]),
    '',
    table([
      [...head('operation'), 'lane', 'at'],
      ...listed.map(run => [run.name, ...cells(run), run.lane, run.at]),
    ]),
    ...(rest > 0 ? [`and ${rest} more, whose times differ less`] : []),
  ].join('\n')
}
