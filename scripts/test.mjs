// npm test [-- FILE…]: builds what is stale, checks the types, runs spec/ under vitest and, where GoogleTest is installed, the C++ tests.
import { join } from 'node:path'
import { prepare } from './build.mjs'
import { withBuildLock } from './lib/lock.mjs'
import { buildTests } from './lib/native.mjs'
import { checkTypes, entry, root } from './lib/run.mjs'
import { check, close, runGoogleTest, runVitest, tally } from './lib/tally.mjs'

await entry(async () => {
  prepare()
  const sum = tally()
  const chosen = process.argv.slice(2)
  if (chosen.length) {
    runVitest(sum, chosen)
    return close(sum)
  }
  check(sum, 'types', checkTypes)
  runVitest(sum)
  let binary
  const built = check(sum, 'build of the C++ tests', () => {
    binary = withBuildLock(() => buildTests('native/build'))
    return true
  })
  if (binary) await runGoogleTest(sum, join(root, binary), 'C++ tests')
  else if (built) {
    console.log(
      '\nThe C++ tests were left out: GoogleTest is not installed (Debian, Ubuntu: sudo apt-get install libgtest-dev).',
    )
    sum.skipped++
  }
  return close(sum)
})
