import type { Place } from '../ir/graph.js'
import type { AnyTensor } from './tensor.js'

/**
 * A symbolic value of a graph: one tensor a tick, on the host or on the device. It describes a computation
 * and never runs. A flow that is used twice is computed once.
 */
export interface Flow<out P extends Place, out A extends AnyTensor> {
  readonly place: P
  readonly spec: A
  pipe(): Flow<P, A>
  pipe<B>(f1: (a: Flow<P, A>) => B): B
  pipe<B, C>(f1: (a: Flow<P, A>) => B, f2: (b: B) => C): C
  pipe<B, C, D>(f1: (a: Flow<P, A>) => B, f2: (b: B) => C, f3: (c: C) => D): D
  pipe<B, C, D, E>(f1: (a: Flow<P, A>) => B, f2: (b: B) => C, f3: (c: C) => D, f4: (d: D) => E): E
  pipe<B, C, D, E, F>(
    f1: (a: Flow<P, A>) => B,
    f2: (b: B) => C,
    f3: (c: C) => D,
    f4: (d: D) => E,
    f5: (e: E) => F,
  ): F
  pipe<B, C, D, E, F, G>(
    f1: (a: Flow<P, A>) => B,
    f2: (b: B) => C,
    f3: (c: C) => D,
    f4: (d: D) => E,
    f5: (e: E) => F,
    f6: (f: F) => G,
  ): G
  pipe<B, C, D, E, F, G, H>(
    f1: (a: Flow<P, A>) => B,
    f2: (b: B) => C,
    f3: (c: C) => D,
    f4: (d: D) => E,
    f5: (e: E) => F,
    f6: (f: F) => G,
    f7: (g: G) => H,
  ): H
  pipe<B, C, D, E, F, G, H, I>(
    f1: (a: Flow<P, A>) => B,
    f2: (b: B) => C,
    f3: (c: C) => D,
    f4: (d: D) => E,
    f5: (e: E) => F,
    f6: (f: F) => G,
    f7: (g: G) => H,
    f8: (h: H) => I,
  ): I
  pipe<B, C, D, E, F, G, H, I, J>(
    f1: (a: Flow<P, A>) => B,
    f2: (b: B) => C,
    f3: (c: C) => D,
    f4: (d: D) => E,
    f5: (e: E) => F,
    f6: (f: F) => G,
    f7: (g: G) => H,
    f8: (h: H) => I,
    f9: (i: I) => J,
  ): J
}

export type AnyFlow = Flow<Place, AnyTensor>
export type DeviceFlow<A extends AnyTensor = AnyTensor> = Flow<'device', A>
export type HostFlow<A extends AnyTensor = AnyTensor> = Flow<'host', A>
