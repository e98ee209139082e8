import { readFileSync } from 'node:fs'
import * as E from 'fp-ts/lib/Either.js'
import { parsePlan } from '../../dsl/ir/load.js'
import { verify as verifyPlan } from '../../dsl/ir/verify.js'
import { oneWord, parse } from './args.js'
import { Failed, type Output } from './io.js'

export const usage = 'braid verify PLAN.json [--safety] [--json]'

const read = (path: string): string => {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw new Failed([
      {
        _tag: 'BadFile',
        at: path,
        subject: 'plan',
        wanted: 'a plan file that can be read',
        found: (error as Error).message,
        next: 'write one with: braid plan PROGRAM --as json -o PLAN.json',
      },
    ])
  }
}

export const verify = async (args: readonly string[], out: Output): Promise<number> => {
  const { values, positionals } = parse(args, { safety: { type: 'boolean' } }, usage)
  const path = oneWord(positionals, 'PLAN.json', usage)
  const parsed = parsePlan(read(path))
  if (E.isLeft(parsed)) throw new Failed(parsed.left)
  const safety = values.safety === true
  const violations = verifyPlan(parsed.right, { safety })
  const laws = safety
    ? ['L1', 'L2', 'L3', 'L4', 'L7', 'L8', 'L9']
    : ['L1', 'L2', 'L3', 'L4', 'L5', 'L6', 'L7', 'L8', 'L9']
  // A message names its law first: `L4: commands[17] (free w): …`.
  for (const { law, message } of violations) out.say(`${out.styles.bad(law)}  ${message.slice(law.length + 2)}`)
  if (violations.length === 0) {
    const holds = out.styles.good(safety ? 'every law about safety holds' : 'every law holds')
    out.say(`${path}: ${holds}: ${laws.join(', ')} ("${parsed.right.name}", ${parsed.right.commands.length} commands)`)
  }
  out.result({ file: path, plan: parsed.right.name, safety, laws, ok: violations.length === 0, violations })
  return violations.length === 0 ? 0 : 1
}
