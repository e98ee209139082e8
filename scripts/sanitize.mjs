// npm run sanitize [-- FILE…]: the tests of the allocator, of sessions and of the addon, or the named files,
// with the addon compiled with -fsanitize=address,undefined. A sanitizer's report about Braid's own code is a
// failure; one about V8 is not, since V8 leaves memory allocated when a process ends. Needs Linux, Node and
// g++ with its libasan.
import { mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { install } from './lib/install.mjs'
import { withBuildLock } from './lib/lock.mjs'
import { buildNative } from './lib/native.mjs'
import { ask, entry, root, Stop } from './lib/run.mjs'
import { check, close, runVitest, tally } from './lib/tally.mjs'
import { needCompiler, needNode } from './lib/tools.mjs'

const folder = 'native/build-asan-node'
const logs = join(root, '.cache/sanitize')
const tests = [
  'spec/conformance/allocator/',
  ...['session', 'addon', 'misuse', 'errors', 'pool', 'memory'].map(
    name => `spec/conformance/${name}.test.ts`,
  ),
]

/** The compiler links what -fsanitize asks for; a bare one often does not. */
const needSanitizers = () => {
  if (process.platform !== 'linux') throw new Stop('The addon runs under sanitizers on Linux alone.')
  const compiler = needCompiler()
  const probe = [
    '-fsanitize=address,undefined',
    '-shared',
    '-fPIC',
    '-x',
    'c++',
    '-',
    '-o',
    join(logs, 'probe.so'),
  ]
  if (ask(compiler, probe, 'int probe() { return 0; }\n') === undefined)
    throw new Stop(
      `${compiler} does not link with -fsanitize=address,undefined: libasan or libubsan is not installed.\n` +
        '  Debian, Ubuntu: sudo apt-get install g++      Fedora: sudo dnf install libasan libubsan',
    )
}

/**
 * The libasan that the addon was linked with. Node does not load it, and it must be a process's first
 * library.
 */
const libasan = () => {
  const path = /libasan\S* => (\S+)/.exec(ask('ldd', [join(root, folder, 'braid.node')]) ?? '')?.[1]
  if (path === undefined)
    throw new Stop(
      `${folder}/braid.node was linked without a libasan of its own, as clang++ does for modules.\n` +
        `  Build it with g++: rm -r ${folder} && CXX=g++ npm run sanitize`,
    )
  return path
}

// A short quarantine: one of the tests watches how the process grows. Leaks are looked for in the logs.
const options = leaks => `detect_leaks=${leaks}:exitcode=0:quarantine_size_mb=6:log_path=${join(logs, 'log')}`

const hook = join(root, 'scripts/lib/sanitized-addon.cjs')

const environment = () => ({
  LD_PRELOAD: [libasan(), process.env.LD_PRELOAD].filter(Boolean).join(':'),
  ASAN_OPTIONS: options(0),
  UBSAN_OPTIONS: `print_stacktrace=1:log_path=${join(logs, 'log')}`,
  NODE_OPTIONS: `${process.env.NODE_OPTIONS ?? ''} --require ${JSON.stringify(hook)}`,
})

const isLoaded = () => {
  const addon = JSON.stringify(join(root, 'native/build/braid.node'))
  const maps = ask(process.execPath, [
    '-p',
    `require(${addon}); require('node:fs').readFileSync('/proc/self/maps', 'utf8')`,
  ])
  return maps?.includes(`${folder}/braid.node`) === true && maps.includes('libasan')
}

// A promise that is pending when its thread is terminated can no longer be settled, and Node-API frees a
// promise's handle only when the promise is settled.
const unavoidable = /\bnapi_create_promise\b/

/** What the logs hold against Braid's own code; each once. */
const findings = () => {
  const found = new Map()
  for (const name of readdirSync(logs).filter(name => name.startsWith('log')))
    for (const report of readFileSync(join(logs, name), 'utf8').split(/\n\n+/)) {
      const leak = /^(Direct|Indirect) leak of/.test(report)
      const ours = report
        .split('\n')
        .filter(line => line.includes('braid.node') || line.includes(join(root, 'native')))
      // A report's frames go from the allocation outwards: what V8 allocated for itself begins with V8.
      const wrong = leak
        ? ours.length > 0 && !unavoidable.test(report) && !/#1 .*\bv8::internal::/.test(report)
        : /ERROR: AddressSanitizer|runtime error:|LeakSanitizer has encountered/.test(report)
      if (wrong)
        found.set(
          leak
            ? ours
                .slice(0, 2)
                .join('\n')
                .replaceAll(/0x[0-9a-f]+/g, '')
            : report,
          report,
        )
    }
  return [...found.values()]
}

await entry(async () => {
  needNode()
  rmSync(logs, { recursive: true, force: true })
  mkdirSync(logs, { recursive: true })
  withBuildLock(() => {
    install()
    needSanitizers()
    buildNative()
    buildNative(folder, { BRAID_SANITIZE: 'address' })
  })
  Object.assign(process.env, environment())
  const sum = tally()
  const loaded = check(sum, 'the addon that is loaded is the one under sanitizers', isLoaded)
  if (!loaded) return close(sum)
  const pool = ['--pool=forks', '--maxWorkers=1', '--testTimeout=300000']
  const chosen = process.argv.slice(2)
  await runVitest(sum, [...pool, ...(chosen.length > 0 ? chosen : tests)])
  // Leak detection lists all that V8 leaves allocated, which takes seconds for each process. So it runs only
  // for the tests in which threads and processes end while they hold everything.
  process.env.ASAN_OPTIONS = options(1)
  if (chosen.length === 0) await runVitest(sum, [...pool, 'spec/conformance/addon.test.ts'])
  check(sum, 'no error and no leak of the addon', () => {
    const found = findings()
    for (const report of found.slice(0, 10)) console.log(`${report}\n`)
    if (found.length > 0) console.log(`${found.length} findings; all logs are in ${logs}`)
    return found.length === 0
  })
  return close(sum)
})
