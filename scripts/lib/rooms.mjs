// Which room may import which. TypeScript: the rules of .dependency-cruiser.cjs. C++: the table below, since
// every include names its room.
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { ask, root, run } from './run.mjs'
import { files } from './stamp.mjs'

const cruiser = [
  join(root, 'node_modules/dependency-cruiser/bin/dependency-cruise.mjs'),
  '--config',
  '.dependency-cruiser.cjs',
]

/**
 * Whether every TypeScript import keeps to the order of the rooms, without a cycle; prints those that do not.
 */
export const typescriptRooms = () => run(process.execPath, [...cruiser, 'dsl', 'runtime', 'examples']) === 0

const mayInclude = {
  driver: [],
  kernels: ['driver'],
  host: ['driver', 'kernels'],
  cuda: ['driver', 'kernels'],
  order: ['driver'],
  memory: ['driver', 'order'],
  graphs: ['driver', 'order'],
  executor: ['driver', 'kernels', 'order', 'memory', 'graphs'],
  tools: ['driver', 'memory', 'executor', 'graphs'],
  bindings: ['driver', 'kernels', 'memory', 'executor', 'graphs'],
}

/** Whether every include in native/ keeps to the table; prints those that do not. */
export const nativeRooms = () => {
  const wrong = Object.entries(mayInclude).flatMap(([room, allowed]) =>
    files([`native/${room}`], path => /\.(h|cc)$/.test(path)).flatMap(path =>
      [...readFileSync(join(root, path), 'utf8').matchAll(/^#include "(\w+)\//gm)]
        .map(([, included]) => included)
        .filter(included => included !== room && !allowed.includes(included))
        .map(
          included =>
            `${path} includes ${included}/; native/${room} may include ${allowed.join(', ') || 'nothing'}`,
        ),
    ),
  )
  for (const line of wrong) console.error(`  ${line}`)
  return wrong.length === 0
}

const page = 'docs/internals/architecture.md'
const picture = folder => {
  const rooms = `^${folder}/[^/]+`
  const args = [...cruiser, '--output-type', 'mermaid', '--collapse', rooms, '--include-only', rooms, folder]
  return `\`\`\`mermaid\n${ask(process.execPath, args)?.trim()}\n\`\`\``
}

/**
 * The import graphs between their marks in architecture.md. Returns whether they were up to date; `write`
 * updates them.
 */
export const pictures = (write = false) => {
  const text = readFileSync(join(root, page), 'utf8')
  const drawn = ['dsl', 'runtime'].reduce((before, folder) => {
    const mark = `<!-- imports of ${folder} -->`
    const [head, , tail] = before.split(mark)
    return tail === undefined ? before : `${head}${mark}\n\n${picture(folder)}\n\n${mark}${tail}`
  }, text)
  if (drawn === text) return true
  if (write) writeFileSync(join(root, page), drawn)
  else console.error(`  ${page} shows other imports than there are. Run: npm run check -- --pictures`)
  return false
}
