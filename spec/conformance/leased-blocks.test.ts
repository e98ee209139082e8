// An output that is not downloaded is leased as a block of the session's device. Free-standing lanes read it,
// and whatever takes its memory next comes after the uses that they marked.
import { describe, expect, it } from 'vitest'
import { compile } from '../../dsl/compiler/compile.js'
import { add, download, graph, lane, on, orThrow, relu, tensor, upload } from '../../dsl/index.js'
import { copyUnseen, hold } from '../../runtime/device/testing.js'
import { Device, open, pulled } from '../../runtime/index.js'
import { pause, present } from './devices.js'

const copy = lane('copy')
const math = lane('math')
const size = 2 ** 18
const net = graph({ x: tensor('f32', [size]) }, ({ x }) => {
  const a = x.pipe(upload(copy), on(math), relu())
  return { kept: a.pipe(add(1)), sum: a.pipe(add(2), download(copy)) }
})
const filled = (value: number): Float32Array => new Float32Array(size).fill(value)
const plans = {
  pooled: orThrow(compile(net, { inFlight: 1 })),
  planned: orThrow(compile(net, { inFlight: 1, storage: 'planned' })),
}

describe.each(present)('outputs left on the device, on %s', name => {
  it.each(['pooled', 'planned'] as const)(
    'a lane reads one, and the next tick in its slot comes after the read: %s',
    async storage => {
      await using device = orThrow(await Device.open(name)())
      await using session = orThrow(await open(plans[storage], { device, poison: true })())
      const reader = device.lane({ name: 'reader' })
      const seen = device.pinned(size * 4)
      const run = session.run({ x: pulled([filled(1), filled(5)]) })[Symbol.asyncIterator]()
      const first = (await run.next()).value!
      expect(first.kept.bytes).toBe(size * 4)
      expect(first.sum[size - 1]).toBe(3)
      const gate = hold(device, reader)
      copyUnseen(reader, seen, first.kept) // waits at the gate
      first.kept.recordUse(reader)
      first[Symbol.dispose]()
      let ended = false
      const second = run.next().then(({ value }) => {
        ended = true
        return value!
      })
      await pause(30)
      expect(ended).toBe(false)
      gate.open()
      using lease = await second
      await reader.synchronize()
      expect(new Float32Array(seen.view()).every(value => value === 2)).toBe(true)
      reader.copy(seen, lease.kept)
      await reader.synchronize()
      expect(new Float32Array(seen.view()).every(value => value === 6)).toBe(true)
    },
  )
})
