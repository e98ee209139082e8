import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { parse } from './args.js'
import { Failed, Misuse, type Output } from './io.js'
import { table } from './table.js'

export const usage = 'braid bench [NAME…] [--json]'

/** The `bench` export of a module of `spec/bench`. */
interface Bench {
  readonly name: string
  readonly title: string
  run(
    log: (line: string) => void,
  ): Promise<{ readonly rows: readonly Readonly<Record<string, unknown>>[]; readonly ok: boolean }>
}

const isBench = (value: unknown): value is Bench =>
  typeof value === 'object' && value !== null && typeof (value as Bench).run === 'function'

const folder = fileURLToPath(new URL('../../spec/bench/', import.meta.url))

// The benchmarks are built with Braid in a checkout; the published package does not carry them.
const find = async (): Promise<readonly Bench[]> => {
  let names: string[]
  try {
    names = readdirSync(folder)
      .filter(name => /^[^.]+\.(js|ts)$/.test(name))
      .sort()
  } catch {
    throw new Failed([
      {
        _tag: 'NoBenchmarks',
        at: folder,
        subject: 'bench',
        wanted: 'the benchmarks of a checkout',
        found: 'none',
        next: 'run it in a checkout, after npm run build',
      },
    ])
  }
  const modules = await Promise.all(
    names.map(async name => (await import(pathToFileURL(join(folder, name)).href)) as { bench?: unknown }),
  )
  return modules.map(({ bench }) => bench).filter(isBench)
}

const cell = (value: unknown): string =>
  typeof value === 'number' && !Number.isInteger(value) ? value.toPrecision(4) : String(value)

const rowsOf = (rows: readonly Readonly<Record<string, unknown>>[]): string => {
  const columns = [...new Set(rows.flatMap(row => Object.keys(row)))]
  return table(
    [
      columns,
      ...rows.map(row => columns.map(column => (row[column] === undefined ? '' : cell(row[column])))),
    ],
    '  ',
  )
}

export const bench = async (args: readonly string[], out: Output): Promise<number> => {
  const { positionals } = parse(args, {}, usage)
  const all = await find()
  const unknown = positionals.find(name => !all.some(bench => bench.name === name))
  if (unknown !== undefined)
    throw new Misuse(
      `no benchmark "${unknown}"; there are: ${all.map(({ name }) => name).join(', ') || 'none'}`,
    )
  const results = []
  for (const { name, title, run } of all.filter(
    ({ name }) => positionals.length === 0 || positionals.includes(name),
  )) {
    out.say(`${out.styles.bold(name)}  ${title}`)
    const { rows, ok } = await run(line => out.say(out.styles.dim(`  ${line}`)))
    out.say(
      `${rowsOf(rows)}\n  ${ok ? out.styles.good('its bar is met') : out.styles.bad('its bar is not met')}\n`,
    )
    results.push({ name, title, ok, rows })
  }
  const ok = results.every(result => result.ok)
  out.result({ ok, benches: results })
  return ok ? 0 : 1
}
