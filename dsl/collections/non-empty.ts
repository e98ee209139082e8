import type { ReadonlyNonEmptyArray } from 'fp-ts/lib/ReadonlyNonEmptyArray.js'

/** As the function of fp-ts, whose module loads five more files and takes a tenth of an import of Braid. */
export const isNonEmpty = <A>(values: readonly A[]): values is ReadonlyNonEmptyArray<A> => values.length > 0
