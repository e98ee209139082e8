// The public surface as text: every name that a door exports, with its declaration. spec/golden/surface.txt
// holds it, so that a change of the surface is a change of that file.
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { root } from './run.mjs'
import { doors } from './typescript.mjs'

const page = 'spec/golden/surface.txt'

/** The words of a declaration, without comments and without what is private. */
const declared = (ts, printer, declaration) => {
  const statement = ts.isVariableDeclaration(declaration) ? declaration.parent.parent : declaration
  const isPrivate = member =>
    member.name?.kind === ts.SyntaxKind.PrivateIdentifier ||
    member.modifiers?.some(({ kind }) => kind === ts.SyntaxKind.PrivateKeyword)
  const { factory } = ts
  const shown = ts.isClassDeclaration(statement)
    ? factory.updateClassDeclaration(
        statement,
        statement.modifiers,
        statement.name,
        statement.typeParameters,
        statement.heritageClauses,
        statement.members.filter(member => !isPrivate(member)),
      )
    : statement
  return printer
    .printNode(ts.EmitHint.Unspecified, shown, statement.getSourceFile())
    .replace(/^export (declare )?/, '')
    .replaceAll('    ', '  ')
}

/** The surface of the declarations in dist/. */
const surface = ts => {
  const fileOf = door => join(root, 'dist', `${door}.d.ts`)
  const config = ts.readConfigFile(join(root, 'tsconfig.json'), ts.sys.readFile).config
  const { options } = ts.parseJsonConfigFileContent({ ...config, include: [], files: [] }, ts.sys, root)
  const program = ts.createProgram(Object.values(doors).map(fileOf), options)
  const checker = program.getTypeChecker()
  const printer = ts.createPrinter({ removeComments: true })
  const textOf = symbol => {
    const target = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol
    return (target.declarations ?? []).map(declaration => declared(ts, printer, declaration)).join('\n')
  }
  return Object.entries(doors)
    .map(([name, door]) => {
      const symbols = checker.getExportsOfModule(
        checker.getSymbolAtLocation(program.getSourceFile(fileOf(door))),
      )
      const sorted = symbols.toSorted((a, b) => (a.name < b.name ? -1 : 1))
      return `# ${name}\n\n${sorted.map(symbol => `${symbol.name}:\n${textOf(symbol)}\n`).join('\n')}`
    })
    .join('\n')
}

/** Whether the page shows the surface as it is in dist/; `write` updates it. */
export const surfaceIsShown = (write = false) => {
  const now = surface(createRequire(import.meta.url)('typescript'))
  const before = existsSync(join(root, page)) ? readFileSync(join(root, page), 'utf8') : ''
  if (now === before) return true
  if (write) {
    writeFileSync(join(root, page), now)
    return true
  }
  const lines = text => new Set(text.split('\n'))
  const [old, fresh] = [lines(before), lines(now)]
  for (const line of old) if (!fresh.has(line)) console.error(`  - ${line}`)
  for (const line of fresh) if (!old.has(line)) console.error(`  + ${line}`)
  console.error(`  ${page} shows another surface than there is. Run: npm run check -- --surface`)
  return false
}
