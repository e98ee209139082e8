// The sentences of the language's errors that more than one operator can report. Sentences of a single
// operator are in its file.

import type { CompileError, LaneSpec, Place, Where } from '../ir/graph.js'
import { limits } from '../ir/limits.js'
import { show } from '../ir/show.js'
import { showSpec, type TensorSpec } from '../ir/tensor.js'

/** An error whose place is not known yet: `Builder.report` adds it. */
export type UnplacedError = Omit<CompileError, 'at' | 'subject'>

const tagged =
  (_tag: CompileError['_tag']) =>
  (wanted: string, found: string, next: string): UnplacedError => ({ _tag, wanted, found, next })

export const badAttribute = tagged('BadAttribute')
export const shapeMismatch = tagged('ShapeMismatch')
export const dtypeMismatch = tagged('DTypeMismatch')
const withoutGradient = tagged('NoGradient')
const notAFlowError = tagged('NotAFlow')
const foreignFlowError = tagged('ForeignFlow')
const placeMismatch = tagged('PlaceMismatch')

/** `node` lies between a value and the loss. */
export const noGradient = (node: string, at: Where, next: string): UnplacedError =>
  withoutGradient('operators that have a gradient between the values and the loss', `${node}, at ${at}`, next)

export const unrelated = (name: string): UnplacedError =>
  withoutGradient(
    'values that the loss changes with, through operators of floats',
    `${name}, with which it does not change`,
    'leave it out, or correct what the loss is made of',
  )

/** `role` names the value in the message: `the operand`. */
export const notAFlow = (role: string, value: unknown): UnplacedError =>
  notAFlowError(
    `a flow as ${role}`,
    show(value),
    typeof value === 'function'
      ? 'call the operator, as in relu(), and give it by pipe'
      : 'give a flow of this graph',
  )

/** The name of a graph that has no body. */
export const noBody = '(none)'

/** `other`: the name of the graph that the flow belongs to; absent: this graph, which is complete already. */
export const foreignFlow = (graph: string, other?: string): UnplacedError =>
  other === noBody || graph === noBody ? madeOutside(graph, other) : ofAnother(graph, other)

/** A flow that was made, or an operator that was called, while no body was running. */
const madeOutside = (graph: string, other: string | undefined): UnplacedError =>
  foreignFlowError(
    graph === noBody
      ? 'a call inside the body of a graph'
      : `a flow of the graph ${graph}, made inside its body`,
    other === noBody ? 'a flow that was made outside of every body' : 'one outside of every body',
    'param, state and operators describe the graph whose body is running: ' +
      'call them inside it, or in a function that the body calls',
  )

const ofAnother = (graph: string, other: string | undefined): UnplacedError =>
  foreignFlowError(
    `a flow of the graph ${graph}, inside its body`,
    other === undefined ? 'a flow whose graph is complete' : `a flow of the graph ${other}`,
    'flows live inside the body of their graph: pass values between graphs by outputs and inputs',
  )

export const misplaced = (wanted: Place, role: string, spec: TensorSpec, found: Place): UnplacedError =>
  placeMismatch(
    `a ${wanted} value as ${role}`,
    `${showSpec(spec)} on the ${found}`,
    wanted === 'device' ? 'upload it first: pipe(upload(lane))' : 'download it first: pipe(download(lane))',
  )

export const afterDownload = placeMismatch(
  'a value that the device still reads',
  'one that is downloaded',
  'put it before the download: pipe(after(flow), download(lane))',
)

const isLikeALane = (value: unknown): value is { readonly name: unknown; readonly device?: unknown } =>
  typeof value === 'object' &&
  value !== null &&
  'name' in value &&
  Object.keys(value).every(field => ['name', 'priority', 'device'].includes(field))

export const notALane = (value: unknown): UnplacedError =>
  badAttribute(
    "a lane with a name, a priority of 'low', 'normal' or 'high', " +
      `and a device from 0 to ${limits.devices - 1}, and nothing else`,
    isLikeALane(value)
      ? `a lane named ${show(value.name)}${'device' in value ? ` on device ${show(value.device)}` : ''}`
      : show(value),
    "make one with lane('copy'), or lane('copy', { device: 1 }), or say device(1) for any lane there",
  )

export const otherPriority = (known: LaneSpec, given: LaneSpec): UnplacedError =>
  badAttribute(
    `the lane '${given.name}' with one priority, ${known.priority}`,
    `priority ${given.priority}`,
    'lanes of one name are one lane: give both the same priority, or another name',
  )

export const otherDevice = (known: LaneSpec, given: LaneSpec): UnplacedError =>
  badAttribute(
    `the lane '${given.name}' on one device, ${known.device ?? 0}`,
    `device ${given.device ?? 0}`,
    'lanes of one name are one lane, of one device: give the other one another name',
  )
