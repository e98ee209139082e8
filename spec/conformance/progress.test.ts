// What is shown of work that takes seconds: on a terminal, and by `open`.
import { afterEach, describe, expect, it, vi } from 'vitest'
import { add, compile, download, graph, mul, orThrow, tensor, upload } from '../../dsl/index.js'
import { progressOn } from '../../runtime/cli/progress.js'
import { type OpenProgress, open } from '../../runtime/index.js'
import { present } from './devices.js'

/** What a terminal shows: `\r` goes to the start of the line, ESC[K erases what comes after it. */
class Terminal {
  readonly isTTY = true
  readonly lines: string[] = []
  private line = ''

  constructor(readonly columns: number) {}

  write(text: string): void {
    expect(text.split('\r\u001b[K').length).toBe(2)
    expect(text).not.toContain('\n')
    this.line = text.slice('\r\u001b[K'.length)
    this.lines.push(this.line)
  }

  get shown(): string {
    return this.line
  }
}

afterEach(() => {
  vi.restoreAllMocks()
  vi.unstubAllEnvs()
})

describe('progress', () => {
  it('is one line of a terminal, which is erased at the end', () => {
    vi.stubEnv('TERM', 'xterm')
    let now = 1000
    vi.spyOn(performance, 'now').mockImplementation(() => now)
    const terminal = new Terminal(20)
    const progress = progressOn(terminal)
    progress.end()
    expect(terminal.lines).toEqual([])
    progress.phase('compiling')
    progress.step('too soon')
    expect(terminal.shown).toBe('compiling')
    progress.phase('running')
    expect(terminal.shown).toBe('running')
    for (let tick = 0; tick < 1000; tick++, now++) progress.step(`tick ${tick} of 1000`)
    expect(terminal.lines.length).toBe(2 + 9)
    now += 1000
    progress.step('a line that is longer than the terminal is wide')
    expect(terminal.shown).toBe('a line that is long')
    progress.end()
    expect(terminal.shown).toBe('')
  })

  it('is nothing where no terminal is, or one that cannot erase', () => {
    const write = vi.fn()
    const say = (stream: { isTTY?: boolean }) => {
      const progress = progressOn({ ...stream, write })
      progress.phase('compiling')
      progress.step('tick 1')
      progress.end()
    }
    say({})
    say({ isTTY: false })
    vi.stubEnv('TERM', 'dumb')
    say({ isTTY: true })
    expect(write).not.toHaveBeenCalled()
  })

  for (const device of present)
    it(`of open counts the operations whose kernels are prepared, on ${device}`, async () => {
      const net = graph('sums', { x: tensor('f32', [8]) }, ({ x }) => {
        const up = x.pipe(upload())
        return { y: up.pipe(mul(2), download()), z: up.pipe(add(1), download()) }
      })
      const plan = orThrow(compile(net, { fuse: false, mode: 'eager' }))
      const repeat = vi.spyOn(globalThis, 'setInterval')
      const reports: OpenProgress[] = []
      const session = orThrow(await open(plan, { device, onProgress: report => reports.push(report) })())
      // Opening this plan takes no tenth of a second: it is asked once more at the end.
      for (const [report] of repeat.mock.calls) (report as () => void)()
      await session.close()
      const operations = plan.commands.filter(([op]) => op === 'run').length
      expect(operations).toBeGreaterThan(3)
      expect(reports.at(-1)).toEqual({ prepared: operations, operations })
    })

  it('of open goes to a function', async () => {
    const net = graph('one', { x: tensor('f32', [1]) }, ({ x }) => ({ y: x.pipe(upload(), download()) }))
    const refused = await open(orThrow(compile(net)), { onProgress: 'often' as never })()
    expect(refused).toMatchObject({ left: { at: 'onProgress', wanted: 'a function' } })
  })
})
