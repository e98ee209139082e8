// Hooks of Node's module loader, on its own thread: a program's files are loaded anew under each version, and
// named.
import type { MessagePort } from 'node:worker_threads'

/** What a version adds to the URL of a file; `reload.ts` gives it to the program's. */
const mark = /\?braid=\d+$/

/** Folders whose files are loaded once: this package's own. */
let own: readonly string[] = []
let port: MessagePort | undefined

export const initialize = (given: { readonly own: readonly string[]; readonly port: MessagePort }): void => {
  own = given.own
  port = given.port
}

interface Resolved {
  readonly url: string
  readonly format?: string | null
}

type Resolve = (
  specifier: string,
  context: { readonly parentURL?: string },
  next: (specifier: string, context: object) => Promise<Resolved>,
) => Promise<Resolved>

/** A file that a versioned file imports has its version, unless it is a package's. */
export const resolve: Resolve = async (specifier, context, next) => {
  const version = mark.exec(context.parentURL ?? '')?.[0]
  const found = await next(specifier, context)
  const { url } = found
  const isOwn = own.some(folder => url.startsWith(folder))
  if (version === undefined || !url.startsWith('file:') || isOwn || url.includes('/node_modules/'))
    return found
  port?.postMessage(url.replace(/\?.*$/, ''))
  return mark.test(url) ? found : { ...found, url: `${url}${version}` }
}
