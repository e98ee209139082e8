// The body of .ci/run: the checks, the tests, and the C++ tests once more under each sanitizer; one line sums up all of it.
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { buildTests } from './build.mjs'
import { withBuildLock } from './lib/lock.mjs'
import { entry, root } from './lib/run.mjs'
import { check, close, runGoogleTest, tally } from './lib/tally.mjs'

/** Runs one of our own scripts and adds the line it ends with to the sum. */
const child = (sum, script) => {
  const result = spawnSync(process.execPath, [join(root, 'scripts', script)], {
    cwd: root,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
    maxBuffer: 1 << 28,
  })
  process.stdout.write(result.stdout ?? '')
  const last = [...(result.stdout ?? '').matchAll(/^(\d+) passed, (\d+) failed, (\d+) skipped$/gm)].pop()
  if (last) {
    sum.passed += Number(last[1])
    sum.failed += Number(last[2])
    sum.skipped += Number(last[3])
  }
  if (result.status !== 0) sum.wrong.push(script)
  if (result.status !== 0 && !Number(last?.[2])) sum.failed++
}

const sanitizers = [
  {
    name: 'address',
    flags: 'address,undefined',
    env: { UBSAN_OPTIONS: 'print_stacktrace=1:halt_on_error=1', ASAN_OPTIONS: 'detect_stack_use_after_return=1' },
  },
  { name: 'thread', flags: 'thread', env: { TSAN_OPTIONS: 'halt_on_error=1:second_deadlock_stack=1' } },
]

await entry(async () => {
  const sum = tally()
  child(sum, 'check.mjs')
  child(sum, 'test.mjs')
  for (const { name, flags, env } of sanitizers) {
    let binary
    const built = check(sum, `build with -fsanitize=${flags}`, () => {
      binary = withBuildLock(() => buildTests(`native/build-${name}`, name))
      return binary !== undefined
    })
    if (built) await runGoogleTest(sum, join(root, binary), `C++ tests under ${name}`, env)
  }
  return close(sum)
})
