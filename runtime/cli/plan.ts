import { writeFileSync } from 'node:fs'
import { explain } from '../../dsl/explain.js'
import type { Plan } from '../../dsl/ir/plan.js'
import { textOf, toJSON } from '../../dsl/ir/text.js'
import { oneOf, oneWord, parse } from './args.js'
import { compiled, compileFlags, compilerOf } from './compiled.js'
import { Failed, type Output } from './io.js'
import { loadProgram } from './program.js'

export const usage =
  'braid plan PROGRAM [--as text|json|dot|perfetto] [--memory BYTES|fast|small] [--storage pooled|planned] [-o FILE] [--json]'

const flags = { ...compileFlags, as: { type: 'string' }, output: { type: 'string', short: 'o' } } as const

const written = (plan: Plan, as: 'text' | 'json' | 'dot' | 'perfetto'): string => {
  if (as === 'text') return textOf(plan)
  if (as === 'json') return toJSON(plan)
  return explain(plan, as)
}

export const plan = async (args: readonly string[], out: Output): Promise<number> => {
  const { values, positionals } = parse(args, flags, usage)
  const path = oneWord(positionals, 'PROGRAM', usage)
  const as = oneOf(values.as ?? 'text', '--as', ['text', 'json', 'dot', 'perfetto'])
  const compiler = compilerOf(values)
  const made = compiled(await loadProgram(path), compiler)
  const text = written(made, as)
  if (values.output !== undefined) {
    save(values.output, text)
    out.say(`${values.output}: the plan "${made.name}" as ${as}`)
    out.result({ program: made.name, as, file: values.output })
    return 0
  }
  out.say(text.trimEnd())
  // The plan itself is the one object; its other forms are text inside one.
  out.result(
    as === 'json' || values.as === undefined ? (JSON.parse(toJSON(made)) as object) : { program: made.name, as, text },
  )
  return 0
}

const save = (path: string, text: string): void => {
  try {
    writeFileSync(path, text)
  } catch (error) {
    throw new Failed([
      {
        _tag: 'BadFile',
        at: path,
        subject: 'plan',
        wanted: 'a file that can be written',
        found: (error as Error).message,
        next: 'give another path to -o',
      },
    ])
  }
}
