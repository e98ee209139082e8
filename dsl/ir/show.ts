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
