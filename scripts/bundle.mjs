// What rolldown makes of the sources: dist/, a file for each door and three for what stands behind them, so
// that an import reads a few files instead of hundreds. `npm run build` runs this.
//
// Hazard: modules look for others beside them by import.meta.url. So a chunk lies as deep as its modules do:
// dsl/language/where.ts, runtime/addon.ts, runtime/cli/*.ts and spec/bench/*.ts under dist/.
import { rmSync } from 'node:fs'
import { dirname, join, relative, sep } from 'node:path'
import { build } from 'rolldown'
import { root } from './lib/run.mjs'
import { files } from './lib/stamp.mjs'

/** Each is a file of dist/ under its own path: the doors, the command, and what a checkout runs besides. */
const entries = [
  'dsl/index.ts',
  'runtime/index.ts',
  'runtime/cli/main.ts',
  'runtime/cli/reload-hooks.ts',
  ...files(['examples'], path => /\b(main|program)\.ts$/.test(path)),
  ...files(['spec/bench'], path => path.endsWith('.ts')),
]

const pathOf = id => relative(root, id).replaceAll(sep, '/')

/**
 * The chunks, by the paths of their modules: the first that fits, and then what its modules import and none
 * before has. The doors share chunks, so that a class is one.
 */
const chunks = [
  ['dsl/language/bundle', /^dsl\//],
  ['runtime/bundle', /^runtime\/(?!cli\/)/],
  ['runtime/cli/bundle', /^runtime\/cli\/(?!(main|reload-hooks)\.ts$)/],
  // An example runs when its main.ts is imported.
  [path => `${dirname(path)}/parts`, /^examples\/(?!.*\bmain\.ts$)/],
  // A bench starts its own file in processes of their own.
  ['spec/fixtures/bundle', /^spec\/(?!bench\/)/],
]

const groups = chunks.map(([name, pattern], at) => ({
  debugName: String(pattern),
  name: typeof name === 'string' ? name : id => name(pathOf(id)),
  test: id => pattern.test(pathOf(id)),
  priority: chunks.length - at,
}))

/** Removes the code that an earlier build left in dist/. */
const sweep = {
  name: 'sweep',
  writeBundle(_, bundle) {
    const code = files(['dist'], path => /\.js(\.map)?$/.test(path))
    for (const path of code)
      if (!Object.hasOwn(bundle, pathOf(join(root, path)).slice(5))) rmSync(join(root, path))
  },
}

/**
 * The few functions of fp-ts that are used become part of the bundle: Node would read its files of the form
 * CommonJS for a third of the time of an import. Its data are plain, so that a user's own fp-ts works on them.
 */
const fpTs = {
  name: 'fp-ts',
  resolveId: id =>
    id.startsWith('fp-ts/lib/') ? join(root, 'node_modules', id.replace('/lib/', '/es6/')) : undefined,
}

await build({
  cwd: root,
  input: Object.fromEntries(entries.map(path => [path.slice(0, -3), path])),
  // The language runs in a browser too.
  platform: 'neutral',
  external: [/^(node:|rxjs|tsx\/)/],
  resolve: {
    alias: { 'braid-gpu/runtime': join(root, 'runtime/index.ts'), 'braid-gpu': join(root, 'dsl/index.ts') },
  },
  transform: { target: 'es2023' },
  plugins: [fpTs, sweep],
  logLevel: 'warn',
  output: {
    dir: 'dist',
    entryFileNames: '[name].js',
    chunkFileNames: ({ name }) => (name === 'rolldown-runtime' ? 'dsl/language/helpers.js' : '[name].js'),
    comments: false,
    // Errors show the names of classes and functions.
    keepNames: true,
    codeSplitting: { groups },
  },
})
