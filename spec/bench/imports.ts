// The first import of both doors, in a process of its own, beside an import of rxjs and fp-ts alone: processor
// time of each process, one after the other in turn.
import { spawnSync } from 'node:child_process'
import { root } from './allocator-run.js'
import { middle } from './pipeline-runs.js'

const pairs = 15

const programs = {
  ours: "import 'braid-gpu'\nimport 'braid-gpu/runtime'",
  theirs: "import 'rxjs'\nimport 'fp-ts'",
}

/** Milliseconds of processor time of a process that runs this. */
const processorTime = (code: string): number => {
  const end = "process.on('exit', () => console.log(JSON.stringify(process.cpuUsage())))"
  const args = ['--input-type=module', '--eval', `${code}\n${end}`]
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd: root, encoding: 'utf8' })
  if (status !== 0) throw new Error(stderr)
  const { user, system } = JSON.parse(stdout) as { readonly user: number; readonly system: number }
  return (user + system) / 1000
}

export const bench = {
  name: 'imports',
  title: 'the first import of both doors, beside rxjs and fp-ts alone; bar: 1.3',
  async run(log: (line: string) => void) {
    const times = Array.from({ length: pairs }, () => ({
      ours: processorTime(programs.ours),
      theirs: processorTime(programs.theirs),
    }))
    log(`${pairs} pairs of processes, processor time`)
    const ratio = middle(times.map(({ ours, theirs }) => ours / theirs))
    const [ours, theirs] = [middle(times.map(({ ours }) => ours)), middle(times.map(({ theirs }) => theirs))]
    return { rows: [{ 'doors ms': ours, 'rxjs and fp-ts ms': theirs, ratio }], ok: ratio <= 1.3 }
  },
}
