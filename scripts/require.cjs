// What `require('braid-gpu')` finds. Node could load the ES modules that way, but not a program that awaits at
// its top level, as programs of Braid do: two ways to load them would only work halfway.
'use strict'

throw new Error(
  [
    'braid-gpu is an ES module: it is imported, not required.',
    'In package.json, beside the name:          "type": "module"',
    "In the program, in the place of require:   import { graph } from 'braid-gpu'",
    'TypeScript wants in tsconfig.json, under compilerOptions:',
    '  "module": "NodeNext", "target": "ES2022", "lib": ["ES2023", "ESNext.Disposable"]',
    "A file that has to stay CommonJS calls: const braid = await import('braid-gpu')",
  ].join('\n'),
)
