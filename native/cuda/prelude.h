#pragma once

namespace braid::cuda {

// The beginning of every generated kernel: storage types, packs of 16 bytes, the conversions of
// kernel-spec.ts, and functions whose corner cases are those of JavaScript, not of C. Includes no header, so
// that NVRTC alone suffices.
inline constexpr const char* kPrelude = R"cuda(
typedef unsigned char u8;
typedef unsigned short u16;
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
#define FN __device__ __forceinline__

template <class T, int N> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack { T v[N]; };

FN float loadF(float x) { return x; }
FN float loadF(int x) { return (float)x; }
FN float loadF(u8 x) { return (float)x; }
FN float loadF(f16 x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits)); return y; }
FN float loadF(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }

FN int truncate(float x) {
  if (x >= 2147483648.0f) return 2147483647;
  return x <= -2147483648.0f ? (-2147483647 - 1) : x == x ? (int)x : 0;
}
FN int loadI(int x) { return x; }
FN int loadI(u8 x) { return (int)x; }
FN int loadI(float x) { return truncate(x); }
FN int loadI(f16 x) { return truncate(loadF(x)); }
FN int loadI(bf16 x) { return truncate(loadF(x)); }

FN void store(float x, float& y) { y = x; }
FN void store(int x, int& y) { y = x; }
FN void store(float x, int& y) { y = truncate(x); }
FN void store(int x, float& y) { y = (float)x; }
FN void store(int x, u8& y) { y = (u8)(x < 0 ? 0 : x > 255 ? 255 : x); }
FN void store(float x, u8& y) { store(truncate(x), y); }
FN void store(float x, f16& y) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
FN void store(float x, bf16& y) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }
#else
FN void store(float x, bf16& y) {
  const unsigned bits = __float_as_uint(x);
  y.bits = (u16)(x == x ? (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16 : bits >> 16 | 0x40u);
}
#endif
FN void store(int x, f16& y) { store((float)x, y); }
FN void store(int x, bf16& y) { store((float)x, y); }

// What a value is after it was stored as a type and loaded again.
template <class T> FN float stored(float x) { T y; store(x, y); return loadF(y); }
FN float asF16(float x) { return stored<f16>(x); }
FN float asBf16(float x) { return stored<bf16>(x); }
FN float asI32(float x) { return stored<int>(x); }
FN float asU8(float x) { return stored<u8>(x); }
FN int asU8(int x) { u8 y; store(x, y); return y; }

// A NaN wins, and -0 is less than +0.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
FN float minF(float a, float b) { float y; asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
FN float maxF(float a, float b) { float y; asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
#else
FN float minF(float a, float b) {
  return a < b ? a : b < a ? b : a == b ? __uint_as_float(__float_as_uint(a) | __float_as_uint(b)) : a + b;
}
FN float maxF(float a, float b) {
  return a > b ? a : b > a ? b : a == b ? __uint_as_float(__float_as_uint(a) & __float_as_uint(b)) : a + b;
}
#endif
FN float powF(float a, float b) {
  if (b != b || (fabsf(a) == 1.0f && fabsf(b) == __uint_as_float(0x7f800000u)))
    return __uint_as_float(0x7fc00000u);
  return powf(a, b);
}
FN int minI(int a, int b) { return a < b ? a : b; }
FN int maxI(int a, int b) { return a > b ? a : b; }
FN int addI(int a, int b) { return (int)((unsigned)a + (unsigned)b); }
FN int subI(int a, int b) { return (int)((unsigned)a - (unsigned)b); }
FN int mulI(int a, int b) { return (int)((unsigned)a * (unsigned)b); }
FN double powD(double a, double b) {
  if (b != b || (fabs(a) == 1.0 && fabs(b) > 1.7976931348623157e308))
    return (double)__uint_as_float(0x7fc00000u);
  return pow(a, b);
}
// JavaScript's ToInt32: modulo 2^32.
FN int wrap(double x) {
  return fabs(x) <= 1.7976931348623157e308 ? (int)(unsigned)(long long)fmod(trunc(x), 4294967296.0) : 0;
}
FN int divI(int a, int b) { return b == 0 ? 0 : b == -1 ? subI(0, a) : a / b; }
FN int absI(int a) { return a < 0 ? subI(0, a) : a; }
)cuda";

}  // namespace braid::cuda
