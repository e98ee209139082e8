// What a plan may be at most is one list: compile makes nothing beyond it, parsePlan reads nothing beyond it,
// and the addon opens whatever is within it.

import { readFileSync } from 'node:fs'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, it } from 'vitest'
import {
  compile,
  download,
  graph,
  lane,
  mul,
  on,
  orThrow,
  parsePlan,
  tensor,
  toJSON,
  upload,
} from '../../../dsl/index.js'
import { limits } from '../../../dsl/ir/limits.js'

/** A chain in which every operation names a lane of its own. */
const manyLanes = (count: number) =>
  graph('lanes', { x: tensor('f32', [4]) }, ({ x }) => {
    let value = x.pipe(upload(lane('in')))
    for (let i = 0; i < count; i++) value = value.pipe(on(lane(`lane ${i}`)), mul(2))
    return { y: value.pipe(download(lane('out'))) }
  })

describe('the limits of a plan', () => {
  it('are the same in the addon', () => {
    const text = readFileSync(new URL('../../../native/executor/decode.h', import.meta.url), 'utf8')
    const stated = (name: string): number => Number(new RegExp(`${name} = (\\d+)`).exec(text)?.[1])
    expect(stated('mostLanes')).toBe(limits.lanes)
    expect(stated('mostInFlight')).toBe(limits.inFlight)
    expect(stated('mostDevices')).toBe(limits.devices)
  })

  it('fold lanes beyond them into fewer CUDA streams', () => {
    const plan = orThrow(compile(manyLanes(limits.lanes + 10)))
    expect(plan.lanes.length).toBe(limits.lanes)
    expect(parsePlan(toJSON(plan))._tag).toBe('Right')
  })

  it('hold for the names of folded lanes', () => {
    const plan = orThrow(compile(manyLanes(limits.lanes), { lanes: 3 }))
    expect(plan.lanes.every(({ name }) => name.length <= limits.name)).toBe(true)
    expect(parsePlan(toJSON(plan))._tag).toBe('Right')
  })

  it('are what compile and parsePlan ask of ticks in flight, with the same words', () => {
    const most = orThrow(compile(manyLanes(1), { inFlight: limits.inFlight }))
    expect(parsePlan(toJSON(most))._tag).toBe('Right')
    const refused = compile(manyLanes(1), { inFlight: limits.inFlight + 1 })
    const unread = parsePlan(toJSON({ ...most, inFlight: limits.inFlight + 1 }))
    if (!E.isLeft(refused) || !E.isLeft(unread)) throw new Error('both are beyond the limit')
    const range = `1 to ${limits.inFlight}`
    expect(refused.left[0]).toMatchObject({ _tag: 'BadOption', found: `${limits.inFlight + 1}` })
    expect(refused.left[0].wanted).toContain(range)
    expect(unread.left[0].wanted).toContain(range)
  })

  it('are what compile says where more lanes are asked for', () => {
    const refused = compile(manyLanes(1), { lanes: limits.lanes + 1 })
    if (!E.isLeft(refused)) throw new Error('it is beyond the limit')
    expect(refused.left[0]).toMatchObject({ at: 'options.lanes', wanted: 'a whole number from 1 to 1024' })
  })
})
