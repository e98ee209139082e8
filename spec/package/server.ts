// A server of a user's, for a bundler: it compiles a graph, opens it on the host device and runs one tick.
import { compile, download, graph, matmul, mul, orThrow, param, tensor, upload } from 'braid-gpu'
import { open, pulled } from 'braid-gpu/runtime'

const wrong = compile(
  graph({ x: tensor('f32', [2, 3]) }, ({ x }) => ({
    y: x.pipe(upload(), matmul(param('w', tensor('f32', [2 as number, 3]))), download()),
  })),
)
if (wrong._tag === 'Left') console.log(wrong.left[0].at)

const net = graph({ x: tensor('f32', [2]) }, ({ x }) => ({
  y: x.pipe(upload(), mul(param('w', tensor('f32', [2]))), download()),
}))
const session = orThrow(
  await open(orThrow(compile(net)), { device: 'host', params: { w: Float32Array.of(3, 4) } })(),
)
for await (const lease of session.run({ x: pulled([Float32Array.of(5, 6)]) })) {
  console.log(`served ${[...lease.y].join(' and ')}`)
  lease[Symbol.dispose]()
}
await session.close()
