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
// Shared memory of which the launch says how much there is.
#ifndef BRAID_EMULATED
#define LAUNCHED_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#endif

// Each kernel calls this before it touches memory: in a graph it may start before the nodes in front of it
// have ended (NodeParams::early). It returns when they have, and when what they wrote can be read.
FN void gridDependencySync() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

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
// 1 or 0, by an instruction that yields just these: ptxas 13.0 makes +0 of the -0 in `x ? -1.0f : -0.0f`,
// which is what the negative of a choice between 1 and 0 becomes.
#if defined(__CUDA_ARCH__)
#define BRAID_COMPARES(name, op, sign) \
  FN float name(float a, float b) { \
    float y; asm("set." op ".f32.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
#else
#define BRAID_COMPARES(name, op, sign) FN float name(float a, float b) { return a sign b ? 1.0f : 0.0f; }
#endif
BRAID_COMPARES(isLess, "lt", <)
BRAID_COMPARES(isAtMost, "le", <=)
BRAID_COMPARES(isEqual, "eq", ==)
#undef BRAID_COMPARES
FN float powF(float a, float b) {
  if (b != b || (fabsf(a) == 1.0f && fabsf(b) == __uint_as_float(0x7f800000u)))
    return __uint_as_float(0x7fc00000u);
  return powf(a, b);
}
// What remains of a division, exact, and with the sign of the divisor.
FN float modF(float a, float b) {
  float rest = fmodf(a, b);
  return rest != 0.0f && (rest < 0.0f) != (b < 0.0f) ? rest + b : rest;
}
// The quotient of what divides evenly is a whole number but for its rounding.
FN float floorDivF(float a, float b) {
  if (b == 0.0f) return a / b;
  float rest = fmodf(a, b);
  float quotient = (a - rest) / b;
  if (rest != 0.0f && (rest < 0.0f) != (b < 0.0f)) quotient -= 1.0f;
  if (quotient == 0.0f) return copysignf(0.0f, a / b);
  float down = floorf(quotient);
  return quotient - down > 0.5f ? down + 1.0f : down;
}
FN int minI(int a, int b) { return a < b ? a : b; }
FN int maxI(int a, int b) { return a > b ? a : b; }
FN int addI(int a, int b) { return (int)((unsigned)a + (unsigned)b); }
FN int subI(int a, int b) { return (int)((unsigned)a - (unsigned)b); }
FN int mulI(int a, int b) { return (int)((unsigned)a * (unsigned)b); }
// Functions whose value is rounded to bf16, exp also f16: approximations of the GPU's own, from 7.5 on.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
FN float tanhNear(float x) { float y; asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
FN float expNear(float x) {
  float y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
  return y;
}
// Below 2^-126 it is 0.
FN float expBelowOne(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
  return y;
}
FN float sigmoidNear(float x) {
  float y;
  asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(1.0f + expNear(-x)));
  return y;
}
#else
FN float tanhNear(float x) { return tanhf(x); }
FN float expNear(float x) { return expf(x); }
FN float expBelowOne(float x) { return expf(x); }
FN float sigmoidNear(float x) { return 1.0f / (1.0f + expf(-x)); }
#endif
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
// Divided by 0 whole numbers are 0; -2^31 divided by -1 wraps.
FN int modI(int a, int b) {
  if (b == 0 || b == -1) return 0;
  int rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
FN int floorDivI(int a, int b) {
  return b == 0 ? 0 : b == -1 ? subI(0, a) : a / b - (int)(a % b != 0 && (a < 0) != (b < 0));
}
FN int absI(int a) { return a < 0 ? subI(0, a) : a; }
)cuda";

// Two elements at a time: two floats, or two of a narrow type in one word.
inline constexpr const char* kPairs = R"cuda(
template <class T> struct Pair;
template <> struct Pair<float> {
  float x, y;
  FN Pair() {}
  FN Pair(float both) : x(both), y(both) {}
  FN Pair(float x, float y) : x(x), y(y) {}
};
template <> struct Pair<bf16> {
  unsigned bits;
  FN operator Pair<float>() const { return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u)}; }
};
template <> struct Pair<f16> {
  unsigned bits;
  FN operator Pair<float>() const { return {loadF(f16{(u16)bits}), loadF(f16{(u16)(bits >> 16)})}; }
};
// As `renew` of a pack of a row.
template <class T> FN void renew(Pair<T>& pair) { asm volatile("" : "+r"(pair.bits)); }
template <class T> FN Pair<T> joined(T x, T y) { return {(unsigned)x.bits | (unsigned)y.bits << 16}; }
// A number that is one of the type.
template <class T> FN Pair<T> both(float x) { T y; store(x, y); return joined(y, y); }

template <class F> FN Pair<float> each(F f, Pair<float> a) { return {f(a.x), f(a.y)}; }
template <class F> FN Pair<float> each(F f, Pair<float> a, Pair<float> b) { return {f(a.x, b.x), f(a.y, b.y)}; }
template <class F> FN Pair<float> each(F f, Pair<float> a, Pair<float> b, Pair<float> c) {
  return {f(a.x, b.x, c.x), f(a.y, b.y, c.y)};
}

template <class T> FN Pair<T> rounded(Pair<float> a);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <> FN Pair<bf16> rounded(Pair<float> a) {
  Pair<bf16> y; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y.bits) : "f"(a.y), "f"(a.x)); return y;
}
template <> FN Pair<f16> rounded(Pair<float> a) {
  Pair<f16> y; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y.bits) : "f"(a.y), "f"(a.x)); return y;
}
#else
template <class T> FN Pair<T> rounded(Pair<float> a) { T x, y; store(a.x, x); store(a.y, y); return joined(x, y); }
#endif
// One rounding: what f32 yields is rounded to the same value, since f32 has twice the digits and two more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define BRAID_PAIRS(name, op, text) \
  FN Pair<bf16> name(Pair<bf16> a, Pair<bf16> b) { \
    Pair<bf16> y; asm(op ".bf16x2 %0, %1, %2;" : "=r"(y.bits) : "r"(a.bits), "r"(b.bits)); return y; } \
  FN Pair<f16> name(Pair<f16> a, Pair<f16> b) { \
    Pair<f16> y; asm(op ".f16x2 %0, %1, %2;" : "=r"(y.bits) : "r"(a.bits), "r"(b.bits)); return y; }
#else
#define BRAID_PAIRS(name, op, text) \
  template <class T> FN Pair<T> name(Pair<T> a, Pair<T> b) { \
    return rounded<T>(each([](float a, float b) { return text; }, a, b)); }
#endif
BRAID_PAIRS(sumOf, "add.rn", a + b)
BRAID_PAIRS(differenceOf, "sub.rn", a - b)
BRAID_PAIRS(productOf, "mul.rn", a * b)
BRAID_PAIRS(mostOf, "max.NaN", maxF(a, b))
BRAID_PAIRS(leastOf, "min.NaN", minF(a, b))
#undef BRAID_PAIRS

// Elements 2j and 2j + 1 of a pack.
template <class T, int N> FN Pair<float> pairOf(const Pack<T, N>& pack, int j) {
  return {loadF(pack.v[2 * j]), loadF(pack.v[2 * j + 1])};
}
template <int N> FN Pair<bf16> pairOf(const Pack<bf16, N>& pack, int j) { return {((const unsigned*)&pack)[j]}; }
template <int N> FN Pair<f16> pairOf(const Pack<f16, N>& pack, int j) { return {((const unsigned*)&pack)[j]}; }
// One element for both.
FN Pair<float> pairOf(float x) { return x; }
FN Pair<float> pairOf(int x) { return loadF(x); }
FN Pair<float> pairOf(u8 x) { return loadF(x); }
FN Pair<bf16> pairOf(bf16 x) { return joined(x, x); }
FN Pair<f16> pairOf(f16 x) { return joined(x, x); }
template <class T, int N> FN void storePair(Pair<float> a, Pack<T, N>& pack, int j) {
  store(a.x, pack.v[2 * j]);
  store(a.y, pack.v[2 * j + 1]);
}
template <int N> FN void storePair(Pair<float> a, Pack<bf16, N>& pack, int j) {
  ((unsigned*)&pack)[j] = rounded<bf16>(a).bits;
}
template <int N> FN void storePair(Pair<float> a, Pack<f16, N>& pack, int j) {
  ((unsigned*)&pack)[j] = rounded<f16>(a).bits;
}
template <int N> FN void storePair(Pair<bf16> a, Pack<bf16, N>& pack, int j) { ((unsigned*)&pack)[j] = a.bits; }
template <int N> FN void storePair(Pair<f16> a, Pack<f16, N>& pack, int j) { ((unsigned*)&pack)[j] = a.bits; }
)cuda";

// For kernels that keep in registers, from pass to pass, what they have read.
inline constexpr const char* kHeld = R"cuda(
// A read that leaves nothing in the multiprocessor's cache. The result of a kernel may lie over what it reads,
// so no write passes this read.
template <class T, int N> FN Pack<T, N> passing(const Pack<T, N>* from) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
  if constexpr (sizeof(Pack<T, N>) == 16) {
    union { Pack<T, N> pack; unsigned words[4]; } read;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(read.words[0]), "=r"(read.words[1]), "=r"(read.words[2]), "=r"(read.words[3])
                 : "l"(from) : "memory");
    return read.pack;
  }
#endif
  return *from;
}
// Packs as words, each of which the compiler must take as new where `renew` is called: else it would keep
// what it has made of a word in a pass, which needs more registers than the word does.
template <class T, int N> union Raw { Pack<T, N> pack; unsigned words[N * sizeof(T) / 4 > 0 ? N * sizeof(T) / 4 : 1]; };
template <class T, int N> FN void renew(Raw<T, N>& raw) {
  if constexpr (N * sizeof(T) % 4 == 0) {
    #pragma unroll
    for (int i = 0; i < (int)(N * sizeof(T) / 4); ++i) asm volatile("" : "+r"(raw.words[i]));
  }
}
)cuda";

}  // namespace braid::cuda
