// `braid` as a process, for the suites of the command line. What npm test has built is run, as a user runs it; where a source has changed since, the sources are, through
// tsx, which takes three times as long.
import { spawnSync } from 'node:child_process'
import { readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const root = fileURLToPath(new URL('../../', import.meta.url))

const newest = (folder: string): number =>
  readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter(path => path.endsWith('.ts'))
    .reduce((latest, path) => Math.max(latest, statSync(join(root, folder, path)).mtimeMs), 0)

const built = statSync(join(root, 'dist/.stamp'), { throwIfNoEntry: false })?.mtimeMs ?? 0
const fresh = built > Math.max(...['dsl', 'runtime'].map(newest))

const main = fresh ? [join(root, 'dist/runtime/cli/main.js')] : ['--import', 'tsx', join(root, 'runtime/cli/main.ts')]

/** What programs of the suites import, so that they and the command share one language. */
export const language = join(root, fresh ? 'dist/dsl/index.js' : 'dsl/index.ts')
export const runtime = join(root, fresh ? 'dist/runtime/index.js' : 'runtime/index.ts')

export interface Ended {
  readonly status: number | null
  readonly stdout: string
  readonly stderr: string
}

export const braidWith = (env: NodeJS.ProcessEnv, ...args: string[]): Ended => {
  const { status, stdout, stderr } = spawnSync(process.execPath, [...main, ...args], {
    cwd: root,
    encoding: 'utf8',
    env: { ...process.env, NO_COLOR: '1', ...env },
  })
  return { status, stdout, stderr }
}

export const braid = (...args: string[]): Ended => braidWith({}, ...args)
