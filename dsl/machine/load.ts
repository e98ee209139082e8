import * as E from 'fp-ts/lib/Either.js'
import { isNonEmpty } from 'fp-ts/lib/ReadonlyArray.js'
import type { ReadonlyNonEmptyArray } from 'fp-ts/lib/ReadonlyNonEmptyArray.js'
import type { Fault } from '../ir/fault.js'
import { show } from '../ir/reader.js'
import { h200, h200x2, h200x8 } from './h200.js'
import { placeIn, syntaxError, withoutComments } from './jsonc.js'
import type { Machine } from './machine.js'
import { type Quantity, quantity, wanted } from './quantity.js'

/** Why a value is not a machine, and at which field. */
export type MachineFault = Fault<'BadMachine'>

/** Braid's own machines by name. */
export const machines: Readonly<Record<string, Machine>> = { h200, h200x2, h200x8 }

/**
 * A field: its quantity and the least value. With `above: 0` the value must be greater than 0. `otherwise` is
 * the value of an absent field.
 */
interface Field {
  readonly is: Quantity
  readonly least?: number
  readonly above?: number
  readonly otherwise?: number
}
type Schema<A> = { readonly [K in keyof A]: A[K] extends number ? Field : Schema<A[K]> }

const count = (least: number): Field => ({ is: 'count', least })
const rate: Field = { is: 'bytesPerSecond', above: 0 }
const flops: Field = { is: 'flopsPerSecond', above: 0 }
const part: Field = { is: 'part', least: 0 }
const time: Field = { is: 'nanoseconds', least: 0 }
const copy: Schema<Machine['peer']> = { engines: count(1), rate, latency: time }

const schema: Schema<Omit<Machine, 'name'>> = {
  devices: count(1),
  ranks: count(1),
  device: {
    memory: { is: 'bytes', above: 0 },
    bandwidth: rate,
    cache: { is: 'bytes', least: 0 },
    cacheBandwidth: rate,
    flops: { bf16: flops, f16: flops, f32: flops, vector: flops },
    power: { products: { is: 'part', above: 0 }, memory: part },
    multiprocessors: count(1),
    bytesPerBlock: { is: 'bytes', above: 0 },
    tile: count(1),
    kernelLatency: time,
    productLatency: time,
    waitLatency: time,
    nodeLatency: { ...time, otherwise: h200.device.nodeLatency },
    queueDepth: count(1),
    queues: { ...count(1), otherwise: 8 },
    bus: rate,
    h2d: copy,
    d2h: copy,
  },
  host: {
    launch: time,
    product: time,
    copy: time,
    graph: { ...time, otherwise: h200.host.graph },
    node: { ...time, otherwise: h200.host.node },
    record: time,
    wait: time,
    allocate: time,
    collective: time,
    callback: time,
    tick: time,
    turnaround: time,
    bandwidth: rate,
    cache: { is: 'bytes', least: 0 },
    cacheBandwidth: rate,
  },
  peer: copy,
  collectives: {
    allGather: rate,
    reduceScatter: rate,
    allReduce: rate,
    allToAll: rate,
    broadcast: rate,
    sendReceive: rate,
    latency: time,
    multiprocessors: count(0),
  },
}

const isField = (of: unknown): of is Field =>
  typeof of === 'object' && of !== null && typeof (of as Field).is === 'string'
const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

class Reading {
  readonly faults: MachineFault[] = []

  fault(at: string, wanted: string, found: string, next: string): void {
    const subject = at.slice(at.lastIndexOf('.') + 1)
    this.faults.push({ _tag: 'BadMachine', at, subject, wanted, found, next })
  }

  number(value: unknown, at: string, { is, least, above }: Field): number {
    const read = quantity(value, is)
    if (read === undefined) {
      this.fault(at, wanted[is], show(value), `give ${wanted[is]}`)
      return 1
    }
    if (is === 'count' && !Number.isSafeInteger(read))
      this.fault(at, wanted.count, show(value), 'give a whole number')
    else if (least !== undefined && read < least)
      this.fault(at, `at least ${least}`, show(value), `give ${wanted[is]}, at least ${least}`)
    else if (above !== undefined && !(read > above))
      this.fault(at, `more than ${above}`, show(value), `give ${wanted[is]}, more than ${above}`)
    return read
  }

  /** All fields of `of`, from `value` where it has them, else from `base`. */
  fields<A>(value: unknown, at: string, of: Schema<A>, base: A | undefined, more: readonly string[]): A {
    const given = isObject(value) ? value : {}
    if (!isObject(value)) this.fault(at, 'an object', show(value), 'give an object of fields')
    const names = Object.keys(of)
    for (const key of Object.keys(given))
      if (!names.includes(key) && !more.includes(key))
        this.fault(
          `${at}.${key}`,
          `one of ${[...more, ...names].join(', ')}`,
          `a field called ${show(key)}`,
          'correct the name, or leave it out',
        )
    const read: Record<string, unknown> = {}
    for (const name of names) {
      const field: unknown = of[name as keyof A]
      const before = base?.[name as keyof A]
      const own = Object.hasOwn(given, name) ? given[name] : undefined
      if (own === undefined && before !== undefined) read[name] = before
      else if (own === undefined && isField(field) && field.otherwise !== undefined)
        read[name] = field.otherwise
      else if (own === undefined) this.missing(`${at}.${name}`, field)
      else
        read[name] = isField(field)
          ? this.number(own, `${at}.${name}`, field)
          : this.fields(own, `${at}.${name}`, field as Schema<unknown>, before, [])
    }
    return read as A
  }

  private missing(at: string, field: unknown): void {
    const what = isField(field) ? wanted[field.is] : 'an object'
    this.fault(
      at,
      what,
      'nothing',
      'give it, or take what a machine that is known says with "extends": "h200"',
    )
  }
}

const names = (): string => Object.keys(machines).join(', ')

/**
 * A machine from a value: the name of a known machine, or a description, which may extend a known machine
 * (`extends`) and then gives only the differences. Reports all errors at once, each with the field's path.
 * Never throws.
 */
export const machineOf = (
  value: unknown,
  at = 'machine',
): E.Either<ReadonlyNonEmptyArray<MachineFault>, Machine> => {
  const r = new Reading()
  if (typeof value === 'string') {
    if (Object.hasOwn(machines, value)) return E.right(machines[value]!)
    r.fault(
      at,
      `one of ${names()}, or a machine's description`,
      show(value),
      'correct the name, or describe the machine',
    )
  } else if (!isObject(value)) {
    r.fault(
      at,
      'the name of a machine, or an object that describes one',
      show(value),
      `give one of ${names()}, or fields`,
    )
  } else {
    const { extends: parent, name } = value
    if (parent !== undefined && !(typeof parent === 'string' && Object.hasOwn(machines, parent)))
      r.fault(
        `${at}.extends`,
        `one of ${names()}`,
        show(parent),
        'extend a machine that is known, or give all fields',
      )
    const base = typeof parent === 'string' && Object.hasOwn(machines, parent) ? machines[parent] : undefined
    if (typeof name !== 'string' || name.trim() === '')
      r.fault(`${at}.name`, 'a name', name === undefined ? 'nothing' : show(name), 'name the machine')
    const machine = r.fields(value, at, schema, base, ['name', 'extends'])
    if (r.faults.length === 0) return E.right({ name: name as string, ...machine })
  }
  const faults: readonly MachineFault[] = r.faults
  return E.left(isNonEmpty(faults) ? faults : [notRead(at)])
}

const notRead = (at: string): MachineFault => ({
  _tag: 'BadMachine',
  at,
  subject: 'machine',
  wanted: 'a machine',
  found: 'nothing that could be read',
  next: `give one of ${names()}`,
})

/** A machine from the text of a file, JSON with comments. `at`: the file's name for messages. */
export const parseMachine = (
  text: string,
  at = 'machine',
): E.Either<ReadonlyNonEmptyArray<MachineFault>, Machine> => {
  const json = withoutComments(text)
  try {
    return machineOf(JSON.parse(json), at)
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error)
    return E.left([
      {
        _tag: 'BadMachine',
        at: `${at}: ${placeIn(json, syntaxError(json))}`,
        subject: 'machine',
        wanted: 'JSON, with comments if you like',
        found: message.slice(0, 200),
        next: 'correct the syntax; npx braid doctor --machine FILE writes a file to start from',
      },
    ])
  }
}
