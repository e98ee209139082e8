// `braid run --watch`: a change of the program's files, while it runs.
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { rmSync, symlinkSync } from 'node:fs'
import { afterEach, describe, expect, it } from 'vitest'
import { braid, language, main, objectOf, root, runtime, scratch } from '../fixtures/command.js'
import { until } from './devices.js'

const children: ChildProcessWithoutNullStreams[] = []
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL')
})

/** A process of `braid run --watch`, and what it has written so far. */
const watching = (path: string) => {
  const args = ['run', path, '--device', 'host', '--watch', '--json']
  const child = spawn(process.execPath, [...main, ...args], { cwd: root })
  children.push(child)
  const written = { stdout: '', stderr: '' }
  child.stdout.on('data', bytes => {
    written.stdout += String(bytes)
  })
  child.stderr.on('data', bytes => {
    written.stderr += String(bytes)
  })
  const ended = new Promise<number | null>(resolve => child.on('close', resolve))
  /** Waits for a text after what has been waited for before. */
  let from = 0
  const said = async (text: string): Promise<string> => {
    await until(() => written.stderr.includes(text, from) || child.exitCode !== null)
    expect(written.stderr.slice(from)).toContain(text)
    const to = written.stderr.indexOf(text, from) + text.length
    const between = written.stderr.slice(from, to)
    from = to
    return between
  }
  const interrupted = async (): Promise<Record<string, unknown>> => {
    child.kill('SIGINT')
    expect(await ended).toBe(130)
    return objectOf(written.stdout)
  }
  return { said, interrupted, ended, written }
}

const imported = 'add, download, graph, lane, mul, program, scan, tensor, upload'
/** Sums up what it is fed. Its graph is called by its factor. */
const summing = (library: string, state: string, feeds: string): string =>
  `import { ${imported} } from ${JSON.stringify(language)}
import { pulled } from ${JSON.stringify(runtime)}
import { factor } from ${JSON.stringify(library)}
const copy = lane('copy')
const net = graph('by ' + factor, { x: tensor('f32', [4]) }, ({ x }) => {
  const total = x.pipe(upload(copy), scan((sum, value) => sum.pipe(add(value)), 0, { name: '${state}' }))
  return { y: total.pipe(mul(factor), download(copy)) }
})
${feeds}
export default program({ graph: net, feeds: () => ({ x: pulled(values()) }) })
`
const endless = `async function* values() {
  for (let i = 0; ; i++) {
    if (i === 5) console.log('the feed has begun')
    await new Promise(then => setTimeout(then, 2))
    yield new Float32Array(4).fill(1)
  }
}`
const short = 'const values = () => [1, 2, 3].map(x => new Float32Array(4).fill(x))'
const factor = (value: string): string => `export const factor = ${value}\n`

describe('braid run --watch', () => {
  it('goes over to what a change makes, also of an imported file, and goes on where that is wrong', async () => {
    const { file } = scratch()
    file('library.mts', factor('1'))
    const path = file('program.mts', summing('./library.mjs', 'total', endless))
    const { said, interrupted, written } = watching(path)
    await said('the feed has begun')
    file('library.mts', factor('2'))
    await said('is the first of the plan "by 2", with the states total')
    file('library.mts', factor(''))
    expect(await said('the plan before goes on')).toContain('BadProgram')
    file('library.mts', factor("'two' as never"))
    expect(await said('the plan before goes on')).toContain(`${path}:7:26`)
    file('library.mts', factor('3'))
    await said('is the first of the plan "by 3", with the states total')
    file('program.mts', summing('./library.mjs', 'sum', endless))
    expect(await said('the plan before goes on')).toContain('"at":"state.total"')
    file('program.mts', summing('./library.mjs', 'total', endless))
    file('library.mts', factor('4'))
    await said('is the first of the plan "by 4"')
    const result = await interrupted()
    expect(result).toMatchObject({ program: 'by 4', interrupted: 'SIGINT' })
    expect(result['ticks']).toBeGreaterThan(5)
    expect(written.stderr).not.toContain('?braid=')
  })

  it('runs again on the feeds of a program that was changed after its run, also of CommonJS', async () => {
    const { file } = scratch()
    file('library.cjs', 'exports.factor = 1')
    const path = file('program.mts', summing('./library.cjs', 'total', short))
    const { said, interrupted } = watching(path)
    await said('the run has ended; waiting for a change')
    file('library.cjs', 'exports.factor = 2')
    await said('tick 3 is the first of the plan "by 2"')
    await said('the run has ended; waiting for a change')
    file('program.mts', summing('./library.cjs', 'total', short.replace('3', '3, 4')))
    await said('tick 6 is the first of the plan "by 2"')
    await said('the run has ended; waiting for a change')
    expect(await interrupted()).toMatchObject({ program: 'by 2', ticks: 10, interrupted: 'SIGINT' })
  })

  it('reports feeds that cannot be made, of the first program or a later one, and goes on', async () => {
    const { file } = scratch()
    file('library.mts', factor('1'))
    const noCamera = "const values = () => { throw new Error('no camera') }"
    const path = file('program.mts', summing('./library.mjs', 'total', noCamera))
    const { said, interrupted } = watching(path)
    expect(await said('waiting for a change')).toMatch(/BadProgram.*no camera/)
    file('program.mts', summing('./library.mjs', 'total', short))
    await said('tick 0 is the first of the plan "by 1"')
    await said('waiting for a change')
    file('program.mts', summing('./library.mjs', 'total', noCamera))
    expect(await said('waiting for a change')).toMatch(/BadProgram.*no camera/)
    file('program.mts', summing('./library.mjs', 'total', short))
    await said('tick 3 is the first of the plan "by 1", with the states total')
    await said('waiting for a change')
    expect(await interrupted()).toMatchObject({ ticks: 6, interrupted: 'SIGINT' })
  })

  it('reports a file that cannot be reached any more, and goes on', async () => {
    const { file } = scratch()
    file('library.mts', factor('1'))
    const text = summing('./library.mjs', 'total', endless)
    const path = file('program.mts', text)
    const { said, interrupted } = watching(path)
    await said('the feed has begun')
    rmSync(path)
    symlinkSync(path, path)
    expect(await said('the plan before goes on')).toMatch(/BadProgram.*ELOOP/)
    rmSync(path)
    file('program.mts', text)
    await said('is the first of the plan "by 1", with the states total')
    await interrupted()
  })

  it('goes on to the next change, and ends by a signal, where a file waits for ever', async () => {
    const { file } = scratch()
    file('library.mjs', factor('1'))
    const path = file('program.mts', summing('./library.mjs', 'total', endless))
    const { said, interrupted } = watching(path)
    const forever = `console.log('the load has begun')\nawait new Promise(() => {})\n${factor('2')}`
    await said('the feed has begun')
    file('library.mjs', forever)
    await said('the load has begun')
    await said('still loading after 3 s: the plan before goes on')
    file('library.mjs', factor('3'))
    await said('is the first of the plan "by 3", with the states total')
    file('library.mjs', forever)
    await said('the load has begun')
    expect(await interrupted()).toMatchObject({ program: 'by 3', interrupted: 'SIGINT' })
  })

  it('ends where the first program is wrong, and where one plan is wanted', async () => {
    const { file } = scratch()
    const { ended, written } = watching(file('wrong.mjs', 'export default 5'))
    expect(await ended).toBe(1)
    expect(written.stderr).toContain('BadProgram')
    const waits = watching(file('waits.mjs', 'await new Promise(() => {})'))
    expect(await waits.ended).toBe(1)
    expect(waits.written.stderr).toContain('Unfinished')
    const { status, stderr } = braid('run', 'program.mjs', '--watch', '--check')
    expect(status).toBe(2)
    expect(stderr).toContain('--check and --trace are of one')
  })
})
