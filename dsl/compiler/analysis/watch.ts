/** Told that a pass begins; what it returns is called when the pass ends. Passes may run within passes, and more than once. */
export type Watcher = (pass: string) => () => void

let watcher: Watcher | undefined

/** Whom `watched` tells from now on; undefined: nobody. For measurements: what a pass yields does not depend on it. */
export const watch = (to: Watcher | undefined): void => {
  watcher = to
}

/** The same function, under a name that a watcher is told. */
export const watched =
  <A, B>(name: string, pass: (ir: A) => B): ((ir: A) => B) =>
  ir => {
    if (watcher === undefined) return pass(ir)
    const ended = watcher(name)
    try {
      return pass(ir)
    } finally {
      ended()
    }
  }
