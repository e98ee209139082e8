// The gradient of attention. No weights are stored: each part computes them again, from the logarithm of each
// query's sum (operators/attention-gradient.ts).

import type { FlowValue } from '../builder.js'
import { attentionGradientOperator } from '../operators/attention-gradient.js'
import type { Rule } from './backward.js'

export const attentionRule: Rule = (of, given, make) => {
  const [q, ...others] = of.inputs as readonly [FlowValue, ...FlowValue[]]
  const part = (result: string, more: readonly FlowValue[]): FlowValue =>
    make.apply(attentionGradientOperator, q, [...others, ...more], { ...of.attrs, result })
  let known: readonly FlowValue[] | undefined
  const common = (): readonly FlowValue[] => {
    if (known !== undefined) return known
    const dy = make.here(make.whole(given, of.output))
    const { shape } = dy.spec
    const products = make.map((d, y) => d.mul(y), make.cast(dy, 'f32'), make.cast(of.output, 'f32'))
    const axes = [shape.length - 1]
    known = [dy, part('logSumExp', []), make.without(make.reduce('sum', products, axes), axes)]
    return known
  }
  return [() => part('byQueries', common()), () => part('byKeys', common()), () => part('byValues', common())]
}
