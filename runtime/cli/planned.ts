import * as E from 'fp-ts/lib/Either.js'
import { verify } from '../../dsl/index.js'
import type { Plan } from '../../dsl/ir/plan.js'
import { type CompileFlags, compiled } from './compiled.js'
import { planIn } from './files.js'
import { Failed, Misuse } from './io.js'
import { loadProgram } from './program.js'

/** A plan from a file, whoever wrote it: its form is checked, and that the laws about safety hold, since what is said of a plan assumes them. */
const readPlan = (path: string): Plan => {
  const parsed = planIn(path)
  if (E.isLeft(parsed)) throw new Failed(parsed.left)
  const [broken, ...others] = verify(parsed.right, { safety: true })
  if (broken === undefined) return parsed.right
  throw new Failed([
    {
      _tag: 'BadPlan',
      at: broken.command < 0 ? path : `${path}: commands[${broken.command}]`,
      subject: parsed.right.name,
      wanted: `a plan for which law ${broken.law} holds`,
      found: others.length === 0 ? broken.message : `${broken.message} (and ${others.length} more)`,
      next: `correct it: braid verify ${path} --safety names all`,
    },
  ])
}

/** The plan that a verb is about: of a PROGRAM, compiled as the flags say, or the one that a PLAN.json holds. */
export const planFrom = async (path: string, flags: CompileFlags, usage: string): Promise<Plan> => {
  if (!path.endsWith('.json')) return compiled(await loadProgram(path), flags)
  if (Object.keys(flags).length > 0)
    throw new Misuse(
      `${path} is a plan that is compiled already: --memory, --storage and --profile go with a PROGRAM\nusage: ${usage}`,
    )
  return readPlan(path)
}
