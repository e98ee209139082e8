/**
 * Turns JSON with comments and trailing commas into JSON of the same length and lines, so that the place of
 * an error holds for the original.
 */
export const withoutComments = (text: string): string =>
  text
    .replace(/"(?:\\.|[^"\\\n])*"|\/\/[^\n]*|\/\*[\s\S]*?\*\//g, token =>
      token.startsWith('"') ? token : token.replace(/[^\n]/g, ' '),
    )
    .replace(/"(?:\\.|[^"\\\n])*"|,(?=\s*[}\]])/g, token => (token === ',' ? ' ' : token))

/** `line 3, column 7` of a character, counted from 1. */
export const placeIn = (text: string, offset: number): string => {
  const before = text.slice(0, offset).split('\n')
  return `line ${before.length}, column ${before[before.length - 1]!.length + 1}`
}

/**
 * The first character at which a text stops being JSON: its length where it ends too early. JSON.parse
 * reports the place differently in each engine, and not at all for short texts. Only for texts that
 * JSON.parse has rejected.
 */
export const syntaxError = (text: string): number => {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: JSON allows none in a string.
  const string = /"(?:\\(?:["\\/bfnrt]|u[\da-fA-F]{4})|[^"\\\u0000-\u001f])*"/.source
  const number = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?/.source
  const token = new RegExp(`\\s*(?:([{}[\\],:])|(${string}|${number}|true|false|null))`, 'y')
  // What may come next: a value; a value or the end of a list; a key; a key or the end of an object; a colon;
  // or what follows a value.
  let state: 'value' | 'first' | 'key' | 'firstKey' | 'colon' | 'after' = 'value'
  const open: string[] = []
  let at = 0
  for (;;) {
    const skipped = /\s*/y
    skipped.lastIndex = at
    skipped.exec(text)
    const here = skipped.lastIndex
    token.lastIndex = at
    const found = token.exec(text)
    if (found === null) return here
    const [, mark, scalar] = found
    const inside = open[open.length - 1]
    if (scalar !== undefined) {
      if (state === 'key' || state === 'firstKey') {
        if (!scalar.startsWith('"')) return here
        state = 'colon'
      } else if (state === 'value' || state === 'first') state = 'after'
      else return here
    } else if (mark === '{' || mark === '[') {
      if (state !== 'value' && state !== 'first') return here
      open.push(mark)
      state = mark === '{' ? 'firstKey' : 'first'
    } else if (mark === '}' || mark === ']') {
      const closes = state === 'after' || state === (mark === '}' ? 'firstKey' : 'first')
      if (!closes || inside !== (mark === '}' ? '{' : '[')) return here
      open.pop()
      state = 'after'
    } else if (mark === ':') {
      if (state !== 'colon') return here
      state = 'value'
    } else {
      if (state !== 'after' || inside === undefined) return here
      state = inside === '{' ? 'key' : 'value'
    }
    at = token.lastIndex
  }
}
