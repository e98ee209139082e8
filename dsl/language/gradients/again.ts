// Values that the way back makes again (operators/recompute.ts).

import type { GraphNode } from '../../ir/graph.js'
import { donatedReads, type KernelAttrs } from '../bound-kernel.js'
import type { Builder, Recomputed } from '../builder.js'

/** What is there without being made: sources, what a state holds; and what would change memory once more. */
const isKept = ({ op, attrs }: GraphNode): boolean => {
  switch (op) {
    case 'input':
    case 'param':
    case 'delay':
    case 'hold':
    case 'repeat':
    case 'append':
      return true
    case 'kernel':
      return donatedReads(attrs as unknown as KernelAttrs).length > 0
    default:
      return false
  }
}

/**
 * A part of the graph that is made once more. Its nodes begin once `gates` have finished: the value that is
 * read with theirs, and its gradient, which may be known before the value. An upload or a collective with a
 * window of its own (`ahead`) is issued by that instead.
 */
export class Again {
  /** By node of the part: the one that stands for it. */
  private readonly made = new Map<number, number>()
  /** By value that is kept: the same one, for readers after the gates. */
  private readonly gated = new Map<number, number>()

  constructor(
    private readonly builder: Builder,
    part: Recomputed,
    private readonly gates: readonly number[],
  ) {
    builder.parts('recompute', () => {
      for (let id = part.from; id < part.to; id++) this.make(id)
    })
  }

  /** The node that stands for this one on the way back. */
  of(id: number): number {
    return this.made.get(id) ?? id
  }

  private make(id: number): void {
    const { builder, made } = this
    const node = builder.nodes[id]!
    if (isKept(node.op === 'port' ? builder.nodes[node.inputs[0]!]! : node)) return
    const { op, attrs, spec, place, lane, at } = node
    const hasWindow = attrs['ahead'] !== undefined
    const inputs = node.inputs.map(input => made.get(input) ?? (hasWindow ? input : this.after(input)))
    const again = builder.node({ op, inputs, attrs, spec, place, lane, at })
    made.set(id, again)
    if (builder.constants.has(id)) builder.constants.add(again)
    const whole = builder.composites.get(id)
    if (whole !== undefined)
      builder.composites.set(again, { ...whole, inputs: whole.inputs.map(input => this.of(input)) })
  }

  private after(id: number): number {
    const before = this.gated.get(id)
    if (before !== undefined) return before
    const { spec, place, at } = this.builder.nodes[id]!
    const attrs = { when: 'finish' }
    const gated = this.gates.reduce(
      (value, gate) => this.builder.node({ op: 'after', inputs: [value, gate], attrs, spec, place, at }),
      id,
    )
    this.gated.set(id, gated)
    return gated
  }
}
