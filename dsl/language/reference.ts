// A kernel's reference fills its writes before it returns. An async function or a generator would fill them
// later or never, and its kernel would yield zeros.

/** What a reference is to be, and what to do about one that is not. */
export const referenceForm = {
  wanted: 'a reference that has filled its writes when it returns',
  next: 'make it an ordinary function, neither async nor function*; give it what it waits for as a param or a feed',
} as const

const kinds: Readonly<Record<string, string>> = {
  AsyncFunction: 'an async function',
  GeneratorFunction: 'a generator function',
  AsyncGeneratorFunction: 'an async generator function',
}

/** The kind of a function that has not done its work when it returns; undefined for any other value. */
export const lateFunction = (value: unknown): string | undefined =>
  typeof value === 'function' ? kinds[Object.prototype.toString.call(value).slice(8, -1)] : undefined

/**
 * What a reference returned, where that shows that its work is not done: compiled for an old target, an async
 * function is an ordinary one that returns a promise.
 */
export const lateResult = (returned: unknown): string | undefined => {
  if (typeof returned !== 'object' || returned === null) return undefined
  const { then, next } = returned as { then?: unknown; next?: unknown }
  if (typeof then === 'function') {
    // Its rejection has nobody else to go to.
    Promise.resolve(returned).catch(() => undefined)
    return 'one that returned a promise'
  }
  return typeof next === 'function' ? 'one that returned an iterator' : undefined
}
