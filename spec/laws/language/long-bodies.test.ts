// tsc infers what a body returns from its last line back, a call within a call, and overflows on some 500
// `const b = a.pipe(…)` in a row. What docs/guide/language.md says of longer bodies holds.
import ts from 'typescript'
import { expect, test } from 'vitest'

const steps = 900
const chain = (typed: (i: number) => string): string[] =>
  Array.from(
    { length: steps },
    (_, i) => `  const v${i + 1}${typed(i + 1)} = v${i}.pipe(${i % 2 ? 'relu()' : 'add(1)'})`,
  )
const bodies = {
  'a body whose result has a type': [': Out', ...chain(() => '')],
  'a body in which every hundredth flow has one': ['', ...chain(i => (i % 100 === 0 ? ': V' : ''))],
}

test('900 steps in a row are checked where the result, or a flow now and then, has a type', () => {
  const language = new URL('../../../dsl/index.ts', import.meta.url).pathname
  const texts = new Map(
    Object.entries(bodies).map(([name, [result, ...lines]]) => [
      new URL(`./${name.replaceAll(' ', '-')}.ts`, import.meta.url).pathname,
      `import { add, download, type Flow, graph, relu, type Tensor, tensor, upload } from '${language.replace('.ts', '.js')}'
export type V = Flow<'device', Tensor<'f32', readonly [4]>>
export type Out = { readonly y: Flow<'host', Tensor<'f32', readonly [4]>> }
export const net = graph({ x: tensor('f32', [4]) }, ({ x })${result} => {
  const v0 = x.pipe(upload())
${lines.join('\n')}
  return { y: v${steps}.pipe(download()) }
})`,
    ]),
  )
  const config = ts.readConfigFile(
    new URL('../../../tsconfig.json', import.meta.url).pathname,
    ts.sys.readFile,
  )
  const { options } = ts.parseJsonConfigFileContent(
    config.config,
    ts.sys,
    new URL('../../..', import.meta.url).pathname,
  )
  const host = ts.createCompilerHost(options)
  const { getSourceFile, fileExists, readFile } = host
  host.fileExists = path => texts.has(path) || fileExists(path)
  host.readFile = path => texts.get(path) ?? readFile(path)
  host.getSourceFile = (path, ...rest) =>
    texts.has(path)
      ? ts.createSourceFile(path, texts.get(path)!, ts.ScriptTarget.ES2022)
      : getSourceFile(path, ...rest)
  const program = ts.createProgram([...texts.keys()], { ...options, noEmit: true, types: [] }, host)
  for (const path of texts.keys()) {
    const found = program.getSemanticDiagnostics(program.getSourceFile(path))
    expect(found.map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n'))).toEqual([])
  }
})
