// Counting: every suite and every single check adds to one tally, whose line ends the run.
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { root, runConcurrently, tool } from './run.mjs'

export const tally = () => ({ passed: 0, failed: 0, skipped: 0, wrong: [], details: [] })

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

const read = path => (existsSync(path) ? readFileSync(path, 'utf8') : undefined)

/** One suite's cases, and the skipped ones among them with their reasons. */
const suite = name => ({ name, passed: 0, failed: 0, skipped: [], cases: [] })

const addCase = (to, name, state, reason) => {
  to.cases.push({ name, state })
  if (state === 'skipped') to.skipped.push({ name, reason: reason || 'no reason given' })
  else to[state]++
}

const addSuites = (sum, suites) => {
  for (const { passed, failed, skipped } of suites) {
    sum.passed += passed
    sum.failed += failed
    sum.skipped += skipped.length
  }
}

const lastLines = printed =>
  printed.length === 0
    ? ''
    : `; it printed last:\n${Buffer.concat(printed).toString().trimEnd().split('\n').slice(-40).join('\n')}`

/**
 * What the statuses of a suite's programs add. A program that ends with an error although none of its cases
 * failed counts as one failure; what it printed last is repeated at the end of the run.
 */
const addStatus = (sum, name, suites, programs) => {
  const bad = programs.filter(({ status }) => status !== 0)
  if (bad.length === 0) return
  sum.wrong.push(name)
  const failed = suites.flatMap(({ name, cases }) =>
    cases.filter(({ state }) => state === 'failed').map(one => `  ${name}: ${one.name}`),
  )
  sum.details.push(...failed)
  if (failed.length > 0) return
  sum.failed++
  for (const { status, printed } of bad)
    sum.details.push(`  ${name} ended with status ${status}${lastLines(printed)}`)
}

/** vitest over spec/, or over the files named. Returns the suites, one a file. */
export const runVitest = async (sum, args = [], env = {}) => {
  console.log('\n── vitest')
  const path = report('vitest.json')
  const reporters = ['--reporter=default', `--reporter=${join(root, 'scripts/lib/cases-reporter.mjs')}`]
  const status = await runConcurrently(process.execPath, [tool.vitest, 'run', ...reporters, ...args], {
    stdio: ['ignore', 'inherit', 'inherit'],
    env: { ...process.env, ...env, BRAID_CASES: path },
  })
  const suites = JSON.parse(read(path) ?? '{"suites":[]}').suites.map(({ file, tests, broken }) => {
    const found = suite(file)
    for (const { name, state, note } of tests) addCase(found, name, state, note)
    for (const message of broken) addCase(found, message, 'failed')
    return found
  })
  addSuites(sum, suites)
  addStatus(sum, 'vitest', suites, [{ status, printed: [] }])
  return suites
}

const attribute = (text, name) =>
  new RegExp(`\\b${name}="([^"]*)"`)
    .exec(text)?.[1]
    ?.replaceAll(/&#x([0-9A-F]+);/g, (_, hex) => String.fromCodePoint(Number.parseInt(hex, 16)))
    .replaceAll('&quot;', '"')
    .replaceAll('&apos;', "'")
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&amp;', '&')

/**
 * The cases of GoogleTest's XML report, by suite. Its JSON report does not give the reason of a skipped case.
 */
const googleTestSuites = xml =>
  [...xml.matchAll(/<testsuite (.*?)<\/testsuite>/gs)].map(([, text]) => {
    const found = suite(attribute(text, 'name'))
    for (const [, one] of text.matchAll(/<testcase (.*?)(?=<testcase |$)/gs)) {
      const failed = one.includes('<failure ')
      const skipped = one.includes('<skipped ') || attribute(one, 'status') === 'notrun'
      const reason = attribute(one.slice(one.indexOf('<skipped ')), 'message')
        ?.split('\n')
        .at(-1)
      addCase(found, attribute(one, 'name'), failed ? 'failed' : skipped ? 'skipped' : 'passed', reason)
    }
    return found
  })

/** One GoogleTest binary, its tests shared out over a few processes. Returns the suites. */
export const runGoogleTest = async (sum, binary, name, env = {}) => {
  console.log(`\n── ${name}`)
  const shards = Math.min(4, availableParallelism())
  const shard = async index => {
    const path = report(`${name.replace(/\W+/g, '-')}-${index}.xml`)
    const own = { ...env, GTEST_TOTAL_SHARDS: String(shards), GTEST_SHARD_INDEX: String(index) }
    const args = [`--gtest_output=xml:${path}`, '--gtest_brief=1']
    const printed = []
    const status = await runConcurrently(binary, args, {
      env: { ...process.env, BRAID_CACHE: 'off', ...own },
      printed,
    })
    return { status, printed, suites: googleTestSuites(read(path) ?? '') }
  }
  const shared = await Promise.all(Array.from({ length: shards }, (_, index) => shard(index)))
  const suites = shared.flatMap(({ suites }) => suites)
  addSuites(sum, suites)
  addStatus(sum, name, suites, shared)
  return suites
}

/** Prints every skipped case with its reason. */
export const listSkipped = suites => {
  const skipped = suites.flatMap(({ name, skipped }) => skipped.map(one => ({ suite: name, ...one })))
  if (skipped.length > 0) console.log('\nSkipped:')
  for (const { suite, name, reason } of skipped) console.log(`  ${suite}: ${name}: ${reason}`)
}

/** The closing line; the exit status. */
export const close = sum => {
  if (sum.wrong.length) console.log(`\nFailed: ${[sum.wrong.join(', '), ...sum.details].join('\n')}`)
  console.log(`\n${sum.passed} passed, ${sum.failed} failed, ${sum.skipped} skipped`)
  return sum.failed === 0 ? 0 : 1
}
