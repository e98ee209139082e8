// The text of an invalid argument in a message: short, and it never throws.
export const show = (value: unknown): string => {
  try {
    if (value === null || value === undefined) return String(value)
    if (typeof value === 'string') return value.length > 40 ? `'${value.slice(0, 40)}…'` : `'${value}'`
    if (typeof value === 'function') return value.name ? `the function ${value.name}` : 'a function'
    if (typeof value === 'bigint') return `${value}n`
    if (typeof value !== 'object') return String(value)
    if (Array.isArray(value)) {
      const some = value.slice(0, 8).map(entry => (typeof entry === 'object' ? '…' : show(entry)))
      return `[${some.join(', ')}${value.length > 8 ? ', …' : ''}]`
    }
    const name = Object.getPrototypeOf(value)?.constructor?.name
    return typeof name === 'string' && name !== 'Object' ? `a value of type ${name}` : 'an object'
  } catch {
    return 'a value that cannot be shown'
  }
}
