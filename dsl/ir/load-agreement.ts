import type { Plan, PlanBuffer } from './plan.js'
import type { PlanFaultTag, Reader } from './reader.js'
import { elementBytes, elements, showSpec } from './tensor.js'

/** What the fields of one buffer say against each other. */
interface Disagreement {
  readonly tag: PlanFaultTag
  readonly field: keyof PlanBuffer
  readonly wanted: string
  readonly found: string
  readonly next: string
}

/** Fields that only some buffers may have: why this one may not, where it has them. */
const misplaced = (
  { storage }: Plan,
  { space, life, alias, aliasOffset, offset, init, rate }: PlanBuffer,
): Disagreement[] => {
  const found: Disagreement[] = []
  const refuse = (field: keyof PlanBuffer, value: unknown, why: string | undefined): void => {
    if (value === undefined || why === undefined) return
    const is = Array.isArray(value) ? 'a list' : String(value)
    found.push({
      tag: 'WrongType',
      field,
      wanted: `no ${field}: ${why}`,
      found: is,
      next: `leave ${field} out`,
    })
  }
  const isView = alias !== undefined
  refuse('aliasOffset', aliasOffset, isView ? undefined : 'it is no view')
  if (storage !== 'planned') refuse('offset', offset, 'storage is pooled')
  else if (isView) refuse('offset', offset, 'a view lies where its root lies')
  else if (space !== 'device') refuse('offset', offset, 'pinned memory has no arena')
  else if (life === 'input' || life === 'output') refuse('offset', offset, `an ${life} has slots of its own`)
  if (isView || life !== 'state') refuse('init', init, 'only a state has a value before the first tick')
  if (isView) refuse('rate', rate, 'its root is the port')
  if (life === 'input' && space !== 'pinned')
    found.push({
      ...{ tag: 'WrongType', field: 'space', wanted: 'pinned: the host fills the slots of an input' },
      ...{ found: space, next: 'make the input pinned, and copy it to a buffer on the device' },
    })
  return found
}

/**
 * The bytes of a buffer are those of its elements: a reader gets the memory of an earlier owner with any byte
 * more. A kernel's buffer without elements has room for one.
 */
const sizeError = ({ bytes, dtype, shape, life, alias }: PlanBuffer): Disagreement | undefined => {
  const next = 'make the buffer as large as what it holds'
  if (dtype === undefined)
    return shape === undefined
      ? undefined
      : {
          ...{ tag: 'Missing', field: 'dtype', wanted: 'the element type of its shape', found: 'nothing' },
          next: 'give dtype and shape, or neither',
        }
  const size = elementBytes[dtype]
  if (shape === undefined)
    return bytes % size === 0
      ? undefined
      : { tag: 'OutOfRange', field: 'bytes', wanted: `a multiple of ${size}`, found: `${bytes}`, next }
  const count = elements(shape)
  const isRoom = count === 0 && (life === 'tick' || alias !== undefined)
  if (isRoom || count * size === bytes) return undefined
  return {
    ...{ tag: 'OutOfRange', field: 'shape', wanted: `${bytes} bytes, as the buffer has` },
    ...{ found: `${count * size} bytes of ${showSpec({ dtype, shape })}`, next },
  }
}

/**
 * Names that callers use: each input and each output has its own; a parameter of several devices has one
 * buffer on each of them, all of one type.
 */
const checkNames = (r: Reader, { buffers }: Plan): void => {
  const ports = new Map<string, PlanBuffer>()
  for (const buffer of buffers) {
    const { id, name, life, alias } = buffer
    if (alias !== undefined || life === 'tick' || life === 'state') continue
    const key = life === 'param' ? `param ${buffer.space} ${buffer.device} ${name}` : `${life} ${name}`
    const first = ports.get(life === 'param' ? `param ${name}` : key)
    const taken = ports.get(key)
    if (taken !== undefined)
      r.fault(
        'DuplicateName',
        `buffers[${id}].name`,
        `'${name}'`,
        life === 'param'
          ? 'one buffer of a parameter on a device'
          : `another name than the ${life} before it`,
        `that of buffer ${taken.id}`,
        'give each its own name',
      )
    else if (first !== undefined && !isCopy(first, buffer))
      r.fault(
        'DuplicateName',
        `buffers[${id}].name`,
        `'${name}'`,
        'the type of the parameter of this name, in memory of another device',
        `another type or memory than that of buffer ${first.id}`,
        'give the parameter its own name, or the type of the other one',
      )
    ports.set(key, buffer)
    if (life === 'param' && first === undefined) ports.set(`param ${name}`, buffer)
  }
}

/** Whether a parameter is a copy of the same one on another device. */
const isCopy = (a: PlanBuffer, b: PlanBuffer): boolean =>
  a.space === 'device' &&
  b.space === 'device' &&
  a.bytes === b.bytes &&
  a.dtype === b.dtype &&
  `${a.shape}` === `${b.shape}`

/** The bytes, shape, type, life and place of each buffer agree, and no two ports of one life have one name. */
export const checkAgreement = (r: Reader, plan: Plan): void => {
  for (const buffer of plan.buffers) {
    const size = sizeError(buffer)
    const errors = misplaced(plan, buffer)
    if (size !== undefined) errors.push(size)
    for (const { tag, field, wanted, found, next } of errors)
      r.fault(tag, `buffers[${buffer.id}].${field}`, `'${buffer.name}'`, wanted, found, next)
  }
  checkNames(r, plan)
}
