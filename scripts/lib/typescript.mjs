// TypeScript's output in dist/: when it is current, and the declarations that the package has.
import { cpSync, readFileSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { root, run, Stop, tool } from './run.mjs'
import { files, fingerprint, readStamp, removeStamp, writeStamp } from './stamp.mjs'

/** What is made of these TypeScript sources, and of the files that say how, is current if `stamp` holds `print`. */
export const stampOf = (stamp, folders, ...more) => {
  const sources = files(folders, path => path.endsWith('.ts'))
  const inputs = files(['tsconfig.json', 'package-lock.json', ...more])
  const print = `${fingerprint([...sources, ...inputs])}\n${sources.join('\n')}`
  return { stamp, print, sources, isCurrent: readStamp(stamp) === print }
}

/** Runs a compiler whose output is current from then on. A build that is cut short leaves no stamp. */
export const compile = ({ stamp, print }, args, problem, after = () => {}) => {
  removeStamp(stamp)
  if (run(process.execPath, args) !== 0) throw new Stop(problem)
  after()
  writeStamp(stamp, print)
}

/** The doors of the package, by what a user imports. */
export const doors = { 'braid-gpu': 'dsl/index', 'braid-gpu/runtime': 'runtime/index' }

/** Where TypeScript writes all declarations (tsconfig.build.json). */
const folder = '.cache/declarations'

/** The declarations that the doors lead to, as paths under `folder`. */
const reached = () => {
  const found = new Set()
  const visit = path => {
    if (found.has(path)) return
    found.add(path)
    const text = readFileSync(join(root, folder, path), 'utf8')
    for (const [, to] of text.matchAll(/\b(?:from |import\(|import )['"](\.[^'"]+)\.js['"]/g))
      visit(join(dirname(path), `${to}.d.ts`))
  }
  for (const door of Object.values(doors)) visit(`${door}.d.ts`)
  return found
}

/** Checks the types of dsl/ and runtime/, and writes the declarations of the doors into dist/, where stale. */
export const buildDeclarations = () => {
  const wanted = stampOf('dist/.stamp-types', ['dsl', 'runtime'], 'tsconfig.build.json')
  if (wanted.isCurrent) return
  const problem = 'TypeScript found the errors above; nothing was run.'
  compile(wanted, [tool.tsc, '-p', 'tsconfig.build.json'], problem, () => {
    const paths = reached()
    for (const path of paths) cpSync(join(root, folder, path), join(root, 'dist', path))
    // Those of a source that went away, or that no door leads to any more.
    for (const path of files(['dist/dsl', 'dist/runtime'], path => path.endsWith('.d.ts')))
      if (!paths.has(path.slice('dist/'.length))) rmSync(join(root, path))
  })
}
