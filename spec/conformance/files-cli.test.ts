// What the command line reads, writes and prints: regular files, pipes it was started with, whole files or
// none, one object; and what it leaves when it is interrupted.
import { spawn, spawnSync } from 'node:child_process'
import {
  chmodSync,
  closeSync,
  existsSync,
  lstatSync,
  openSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { checkWritable, writeWhole } from '../../runtime/files/whole.js'
import { braid, braidOn, language, main, objectOf, root, runtime, scratch } from '../fixtures/command.js'

const { folder, file } = scratch()

/** A program that prints while it is loaded and while it runs. */
const loud = file(
  'loud.mts',
  `import { compile, download, graph, lane, mul, program, tensor, upload } from ${JSON.stringify(language)}
import { pulled } from ${JSON.stringify(runtime)}
console.log('loading')
process.stdout.write('{ "of": "the program" }\\n')
const net = graph('loud', { x: tensor('f32', [8]) }, ({ x }) => ({
  y: x.pipe(upload(lane('copy')), mul(2), download(lane('copy'))),
}))
function* values() {
  for (let i = 0; ; i++) {
    if (i < 40) console.log('value ' + i)
    yield new Float32Array(8).fill(i)
  }
}
export default program({ graph: net, feeds: () => ({ x: pulled(values()) }) })
`,
)

describe.runIf(process.platform === 'linux')('a file that is no regular file', () => {
  const fifo = join(folder, 'fifo')
  spawnSync('mkfifo', [fifo])
  const plan = braid('plan', loud, '--as', 'json').stdout

  it.each([
    ['verify', [fifo]],
    ['verify', ['/dev/zero']],
    ['snapshot', [fifo]],
    ['snapshot', ['/dev/zero']],
    ['replay', [fifo, '--device', 'host']],
    ['replay', ['/dev/zero', '--device', 'host']],
    ['simulate', [loud, '--machine', fifo]],
    ['run', [loud, '--device', 'host', '--profile', fifo]],
  ])('is refused by %s %j', (verb, args) => {
    const { status, stderr } = braid(verb, ...args, '--json')
    expect(status).toBe(1)
    const { errors } = JSON.parse(stderr.trim().split('\n').at(-1)!) as { errors: readonly object[] }
    expect(errors).toHaveLength(1)
    expect(errors[0]).toMatchObject({
      _tag: 'BadFile',
      found: expect.stringMatching(/^it is a (FIFO|device)/),
    })
  })

  it('is read where it is the standard input', () => {
    expect(plan).not.toBe('')
    const { status, stdout } = braidOn(plan, 'verify', '/dev/stdin', '--json')
    expect(status).toBe(0)
    expect(objectOf(stdout)).toMatchObject({ plan: 'loud', ok: true })
    expect(braidOn('', 'verify', '/dev/stdin').status).toBe(1)
  })

  it('is written as a stream, and a FIFO that nobody reads is refused', () => {
    const { status, stdout } = braid('plan', loud, '--as', 'json', '-o', '/dev/stdout')
    expect(status).toBe(0)
    expect(stdout).toContain(plan.trim().slice(0, 200))
    const refused = braid('plan', loud, '-o', fifo)
    expect(refused.status).toBe(1)
    expect(refused.stderr).toContain('it is a FIFO that nobody reads')
    expect(braid('plan', loud, '-o', '/dev/full').stderr).toContain('ENOSPC')
    expect(statSync('/dev/full').isCharacterDevice()).toBe(true)
  })

  it('is a trace that cannot be written, and the run is reported all the same', () => {
    const args = ['run', loud, '--device', 'host', '--ticks', '3', '--trace', '/dev/full']
    const json = braid(...args, '--json')
    expect(json.status).toBe(1)
    expect(objectOf(json.stdout)).toMatchObject({ program: 'loud', ticks: 3 })
    expect(json.stderr).toContain('"_tag":"BadFile","at":"/dev/full"')
    const people = braid(...args)
    expect(people.status).toBe(1)
    expect(people.stdout).toMatch(/^ticks +3/m)
    expect(people.stdout).not.toContain('ui.perfetto.dev')
  })

  it('a standard output that is full is an error of one sentence', () => {
    const full = openSync('/dev/full', 'w')
    for (const json of [[], ['--json']]) {
      const args = [...main, 'plan', loud, ...json]
      const { status, stderr } = spawnSync(process.execPath, args, {
        cwd: root,
        encoding: 'utf8',
        stdio: ['ignore', full, 'pipe'],
      })
      expect(status).toBe(1)
      expect(stderr).toContain('standard output')
      expect(stderr).toContain('ENOSPC')
      expect(stderr).not.toMatch(/\n +at /)
    }
    closeSync(full)
  })
})

describe('a file that is written', () => {
  const { folder: own, file: put } = scratch()
  function* failing(): Generator<string> {
    yield 'the first half'
    throw new Error('the disk is full')
  }

  it('is whole or is not there, and no other file is left', () => {
    const path = join(own, 'new.json')
    expect(() => writeWhole(path, failing())).toThrow('the disk is full')
    expect(readdirSync(own)).toEqual([])
    writeWhole(path, ['{', '}'])
    expect(() => writeWhole(path, failing())).toThrow('the disk is full')
    expect(readFileSync(path, 'utf8')).toBe('{}')
    expect(readdirSync(own)).toEqual(['new.json'])
  })

  it('keeps its mode, and the link that leads to it', () => {
    const path = put('private.json', 'before')
    chmodSync(path, 0o600)
    const link = join(own, 'link.json')
    symlinkSync(path, link)
    writeWhole(link, ['after'])
    expect(lstatSync(link).isSymbolicLink()).toBe(true)
    expect(readFileSync(path, 'utf8')).toBe('after')
    expect(statSync(path).mode & 0o777).toBe(0o600)
  })

  it('is checked to be one that can be written, and stays as it is', () => {
    const path = put('kept.json', 'before')
    checkWritable(path)
    checkWritable(join(own, 'none.json'))
    expect(() => checkWritable(own)).toThrow('it is a directory')
    expect(() => checkWritable(join(own, 'none', 'x.json'))).toThrow('ENOENT')
    expect(readFileSync(path, 'utf8')).toBe('before')
    expect(readdirSync(own).toSorted()).toEqual(['kept.json', 'link.json', 'new.json', 'private.json'])
  })

  it('may have the longest name that the file system takes', () => {
    const path = join(own, `${'n'.repeat(250)}.json`)
    writeWhole(path, ['{}'])
    expect(readFileSync(path, 'utf8')).toBe('{}')
  })
})

describe('standard output', () => {
  const snapshot = file('snapshot.json', '{}')

  it('carries one object with --json, whatever the program prints', () => {
    const plan = join(folder, 'plan.json')
    const planned = braid('plan', loud, '--json')
    writeFileSync(plan, planned.stdout)
    expect(objectOf(planned.stdout)).toMatchObject({ name: 'loud' })
    for (const [verb, ...args] of [
      ['run', loud, '--device', 'host', '--ticks', '2'],
      ['plan', loud, '--as', 'dot'],
      ['explain', loud],
      ['verify', plan],
      ['simulate', loud, '--machine', 'h200'],
      ['doctor'],
    ] as const) {
      const { status, stdout } = braid(verb, ...args, '--json')
      expect([verb, status]).toEqual([verb, 0])
      objectOf(stdout)
    }
    for (const [verb, ...args] of [
      ['snapshot', snapshot],
      ['run', snapshot],
    ] as const)
      expect(braid(verb, ...args, '--json').stdout).toBe('')
  })

  it('is the plan alone with --as json', () => {
    const { stdout, stderr } = braid('plan', loud, '--as', 'json')
    expect(JSON.parse(stdout)).toMatchObject({ plan: 1, name: 'loud' })
    expect(stderr).toContain('loading')
    expect(braid('explain', loud, '--as', 'dot').stdout).toMatch(/^digraph/)
  })
})

describe('an interrupted run', () => {
  it.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const)('by %s finishes its ticks, writes the trace, and ends with %i', async (signal, wanted) => {
    const trace = join(folder, `${signal}.json`)
    const args = ['run', loud, '--device', 'host', '--trace', trace, '--check', '--json']
    const child = spawn(process.execPath, [...main, ...args], { cwd: root })
    let stdout = ''
    let stderr = ''
    child.stdout.on('data', bytes => {
      stdout += String(bytes)
    })
    child.stderr.on('data', bytes => {
      if (!stderr.includes('value 39') && `${stderr}${String(bytes)}`.includes('value 39')) child.kill(signal)
      stderr += String(bytes)
    })
    const status = await new Promise(resolve => child.on('close', resolve))
    expect(stderr).toContain(`braid: ${signal}: finishing the ticks in flight`)
    expect(status).toBe(wanted)
    const result = objectOf(stdout) as { ticks: number }
    expect(result).toMatchObject({ interrupted: signal, check: { maxRelativeError: 0 } })
    expect(result.ticks).toBeGreaterThan(30)
    const { traceEvents } = JSON.parse(readFileSync(trace, 'utf8')) as {
      traceEvents: readonly { ph: string; args?: { tick?: number } }[]
    }
    const ticks = new Set(traceEvents.filter(({ ph }) => ph === 'X').map(({ args }) => args?.tick))
    expect(ticks.size).toBeGreaterThanOrEqual(result.ticks)
  })
})

describe('the main example, interrupted', () => {
  it.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const)(
    'by %s writes the whole trace of its ticks, and ends with %i',
    { timeout: 60_000 },
    async (signal, wanted) => {
      const trace = join(folder, `main-${signal}.json`)
      const example = join(root, 'examples/weight-streaming/main.ts')
      const args = ['--import', 'tsx', example, '--ticks', '1000', '--trace', trace]
      const child = spawn(process.execPath, args, { cwd: root })
      let output = ''
      child.stdout.on('data', bytes => {
        // What comes before its ticks run.
        if (!output.includes('Running it') && `${output}${String(bytes)}`.includes('Running it'))
          setTimeout(() => child.kill(signal), 1500)
        output += String(bytes)
      })
      expect(await new Promise(resolve => child.on('close', resolve))).toBe(wanted)
      expect(output).toMatch(new RegExp(`${signal}: ended after \\d+ of 1000 ticks`))
      const { traceEvents } = JSON.parse(readFileSync(trace, 'utf8')) as { traceEvents: readonly unknown[] }
      expect(traceEvents.length).toBeGreaterThan(32)
      expect(existsSync(`${trace}.part`)).toBe(false)
    },
  )
})

describe('the place of an error', () => {
  it.each([
    ['that imports the runtime too', `import { open } from ${JSON.stringify(runtime)}`, 'open'],
    ['that imports the language alone', '', 'undefined'],
  ])('is the line and column of the TypeScript, in a program for tsx %s', (_, imports, used) => {
    const path = file(
      'x.ts',
      `import { compile, download, graph, lane, matmul, tensor, upload } from ${JSON.stringify(language)}
${imports}

interface Gone { readonly a: number }
const gone: Gone = { a: 1 }
void ${used}
void gone
const net = graph('n', { x: tensor('f32', [2, 3]) }, ({ x }) => {
  const y = x.pipe(upload(lane('c')))
  return {
    z: y.pipe(matmul(y as never), download(lane('c'))),
  }
})
console.log(JSON.stringify(compile(net)))
`,
    )
    const { stdout, stderr } = spawnSync(process.execPath, ['--import', 'tsx', path], {
      cwd: root,
      encoding: 'utf8',
    })
    expect(stderr).toBe('')
    expect(existsSync(path)).toBe(true)
    const { left } = JSON.parse(stdout) as { left: readonly { at: string }[] }
    expect(left.map(({ at }) => at)).toEqual([`${path}:11:15`])
  })
})
