#pragma once

#include <string>

#include "cuda/sources/async_copy.h"
#include "driver/kernel_spec.h"

namespace braid::cuda {

// The functions by which kernels of f16 and bf16 use tensor cores, of devices from 8.0 on.
//
// Of mma.m16n8k16 lane l has, with g = l / 4 and p = 2 · (l % 4): of the left operand the elements (g,
// p..p+1), (g+8, p..p+1), (g, p+8..p+9), (g+8, p+8..p+9); of the right one (p..p+1, g), (p+8..p+9, g); of the
// result (g, p..p+1), (g+8, p..p+1). So two neighbouring results of 8 columns are a left operand of 16.
inline constexpr const char* kTensorCores = R"cuda(
#ifndef BRAID_EMULATED
// Four matrices of 8 × 8, whose rows begin where lanes 0 to 7, 8 to 15, 16 to 23 and 24 to 31 say.
FN void loadMatrices(unsigned (&to)[4], const u16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(sharedAddress(row)) : "memory");
}
FN void loadTransposed(unsigned (&to)[4], const u16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(sharedAddress(row)) : "memory");
}
FN void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
FN unsigned packed(float low, float high) {
  unsigned both;
  asm("cvt.rn." TYPE "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
#endif
)cuda";

// With the element type, f16 or bf16, as the instructions name it.
inline std::string tensorCoresText(DType type) {
  return std::string("#define TYPE \"") + (type == DType::bf16 ? "bf16" : "f16") + "\"\n" + kAsyncCopies +
         kTensorCores;
}

}  // namespace braid::cuda
