// Line numbers of this file stand in the golden texts of `explain`.
// Prints, as JSON by name, the explanations of this folder's text files. A separate process, so that places
// in the graphs are those of the TypeScript sources, as on the command line.
//
// The language is imported when this runs, so that nothing stands before the imports but this text.
//
const { compile, download, explain, graph, lane, matmul, on, orThrow, param, relu, tensor, upload } =
  await import('../../dsl/index.js')
const { goldens } = await import('./graphs.js')
const { slowMachine: machine } = await import('../fixtures/machines/plain.js')

const square = tensor('f32', [64, 64])

// Six weights, of which three may be in memory: no window is given, and the compiler finds one.
const windowed = graph('windowed', { x: square }, ({ x }) => {
  let y = x.pipe(upload(lane('rows')), on(lane('math')))
  for (let i = 0; i < 6; i++)
    y = y.pipe(matmul(param(`w${i}`, square, { on: 'host' }).pipe(upload(lane('copy')))), relu())
  return { y: y.pipe(download(lane('rows'))) }
})

const texts = {
  ...Object.fromEntries(
    (['weight-streaming', 'diamond', 'state'] as const).map(name => [
      name,
      explain(orThrow(compile(goldens[name] as never, { mode: 'eager', machine })), 'text', { machine }),
    ]),
  ),
  windowed: explain(orThrow(compile(windowed, { mode: 'eager', machine, memory: 5 * 16_384 })), 'text', {
    machine,
  }),
}
for (const name of ['diamond', 'two-devices'] as const)
  Object.assign(texts, {
    [`${name}.graph`]: explain(orThrow(compile(goldens[name] as never, { machine, mode: 'graph' })), 'text', {
      machine,
    }),
  })
process.stdout.write(JSON.stringify(texts))
