import { verifyRanks } from '../../dsl/index.js'
import { verifyLoaded } from '../../dsl/internal.js'
import { planName } from '../../dsl/ir/names.js'
import { laws as allLaws, safetyLaws } from '../../dsl/ir/plan.js'
import { shown } from '../../dsl/ir/show.js'
import { parse } from './args.js'
import { planIn } from './files.js'
import { Misuse, type Output } from './io.js'

export const usage = 'braid verify PLAN.json [RANK1.json …] [--safety] [--json]'

export const verify = async (args: readonly string[], out: Output): Promise<number> => {
  const { values, positionals } = parse(args, { safety: { type: 'boolean' } }, usage)
  if (positionals.length === 0) throw new Misuse(`PLAN.json is missing\nusage: ${usage}`)
  const plans = positionals.map(planIn)
  const safety = values.safety === true
  const one = plans.length === 1
  const violations = one ? verifyLoaded(plans[0]!, { safety }) : verifyRanks(plans, { safety })
  const laws = safety ? safetyLaws : allLaws
  // A message names its law first: `L4: commands[17] (free w): …`.
  for (const { law, message } of violations) out.say(message.replace(`${law}: `, `${out.styles.bad(law)}  `))
  const ok = violations.length === 0
  if (ok) {
    const holds = out.styles.good(safety ? 'every law about safety holds' : 'every law holds')
    const commands = plans.reduce((sum, plan) => sum + plan.commands.length, 0)
    const what = one ? `"${planName(plans[0]!)}"` : `${plans.length} ranks`
    out.say(`${shown(positionals.join(', '))}: ${holds}: ${laws.join(', ')} (${what}, ${commands} commands)`)
  }
  out.result(
    one
      ? { file: positionals[0], plan: plans[0]!.name, safety, laws, ok, violations }
      : { files: positionals, plans: plans.map(({ name }) => name), safety, laws, ok, violations },
  )
  return ok ? 0 : 1
}
