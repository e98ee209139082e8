// npm run soak [-- --minutes 10] [--seed N] [--faults] [--sanitize address|thread] [--write]: the allocator's
// laws under random owners, seed after seed. With --faults each driver call fails on its nth use.
// npm run soak -- --trees N [--seed N] [--device NAME] [--write]: so many launches of random plan trees, with
// readers that are held up; fails where a value is wrong or something grows.
// --write stores the figures in spec/bench/results/soak.json.
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { arch, cpus } from 'node:os'
import { dirname, join } from 'node:path'
import { parseArgs } from 'node:util'
import { withBuildLock } from './lib/lock.mjs'
import { buildNative } from './lib/native.mjs'
import { entry, root, Stop } from './lib/run.mjs'

const results = 'spec/bench/results/soak.json'

const options = () => {
  try {
    return parseArgs({
      options: {
        minutes: { type: 'string', default: '10' },
        seed: { type: 'string', default: '1' },
        faults: { type: 'boolean', default: false },
        sanitize: { type: 'string', default: '' },
        write: { type: 'boolean', default: false },
        trees: { type: 'string' },
        device: { type: 'string', default: 'host' },
      },
    }).values
  } catch (error) {
    throw new Stop(
      `${error.message}\n` +
        'npm run soak -- [--minutes N] [--seed N] [--faults] [--sanitize address|thread] [--write]\n' +
        'npm run soak -- --trees LAUNCHES [--seed N] [--device NAME] [--write]',
    )
  }
}

const keep = (name, command, figures) => {
  const path = join(root, results)
  const all = existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')) : {}
  const machine = `${cpus()[0]?.model ?? arch()}, ${cpus().length} cores`
  all[name] = { command, date: new Date().toISOString().slice(0, 10), machine, ...figures }
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, `${JSON.stringify(all, null, 2)}\n`)
  console.log(`Written to ${results}.`)
}

const soakTrees = ({ trees, seed, device, write }) => {
  if (!/^[1-9]\d*$/.test(trees)) throw new Stop(`--trees: wanted a number of launches, found ${trees}`)
  const args = ['--launches', trees, '--seed', seed, '--device', device]
  const program = 'spec/conformance/trees/soak.ts'
  const result = spawnSync(process.execPath, ['--expose-gc', '--import', 'tsx', program, ...args], {
    cwd: root,
    stdio: ['ignore', 'pipe', 'inherit'],
    encoding: 'utf8',
  })
  process.stdout.write(result.stdout ?? '')
  if (result.status !== 0) return 1
  const command = ['npm run soak --', '--trees', trees, '--seed', seed, '--device', device].join(' ')
  if (write) keep('trees', command, JSON.parse(result.stdout.trim().split('\n').at(-1)))
  return 0
}

await entry(() => {
  const { minutes, seed, faults, sanitize, write, trees, device } = options()
  if (trees !== undefined) return soakTrees({ trees, seed, device, write })
  if (!['', 'address', 'thread'].includes(sanitize))
    throw new Stop(`--sanitize: wanted address or thread, found ${sanitize}`)
  // Not where the addon is built: with the tests it is not optimised as a whole.
  const folder = `native/build-${sanitize || 'soak'}`
  withBuildLock(() => buildNative(folder, { BRAID_TESTS: 'ON', BRAID_SANITIZE: sanitize }, 'braid_soak'))
  const args = ['--minutes', minutes, '--seed', seed, ...(faults ? ['--faults'] : [])]
  console.log(`${folder}/braid_soak ${args.join(' ')}`)
  const result = spawnSync(join(root, folder, 'braid_soak'), args, {
    stdio: ['ignore', 'pipe', 'inherit'],
    encoding: 'utf8',
    maxBuffer: 1 << 26,
  })
  process.stdout.write(result.stdout ?? '')
  if (result.status !== 0) return 1
  if (write) {
    const name = `${faults ? 'faults' : 'soak'}${sanitize ? ` under the ${sanitize} sanitizer` : ''}`
    const command = ['npm run soak --', ...args, ...(sanitize ? ['--sanitize', sanitize] : [])].join(' ')
    keep(name, command, JSON.parse(result.stdout.trim().split('\n').at(-1)))
  }
  return 0
})
