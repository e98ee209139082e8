// npm test: builds what is stale, checks the types, and runs the tests of spec/ that take less than four
// minutes on two cores.
//   npm test -- FILE…: these test files alone, with all of their cases.
//   npm test -- --all: every test with all of its cases, and the C++ tests where GoogleTest is installed.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { prepare } from './build.mjs'
import { withBuildLock } from './lib/lock.mjs'
import { buildTests } from './lib/native.mjs'
import { checkTypes, entry, root, Stop } from './lib/run.mjs'
import { leftToCi, quickShare, testFolder } from './lib/suites.mjs'
import { check, close, listSkipped, runGoogleTest, runVitest, tally } from './lib/tally.mjs'

/** Builds and runs the C++ tests. Returns their suites; none where GoogleTest is not installed. */
const cppTests = async sum => {
  let binary
  const built = check(sum, 'build of the C++ tests', () => {
    binary = withBuildLock(() => buildTests(testFolder), 'build-tests')
    return true
  })
  if (binary) return runGoogleTest(sum, join(root, binary), 'C++ tests')
  if (built) {
    console.log(
      '\nThe C++ tests were left out: GoogleTest is not installed ' +
        '(Debian, Ubuntu: sudo apt-get install libgtest-dev).',
    )
    sum.skipped++
  }
  return []
}

const sayLeftOut = () => {
  console.log(`\nLeft to .ci/run, which runs everything:
  nine tenths of the cases of each property test
  the C++ tests, and the same tests under the address and the thread sanitizer`)
  for (const [file, why] of leftToCi) console.log(`  ${file}: ${why}`)
}

await entry(async () => {
  const words = process.argv.slice(2)
  const all = words.includes('--all')
  const files = words.filter(word => word !== '--all')
  prepare({ checked: files.length > 0 })
  const sum = tally()
  if (files.length > 0) {
    listSkipped(await runVitest(sum, files))
    return close(sum)
  }
  check(sum, 'types', checkTypes)
  if (all) listSkipped([...(await runVitest(sum)), ...(await cppTests(sum))])
  else {
    const gone = leftToCi.filter(([file]) => !existsSync(join(root, file)))
    if (gone.length > 0)
      throw new Stop(`${gone.join('\n')}\nscripts/lib/suites.mjs names files that are not there.`)
    const left = leftToCi.map(([file]) => file)
    const environment = { BRAID_RUNS: String(quickShare), BRAID_LEFT_OUT: left.join(',') }
    const suites = await runVitest(sum, [], environment)
    check(sum, 'what is left to CI was left out', () => !suites.some(({ name }) => left.includes(name)))
    listSkipped(suites)
    sayLeftOut()
  }
  return close(sum)
})
