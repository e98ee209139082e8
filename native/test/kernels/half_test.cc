#include "kernels/half.h"
#include "test/host/support.h"

// The narrow types, against definitions that are slow and plain.

namespace braid::test {
namespace {

// Value of a narrow float with so many fraction bits and such a bias, by its definition.
double value(std::uint32_t bits, int fractionBits, int bias) {
  const std::uint32_t exponentBits = static_cast<std::uint32_t>(15 - fractionBits);
  const double sign = bits & 0x8000u ? -1 : 1;
  const std::uint32_t exponent = (bits >> fractionBits) & ((1u << exponentBits) - 1),
                      fraction = bits & ((1u << fractionBits) - 1);
  if (exponent == (1u << exponentBits) - 1) return fraction ? std::nan("") : sign * INFINITY;
  const double scale = std::ldexp(1.0, -fractionBits);
  return exponent == 0 ? sign * std::ldexp(fraction * scale, 1 - bias)
                       : sign * std::ldexp(1 + fraction * scale, static_cast<int>(exponent) - bias);
}

template <class Widen, class Narrow>
void checkEveryPattern(int fractionBits, int bias, Widen widen, Narrow narrow) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double wanted = value(bits, fractionBits, bias);
    const float found = widen(static_cast<std::uint16_t>(bits));
    if (std::isnan(wanted)) {
      EXPECT_TRUE(std::isnan(found)) << bits;
      EXPECT_TRUE(std::isnan(widen(narrow(found)))) << bits;
    } else {
      EXPECT_EQ(static_cast<double>(found), wanted) << bits;
      EXPECT_EQ(narrow(found), bits);
    }
  }
}

TEST(HostHalf, EveryPatternThereAndBack) {
  checkEveryPattern(10, 15, floatFromF16, f16FromFloat);
  checkEveryPattern(7, 127, floatFromBf16, bf16FromFloat);
}

// Between each two neighbours: below the middle goes down, above it up, the middle to the even one.
template <class Widen, class Narrow>
void checkRounding(std::uint32_t largest, Widen widen, Narrow narrow) {
  for (std::uint32_t bits = 0; bits < largest; ++bits) {
    const float low = widen(static_cast<std::uint16_t>(bits)),
                high = widen(static_cast<std::uint16_t>(bits + 1));
    const double middle = (static_cast<double>(low) + static_cast<double>(high)) / 2;
    const auto half = static_cast<float>(middle);
    if (static_cast<double>(half) != middle)
      continue;  // the last bits of bf16 subnormals have no middle in f32
    const auto even = static_cast<std::uint16_t>(bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(narrow(half), even) << bits;
    EXPECT_EQ(narrow(-half), even | 0x8000) << bits;
    EXPECT_EQ(narrow(std::nextafterf(half, 0.0f)), bits) << bits;
    EXPECT_EQ(narrow(std::nextafterf(half, INFINITY)), bits + 1) << bits;
  }
}

TEST(HostHalf, RoundsToNearestEven) {
  checkRounding(0x7bff, floatFromF16, f16FromFloat);
  checkRounding(0x7f7f, floatFromBf16, bf16FromFloat);
}

TEST(HostHalf, OverflowsToInfinity) {
  EXPECT_EQ(f16FromFloat(65519.996f), 0x7bff);
  EXPECT_EQ(f16FromFloat(65520.0f), 0x7c00);
  EXPECT_EQ(f16FromFloat(-1e30f), 0xfc00);
  EXPECT_EQ(f16FromFloat(INFINITY), 0x7c00);
  EXPECT_EQ(bf16FromFloat(3.4e38f), 0x7f80);
  EXPECT_EQ(bf16FromFloat(-INFINITY), 0xff80);
  // A NaN whose payload is only in the bits that are dropped.
  EXPECT_TRUE(std::isnan(floatFromBf16(bf16FromFloat(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(floatFromF16(f16FromFloat(std::bit_cast<float>(0xff800001u)))));
}

TEST(HostHalf, WholeNumbersSaturate) {
  EXPECT_EQ(i32FromFloat(NAN), 0);
  EXPECT_EQ(i32FromFloat(3e9f), 2147483647);
  EXPECT_EQ(i32FromFloat(2147483648.0f), 2147483647);
  EXPECT_EQ(i32FromFloat(2147483520.0f), 2147483520);
  EXPECT_EQ(i32FromFloat(-2147483648.0f), -2147483647 - 1);
  EXPECT_EQ(i32FromFloat(-INFINITY), -2147483647 - 1);
  EXPECT_EQ(i32FromFloat(-1.9f), -1);
  EXPECT_EQ(u8FromFloat(NAN), 0);
  EXPECT_EQ(u8FromFloat(-0.5f), 0);
  EXPECT_EQ(u8FromFloat(-7), 0);
  EXPECT_EQ(u8FromFloat(254.99f), 254);
  EXPECT_EQ(u8FromFloat(INFINITY), 255);
  EXPECT_EQ(u8FromI32(-1), 0);
  EXPECT_EQ(u8FromI32(256), 255);
}

}  // namespace
}  // namespace braid::test
