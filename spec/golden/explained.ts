// Prints, as JSON by name, the explanations that are kept as text beside this file. A process of its own: here places in the graphs are those of the TypeScript that was
// written, as a user of the command line sees them.
import { mapPositions } from '../../runtime/cli/positions.js'

mapPositions()
const { compile, explain, orThrow } = await import('../../dsl/index.js')
const { goldens } = await import('./graphs.js')
const { streamed, streamedLeast } = await import('../support/streamed.js')

const texts = {
  ...Object.fromEntries(
    (['weight-streaming', 'diamond', 'state'] as const).map(name => [
      name,
      explain(orThrow(compile(goldens[name] as never))),
    ]),
  ),
  windowed: explain(orThrow(compile(streamed(6, 1), { memory: streamedLeast(1) }))),
}
process.stdout.write(JSON.stringify(texts))
