// Prints, as JSON by name, the explanations that are kept as text beside this file. A process of its own: here places in the graphs are those of the TypeScript that was
// written, as a user of the command line sees them.
import { mapPositions } from '../../runtime/cli/positions.js'

mapPositions()
const { compile, explain, orThrow } = await import('../../dsl/index.js')
const { goldens } = await import('./graphs.js')
const { slowMachine } = await import('../support/slow-machine.js')
const { streamed, streamedLeast } = await import('../support/streamed.js')

const texts = {
  ...Object.fromEntries(
    (['weight-streaming', 'diamond', 'state'] as const).map(name => [
      name,
      explain(orThrow(compile(goldens[name] as never)), 'text', { machine: slowMachine }),
    ]),
  ),
  windowed: explain(orThrow(compile(streamed(6, 1), { memory: streamedLeast(1) })), 'text', { machine: slowMachine }),
}
process.stdout.write(JSON.stringify(texts))
