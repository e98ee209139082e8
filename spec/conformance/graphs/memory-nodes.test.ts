// Memory nodes: what a graph allocates and frees in each launch.
import { describe, expect, it } from 'vitest'
import { ExecutableGraph, GraphDefinition } from '../../../runtime/index.js'
import { KiB, openOn } from '../../fixtures/allocator.js'
import { present } from '../devices.js'

describe.each(present)('memory nodes on %s', name => {
  it('a launch allocates, fills, copies out and frees', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using result = device.pinned(KiB, lane)
    using definition = GraphDefinition.create(device)
    const made = definition.malloc(KiB)
    const filled = definition.fill(made.memory, 7, { bits: 32, after: [made] })
    const copied = definition.copy(result, made.memory, { after: [filled] })
    const freed = definition.free(made.memory, { after: [copied] })
    expect([made, filled, copied, freed].map(({ kind }) => kind)).toEqual(['malloc', 'fill', 'copy', 'free'])
    using graph = ExecutableGraph.instantiate(definition)
    graph.launch(lane)
    await lane.synchronize()
    expect([...new Set(new Uint32Array(result.view()))]).toEqual([7])
  })
})
