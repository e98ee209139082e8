import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { isLeft } from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import { compile, type Graph, isProved } from '../../dsl/index.js'
import { textOf } from '../../dsl/ir/text.js'
import { verify } from '../../dsl/ir/verify.js'
import { goldens } from '../golden/graphs.js'

// To write the plans anew: BRAID_GOLDEN=write npx vitest run spec/laws/compile-golden.test.ts
const write = process.env['BRAID_GOLDEN'] === 'write'

describe('golden plans', () => {
  for (const [name, graph] of Object.entries(goldens))
    test(name, () => {
      const file = new URL(`../golden/${name}.txt`, import.meta.url)
      const plan = compile(graph as Graph)
      if (isLeft(plan)) throw new Error(JSON.stringify(plan.left, null, 2))
      expect(verify(plan.right)).toEqual([])
      expect(isProved(plan.right)).toBe(true)
      const text = textOf(plan.right)
      if (write) writeFileSync(file, text)
      expect(existsSync(file)).toBe(true)
      expect(text).toBe(readFileSync(file, 'utf8'))
      expect(JSON.stringify(compile(graph as Graph))).toBe(JSON.stringify(plan))
    })
})
