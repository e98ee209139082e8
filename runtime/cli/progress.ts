/** What a command shows on a terminal of how far it has come: one line. */
export interface Progress {
  /** What is done now. */
  phase(text: string): void
  /** How far that is: shown some times a second, however often it is called. */
  step(text: string): void
  /** Erases the line. */
  end(): void
}

interface Stream {
  readonly isTTY?: boolean
  readonly columns?: number
  write(text: string): unknown
}

/** Milliseconds between two steps that are shown. */
const period = 100

const erased = '\r\u001b[K'

/** Progress on a stream that is a terminal; on any other one it is nothing. */
export const progressOn = (stream: Stream): Progress => {
  if (stream.isTTY !== true || process.env['TERM'] === 'dumb')
    return { phase: () => undefined, step: () => undefined, end: () => undefined }
  let next = 0
  let isShown = false
  const show = (text: string): void => {
    next = performance.now() + period
    isShown = true
    // A line that wraps could not be erased.
    stream.write(`${erased}${text.slice(0, (stream.columns ?? 80) - 1)}`)
  }
  return {
    phase: show,
    step: text => void (performance.now() < next || show(text)),
    end: () => {
      if (isShown) stream.write(erased)
      isShown = false
    },
  }
}
