// The command line: one JSON object on standard output, errors on standard error, exit statuses 0, 1 and 2.
import { readFileSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { machines, orThrow, parseMachine } from '../../dsl/index.js'
import { braid, braidWith, language, objectOf, runtime, scratch } from '../fixtures/command.js'

const { folder, file } = scratch()
const imported = 'add, compile, download, graph, lane, mul, program, state, tensor, upload'
const source = (body: string): string => `import { ${imported} } from ${JSON.stringify(language)}
import { pulled } from ${JSON.stringify(runtime)}
${body}`
const doubling = `console.log('loading')
const net = graph('doubling', { x: tensor('f32', [8]) }, ({ x }) => ({
  y: x.pipe(upload(lane('copy')), mul(2), download(lane('copy'))),
}))
const feeds = () => ({ x: pulled(Array.from({ length: 6 }, (_, i) => new Float32Array(8).fill(i))) })
export default program({ graph: net, feeds })
`
const good = file('good.mts', source(doubling))
const linkOf = (name: string): string => {
  const path = join(folder, name)
  symlinkSync(path, path)
  return path
}

describe('braid', () => {
  it('takes a plan that fits the memory which the program gives its device', () => {
    const streaming = join(import.meta.dirname, '../../examples/weight-streaming/program.ts')
    for (const mode of ['graph', 'auto']) {
      const args = ['run', streaming, '--device', 'host', '--ticks', '1', '--mode', mode, '--json']
      const { status, stdout, stderr } = braid(...args)
      expect([status, stderr]).toEqual([0, expect.not.stringContaining('OutOfMemory')])
      const { bound } = objectOf(stdout) as { bound: { device: number[] } }
      expect(bound.device[0]).toBeLessThanOrEqual(4 << 20)
    }
    const options = ', options: { host: { memory: 512 } } })'
    const tight = file('tight.mts', source(doubling.replace('feeds })', `feeds${options}`)))
    const { status, stderr } = braid('run', tight, '--device', 'host', '--mode', 'graph')
    expect([status, stderr]).toEqual([1, expect.stringMatching(/at most 512 bytes.*bytes at the least/s)])
  })

  it('runs a program of TypeScript, checks it, and writes one object', () => {
    const trace = join(folder, 'trace.json')
    const { status, stdout, stderr } = braid(
      'run',
      good,
      '--device',
      'host',
      '--ticks',
      '4',
      '--check',
      '--mode',
      'eager',
      '--trace',
      trace,
      '--json',
    )
    expect(stderr).toContain('loading')
    expect(status).toBe(0)
    const result = objectOf(stdout)
    expect(Object.keys(result)).toEqual([
      'program',
      'device',
      'mode',
      'ticks',
      'tickMs',
      'enqueueUs',
      'peak',
      'bound',
      'commands',
      'check',
      'drops',
    ])
    expect(result).toMatchObject({
      program: 'doubling',
      device: 'host',
      mode: 'eager',
      ticks: 4,
      check: { outputs: 4, maxRelativeError: 0 },
      drops: { x: 0 },
    })
    expect(Object.keys(result['commands'] as object)).toEqual([
      'run',
      'wait',
      'record',
      'use',
      'alloc',
      'elided',
    ])
    const { traceEvents } = JSON.parse(readFileSync(trace, 'utf8')) as { traceEvents: { ph: string }[] }
    expect(traceEvents.filter(({ ph }) => ph === 'X')).toHaveLength(
      4 * (result['commands'] as { run: number }).run,
    )
  })

  it('shows its progress on a terminal alone, and erases it', () => {
    const args = ['run', good, '--device', 'host', '--ticks', '3', '--check']
    const piped = braid(...args)
    expect([piped.status, piped.stderr]).toEqual([0, ''])
    const preload = '--import data:text/javascript,process.stderr.isTTY=true'
    const environment = { NODE_OPTIONS: preload, TERM: 'xterm' }
    const seen = braidWith(environment, ...args)
    const lines = seen.stderr.split('\r\u001b[K')
    expect([seen.status, lines[0], lines.at(-1)]).toEqual([0, '', ''])
    for (const phase of ['compiling', 'opening', 'running', 'checking: interpreting tick 1 of 3'])
      expect(lines).toContain(phase)
    const asJson = braidWith(environment, ...args, '--json')
    expect([asJson.status, asJson.stderr]).toEqual([0, expect.not.stringContaining('\r')])
  })

  it('calls no check good that began with other values, or that compared nothing', () => {
    const drawn = file(
      'drawn.mts',
      source(`
        const fill = (bytes: Uint8Array) => void bytes.fill(Math.floor(Math.random() * 256))
        const net = graph({ x: tensor('u8', [64]) }, ({ x }) => {
          const s = state({ w: tensor('u8', [64]) }, { w: fill })
          s.next({ w: s.w })
          return { y: x.pipe(upload(), add(s.w), download()) }
        })
        export default program({ graph: net, feeds: () => ({ x: pulled([new Uint8Array(64)]) }) })`),
    )
    const one = braid('run', drawn, '--device', 'host', '--check', '--json')
    expect([one.status, JSON.parse(one.stderr)]).toMatchObject([1, { errors: [{ _tag: 'Unrepeatable' }] }])
    expect(objectOf(one.stdout)).toMatchObject({ check: { ok: true, maxRelativeError: 0, states: 1 } })
    const none = file('none.mts', source(doubling.replace('feeds })', 'feeds: () => ({ x: pulled([]) }) })')))
    const other = braid('run', none, '--device', 'host', '--check', '--json')
    expect([other.status, JSON.parse(other.stderr.split('\n').at(-2)!)]).toMatchObject([
      1,
      { errors: [{ _tag: 'CheckFailed' }] },
    ])
  })

  it('prints for people the promised and the measured figures', () => {
    const { status, stdout } = braid('run', good, '--device', 'host')
    expect(status).toBe(0)
    expect(stdout).toMatch(/bound +[\d.]+ \w+ of device memory promised/)
    expect(stdout).toMatch(/peak +[\d.]+ \w+ held, within it/)
    expect(stdout).not.toContain('\u001b')
  })

  it('runs a plan for two devices on two, and prints what each of them held', () => {
    const { pathname: program } = new URL('../../examples/two-devices/program.ts', import.meta.url)
    const ran = braid('run', program, '--device', 'host:0,host:1', '--ticks', '4', '--check', '--json')
    expect(ran.status).toBe(0)
    const result = objectOf(ran.stdout) as {
      bound: { device: number[] }
      devices: { peak: { reserved: number } }[]
    }
    expect(result).toMatchObject({ device: 'host,host:1', ticks: 4, check: { outputs: 4 } })
    expect(result.devices.map(({ peak }) => peak.reserved)).toEqual(result.bound.device)
    const few = braid('run', program, '--device', 'cuda:0', '--json')
    expect(few.status).toBe(1)
    expect(few.stderr).toContain('2 devices, as the plan is made for')
    expect(braid('run', program, '--device', 'host:0,tpu').status).toBe(2)
  })

  it('joins operations into kernels, unless it is told not to', () => {
    const { pathname: program } = new URL('../../examples/double-buffer/program.ts', import.meta.url)
    expect(braid('plan', program).stdout).toContain('#fused')
    expect(braid('plan', program, '--no-fuse').stdout).not.toContain('#fused')
  })

  it('plans, and proves what it planned', () => {
    const path = join(folder, 'plan.json')
    expect(braid('plan', good, '--as', 'json', '-o', path).status).toBe(0)
    expect(JSON.parse(readFileSync(path, 'utf8'))).toMatchObject({ plan: 1, name: 'doubling' })
    expect(objectOf(braid('plan', good, '--json').stdout)).toMatchObject({ plan: 1 })
    expect(braid('plan', good, '--as', 'dot').stdout).toContain('digraph')
    expect(braid('explain', good).stdout).toContain('uses')
    expect(braid('verify', path)).toMatchObject({
      status: 0,
      stdout: expect.stringContaining('every law holds'),
    })
  })

  it('proves the plans of several ranks together, and shows where they wait for each other for ever', () => {
    const collective = (kind: string) => ({ kind, communicator: 0, count: 8, dtype: 'f32', peer: 0 })
    const rank = (peer: number, kinds: readonly string[]) =>
      file(
        `rank${1 - peer}.json`,
        JSON.stringify({
          plan: 1,
          name: `rank ${1 - peer}`,
          devices: 1,
          inFlight: 1,
          storage: 'pooled',
          bound: { device: [0], pinned: 0 },
          communicators: [{ id: 0, name: 'all' }],
          lanes: [{ id: 0, name: 'comm', device: 0, priority: 0 }],
          buffers: [],
          nodes: kinds.map((kind, id) => ({
            id,
            op: kind,
            name: kind,
            at: '',
            collective: { ...collective(kind), peer },
          })),
          commands: kinds.map((_, id) => ['run', id, 0, [], []]),
        }),
      )
    const first = rank(1, ['send', 'recv'])
    expect(braid('verify', first, rank(0, ['recv', 'send']))).toMatchObject({
      status: 0,
      stdout: expect.stringContaining('2 ranks'),
    })
    const stuck = braid('verify', first, rank(0, ['send', 'recv']), '--json')
    expect(stuck.status).toBe(1)
    expect(objectOf(stuck.stdout)).toMatchObject({
      ok: false,
      violations: [expect.objectContaining({ law: 'L8', message: expect.stringContaining('deadlock') })],
    })
  })

  it('runs, plans, proves and explains a program with planned storage', () => {
    const ran = braid('run', good, '--device', 'host', '--storage', 'planned', '--check', '--json')
    expect(ran.status).toBe(0)
    const { peak, bound, commands } = objectOf(ran.stdout) as Record<string, Record<string, unknown>>
    expect([peak!['reserved']]).toEqual(bound!['device'])
    expect(commands).toMatchObject({ alloc: 0, use: 0 })
    const path = join(folder, 'planned.json')
    expect(braid('plan', good, '--storage', 'planned', '--as', 'json', '-o', path).status).toBe(0)
    expect(JSON.parse(readFileSync(path, 'utf8'))).toMatchObject({ storage: 'planned', arena: [1024] })
    expect(braid('verify', path)).toMatchObject({
      status: 0,
      stdout: expect.stringContaining('every law holds'),
    })
    expect(braid('plan', good, '--storage', 'planned', '--memory', 'small').stdout).toContain('device at 512')
    const explained = braid('explain', good, '--storage', 'planned').stdout
    expect(explained).toContain('bytes that are taken over')
    const none = braid('run', good, '--device', 'host', '--storage', 'planned', '--memory', '512')
    expect(none.status).toBe(1)
    expect(none.stderr).toContain('1024 bytes at the least')
  })

  it('names each broken law on a line, and ends with 1', () => {
    const made = JSON.parse(braid('plan', good, '--mode', 'eager', '--as', 'json').stdout) as {
      commands: unknown[][]
    }
    const free = made.commands.findIndex(([kind]) => kind === 'free')
    const path = file(
      'leaky.json',
      JSON.stringify({ ...made, commands: made.commands.filter((_, i) => i !== free) }),
    )
    const people = braid('verify', path, '--safety')
    expect(people.status).toBe(1)
    expect(people.stdout).toMatch(/^L3 /m)
    const result = braid('verify', path, '--json')
    expect(result.status).toBe(1)
    expect(objectOf(result.stdout)).toMatchObject({
      ok: false,
      violations: expect.arrayContaining([expect.objectContaining({ law: 'L3' })]),
    })
  })

  it.each([
    ['no file', () => join(folder, 'nothing.json')],
    ['no JSON', () => file('text.json', 'plan: 1')],
    ['another value', () => file('list.json', '[1, 2]')],
    ['a field missing', () => file('short.json', '{"plan": 1, "name": "x"}')],
    ['a huge number', () => file('huge.json', '{"plan": 1e999, "devices": 9007199254740993}')],
  ])('says what is wrong with a plan file: %s', (_, path) => {
    const { status, stdout, stderr } = braid('verify', path())
    expect(status).toBe(1)
    expect(stdout).toBe('')
    expect(stderr).toMatch(/wanted/)
    expect(stderr).not.toMatch(/\n {4}at /)
  })

  it.each([
    [[]],
    [['fly']],
    [['run']],
    [['run', good, 'another']],
    [['run', good, '--ticks', 'many']],
    [['run', good, '--device', 'tpu']],
    [['run', good, '--memory', 'lots']],
    [['run', good, '--memory', '0']],
    [['run', good, '--memory', '1e400']],
    [['run', good, '--ticks', '-1']],
    [['run', good, '--trace', join(folder, 'nowhere', 'trace.json')]],
    [['run', good, '--trace', '/proc/trace.json']],
    [['run', good, '--trace', linkOf('loop.json')]],
    [['run', good, '--trace', join(folder, 'n'.repeat(300))]],
    [['run', good, '--trace', folder]],
    [['run', '']],
    [['plan', good, '--as', 'poem']],
    [['plan', good, '-o', '']],
    [['explain', good, '-o', '']],
    [['snapshot', 'x.json', '-o', '']],
    [['verify', 'x.json', '--unknown']],
    [['doctor', 'me']],
    [['doctor', '--machine', folder]],
    [['bench', 'no-such-bench']],
  ])('ends with 2 for a misuse: %j', args => {
    const { status, stdout, stderr } = braid(...args)
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' })
    expect(stderr).toMatch(/^braid: /)
    expect(stderr).not.toMatch(/\n {4}at /)
  })

  it('points at the line of TypeScript that is wrong, and gives the same as data', () => {
    const wrong = file(
      'wrong.mts',
      source(`const net = graph({ x: tensor('f32', [8]), z: tensor('f32', [9]) }, ({ x, z }) => ({
  y: x.pipe(
    upload(),
    add(z.pipe(upload()) as never),
    download(),
  ),
}))
export default program({ graph: net, feeds: () => ({ x: pulled([]), z: pulled([]) }) })
`),
    )
    const people = braid('run', wrong)
    expect(people.status).toBe(1)
    expect(people.stderr).toMatch(/wrong\.mts:\d+:\d+/)
    expect(people.stderr).toContain('f32[9]')
    const data = braid('run', wrong, '--json')
    expect(data).toMatchObject({ status: 1, stdout: '' })
    const { errors } = JSON.parse(data.stderr) as { errors: { _tag: string; at: string }[] }
    expect(errors[0]).toMatchObject({ _tag: 'ShapeMismatch', at: expect.stringMatching(/wrong\.mts:6/) })
  })

  it('reports a file that is no program, one that throws, and a feed that throws, in a sentence', () => {
    for (const [name, text, says] of [
      ['empty.mjs', 'export const x = 1', 'the exports x'],
      ['throws.mjs', 'throw new Error("out of ink")', 'out of ink'],
      [
        'late.mts',
        source(
          `${doubling.replace('export default', 'const p =')}
function* dry() { throw new Error('dry') }
export default program({ ...p, feeds: () => ({ x: pulled(dry()) }) })`,
        ),
        'dry',
      ],
    ] as const) {
      const { status, stderr } = braid('run', file(name, text))
      expect(status).toBe(1)
      expect(stderr).toContain(says)
    }
    expect(braid('run', join(folder, 'none.ts'))).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('no such file'),
    })
  })

  it.each([
    ['a directory', () => folder, 'a directory'],
    ['a syntax error', () => file('syntax.mts', 'const x = = 3'), '1:10'],
    ['no such import', () => file('import.mjs', "import './nowhere.mjs'"), 'nowhere.mjs'],
    ['a number thrown', () => file('seven.mjs', 'throw 7'), 'number 7'],
    ['another default', () => file('other.mjs', 'export default 7'), 'the exports default'],
    ['a link to itself', () => linkOf('loop.mjs'), 'ELOOP'],
    ['a name that is too long', () => join(folder, `${'n'.repeat(300)}.mjs`), 'ENAMETOOLONG'],
    ['a file that waits for ever', () => file('waits.mjs', 'await new Promise(() => {})'), 'never come'],
    [
      'a feed that falls silent',
      () =>
        file(
          'silent.mts',
          source(
            doubling.replace(
              /pulled\(.*\)\) }\)/,
              'pulled({ [Symbol.asyncIterator]: () => ({ next: () => new Promise(() => {}) }) }) })',
            ),
          ),
        ),
      'never come',
    ],
    [
      'feeds that throw',
      () =>
        file(
          'feeds.mts',
          source(
            doubling.replace(/const feeds = .*/, "const feeds = () => { throw new Error('no camera') }"),
          ),
        ),
      'no camera',
    ],
    [
      'no feeds',
      () =>
        file('none.mts', source(doubling.replace(/const feeds = .*/, 'const feeds = undefined as never'))),
      'a feed for each input: x',
    ],
    [
      'an option that cannot be',
      () =>
        file(
          'mode.mts',
          source(
            doubling.replace('graph: net, feeds', "graph: net, feeds, options: { mode: 'warp' as never }"),
          ),
        ),
      'options.mode',
    ],
    [
      'a graph that is none',
      () => file('graph.mts', source(doubling.replace('graph: net', 'graph: {} as never'))),
      'a graph, as graph(...) makes it',
    ],
  ])('reports %s in a sentence with the wanted and the found value', (_, path, says) => {
    const people = braid('run', path(), '--device', 'host')
    expect({ status: people.status, stdout: people.stdout.replace('loading\n', '') }).toEqual({
      status: 1,
      stdout: '',
    })
    expect(people.stderr).toContain(says)
    expect(people.stderr).toMatch(/\n {2}wanted {2}.*\n {2}found {3}.*\n {2}next {4}/)
    expect(people.stderr).not.toMatch(/\n {4}at |undefined undefined/)
  })

  it('reports a bound that no plan can keep, and a device that does not exist', () => {
    expect(braid('run', good, '--memory', '1').stderr).toMatch(
      /\[OverBudget\]\n {2}wanted {2}at most 1 bytes/,
    )
    const far = braid('run', good, '--device', 'cuda:99')
    expect(far.status).toBe(1)
    expect(far.stderr).toMatch(/cuda:99: .*\n {2}wanted /)
  })

  it('prints its version', () => {
    expect(braid('--version').stdout).toMatch(/^\d+\.\d+\.\d+\n$/)
  })

  it('doctor prints which devices there are and what to do', () => {
    const { status, stdout } = braid('doctor')
    expect(status).toBe(0)
    expect(stdout).toContain('What to do')
    const result = objectOf(braid('doctor', '--json').stdout)
    expect(result).toMatchObject({
      ok: true,
      devices: expect.arrayContaining([expect.objectContaining({ device: 'host' })]),
    })
    // What computes products, attention and convolutions, in one line each.
    const { uses } = result as { uses: Record<string, string> }
    for (const name of ['products', 'attention', 'convolutions', 'all else'])
      expect(stdout).toMatch(
        new RegExp(`^ {2}${name} +${uses[name]!.slice(0, 20).replace(/[.*+?^$()]/g, '.')}`, 'm'),
      )
    const off = objectOf(braidWith({ BRAID_CUDNN: 'off' }, 'doctor', '--json').stdout)
    expect(off['uses']).toMatchObject({ attention: "Braid's own kernels: BRAID_CUDNN=off" })
  })

  it('doctor --machine measures the host and writes a machine that simulate takes', () => {
    const path = join(folder, 'here.jsonc')
    const { machine } = objectOf(braid('doctor', '--machine', path, '--device', 'host', '--json').stdout) as {
      machine: { device: string; file: string; host: Record<string, number> }
    }
    expect(machine).toMatchObject({ device: 'host', file: path, extends: 'h200' })
    for (const figure of ['tick', 'bandwidth', 'cache', 'cacheBandwidth'])
      expect(machine.host[figure]).toBeGreaterThan(0)
    const parsed = orThrow(parseMachine(readFileSync(path, 'utf8')))
    const near = (value: number, wanted: number): void =>
      expect(Math.abs(value / wanted - 1)).toBeLessThan(0.01)
    for (const [figure, value] of Object.entries(machine.host)) near(parsed.host[figure as 'tick'], value)
    expect(parsed.device).toEqual(machines['h200']!.device)
    expect(objectOf(braid('simulate', good, '--machine', path, '--json').stdout)).toMatchObject({
      machine: parsed.name,
    })
    expect(braid('doctor', '--device', 'host').status).toBe(2)
  })

  it('doctor prints the allocator settings of the environment', () => {
    const unset = {
      PYTORCH_CUDA_ALLOC_CONF: undefined,
      PYTORCH_HIP_ALLOC_CONF: undefined,
      PYTORCH_ALLOC_CONF: undefined,
    }
    expect(objectOf(braidWith(unset, 'doctor', '--json').stdout)).toMatchObject({
      allocator: { variable: null, settings: [] },
    })
    const text =
      'expandable_segments:False, pinned_use_background_threads:True,' +
      'max_split_size_mb:3,backend:cudaMallocAsync'
    const env = { ...unset, PYTORCH_CUDA_ALLOC_CONF: text, PYTORCH_ALLOC_CONF: 'svm:False' }
    expect(objectOf(braidWith(env, 'doctor', '--json').stdout)).toMatchObject({
      ok: true,
      allocator: {
        variable: 'PYTORCH_CUDA_ALLOC_CONF',
        text,
        unread: ['PYTORCH_ALLOC_CONF'],
        settings: [
          { key: 'expandable_segments', value: 'False', effect: 'honoured' },
          { key: 'pinned_use_background_threads', value: 'True', effect: 'noted' },
        ],
        faults: [
          { _tag: 'BadOption', key: 'max_split_size_mb', position: text.indexOf('3') },
          { _tag: 'Unsupported', key: 'backend', position: text.indexOf('backend') },
        ],
      },
    })
    const { status, stdout } = braidWith(env, 'doctor')
    expect(status).toBe(0)
    expect(stdout).toMatch(/expandable_segments +False +honoured +\S/)
    expect(stdout).toMatch(/pinned_use_background_threads +True +noted +\S/)
    expect(stdout).toMatch(/PYTORCH_CUDA_ALLOC_CONF, character \d+: max_split_size_mb/)
    expect(stdout).toMatch(/found {3}cudaMallocAsync: /)
  })
})
