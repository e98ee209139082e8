import { explain as explainPlan } from '../../dsl/index.js'
import { explanations } from '../../dsl/internal.js'
import { planName } from '../../dsl/ir/names.js'
import { shown } from '../../dsl/ir/show.js'
import { oneOf, oneWord, parse } from './args.js'
import { figuresOf } from './figures.js'
import { outputFrom, save } from './files.js'
import type { Output } from './io.js'
import { machineFrom } from './machine.js'
import { compileFlags, compilerOf, planFrom } from './planned.js'

export const usage =
  'braid explain PROGRAM|PLAN.json [--as text|json|dot|perfetto|svg] [--machine NAME|FILE] ' +
  '[--memory BYTES|fast|small] [--storage pooled|planned] [--mode eager|graph|auto] [--fuse|--no-fuse] ' +
  '[--profile TRACE] [-o FILE] [--json]'

const flags = {
  ...compileFlags,
  as: { type: 'string' },
  machine: { type: 'string' },
  output: { type: 'string', short: 'o' },
} as const

const opens = {
  text: '',
  json: '',
  dot: ': dot -Tsvg draws it',
  perfetto: ': open it in https://ui.perfetto.dev',
  svg: '',
}

export const explain = async (args: readonly string[], out: Output): Promise<number> => {
  const { values, positionals } = parse(args, flags, usage)
  const path = oneWord(positionals, 'PROGRAM or PLAN.json', usage)
  const as = oneOf(values.as ?? 'text', '--as', explanations)
  const machine = machineFrom(values.machine ?? 'h200')
  const output = outputFrom(values.output)
  out.reserve()
  const plan = await planFrom(path, compilerOf(values), usage)
  const text = explainPlan(plan, as, { machine })
  const summary = {
    program: plan.name,
    as,
    machine: machine.name,
    commands: figuresOf(plan),
    bound: plan.bound,
  }
  if (output !== undefined) {
    save(output, text, 'explanation')
    out.say(`${shown(output)}: the plan "${planName(plan)}" as ${as}${opens[as]}`)
    out.result({ ...summary, file: output })
    return 0
  }
  out.say(text.trimEnd())
  out.result(as === 'json' ? { ...summary, reasons: JSON.parse(text) as object } : { ...summary, text })
  return 0
}
