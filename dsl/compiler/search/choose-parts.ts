import * as E from 'fp-ts/lib/Either.js'
import type { Plan } from '../../ir/plan.js'
import { fullest } from '../analysis/device-of.js'
import type { Checked } from '../analysis/ir.js'
import type { Passed } from '../analysis/pass.js'
import { split } from '../passes/split.js'
import { tickOf, worth } from './choose-arenas.js'
import { leastOf, mostCompared } from './choose-fusion.js'

/**
 * Plans the graph with its long lines in parts, and as wholes, and takes the plan with the shorter predicted tick: a row
 * that one kernel reads, normalises and writes may be done sooner by the few blocks of threads that have a row each.
 * Where no prediction tells the two apart that is the one with parts; with `memory: 'small'` the one that holds less.
 * A large graph is planned in parts alone.
 */
export const chooseParts =
  (planned: (ir: Checked) => Passed<Plan>) =>
  (ir: Checked): Passed<Plan> => {
    const inParts = split(ir)
    const parts = planned(inParts)
    if (inParts === ir || ir.nodes.length > mostCompared) return parts
    const whole = planned(ir)
    if (E.isLeft(parts)) return E.isRight(whole) || leastOf(whole) < leastOf(parts) ? whole : parts
    if (E.isLeft(whole)) return parts
    const { settings } = ir
    const [less, more] = [fullest(whole.right.bound), fullest(parts.right.bound)]
    if (settings.memory === 'small' && less !== more) return less < more ? whole : parts
    const isLonger = tickOf(parts.right, settings) > tickOf(whole.right, settings) * (1 + worth)
    return isLonger ? whole : parts
  }
