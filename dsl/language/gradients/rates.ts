// Gradients across rates.

import { noGradient } from '../messages.js'
import type { Rule } from './backward.js'

/** The sum over the values of the faster flow, of which there must be a known number. */
export const repeatRule: Rule = ({ output, attrs }, gradient, make) => [
  () => {
    const n = attrs['n'] as number | undefined
    if (n !== undefined) return make.sumOf(make.whole(gradient, output), n)
    const { name, at } = output.builder.nodes[output.id]!
    output.builder.report(make.at, 'gradients', noGradient(name, at, 'say how many values: repeat(4)'))
    return gradient
  },
]
