// Random numbers of the host device.
#include "test/kernels/support.h"

namespace braid::test {
namespace {

TEST(HostRandom, YieldsTheWordsOfPhilox) {
  // The known answer of Random123 for a key and a counter of zeros.
  const auto driver = host();
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::random;
  spec.count = 6, spec.output = DType::i32;
  const DeviceAddress any = upload(*driver, std::vector<std::int32_t>{0}), y = allocate(*driver, 24);
  const auto words = [y] { return reinterpret_cast<const std::uint32_t*>(y); };
  ASSERT_EQ(launch(*driver, spec, {any, any}, {y}), Status::ok) << driver->lastDetail();
  const std::uint32_t wanted[] = {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(words()[i], wanted[i]);
  const std::uint32_t fifth = words()[4];
  // Another stream, turn or key, and another block, gives other words.
  EXPECT_NE(fifth, wanted[0]);
  spec.stream = 1;
  ASSERT_EQ(launch(*driver, spec, {any, any}, {y}), Status::ok);
  EXPECT_NE(words()[0], wanted[0]);
  spec.stream = 0, spec.seed = std::uint64_t{1} << 32;
  ASSERT_EQ(launch(*driver, spec, {any, any}, {y}), Status::ok);
  EXPECT_NE(words()[0], wanted[0]);
  const DeviceAddress turn = upload(*driver, std::vector<std::int32_t>{1});
  spec.seed = 0;
  ASSERT_EQ(launch(*driver, spec, {any, turn}, {y}), Status::ok);
  EXPECT_NE(words()[0], wanted[0]);
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    spec.output = type;
    ASSERT_EQ(launch(*driver, spec, {any, any}, {y}), Status::ok);
    const int bits = type == DType::f32 ? 24 : type == DType::f16 ? 11 : 8;
    for (std::int64_t i = 0; i < 4; ++i)
      EXPECT_EQ(widen(y, type, i), std::ldexp(static_cast<float>(wanted[i] >> (32 - bits)), -bits));
  }
}

}  // namespace
}  // namespace braid::test
