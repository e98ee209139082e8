// Over 150 lines as one thing: what the compiler chose, a sentence for each kind of choice.

import type { Bounded, Evaluation, Operation } from '../compiler/analysis/ir.js'
import type { Plan } from '../ir/plan.js'
import { listed, plural, sizeOf, timeOf } from './names.js'

/** Uploads or gathers of one lane that may run so many ahead of their readers. */
export interface Window {
  readonly lane: string
  readonly ahead: number
  readonly uploads: readonly string[]
  /** Whether what runs ahead comes from other ranks. */
  readonly gathers: boolean
  readonly at: string
  /** Whether the compiler found it, for what the program gave none to. */
  readonly automatic: boolean
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
  /** Orders that were looked at and not taken, each with what speaks against it. */
  readonly others: readonly string[]
  readonly windows: readonly Window[]
}

const none: Choices = { lanes: [], order: '', others: [], windows: [] }
const remembered = new WeakMap<object, Choices>()

export const choicesOf = (plan: Plan): Choices => remembered.get(plan) ?? none

const wants: Readonly<Record<Operation['kind'], string>> = {
  upload: 'copies in run beside arithmetic, on an engine of their own',
  download: 'copies out run beside arithmetic and beside copies in, on an engine of their own',
  store: 'what keeps a state follows what makes it',
  compute: 'arithmetic without a lane of its own',
  peer: 'copies from other devices',
  collective: 'collectives run beside arithmetic and beside copies',
}

/** Why work without a lane is spread as it is: over as many lanes as shorten the predicted tick, and no more. */
const spreadOf = ({ tried = [], choice }: Bounded, lanes: number): string => {
  if (choice?.chosen.spread === 1) return 'all of it on one lane, which holds least'
  const us = (nanoseconds: number) => timeOf(nanoseconds / 1e3)
  const looked = new Map(tried.map(each => [each.lanes, each.tick]))
  const own = looked.get(lanes)
  if (own === undefined || looked.size < 2) return ''
  const others = [...looked].filter(([count]) => count !== lanes).sort(([a], [b]) => a - b)
  const says = others.map(([count, tick]) => `${us(tick)} with ${count}`)
  return `${plural(lanes, 'lane')} for such work: a tick of ${us(own)} by the machine's figures; ${listed(says)}`
}

/** A lane in a sentence: named by the program, folded of several that it named, or chosen, and for what kind of work. */
const lanesOf = (ir: Bounded): string[] => {
  const { operations, laneOf, lanes, settings } = ir
  const given = lanes.map(() => new Set<string>())
  const chosen = lanes.map(() => new Set<Operation['kind']>())
  operations.forEach(({ lane, kind }, i) => {
    if (lane === undefined) chosen[laneOf[i]!]!.add(kind)
    else given[laneOf[i]!]!.add(lane.name)
  })
  const working = chosen.filter(kinds => kinds.has('compute') || kinds.has('store')).length
  let told = false
  return lanes.map((_, id) => {
    const names = [...given[id]!]
    const kinds = [...chosen[id]!]
    const named =
      names.length > 1
        ? [`lanes ${listed(names)} of the program share it, since there are to be ${settings.lanes} at most`]
        : names.length === 1
          ? ['named in the program']
          : []
    const work = kinds.includes('compute') || kinds.includes('store')
    const spread = work && !told ? spreadOf(ir, working) : ''
    told ||= work
    return [
      ...named,
      ...(kinds.length === 0 ? [] : [`chosen: ${kinds.map(kind => wants[kind]).join('; ')}`]),
      ...(spread === '' ? [] : [spread]),
    ].join('; ')
  })
}

const windowsOf = ({ operations, laneOf, lanes, keep, choice, settings }: Bounded): Window[] => {
  const groups = new Map<
    string,
    Omit<Window, 'automatic' | 'because' | 'lane'> & { lane: number; asked: number; uploads: string[] }
  >()
  operations.forEach(({ ahead: asked, name, at, kind }, i) => {
    if (asked === undefined) return
    const ahead = Math.min(asked, choice?.chosen.ahead ?? asked)
    const gathers = kind === 'collective'
    const key = `${laneOf[i]} ${asked} ${ahead} ${gathers}`
    const group = groups.get(key)
    if (group === undefined)
      groups.set(key, { lane: laneOf[i]!, asked, ahead, uploads: [name], gathers, at: String(at) })
    else group.uploads.push(name)
  })
  const suits = typeof settings.memory === 'number' ? `fits ${sizeOf(settings.memory)}` : 'holds least'
  return [...groups.values()].map(({ lane, asked, ahead, uploads, gathers, at }) => {
    const leaves = keep
      ? `what each leaves is freed for the next ${gathers ? 'gather' : 'upload'} of its lane, or at the end of the tick`
      : 'what each leaves is freed at its last read'
    const { name } = lanes[lane]!
    const automatic =
      choice?.chosen.windows.some(window => window.lane === name && window.ahead === ahead) === true
    const why = automatic
      ? `chosen, since it ${suits}; ${leaves}`
      : ahead < asked
        ? `the program asks for ${asked}, of which this ${suits}; ${leaves}`
        : leaves
    return { lane: name, ahead, uploads, gathers, at: at === 'unknown' ? '' : at, automatic, because: why }
  })
}

const by: Readonly<Record<Evaluation['by'], string>> = {
  'critical path': 'what other lanes wait for the longest goes first',
  time: 'the most urgent of what could start goes first, as lanes become idle',
  program: 'as the program has it',
}

const wayOf = ({ by: order, spread, ahead, windows }: Evaluation): string =>
  [
    by[order],
    ...(spread === 1 ? ['work without a lane on one'] : []),
    ...(ahead === 0 ? ['nothing ahead'] : Number.isFinite(ahead) ? [`nothing more than ${ahead} ahead`] : []),
    ...windows.map(window =>
      window.ahead === 0 ? `${window.lane} never ahead` : `${window.lane} ${window.ahead} ahead`,
    ),
  ].join(', ')

const figuresOf = ({ tick, bound }: Evaluation): string =>
  `${Number.isFinite(tick) ? `a tick of ${timeOf(tick / 1e3)} by the machine's figures, ` : ''}${sizeOf(bound)}`

/** Orders that were not taken, told at most. */
const most = 6

const orderOf = ({ choice, settings }: Bounded): Pick<Choices, 'order' | 'others'> => {
  if (choice === undefined) return { order: '', others: [] }
  const { chosen, tried } = choice
  const { memory } = settings
  const against = ({ tick, bound }: Evaluation): string =>
    typeof memory === 'number' && bound > memory
      ? `${sizeOf(bound - memory)} too many`
      : memory === 'small' || bound > chosen.bound
        ? `${sizeOf(bound)}${Number.isFinite(tick) ? `, a tick of ${timeOf(tick / 1e3)}` : ''}`
        : `a tick of ${timeOf(tick / 1e3)}`
  const way = wayOf(chosen)
  // One way may have been tried under several bounds: that which holds least speaks for it.
  const least = new Map<string, Evaluation>()
  for (const other of tried) {
    const name = wayOf(other)
    const known = least.get(name)
    if (known === undefined || other.bound < known.bound) least.set(name, other)
  }
  least.delete(way)
  return {
    order: `${way}; ${figuresOf(chosen)}`,
    others: [...least].slice(0, most).map(([name, other]) => `${name}: ${against(other)}`),
  }
}

/** What `explain` will want to know of a plan: sentences, not the compiler's own data, which may be large. */
export const choicesFrom = (ir: Bounded): Choices => ({
  lanes: lanesOf(ir),
  ...orderOf(ir),
  windows: windowsOf(ir),
})

export const rememberChoices = (plan: Plan, choices: Choices): void => {
  remembered.set(plan, choices)
}
