// The traces of what ran, read back by a decoder that knows only the wire format.
import { describe, expect, it } from 'vitest'
import { download, graph, lane, matmul, tensor, upload } from '../../dsl/index.js'
import { chromeTrace, perfettoTrace, pulled } from '../../runtime/index.js'
import { opened } from './devices.js'

type Field = { readonly number: number; readonly value: bigint | Uint8Array }

const decode = (bytes: Uint8Array): readonly Field[] => {
  const fields: Field[] = []
  let at = 0
  const varint = (): bigint => {
    let value = 0n
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[at++]!
      value |= BigInt(byte & 0x7f) << shift
      if (byte < 0x80) return value
    }
  }
  while (at < bytes.length) {
    const key = varint()
    const number = Number(key >> 3n)
    const kind = Number(key & 7n)
    if (kind === 0) fields.push({ number, value: varint() })
    else if (kind === 1) {
      fields.push({
        number,
        value: new DataView(bytes.buffer, bytes.byteOffset + at, 8).getBigUint64(0, true),
      })
      at += 8
    } else if (kind === 2) {
      const length = Number(varint())
      if (at + length > bytes.length) throw new Error('a field that ends outside its message')
      fields.push({ number, value: bytes.subarray(at, at + length) })
      at += length
    } else throw new Error(`wire type ${kind}`)
  }
  return fields
}
const all = (fields: readonly Field[], number: number) =>
  fields.filter(field => field.number === number).map(({ value }) => value)
const message = (fields: readonly Field[], number: number) =>
  all(fields, number).map(value => decode(value as Uint8Array))
const text = (value: bigint | Uint8Array | undefined) => new TextDecoder().decode(value as Uint8Array)

const net = graph('traced', { x: tensor('f32', [8, 8]), w: tensor('f32', [8, 8]) }, ({ x, w }) => {
  const b = w.pipe(upload(lane('copy')))
  return { y: x.pipe(upload(lane('math')), matmul(b), download(lane('back'))) }
})

const traced = async () => {
  await using session = await opened(net, 'host', { trace: true })
  const values = Array.from({ length: 4 }, () => new Float32Array(64).fill(1))
  await session.run({ x: pulled(values), w: pulled(values) }).forEach(lease => void lease[Symbol.dispose]())
  return { plan: session.plan, records: session.trace() }
}

describe('a trace', () => {
  it('has a track a lane, a slice a run, arrows of waits, and counters, as Perfetto reads them', async () => {
    const { plan, records } = await traced()
    const packets = message(decode(perfettoTrace(records, plan)), 1)
    for (const packet of packets) expect(all(packet, 10)).toEqual([1n])
    const tracks = packets.flatMap(packet => message(packet, 60))
    const names = new Map(tracks.map(track => [all(track, 1)[0], text(all(track, 2)[0])]))
    for (const { name } of plan.lanes) expect([...names.values()]).toContain(name)
    const events = packets.flatMap(packet =>
      message(packet, 11).map(event => ({
        time: all(packet, 8)[0] as bigint,
        kind: all(event, 9)[0],
        track: all(event, 11)[0],
        name: text(all(event, 23)[0]),
        flows: all(event, 47),
        ends: all(event, 48),
        counter: all(event, 30)[0],
      })),
    )
    for (let i = 1; i < events.length; i++) expect(events[i]!.time >= events[i - 1]!.time).toBe(true)
    const begins = events.filter(({ kind }) => kind === 1n)
    expect(begins).toHaveLength(records.length)
    expect(events.filter(({ kind }) => kind === 2n)).toHaveLength(records.length)
    expect(begins.map(({ name, track }) => `${names.get(track)} ${name}`).sort()).toEqual(
      records.map(({ lane, name }) => `${lane} ${name}`).sort(),
    )
    // On each track slices open and close in turn: a lane does one thing at a time.
    for (const track of new Set(begins.map(({ track }) => track)))
      events
        .filter(event => event.track === track)
        .forEach(({ kind }, i) => void expect(kind).toBe(i % 2 === 0 ? 1n : 2n))
    const starts = begins.flatMap(({ flows }) => flows)
    const ends = begins.flatMap(({ ends }) => ends)
    expect(starts.length).toBeGreaterThan(0)
    expect([...starts].sort()).toEqual([...ends].sort())
    const counters = events.filter(({ kind }) => kind === 4n).map(({ counter }) => counter)
    expect(counters.length).toBeGreaterThan(0)
    expect(counters.at(-1)).toBe(0n)
  })

  it('has a readable twin', async () => {
    const { plan, records } = await traced()
    const { traceEvents } = JSON.parse(chromeTrace(records, plan)) as {
      traceEvents: { ph: string; name: string; args?: { name?: string } }[]
    }
    expect(traceEvents.filter(({ ph }) => ph === 'X').map(({ name }) => name)).toEqual(
      records.map(({ name }) => name),
    )
    expect(traceEvents.filter(({ name }) => name === 'thread_name').map(({ args }) => args!.name)).toEqual(
      plan.lanes.map(({ name }) => name),
    )
    expect(traceEvents.filter(({ ph }) => ph === 's').length).toBe(
      traceEvents.filter(({ ph }) => ph === 'f').length,
    )
  })
})
