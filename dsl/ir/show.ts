const short: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' }

// As JSON writes it, so that a text of JSON keeps its meaning.
const escapeOf = (character: string): string =>
  short[character] ??
  Array.from({ length: character.length }, (_, i) => character.charCodeAt(i))
    .map(unit => `\\u${unit.toString(16).padStart(4, '0')}`)
    .join('')

// A terminal obeys controls, C1 ones too; separators end a line; formats turn the direction of words around,
// or are not seen.
const unseen = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu
const unseenInLines = /[^\P{Cc}\n\t]|[\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu

/**
 * A name or sentence as one line of a report: characters that a terminal obeys or does not show become
 * escapes. A name comes from a file of any origin, so it may end a line, move the cursor, or turn the words
 * after it around.
 */
export const shown = (text: string): string => text.replace(unseen, escapeOf)

/** The same of a text of several lines, whose line feeds and tabs stay. */
export const shownLines = (text: string): string => text.replace(unseenInLines, escapeOf)

/** A value inside of another one. */
const inner = (value: unknown): string => (typeof value === 'object' && value !== null ? '…' : show(value))

/** The first fields of an object; those that are computed are not read. */
const fieldsOf = (value: object): string => {
  const names = Object.keys(value)
  if (names.length === 0) return 'an object without fields'
  const some = names.slice(0, 4).map(name => {
    const field = Object.getOwnPropertyDescriptor(value, name)
    return `${name}: ${field !== undefined && 'value' in field ? inner(field.value) : '…'}`
  })
  return `{ ${some.join(', ')}${names.length > 4 ? ', …' : ''} }`
}

/** The text of an invalid argument in a message: short, and it never throws. */
export const show = (value: unknown): string => {
  try {
    if (value === null || value === undefined) return String(value)
    if (typeof value === 'string') return value.length > 40 ? `'${value.slice(0, 40)}…'` : `'${value}'`
    if (typeof value === 'function') return value.name ? `the function ${value.name}` : 'a function'
    if (typeof value === 'bigint') return `${value}n`
    if (typeof value !== 'object') return String(value)
    if (Array.isArray(value)) {
      const some = value.slice(0, 8).map(inner)
      return `[${some.join(', ')}${value.length > 8 ? ', …' : ''}]`
    }
    const name = Object.getPrototypeOf(value)?.constructor?.name
    return typeof name === 'string' && name !== 'Object' ? `a value of type ${name}` : fieldsOf(value)
  } catch {
    return 'a value that cannot be shown'
  }
}
