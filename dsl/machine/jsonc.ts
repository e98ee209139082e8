/** JSON with comments and trailing commas as JSON of the same length, line by line: what an error says of a place is true of the original. */
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

/** Where JSON.parse stopped, if its message says so. */
export const syntaxPlace = (text: string, message: string): string => {
  const [, offset] = /at position (\d+)/.exec(message) ?? []
  if (offset !== undefined) return placeIn(text, Number(offset))
  return /end of (JSON )?input/i.test(message) ? placeIn(text, text.length) : ''
}
