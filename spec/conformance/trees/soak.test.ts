// Launches of random trees, some thousands of them; `npm run soak -- --trees N` runs as many as one likes.
import { describe, expect, it } from 'vitest'
import { present } from '../devices.js'
import { soak } from './soak.js'

const total = 3000

describe.each(present)('random trees on %s', device => {
  it(`yield their values in ${total} launches, whoever reads when, and leave nothing behind`, async () => {
    const { launches, trees, remade, reads } = await soak(device, total, { each: 150 })
    expect({ launches, trees }).toEqual({ launches: total, trees: total / 150 })
    expect(remade).toBeGreaterThan(0)
    expect(reads).toBeGreaterThan(0)
  }, 600_000)
})
