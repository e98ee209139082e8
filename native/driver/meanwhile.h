#pragma once

namespace braid {

// What the calling thread does, again and again, while a call of the host device blocks it; null: nothing.
// The work that it waits for may wait for it: JavaScript's thread computes the references of kernels.
inline thread_local void (*meanwhile)() = nullptr;

}  // namespace braid
