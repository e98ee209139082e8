import { explain as explainPlan } from '../../dsl/explain.js'
import { oneWord, parse } from './args.js'
import { compiled, compileFlags, compilerOf } from './compiled.js'
import { figuresOf } from './figures.js'
import type { Output } from './io.js'
import { loadProgram } from './program.js'

export const usage = 'braid explain PROGRAM [--memory BYTES|fast|small] [--storage pooled|planned] [--json]'

export const explain = async (args: readonly string[], out: Output): Promise<number> => {
  const { values, positionals } = parse(args, compileFlags, usage)
  const path = oneWord(positionals, 'PROGRAM', usage)
  const compiler = compilerOf(values)
  const plan = compiled(await loadProgram(path), compiler)
  const text = explainPlan(plan, 'text')
  out.say(text.trimEnd())
  out.result({ program: plan.name, commands: figuresOf(plan), bound: plan.bound, text })
  return 0
}
