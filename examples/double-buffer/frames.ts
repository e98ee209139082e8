// A simulated camera: frames at its own pace, each with its number in its first four bytes.
import { interval, map, type Observable, take } from 'rxjs'

export const height = 120
export const width = 160

const brightness = (number: number, row: number, column: number) =>
  (row * 3 + column * 5 + number * 7 + ((row * column) >> 4)) & 0xff

export const frame = (number: number): Uint8Array => {
  const pixels = new Uint8Array(height * width)
  for (let row = 0; row < height; row++)
    for (let column = 0; column < width; column++)
      pixels[row * width + column] = brightness(number, row, column)
  new DataView(pixels.buffer).setUint32(0, number, true)
  return pixels
}

export const frameNumber = (pixels: Uint8Array) =>
  new DataView(pixels.buffer, pixels.byteOffset).getUint32(0, true)

/** `count` frames, one every `milliseconds`, whether or not the session has a free slot. */
export const camera = (count: number, milliseconds: number): Observable<Uint8Array> =>
  interval(milliseconds).pipe(take(count), map(frame))

/** The expected results, in plain loops: the difference of each pixel from its row's mean. */
export const contrast = (pixels: Uint8Array): Uint8Array => {
  const result = new Uint8Array(pixels.length)
  for (let row = 0; row < height; row++) {
    const line = pixels.subarray(row * width, (row + 1) * width)
    const mean = line.reduce((sum, pixel) => sum + pixel, 0) / width
    for (let column = 0; column < width; column++)
      result[row * width + column] = Math.trunc(Math.abs(line[column]! - mean))
  }
  return result
}
