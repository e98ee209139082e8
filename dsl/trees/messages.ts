import type { Fault } from '../ir/fault.js'

export type TreeFaultTag =
  | 'UnknownPlan' // a name that is no plan of the tree
  | 'UnknownPort' // a name that is no input or output of a plan
  | 'NotPlanned' // a plan whose buffers have no fixed places
  | 'UnsupportedPlan' // a plan that cannot be part of a tree
  | 'MixedShapes' // plans under one name that differ in more than the shapes of their ports

export type TreeFault = Fault<TreeFaultTag>

export const unknownPlan = (subject: string, name: string, known: readonly string[]): TreeFault => ({
  _tag: 'UnknownPlan',
  at: subject,
  subject,
  wanted: `one of the tree's plans: ${known.join(', ')}`,
  found: name,
  next: 'correct the name, or add the plan to plans',
})

export const mixedShapes = (name: string, wanted: string, found: string, next: string): TreeFault => ({
  _tag: 'MixedShapes',
  at: `plans.${name}`,
  subject: name,
  wanted,
  found,
  next,
})

export const unknownPort = (
  subject: string,
  kind: 'input' | 'output',
  name: string,
  known: readonly string[],
): TreeFault => ({
  _tag: 'UnknownPort',
  at: subject,
  subject,
  wanted: `one of its ${kind}s: ${known.join(', ') || 'it has none'}`,
  found: name,
  next: 'correct the name',
})

export const notPlanned = (subject: string, storage: string): TreeFault => ({
  _tag: 'NotPlanned',
  at: subject,
  subject,
  wanted: "a plan with storage 'planned', whose buffers have places in an arena",
  found: `storage '${storage}'`,
  next: "compile it with { storage: 'planned' }",
})

export const unsupported = (subject: string, wanted: string, found: string, next: string): TreeFault => ({
  _tag: 'UnsupportedPlan',
  at: subject,
  subject,
  wanted,
  found,
  next,
})
