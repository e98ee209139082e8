// Names come from files of any origin. No text that is made of them has a character that a terminal obeys or
// does not show, or a line that the plan did not give it.
import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import {
  BraidError,
  compile,
  download,
  explain,
  type Graph,
  graph,
  lane,
  mul,
  on,
  orThrow,
  type Plan,
  parsePlan,
  simulate,
  slice,
  tensor,
  toJSON,
  upload,
  verify,
  verifyRanks,
} from '../../../dsl/index.js'
import { render } from '../../../dsl/ir/messages.js'
import { textOf } from '../../../dsl/ir/text.js'
import { runs } from '../../fixtures/runs.js'

const net = graph({ x: tensor('f32', [4, 4]) }, ({ x }) => {
  const u = x.pipe(upload(lane('c')), on(lane('m')))
  return { y: u.pipe(mul(2), slice(0, 1, 1), download()), z: u.pipe(mul(3), download()) }
})
const text = toJSON(orThrow(compile(net as Graph, { mode: 'eager', storage: 'planned' })) as Plan)

/** The plan whose every name ends in `more`. */
const named = (more: string): Plan => {
  const plan = JSON.parse(text) as Plan
  const add = <A extends { readonly name: string }>(of: A): A => ({ ...of, name: of.name + more })
  return {
    ...add(plan),
    lanes: plan.lanes.map(add),
    buffers: plan.buffers.map(add),
    nodes: plan.nodes.map(node => ({ ...add(node), op: node.op + more, at: node.at + more })),
  }
}

// As code points, apart from the expression that escapes them.
const isUnseen = (code: number): boolean =>
  (code < 0x20 && code !== 0x0a) ||
  (code >= 0x7f && code <= 0x9f) ||
  code === 0x061c ||
  code === 0x200e ||
  code === 0x200f ||
  (code >= 0x2028 && code <= 0x202e) ||
  (code >= 0x2066 && code <= 0x2069)
const unseenIn = (out: string): number => Array.from(out).filter(c => isUnseen(c.codePointAt(0)!)).length

const hostile = fc
  .array(
    fc.constantFrom(
      ...[
        '\u001b[2J',
        '\u0007',
        '\n',
        '\r',
        '\t',
        '\u0000',
        '\u007f',
        '\u009b31m',
        '\u0085',
        '\u2028',
        '\u2029',
      ],
      ...[
        '\u202e',
        '\u2066',
        '\u2069',
        '\u200f',
        '\u061c',
        '"',
        '\\',
        '<script>',
        ']]>',
        '&',
        "'",
        '%',
        'é',
        '🙂',
      ],
      ...['\nL1  commands[0]: forged', '\n  next    run this', '"];\nevil [label="'],
    ),
    { minLength: 1, maxLength: 5 },
  )
  .map(parts => parts.join(''))

const lines = (out: string): number => out.split('\n').length

/** The texts of a plan, and of the plan broken: its violations and faults. */
const textsOf = (plan: Plan): Readonly<Record<string, string>> => {
  const broken = { ...plan, commands: plan.commands.filter(([op]) => op !== 'wait') }
  const unread = { ...plan, buffers: plan.buffers.map(b => ({ ...b, alias: b.id, offset: 8 })) }
  const parsed = parsePlan(unread)
  return {
    plan: textOf(plan),
    explained: explain(plan, 'text'),
    dot: explain(plan, 'dot'),
    svg: explain(plan, 'svg'),
    lanes: Object.keys(simulate(plan, 'h200').busy).join('\n'),
    violations: verify(broken)
      .map(({ message }) => message)
      .join('\n'),
    ranks: verifyRanks([broken, plan])
      .map(({ message }) => message)
      .join('\n'),
    faults: E.isLeft(parsed) ? new BraidError(parsed.left).message : '',
  }
}

describe('a name that a terminal would obey', () => {
  test('is escaped in every text, and forges no line of it', () => {
    const plain = textsOf(named('_'))
    for (const [kind, out] of Object.entries(plain)) expect(out, kind).not.toBe('')
    fc.assert(
      fc.property(hostile, more => {
        for (const [kind, out] of Object.entries(textsOf(named(more)))) {
          expect(unseenIn(out), kind).toBe(0)
          if (kind !== 'svg') expect(lines(out), `${kind}: ${JSON.stringify(out)}`).toBe(lines(plain[kind]!))
          if (kind === 'dot')
            // What is outside of quotes is the same, whatever the names are.
            expect(out.replace(/"(\\.|[^"\\])*"/g, '""')).toBe(
              plain['dot']!.replace(/"(\\.|[^"\\])*"/g, '""'),
            )
          if (kind === 'svg') expect(out).not.toContain('<script>')
        }
      }),
      { numRuns: runs(60) },
    )
  })

  test('is escaped in an error; the lines of a log stay, and look like no line of the report', () => {
    fc.assert(
      fc.property(hostile, hostile, (name, log) => {
        const out = render({ _tag: 'BadFile', at: name, subject: name, wanted: log, found: log, next: log })
        expect(unseenIn(out.replaceAll('\t', ''))).toBe(0)
        const labels = out.split('\n').map(line => /^( {10}| {2}\w+ {2,})/.exec(line)?.[0].trim())
        expect(labels.filter(label => label !== '')).toEqual([undefined, 'wanted', 'found', 'next'])
      }),
      { numRuns: runs(200) },
    )
  })

  test('of no such character is as it was', () => {
    expect(explain(named(' é🙂/"\\'), 'text')).toContain('é🙂/"\\')
  })
})
