/** A word of the text, and the index of its first character. */
export interface Word {
  readonly text: string
  readonly at: number
}

export interface Pair {
  readonly name: Word
  readonly value: Word
}

export type ConfValue =
  | { readonly kind: 'word'; readonly word: Word }
  | { readonly kind: 'list'; readonly at: number; readonly pairs: readonly Pair[] }

export interface Setting {
  readonly key: Word
  readonly value: ConfValue
}

/** A place where the syntax is wrong. `key` is the key of the setting around it, or empty. */
export interface SyntaxProblem {
  readonly key: string
  readonly at: number
  readonly wanted: string
  readonly found: string
}

const marks = ',:[]'
const blanks = ' \t\n\v\f\r'

// As in PyTorch, blanks are ignored everywhere, even inside a word.
const tokensOf = (text: string): readonly Word[] => {
  const tokens: Word[] = []
  let word = ''
  let start = 0
  const close = (): void => {
    if (word !== '') tokens.push({ text: word, at: start })
    word = ''
  }
  for (let at = 0; at < text.length; at++) {
    const character = text[at]!
    if (blanks.includes(character)) continue
    if (marks.includes(character)) {
      close()
      tokens.push({ text: character, at })
    } else {
      if (word === '') start = at
      word += character
    }
  }
  close()
  return tokens
}

/**
 * Splits `key:value,key:[a:b,c:d]` into settings. A comma may end the text, and a list. A setting that cannot
 * be read is a problem; reading goes on with the next one.
 */
export const settingsOf = (
  text: string,
): { readonly settings: readonly Setting[]; readonly problems: readonly SyntaxProblem[] } => {
  const tokens = tokensOf(text)
  const settings: Setting[] = []
  const problems: SyntaxProblem[] = []
  let next = 0

  const isMark = (token: Word | undefined, mark?: string): boolean =>
    token !== undefined && (mark === undefined ? marks.includes(token.text) : token.text === mark)
  const problem = (key: string, wanted: string): undefined => {
    const token = tokens[next]
    problems.push({ key, at: token?.at ?? text.length, wanted, found: token?.text ?? 'the end' })
    return undefined
  }
  const word = (key: string, wanted: string): Word | undefined =>
    tokens[next] === undefined || isMark(tokens[next]) ? problem(key, wanted) : tokens[next++]
  const mark = (key: string, character: string, wanted = `"${character}"`): true | undefined => {
    if (!isMark(tokens[next], character)) return problem(key, wanted)
    next++
    return true
  }
  const list = (key: string): readonly Pair[] | undefined => {
    const pairs: Pair[] = []
    while (!isMark(tokens[next], ']')) {
      const name = word(key, '"]", or an entry of the list')
      const value = name && mark(key, ':') && word(key, `a value of ${name.text.slice(0, 40)}`)
      if (name === undefined || value === undefined) return undefined
      pairs.push({ name, value })
      if (isMark(tokens[next], ',')) next++
      else if (!isMark(tokens[next], ']')) return problem(key, '"," or "]"')
    }
    next++
    return pairs
  }
  const setting = (): Setting | undefined => {
    const key = word('', 'a key')
    if (key === undefined || mark(key.text, ':') === undefined) return undefined
    const at = tokens[next]?.at ?? text.length
    if (isMark(tokens[next], '[')) {
      next++
      const pairs = list(key.text)
      return pairs && { key, value: { kind: 'list', at, pairs } }
    }
    const value = word(key.text, 'a value')
    return value && { key, value: { kind: 'word', word: value } }
  }
  // Skips to the comma that ends this setting; commas inside a list do not end it.
  const skip = (): void => {
    for (let depth = 0; next < tokens.length; next++) {
      if (isMark(tokens[next], '[')) depth++
      else if (isMark(tokens[next], ']')) depth = Math.max(0, depth - 1)
      else if (isMark(tokens[next], ',') && depth === 0) return
    }
  }

  while (next < tokens.length) {
    const start = next
    const read = setting()
    if (read && (next === tokens.length || isMark(tokens[next], ','))) settings.push(read)
    else {
      if (read) problem(read.key.text, '"," or the end')
      next = start
      skip()
    }
    next++ // the comma
  }
  return { settings, problems }
}

/** A value as it was written, without blanks. */
export const textOf = (value: ConfValue): string =>
  value.kind === 'word'
    ? value.word.text
    : `[${value.pairs.map(({ name, value: { text } }) => `${name.text}:${text}`).join(',')}]`
