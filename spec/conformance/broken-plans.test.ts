// Plans from files with one wrong field, opened and run in a process that they may not end: each is refused, or
// yields what it would yield in any memory. A sample of all fields here; all changes of all fields with
// `node --import tsx spec/fixtures/broken-plans.ts 1 1 0`.
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { isFullRun } from '../fixtures/runs.js'

const script = fileURLToPath(new URL('../fixtures/broken-plans.ts', import.meta.url))

test('a plan with a wrong field is refused, or touches no memory of others', () => {
  const share = isFullRun ? '0.05' : '0.01'
  const { status, signal, stdout, stderr } = spawnSync(
    process.execPath,
    ['--import', 'tsx', script, share, '20261128', '0'],
    { encoding: 'utf8', timeout: 150_000 },
  )
  const lines = stdout.trim().split('\n')
  const said = lines.filter(line => !line.startsWith('at '))
  // The last plan that was opened is the one that ended the process.
  expect({ status, signal, stderr, last: status === 0 ? '' : lines.at(-1) }).toEqual({
    status: 0,
    signal: null,
    stderr: '',
    last: '',
  })
  expect(said.slice(0, -1)).toEqual([])
  const [, ran, refused] = /: (\d+) ran, (\d+) refused$/.exec(said.at(-1)!) ?? []
  expect(Number(ran)).toBeGreaterThan(isFullRun ? 50 : 5)
  expect(Number(refused)).toBeGreaterThan(isFullRun ? 500 : 50)
})
