// The body of .ci/run: the checks, the tests, those of the package, and the C++ tests once more under each
// sanitizer; one line sums up all of it.
import { join } from 'node:path'
import { withBuildLock } from './lib/lock.mjs'
import { buildSanitized, buildShipped, sanitizers } from './lib/native.mjs'
import { entry, root, runConcurrently } from './lib/run.mjs'
import { check, close, runGoogleTest, tally } from './lib/tally.mjs'

const script = name => join(root, 'scripts', name)

/** Runs one of our own scripts and adds the line it ends with, and what it says has failed, to the sum. */
const child = async (sum, name, ...args) => {
  let printed = ''
  const take = text => {
    printed += text
  }
  const status = await runConcurrently(process.execPath, [script(name), ...args], { onOutput: take })
  const last = [...printed.matchAll(/^(\d+) passed, (\d+) failed, (\d+) skipped$/gm)].pop()
  if (last) {
    sum.passed += Number(last[1])
    sum.failed += Number(last[2])
    sum.skipped += Number(last[3])
  }
  const failed = printed.lastIndexOf('\nFailed: ')
  if (status !== 0) sum.wrong.push(name)
  if (status !== 0 && failed >= 0 && last) sum.details.push(printed.slice(failed + 1, last.index).trimEnd())
  if (status !== 0 && !Number(last?.[2])) sum.failed++
}

const options = {
  address: {
    UBSAN_OPTIONS: 'print_stacktrace=1:halt_on_error=1',
    ASAN_OPTIONS: 'detect_stack_use_after_return=1',
  },
  thread: { TSAN_OPTIONS: 'halt_on_error=1:second_deadlock_stack=1' },
}

await entry(async () => {
  const sum = tally()
  await child(sum, 'check.mjs')
  check(sum, 'the addon that the package ships', () =>
    withBuildLock(() => {
      buildShipped()
      return true
    }),
  )
  // Concurrently with the tests, at low priority. A build that fails here fails again below, and is counted
  // there.
  const ahead = runConcurrently(process.execPath, [script('build.mjs'), '--sanitized'])
  await child(sum, 'test.mjs', '--all')
  await child(sum, 'test-package.mjs')
  await ahead
  for (const name of sanitizers) {
    let binary
    const built = check(sum, `build of the C++ tests, sanitizer: ${name}`, () => {
      binary = buildSanitized(name)
      return binary !== undefined
    })
    if (built) await runGoogleTest(sum, join(root, binary), `C++ tests under ${name}`, options[name])
  }
  return close(sum)
})
