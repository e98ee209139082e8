import { explain, type Machine } from '../../dsl/index.js'
import { jsonParts } from '../../dsl/ir/json.js'
import { planName } from '../../dsl/ir/names.js'
import type { Plan } from '../../dsl/ir/plan.js'
import { shown } from '../../dsl/ir/show.js'
import { textOf, toJSON } from '../../dsl/ir/text.js'
import { oneOf, oneWord, parse } from './args.js'
import { outputFrom, save } from './files.js'
import { Failed, type Output } from './io.js'
import { machineFrom } from './machine.js'
import { compiled, compileFlags, compilerOf } from './planned.js'
import { loadProgram } from './program.js'

export const usage =
  'braid plan PROGRAM [--as text|json|dot|perfetto|svg] [--machine NAME|FILE] ' +
  '[--memory BYTES|fast|small] [--storage pooled|planned] [--mode eager|graph|auto] [--fuse|--no-fuse] ' +
  '[--profile TRACE] [-o FILE] [--json]'

const flags = {
  ...compileFlags,
  as: { type: 'string' },
  machine: { type: 'string' },
  output: { type: 'string', short: 'o' },
} as const
const forms = ['text', 'json', 'dot', 'perfetto', 'svg'] as const

const asJSON = (plan: Plan): string => {
  try {
    return toJSON(plan)
  } catch (error) {
    if (!(error instanceof RangeError)) throw error
    const fault = {
      _tag: 'TooLong',
      at: 'plan',
      subject: plan.name,
      wanted: 'a text that a string can hold',
      found: error.message,
    }
    throw new Failed([{ ...fault, next: 'write it to a file: braid plan PROGRAM --as json -o PLAN.json' }])
  }
}

const written = (plan: Plan, as: (typeof forms)[number], machine: Machine): string => {
  if (as === 'text') return textOf(plan)
  if (as === 'json') return asJSON(plan)
  return explain(plan, as, { machine })
}

export const plan = async (args: readonly string[], out: Output): Promise<number> => {
  const { values, positionals } = parse(args, flags, usage)
  const path = oneWord(positionals, 'PROGRAM', usage)
  const as = oneOf(values.as ?? 'text', '--as', forms)
  const machine = machineFrom(values.machine ?? 'h200')
  const output = outputFrom(values.output)
  const compiler = compilerOf(values)
  out.reserve()
  const made = compiled(await loadProgram(path), compiler)
  if (output !== undefined) {
    save(output, as === 'json' ? jsonParts(made) : written(made, as, machine), 'plan')
    out.say(`${shown(output)}: the plan "${planName(made)}" as ${as}`)
    out.result({ program: made.name, as, file: output })
    return 0
  }
  const text = written(made, as, machine)
  out.say(text.trimEnd())
  // The JSON form is the plan itself; the other forms are text inside an object.
  out.result(
    as === 'json' || values.as === undefined
      ? (JSON.parse(asJSON(made)) as object)
      : { program: made.name, as, text },
  )
  return 0
}
