// `braid explain` and `braid plan --as …`: every form, a program or a plan from a file, a machine by name or
// from a file.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { toJSON } from '../../dsl/index.js'
import { braid, language, scratch } from '../fixtures/command.js'
import { slowMachine } from '../fixtures/machines/plain.js'
import { weightStreaming } from '../fixtures/plans/by-hand.js'
import { parseXml } from '../fixtures/xml.js'

const { folder, file } = scratch()
const program = file(
  'net.mts',
  `import { add, download, graph, lane, mul, param, program, tensor, upload } from ${JSON.stringify(language)}
const net = graph('net', { x: tensor('f32', [1024]) }, ({ x }) => {
  const w = param('w', tensor('f32', [1024]), { on: 'host' })
  const streamed = w.pipe(upload(lane('copy'), { ahead: 1 }))
  return { y: x.pipe(upload(lane('copy')), mul(2), add(streamed), download(lane('out'))) }
})
export default program({ graph: net, feeds: () => ({}) })
`,
)
const foreign = file('foreign.json', toJSON(weightStreaming))
const machine = file(
  'slow.jsonc',
  `// rates of a slow machine\n${JSON.stringify({ ...slowMachine, name: 'attic' })}`,
)

describe('braid explain', () => {
  it('prints reasons, with the lines of the program, and the times of a machine', () => {
    const { status, stdout, stderr } = braid('explain', program, '--machine', machine)
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
    expect(stdout).toMatch(/^net: \d+ operations on \d lanes/)
    expect(stdout).toMatch(/what bounds the tick \([\d.]+ \S+ on attic, predicted\)/)
    expect(stdout).toMatch(/in device memory at the peak \(\d+ bytes\)/)
    expect(stdout).toMatch(/net\.mts:4:\d+$/m)
    expect(stdout).toMatch(/windows: .*\n {2}copy: w: at most 1 ahead/)
  })

  it('writes one object with --json, and the reasons as data with --as json', () => {
    const { status, stdout } = braid('explain', program, '--as', 'json', '--json')
    expect(status).toBe(0)
    expect(stdout.trim().split('\n')).toHaveLength(1)
    const { machine, reasons } = JSON.parse(stdout) as {
      machine: string
      reasons: {
        waits: { at: string }[]
        held: { bytes: number; parts: { bytes: number }[] }[]
        timing: object
      }
    }
    expect(machine).toBe('h200')
    for (const { at } of reasons.waits) expect(at).toMatch(/net\.mts:\d+:\d+$/)
    for (const { bytes, parts } of reasons.held)
      expect(parts.reduce((sum, part) => sum + part.bytes, 0)).toBe(bytes)
    expect(reasons.timing).toMatchObject({ machine: 'h200', tickUs: expect.any(Number) })
  })

  it('draws a plan that another program wrote', () => {
    const path = join(folder, 'foreign.svg')
    const { status, stdout } = braid('explain', foreign, '--as', 'svg', '-o', path)
    expect({ status, stdout }).toMatchObject({ status: 0, stdout: expect.stringContaining(path) })
    expect(parseXml(readFileSync(path, 'utf8'))[0]).toMatchObject({ name: 'svg' })
    expect(braid('explain', foreign).stdout).not.toContain('named in the program')
  })

  it.each(['dot', 'perfetto', 'svg'])('gives the same as %s as braid plan does', as => {
    const one = braid('explain', program, '--as', as)
    expect(one.status).toBe(0)
    expect(one.stdout.length).toBeGreaterThan(100)
    expect(braid('plan', program, '--as', as).stdout).toBe(one.stdout)
  })

  it.each([
    ['an unknown machine', [program, '--machine', 'abacus'], 2, /h200.*found "abacus"/s],
    [
      'a machine file without rates',
      [program, '--machine', file('bad.jsonc', '{ "name": "x" }')],
      1,
      /wanted/,
    ],
    ['a plan that breaks a law', [file('broken.json', toJSON(unsafe()))], 1, /law L1/],
    ['a plan that is no JSON', [file('torn.json', '{')], 1, /torn\.json: plan: /],
    ['another form', [program, '--as', 'poem'], 2, /text, json, dot, perfetto, svg/],
    ['a plan that is compiled already', [foreign, '--memory', 'small'], 2, /compiled already/],
    ['no place to write', [program, '-o', join(folder, 'nowhere', 'x.txt')], 1, /file that can be written/],
  ] as const)('reports %s', (_, args, status, says) => {
    const found = braid('explain', ...args)
    expect({ status: found.status, stdout: found.stdout }).toEqual({ status, stdout: '' })
    expect(found.stderr).toMatch(says)
    expect(found.stderr).not.toMatch(/\n {4}at /)
  })
})

/** A plan without its waits: nothing orders what it reads after what it writes. */
function unsafe() {
  return { ...weightStreaming, commands: weightStreaming.commands.filter(([kind]) => kind !== 'wait') }
}
