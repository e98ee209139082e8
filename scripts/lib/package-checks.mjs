// What a user does with the installed package, one list of checks for each way: [name, check].
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { add, prints, readme, say } from './package-project.mjs'
import { root } from './run.mjs'

const node = (user, ...args) => say(user.folder, [process.execPath, ...args], user.env)

/** The command: it says what a .ts program lacks, and runs one where tsx is there. */
export const command = user => [
  [
    'the command says what loads TypeScript',
    () => {
      user.write('program.mts', readme().program)
      const explained = node(user, 'node_modules/braid-gpu/scripts/braid.mjs', 'explain', 'program.mts')
      return process.features.typescript
        ? explained.status === 0
        : explained.status === 1 && explained.said.includes('npm install --save-dev tsx')
    },
  ],
  [
    'the command runs a program through tsx',
    () => {
      const back = [user.lend('tsx')]
      try {
        const args = ['run', 'program.mts', '--device', 'host', '--check']
        return prints(node(user, 'node_modules/braid-gpu/scripts/braid.mjs', ...args), 'against interpret')
      } finally {
        for (const remove of back) remove()
      }
    },
  ],
]

/** Versions of TypeScript whose users find types, by the package that has each. */
const compilers = ['typescript-5.9', 'typescript', 'typescript-7']

/** What the guide says that a project needs. */
const guide = {
  module: 'NodeNext',
  target: 'ES2022',
  lib: ['ES2023', 'ESNext.Disposable'],
  strict: true,
  types: ['node'],
}

const inUse = text =>
  text
    .replaceAll(/'[./]*\/dsl\/index\.js'/g, "'braid-gpu'")
    .replaceAll(/'[./]*\/runtime\/index\.js'/g, "'braid-gpu/runtime'")

/** The README's program, programs that must not compile, and one that exports what it makes, per TypeScript. */
export const typed = user => {
  const prepare = () => {
    user.write('typed/package.json', '{ "type": "module" }')
    user.write('typed/net.ts', readme().program)
    for (const name of ['language.test-d.ts', 'trees.test-d.ts', 'exported.ts'])
      user.write(`typed/${name}`, inUse(readFileSync(join(root, 'spec/types', name), 'utf8')))
    const { compilerOptions } = JSON.parse(readFileSync(join(root, 'tsconfig.json'), 'utf8'))
    const { outDir, rootDir, noEmit, ...strict } = { ...compilerOptions, ...guide }
    const exported = { declaration: true, emitDeclarationOnly: true, outDir: 'out', skipLibCheck: false }
    user.write('typed/tsconfig.json', JSON.stringify({ compilerOptions: { ...strict, ...exported } }))
  }
  return compilers.map((name, at) => [
    `types under ${name} ${JSON.parse(readFileSync(join(root, 'node_modules', name, 'package.json'))).version}`,
    () => {
      if (at === 0) prepare()
      const back = ['@types/node', 'undici-types'].map(user.lend)
      try {
        const ended = node(user, join(root, 'node_modules', name, 'bin/tsc'), '-p', 'typed')
        const declared =
          ended.status === 0 && readFileSync(join(user.folder, 'typed/out/exported.d.ts'), 'utf8')
        // A path into the package would be a type that a user cannot name.
        return prints(ended) && /net: .*Graph</.test(declared) && !/(import\(|from )["'][./]/.test(declared)
      } finally {
        for (const remove of back) remove()
        rmSync(join(user.folder, 'typed/out'), { recursive: true, force: true })
      }
    },
  ])
}

const vite = join(root, 'node_modules/vite/dist/node/index.js')

/** Builds spec/package/server.ts with vite; `inside`: the package is part of the bundle. Returns the bundle. */
const bundle = (user, inside) => {
  user.put('server.ts', join(root, 'spec/package/server.ts'))
  const outDir = inside ? 'inside' : 'outside'
  const options = {
    root: user.folder,
    logLevel: 'error',
    ssr: inside ? { noExternal: true } : {},
    build: { ssr: 'server.ts', outDir },
  }
  const code = `import { build } from ${JSON.stringify(vite)}\nawait build(${JSON.stringify(options)})`
  const ended = node(user, '--input-type=module', '--eval', code)
  if (!prints(ended)) throw new Error('vite failed')
  return `${outDir}/server.js`
}

/** A server that vite bundles, with the package beside it and within. */
export const bundled = user => {
  user.write('package.json', '{ "type": "module", "dependencies": { "braid-gpu": "*" } }')
  return [
    [
      'a server that vite bundles, the package beside it',
      () => prints(node(user, bundle(user, false)), 'served 15 and 24', 'outside/server.js:'),
    ],
    [
      'a server that vite bundles, the package within it',
      () => prints(node(user, bundle(user, true)), 'served 15 and 24', 'inside/server.js:'),
    ],
  ]
}

/** Both bundles where node_modules has been copied to, and the one without a package, which is refused. */
export const copied = user => [
  [
    'a copy of node_modules, as in a container',
    () => {
      const to = mkdtempSync(join(tmpdir(), 'braid-copy-'))
      try {
        for (const name of ['inside', 'outside']) user.copyTo(name, to)
        const alone = say(to, [process.execPath, 'inside/server.js'], user.env)
        user.copyTo('node_modules', to)
        const run = name => say(to, [process.execPath, `${name}/server.js`], user.env)
        return (
          alone.said.includes('a bundler must leave braid-gpu as an import') &&
          ['inside', 'outside'].every(name => prints(run(name), 'served 15 and 24'))
        )
      } finally {
        rmSync(to, { recursive: true, force: true })
      }
    },
  ],
]

const bun = { package: '@oven/bun-linux-x64', version: '1.4.5' }

/** The README's program under Bun; undefined, after a word on why, where Bun cannot be had. */
export const bunRuns = user => {
  const folder = mkdtempSync(join(tmpdir(), 'braid-bun-'))
  try {
    try {
      add(folder, `${bun.package}@${bun.version}`)
    } catch (error) {
      console.log(`Bun was left out: ${error.message.split('\n').slice(0, 3).join(' ')}`)
      return undefined
    }
    const { net, output } = readme()
    user.write('bun/net.ts', net)
    const ended = say(
      user.folder,
      [join(folder, 'node_modules', bun.package, 'bin/bun'), 'bun/net.ts'],
      user.env,
    )
    // Bun prints strings in double quotes.
    return prints(ended, output.replaceAll("'", '"'))
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}
