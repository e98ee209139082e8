/** A protobuf message being written: the five things that a trace needs. Field numbers are the caller's business. */
export class Message {
  #bytes = new Uint8Array(256)
  #length = 0

  get length(): number {
    return this.#length
  }

  bytes(): Uint8Array {
    return this.#bytes.subarray(0, this.#length)
  }

  /** An unsigned number up to 2^53, as a varint. */
  number(field: number, value: number): this {
    this.#varint(field * 8)
    this.#varint(value)
    return this
  }

  /** A signed number (int64, two's complement). */
  signed(field: number, value: bigint): this {
    this.#varint(field * 8)
    let rest = BigInt.asUintN(64, value)
    while (rest > 0x7fn) {
      this.#byte(Number(rest & 0x7fn) | 0x80)
      rest >>= 7n
    }
    this.#byte(Number(rest))
    return this
  }

  /** A fixed64, as flow ids are. */
  fixed64(field: number, value: bigint): this {
    this.#varint(field * 8 + 1)
    for (let shift = 0n; shift < 64n; shift += 8n) this.#byte(Number((value >> shift) & 0xffn))
    return this
  }

  text(field: number, value: string): this {
    return this.#block(field, new TextEncoder().encode(value))
  }

  message(field: number, value: Message): this {
    return this.#block(field, value.bytes())
  }

  #block(field: number, bytes: Uint8Array): this {
    this.#varint(field * 8 + 2)
    this.#varint(bytes.length)
    this.#room(bytes.length)
    this.#bytes.set(bytes, this.#length)
    this.#length += bytes.length
    return this
  }

  // Not by shifts: a timestamp in nanoseconds passes 32 bits after four seconds.
  #varint(value: number): void {
    let rest = value
    while (rest > 0x7f) {
      this.#byte((rest % 128) | 0x80)
      rest = Math.floor(rest / 128)
    }
    this.#byte(rest)
  }

  #byte(value: number): void {
    this.#room(1)
    this.#bytes[this.#length++] = value
  }

  #room(more: number): void {
    if (this.#length + more <= this.#bytes.length) return
    const grown = new Uint8Array(Math.max(this.#bytes.length * 2, this.#length + more))
    grown.set(this.bytes())
    this.#bytes = grown
  }
}
