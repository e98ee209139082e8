// What `npx braid build` does, for the command line: it imports this file from the package that it is of.
import { buildAddon as build } from './lib/native.mjs'
import { needNode } from './lib/tools.mjs'

/** Shows how far a build is: on a terminal in one line, elsewhere in a line for each tenth. */
export const progress = output => {
  let shown = -1
  return (done, all) => {
    const text = `Compiling the native part: ${done} of ${all} files`
    if (output.isTTY) return void output.write(`\r${text}${done < all ? '' : '; linking …'}\u001b[K`)
    const tenth = Math.floor((10 * done) / all)
    if (tenth !== shown) output.write(`${text}\n`)
    shown = tenth
  }
}

/**
 * Builds the addon of this package or checkout. Throws a Stop that says what is missing. `interruptible` calls
 * its argument with a signal, whose abort ends the build with the signal's reason.
 */
export const buildAddon = async (output, interruptible) => {
  needNode()
  const step = progress(output)
  let begun = false
  try {
    await build((done, all) => {
      begun = true
      step(done, all)
    }, interruptible)
  } finally {
    // What follows is no part of the line.
    if (begun && output.isTTY) output.write('\n')
  }
}
