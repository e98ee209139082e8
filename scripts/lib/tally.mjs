// Counting: every suite and every single check adds to one tally, whose line ends the run.
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { root, run, runBeside, tool } from './run.mjs'

export const tally = () => ({ passed: 0, failed: 0, skipped: 0, wrong: [] })

/** One check that either holds or does not. */
export const check = (sum, name, work) => {
  console.log(`\n── ${name}`)
  let good = false
  try {
    good = work() === true
  } catch (error) {
    console.error(`braid: ${error.message}`)
  }
  if (good) sum.passed++
  else {
    sum.failed++
    sum.wrong.push(name)
  }
  return good
}

const report = name => {
  mkdirSync(join(root, '.cache'), { recursive: true })
  const path = join(root, '.cache', name)
  rmSync(path, { force: true })
  return path
}

const readReport = path => (existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')) : undefined)

/** vitest over spec/, or over the files named. A run that dies before its report counts as one failure. */
export const runVitest = (sum, args = []) => {
  console.log('\n── vitest')
  const path = report('vitest.json')
  const status = run(process.execPath, [
    tool.vitest,
    'run',
    '--reporter=default',
    '--reporter=json',
    `--outputFile.json=${path}`,
    ...args,
  ])
  const result = readReport(path)
  sum.passed += result?.numPassedTests ?? 0
  sum.skipped += (result?.numPendingTests ?? 0) + (result?.numTodoTests ?? 0)
  const failed = result?.numFailedTests ?? 0
  // A file that cannot be loaded has no tests that could fail, and still makes the run fail.
  sum.failed += failed || (status === 0 ? 0 : 1)
  if (status !== 0) sum.wrong.push('vitest')
}

/** One GoogleTest binary, its tests shared out over a few processes. */
export const runGoogleTest = async (sum, binary, name, env = {}) => {
  console.log(`\n── ${name}`)
  const shards = Math.min(4, availableParallelism())
  const shard = async index => {
    const path = report(`${name.replace(/\W+/g, '-')}-${index}.json`)
    const own = { ...env, GTEST_TOTAL_SHARDS: String(shards), GTEST_SHARD_INDEX: String(index) }
    const args = [`--gtest_output=json:${path}`, '--gtest_brief=1']
    const status = await runBeside(binary, args, { env: { ...process.env, ...own } })
    const cases = (readReport(path)?.testsuites ?? []).flatMap(suite => suite.testsuite)
    const failed = cases.filter(one => one.failures?.length).length
    const skipped = cases.filter(one => one.result === 'SKIPPED' || one.status === 'NOTRUN').length
    // A process that dies before its report counts as one failure.
    sum.failed += failed || (status === 0 ? 0 : 1)
    sum.skipped += skipped
    sum.passed += cases.length - failed - skipped
    return status
  }
  const statuses = await Promise.all(Array.from({ length: shards }, (_, index) => shard(index)))
  if (statuses.some(status => status !== 0)) sum.wrong.push(name)
}

/** The closing line; the exit status. */
export const close = sum => {
  if (sum.wrong.length) console.log(`\nFailed: ${sum.wrong.join(', ')}`)
  console.log(`\n${sum.passed} passed, ${sum.failed} failed, ${sum.skipped} skipped`)
  return sum.failed === 0 ? 0 : 1
}
