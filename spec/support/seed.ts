// The seed of every property test, printed with what it finds. In CI it is fixed, so that a change is judged by the cases that the one
// before it passed; elsewhere it is new each time, so that every run looks at others. BRAID_SEED=N repeats a run.
import fc from 'fast-check'

const { BRAID_SEED, CI } = process.env
const seed = BRAID_SEED !== undefined ? Number(BRAID_SEED) : CI === 'true' ? 20_261_121 : undefined
if (seed !== undefined && !Number.isSafeInteger(seed))
  throw new Error(`BRAID_SEED: wanted a whole number, found ${BRAID_SEED}`)
if (seed !== undefined) fc.configureGlobal({ ...fc.readConfigureGlobal(), seed })
