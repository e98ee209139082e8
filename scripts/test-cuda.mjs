// npm run test:cuda: every conformance suite and the C++ tests on a GPU; writes
// spec/bench/results/conformance-cuda.md.
//   --device NAME   the device that the report is about; default cuda:0
//   --out FILE      the report; default spec/bench/results/conformance-cuda.md
//   --commit HASH   the commit that is tested, where git is missing; also BRAID_COMMIT
// Builds nothing, so that it runs where there is neither npm nor a compiler: `npm run build` comes first, and
// `npm test -- --all` where the C++ tests are wanted too.
import { existsSync, writeFileSync } from 'node:fs'
import { cpus } from 'node:os'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { ask, entry, root, Stop } from './lib/run.mjs'
import { testFolder } from './lib/suites.mjs'
import { close, listSkipped, runGoogleTest, runVitest, tally } from './lib/tally.mjs'

// One GPU serves processes in turn: each test waits for others, with sixteen of them some beyond their time
// limit. Each file has a process of its own: all files of one process would share one Device of the GPU.
const conformance = [
  ...['spec/conformance/', 'spec/pytorch/'],
  ...['--isolate', '--maxWorkers=8', '--testTimeout=150000'],
]

const options = () => {
  const text = { type: 'string' }
  const { values } = parseArgs({ options: { device: text, out: text, commit: text } })
  const { device = 'cuda:0', out = 'spec/bench/results/conformance-cuda.md' } = values
  const commit = values.commit ?? process.env.BRAID_COMMIT ?? commitOfGit()
  return { device, out: resolve(root, out), commit }
}

/** The commit of this checkout, and whether files differ from it. */
const commitOfGit = () => {
  const head = ask('git', ['rev-parse', 'HEAD'])?.trim()
  if (head === undefined) return 'unknown (git is missing; --commit names it)'
  return ask('git', ['status', '--porcelain', '--untracked-files=no'])?.trim()
    ? `${head}, with changes`
    : head
}

const built = ['dist/runtime/index.js', 'native/build/braid.node', 'node_modules/vitest/vitest.mjs']

/** The device of that name as the addon finds it. */
const find = async name => {
  const missing = built.filter(path => !existsSync(join(root, path)))
  if (missing.length > 0)
    throw new Stop(
      `${missing.join(', ')}: missing. Build first, here or on a machine like this: npm run build`,
    )
  const { devices } = await import(join(root, 'dist/runtime/index.js'))
  const found = devices()
  const one = found.find(({ device }) => device === name)
  if (one !== undefined) return one
  throw new Stop(
    `${name} is not here; found ${found.map(({ device }) => device).join(', ')}. ` +
      'Nothing was tested. `npx braid doctor` says what is missing.',
  )
}

/** "CUDA 13.0, driver 580.65.06", as far as it can be found. */
const driverOf = ({ driverVersion }) => {
  const cuda = `CUDA ${Math.floor(driverVersion / 1000)}.${Math.floor((driverVersion % 1000) / 10)}`
  const version = ask('nvidia-smi', ['--query-gpu=driver_version', '--format=csv,noheader'])
  return driverVersion === 0 ? 'none' : version ? `${version.split('\n')[0]}, ${cuda}` : cuda
}

const row = cells => `| ${cells.join(' | ')} |`
const counts = ({ passed, failed, skipped }) => [passed, failed, skipped.length]

const tableOf = (title, suites) => {
  const sum = { passed: 0, failed: 0, skipped: [] }
  for (const { passed, failed, skipped } of suites) {
    sum.passed += passed
    sum.failed += failed
    sum.skipped.push(...skipped)
  }
  const rows = suites.map(suite => row([suite.name, ...counts(suite), suite.onDevice ?? '']))
  const onDevice = suites.reduce((total, suite) => total + (suite.onDevice ?? 0), 0)
  return [
    row([title, 'passed', 'failed', 'skipped', 'cases that name the device']),
    row(['---', '---:', '---:', '---:', '---:']),
    ...rows,
    row(['**all**', ...counts(sum), onDevice || '']),
  ]
}

/** A C++ suite comes once a process that ran cases of it. */
const merged = suites => {
  const byName = new Map()
  for (const { name, passed, failed, skipped } of suites) {
    const to = byName.get(name) ?? { name, passed: 0, failed: 0, skipped: [] }
    to.passed += passed
    to.failed += failed
    to.skipped.push(...skipped)
    byName.set(name, to)
  }
  return [...byName.values()].sort((a, b) => a.name.localeCompare(b.name))
}

const oneLine = text => text.replaceAll(/\s+/g, ' ').replaceAll('|', '\\|')

const reportOf = (device, commit, typescript, cpp, sum) => {
  const skipped = [...typescript, ...cpp].flatMap(({ name, skipped }) =>
    skipped.map(one => row([oneLine(name), oneLine(one.name), oneLine(one.reason)])),
  )
  return `${[
    `# Conformance on ${device.name}`,
    '',
    'Written by `npm run test:cuda`: every suite of `spec/conformance` and `spec/pytorch`, and the C++ ' +
      'tests.',
    '',
    row(['', '']),
    row(['---', '---']),
    row(['device', `${device.device}: ${device.name}, ${(device.totalBytes / 2 ** 30).toFixed(0)} GiB`]),
    row(['driver', driverOf(device)]),
    row(['host', `${cpus().length} cores, ${cpus()[0]?.model.trim()}; Node ${process.versions.node}`]),
    row(['date', new Date().toISOString().slice(0, 10)]),
    row(['commit', commit]),
    row(['result', `${sum.passed} passed, ${sum.failed} failed, ${sum.skipped} skipped`]),
    '',
    ...tableOf('suite', typescript),
    '',
    ...(cpp.length > 0
      ? tableOf('C++ tests', cpp)
      : [
          `The C++ tests did not run: ${testFolder}/braid_tests is not built. ` +
            '`npm test -- --all` builds it.',
        ]),
    '',
    '## Skipped',
    '',
    ...(skipped.length > 0
      ? [row(['suite', 'case', 'reason']), row(['---', '---', '---']), ...skipped]
      : ['None.']),
  ].join('\n')}\n`
}

await entry(async () => {
  const { device: name, out, commit } = options()
  const device = await find(name)
  console.log(`${name}: ${device.name}, driver ${driverOf(device)}`)
  const sum = tally()
  // At once: the C++ tests wait for the GPU seldom, the suites for JavaScript and the compiler of CUDA.
  const binary = join(root, testFolder, 'braid_tests')
  const cppTests = existsSync(binary) ? runGoogleTest(sum, binary, 'C++ tests') : []
  const typescript = (await runVitest(sum, conformance)).map(suite => ({
    ...suite,
    onDevice: suite.cases.filter(({ name: title, state }) => state === 'passed' && title.includes(name))
      .length,
  }))
  const cpp = merged(await cppTests)
  if (cpp.length === 0) sum.skipped++
  listSkipped([...typescript, ...cpp])
  writeFileSync(out, reportOf(device, commit, typescript, cpp, sum))
  console.log(`\nWritten: ${out}`)
  return close(sum)
})
