// What is learned: the byte that comes after each few bytes of a text.

/** How many bytes the next one is told from, and how many places of the text a step looks at. */
export const context = 8
export const batch = 64

export const sample = `A lane is a queue of work. What one lane reads, another may not overwrite.
An event is a place in a lane. A wait is a promise that the place was passed.
Memory that a lane has freed goes to the lane that comes after it.
`

/** The batch of a step: `batch` places of the text, which follow from the number of the step alone. */
export const places = (text: Uint8Array, step: number) => {
  const tokens = new Int32Array(batch * context)
  const target = new Int32Array(batch)
  for (let row = 0; row < batch; row++) {
    const from = ((step * batch + row) * 7919) % (text.length - context)
    for (let i = 0; i < context; i++) tokens[row * context + i] = text[from + i]!
    target[row] = text[from + context]!
  }
  return { tokens, target }
}

export function* batches(text: Uint8Array) {
  for (let step = 0; ; step++) yield places(text, step)
}
