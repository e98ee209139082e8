import type { Plan } from '../ir/plan.js'
import type { Bounded, Operation } from '../passes/ir.js'
import { listed } from './names.js'

/** Uploads of one lane that may run so many ahead of their readers. */
export interface Window {
  readonly lane: string
  readonly ahead: number
  readonly uploads: readonly string[]
  readonly at: string
  readonly because: string
}

/**
 * What the compiler chose that a plan does not say: why each operation is on its lane, which order won, which windows there are. Known only of plans
 * that this process compiled; of others all is empty, and nothing is said.
 */
export interface Choices {
  /** By lane of the plan. */
  readonly lanes: readonly string[]
  readonly order: string
  readonly windows: readonly Window[]
}

const none: Choices = { lanes: [], order: '', windows: [] }
const remembered = new WeakMap<object, Choices>()

export const choicesOf = (plan: Plan): Choices => remembered.get(plan) ?? none

const wants: Readonly<Record<Operation['kind'], string>> = {
  upload: 'copies in run beside arithmetic, on an engine of their own',
  download: 'copies out run beside arithmetic and beside copies in, on an engine of their own',
  store: 'what keeps a state follows what makes it',
  compute: 'arithmetic without a lane of its own',
}

/** A lane in a sentence: named by the program, folded of several that it named, or chosen, and for what kind of work. */
const lanesOf = ({ operations, laneOf, lanes, settings }: Bounded): string[] => {
  const given = lanes.map(() => new Set<string>())
  const chosen = lanes.map(() => new Set<Operation['kind']>())
  operations.forEach(({ lane, kind }, i) => {
    if (lane === undefined) chosen[laneOf[i]!]!.add(kind)
    else given[laneOf[i]!]!.add(lane.name)
  })
  return lanes.map((_, id) => {
    const names = [...given[id]!]
    const kinds = [...chosen[id]!].map(kind => wants[kind])
    const named =
      names.length > 1
        ? [`lanes ${listed(names)} of the program share it, since there are to be ${settings.lanes} at most`]
        : names.length === 1
          ? ['named in the program']
          : []
    return [...named, ...(kinds.length === 0 ? [] : [`chosen: ${kinds.join('; ')}`])].join('; ')
  })
}

const windowsOf = ({ operations, laneOf, lanes, keep }: Bounded): Window[] => {
  const groups = new Map<string, { lane: number; ahead: number; uploads: string[]; at: string }>()
  operations.forEach(({ ahead, name, at }, i) => {
    if (ahead === undefined) return
    const key = `${laneOf[i]} ${ahead}`
    const group = groups.get(key)
    if (group === undefined) groups.set(key, { lane: laneOf[i]!, ahead, uploads: [name], at: String(at) })
    else group.uploads.push(name)
  })
  return [...groups.values()].map(({ lane, ahead, uploads, at }) => ({
    lane: lanes[lane]!.name,
    ahead,
    uploads,
    at: at === 'unknown' ? '' : at,
    because: keep
      ? 'what each leaves is freed for the next upload of its lane, or at the end of the tick'
      : 'what each leaves is freed at its last read: keeping it for the next upload would hold more',
  }))
}

/** Keeps what `explain` will want to know of a plan: sentences, not the compiler's own data, which may be large. */
export const rememberChoices = (plan: Plan, ir: Bounded): void => {
  remembered.set(plan, { lanes: lanesOf(ir), order: '', windows: windowsOf(ir) })
}
