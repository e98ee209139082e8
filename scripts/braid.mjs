#!/usr/bin/env node
// The command `braid`: the built command line, or a word on how to build it.
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const main = new URL('../dist/runtime/cli/main.js', import.meta.url)
if (existsSync(fileURLToPath(main))) await import(main.href)
else {
  process.stderr.write('braid: Braid is not built yet. Run: npm run build\n')
  process.exitCode = 1
}
