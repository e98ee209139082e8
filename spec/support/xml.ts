/** A document as a flat list of its elements, or an Error that says where it is not well formed. Knows no DTD, CDATA or comment. */
export interface Element {
  readonly name: string
  readonly attributes: ReadonlyMap<string, string>
  readonly depth: number
  text: string
}

const characters = /^[\t\n\r\u{20}-\u{D7FF}\u{E000}-\u{FFFD}\u{10000}-\u{10FFFF}]*$/u

const decoded = (text: string, at: number): string =>
  text.replace(/&([^;]*;?)/g, (_, name: string) => {
    const value = { 'amp;': '&', 'lt;': '<', 'gt;': '>', 'quot;': '"', '#39;': "'" }[name]
    if (value === undefined) throw new Error(`at ${at}: & that begins no entity: &${name.slice(0, 20)}`)
    return value
  })

export const parseXml = (document: string): readonly Element[] => {
  if (!characters.test(document)) throw new Error('a character that XML has no place for')
  const elements: Element[] = []
  const open: Element[] = []
  const tag = /<(\/?)([a-z][\w:-]*)((?:\s+[\w:-]+="[^"<]*")*)\s*(\/?)>/gy
  let at = 0
  while (at < document.length) {
    if (document[at] !== '<') {
      const end = document.indexOf('<', at)
      const raw = document.slice(at, end < 0 ? undefined : end)
      const top = open.at(-1)
      if (!top && raw.trim() !== '') throw new Error(`at ${at}: text outside the document`)
      if (top) top.text += top.name === 'style' ? raw : decoded(raw, at)
      at += raw.length
      continue
    }
    tag.lastIndex = at
    const found = tag.exec(document)
    if (!found) throw new Error(`at ${at}: no tag: ${document.slice(at, at + 40)}`)
    const [whole, closes, name, list, empty] = found as unknown as [string, string, string, string, string]
    if (closes) {
      if (open.pop()?.name !== name) throw new Error(`at ${at}: </${name}> closes something else`)
    } else {
      if (open.length === 0 && elements.length > 0) throw new Error(`at ${at}: a second root`)
      const attributes = new Map<string, string>()
      for (const [, key, value] of list.matchAll(/([\w:-]+)="([^"]*)"/g)) {
        if (attributes.has(key!)) throw new Error(`at ${at}: ${key} twice`)
        attributes.set(key!, decoded(value!, at))
      }
      const element = { name, attributes, depth: open.length, text: '' }
      elements.push(element)
      if (!empty) open.push(element)
    }
    at += whole.length
  }
  if (open.length > 0) throw new Error(`<${open.at(-1)!.name}> is never closed`)
  return elements
}
