import type { ReduceSpec } from '../ir/kernel-spec.js'
import { powerOfTwoAtLeast } from './row-kernels.js'

// What many positions cost on a GPU (`native/cuda/sources/choose.cc`): a block has a line, of which it
// selects and sorts so many elements at a time.

/** Positions that are found by selection, of a line of more than 1,024 elements and of others. */
const [fewPlaces, fewOfShort, longLine] = [4, 16, 1024]
const mostSorted = 16_384
/** Readings of a line for each selection: most bytes of an element tell all elements apart, or none. */
const readings = 8
/** Nanoseconds that a multiprocessor takes for a step of sorting, or a reading, of 1,024 elements (H200). */
const perThousand = 100

/** Nanoseconds of a selection of many positions; 0 of any other reduction. */
export const timeOfPositions = (
  { how, outer, length, inner, count = 1 }: ReduceSpec,
  multiprocessors: number,
): number => {
  if (!how.startsWith('arg') || count < (length > longLine ? fewPlaces : fewOfShort)) return 0
  const [places, all] = [powerOfTwoAtLeast(count), powerOfTwoAtLeast(length)]
  const sorted = all <= mostSorted && all <= 8 * places ? all : Math.min(mostSorted, places)
  const steps = (Math.log2(sorted) * (Math.log2(sorted) + 1)) / 2
  const turn = steps * sorted + length * (length > sorted ? readings : 1)
  const line = ((Math.ceil(count / sorted) * turn) / 1024) * perThousand
  return line * Math.max(1, (outer * inner) / multiprocessors)
}
