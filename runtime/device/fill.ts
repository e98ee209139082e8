import { badArgument, badUse, wholeNumber } from './allocator-error.js'
import type { Place } from './place.js'

export interface FillOptions {
  /** Of an element: 8 (the default), 16 or 32. */
  readonly bits?: 8 | 16 | 32
  /** Rows of an image or a matrix; default 1. */
  readonly rows?: number
  /** The elements of a row that are filled; default: all between two rows. */
  readonly width?: number
  /** Bytes from one row to the next; default: the rows lie side by side. */
  readonly pitch?: number
}

export interface Fill {
  /** In bytes. */
  readonly element: number
  readonly width: number
  readonly rows: number
  readonly pitch: number
}

/** A fill of this place. Throws what is wrong with it. */
export const fillOf = (
  place: Pick<Place, 'address' | 'bytes' | 'offset'>,
  value: unknown,
  options: FillOptions,
  at: string,
  name: string,
): Fill => {
  if (typeof options !== 'object' || options === null)
    throw badArgument(
      at,
      'options',
      'an object of bits, rows, width, pitch',
      options,
      'correct the options, or leave them out',
    )
  const { bits = 8 } = options
  if (bits !== 8 && bits !== 16 && bits !== 32)
    throw badArgument(at, 'options.bits', '8, 16 or 32', bits, 'correct it, or leave it out for 8')
  wholeNumber(at, name, value, 0, 2 ** bits - 1)
  const element = bits / 8
  const rows = options.rows === undefined ? 1 : wholeNumber(at, 'options.rows', options.rows)
  const pitch = options.pitch === undefined ? undefined : wholeNumber(at, 'options.pitch', options.pitch)
  const width =
    options.width === undefined
      ? (pitch ?? place.bytes / rows) / element
      : wholeNumber(at, 'options.width', options.width)
  const row = width * element
  const apart = pitch ?? row
  if (!Number.isInteger(width) || place.address % element !== 0 || apart % element !== 0)
    throw badUse(
      at,
      'to',
      element === 1 ? 'rows of whole bytes' : `a range of whole words of ${element} bytes`,
      `${place.bytes} bytes at offset ${place.offset}, in ${rows} rows`,
      `fill block.at(offset, bytes) with multiples of ${element}, or name the width of a row`,
    )
  if (row > apart || (rows - 1) * apart + row > place.bytes)
    throw badUse(
      at,
      'to',
      `${rows} rows of ${row} bytes inside its ${place.bytes} bytes`,
      `rows ${apart} bytes apart`,
      'fill fewer or shorter rows',
    )
  return { element, width, rows, pitch: apart }
}
