// Copies of several sources, and kernels that cannot be.
#include <functional>

#include "test/kernels/support.h"

namespace braid::test {
namespace {

TEST(HostKernels, SeveralSourcesAreCopiedOneAfterTheOther) {
  const auto driver = host();
  const DeviceAddress first = upload(*driver, std::vector<std::int32_t>{1, 2});
  const DeviceAddress second = upload(*driver, std::vector<std::int32_t>{3, 4});
  const DeviceAddress to = allocate(*driver, 24);
  KernelSpec spec;
  spec.bytes = 24;
  spec.parts = spec.readCount = 3;
  spec.writeCount = 1;
  ASSERT_EQ(launch(*driver, spec, {second, first, second}, {to}), Status::ok);
  EXPECT_EQ(download<std::int32_t>(to, 6), (std::vector<std::int32_t>{3, 4, 1, 2, 3, 4}));
}

TEST(HostKernels, SpecsThatCannotBeAreRefusedWithTheReason) {
  const auto driver = host();
  const auto refused = [&](const KernelSpec& spec, const char* reason) {
    std::unique_ptr<Kernel> kernel;
    EXPECT_EQ(driver->prepare(&kernel, spec, {}), Status::invalidValue) << reason;
    EXPECT_NE(driver->lastDetail().find(reason), std::string::npos) << driver->lastDetail();
    EXPECT_EQ(kernel, nullptr);
  };
  const KernelSpec map = binary(MapOp::add, 4, DType::f32, false),
                   matmul = product(2, 3, 4, 1, false, DType::f32);
  const auto but = [](KernelSpec spec, const std::function<void(KernelSpec&)>& change) {
    return change(spec), spec;
  };
  const std::int64_t huge = std::int64_t{1} << 62;
  refused(but(map, [](auto& s) { s.shape = {0}; }), "not positive");
  refused(but(map, [](auto& s) { s.shape = {-4}; }), "not positive");
  refused(but(map, [&](auto& s) { s.shape = {huge}; }), "too many");
  refused(but(map, [](auto& s) { s.shape.assign(9, 1); }), "rank 9");
  refused(but(map, [](auto& s) { s.operands[0].strides = {1, 1}; }), "strides");
  refused(but(map, [&](auto& s) { s.operands[1].strides = {huge}; }), "overflow");
  refused(but(map, [](auto& s) { s.operands[1].offset = -1; }), "before its start");
  refused(but(map, [](auto& s) { s.operands[1].strides = {-1}; }), "before its start");
  refused(but(map, [&](auto& s) { s.operands[1].offset = huge; }), "too far");
  refused(but(map, [](auto& s) { s.operands[1].dtype = static_cast<DType>(9); }), "element type");
  const KernelSpec table = but(map, [](auto& s) {
    s.operands[1].dtype = DType::i32;
    s.operands[0].indexed = MapIndex{1, 9, 4};
  });
  refused(but(table, [](auto& s) { s.operands[0].indexed->by = 2; }), "by operand 2 of 2");
  refused(but(table, [](auto& s) { s.operands[1].dtype = DType::f32; }), "not of i32");
  refused(but(table, [](auto& s) { s.operands[0].indexed->by = 0; }), "not of i32 or is indexed itself");
  refused(but(table, [](auto& s) { s.operands[1].indexed = MapIndex{1, 9, 4}; }), "is indexed itself");
  refused(but(table, [](auto& s) { s.operands[0].indexed->length = 0; }), "length that is not positive");
  refused(but(table, [&](auto& s) { s.operands[0].indexed->length = huge; }), "overflow");
  refused(but(table, [&](auto& s) { s.operands[0].indexed->step = -1; }), "before its start");
  refused(but(table, [&](auto& s) { s.operands[0].indexed->step = huge / 16; }), "too far");
  refused(but(map, [](auto& s) { s.code[1].a = 2; }), "operand 2 of 2");
  refused(but(map, [](auto& s) { s.code[2].b = 2; }), "not an earlier one");
  refused(but(map, [](auto& s) { s.code[2].a = -1; }), "not an earlier one");
  refused(but(map, [](auto& s) { s.code[2].op = static_cast<MapOp>(99); }), "unknown operation");
  refused(but(map, [](auto& s) { s.results[0].value = 3; }), "value 3 of 3");
  refused(but(map, [](auto& s) { s.results.clear(); }), "no results");
  refused(but(map, [](auto& s) { s.results[0].row = true; }), "not one number a row");
  refused(but(map,
              [](auto& s) {
                s.shape.clear(), s.operands[0].strides.clear(), s.operands[1].strides.clear();
                s.code[2] = {MapOp::rowSum, 0};
              }),
          "no dimension");
  refused(but(map,
              [](auto& s) {
                for (std::int32_t j = 2; j < 67; ++j) s.code.push_back({MapOp::rowSum, j});
                s.results[0].value = 67;
              }),
          "64 reductions");
  refused(but(map, [](auto& s) { s.readCount = 1, s.writeCount = 1; }), "the kernel wants 2 and 1");
  refused(but(matmul, [](auto& s) { s.m = 0; }), "positive");
  refused(but(matmul, [&](auto& s) { s.k = huge; }), "too many");
  refused(but(matmul, [](auto& s) { s.a.dtype = DType::u8; }), "f32, f16 or bf16");
  refused(but(matmul, [](auto& s) { s.b.batchStride = -1; }), "negative");
  refused(but(matmul, [](auto& s) { s.a.rowStride = s.k - 1; }), "a row stride of");
  refused(but(matmul, [](auto& s) { s.transposeA = true, s.a.rowStride = s.m - 1; }), "a row stride of");
  refused(but(matmul, [&](auto& s) { s.b.rowStride = huge; }), "too far");
  refused(but(matmul, [](auto& s) { s.b.offset = -1; }), "out of memory");
  refused(but(matmul, [](auto& s) { s.c.rowStride = s.n + 1; }), "no row stride");
  refused(but(matmul, [](auto& s) { s.epilogue.auxiliary = true; }), "auxiliary");
  refused(but(matmul, [](auto& s) { s.batch = 2, s.c.batchStride = 5; }), "overlap");
  refused(but(matmul, [&](auto& s) { s.batch = 3, s.a.batchStride = huge; }), "too far");
  KernelSpec reduce;
  reduce.kind = KernelSpec::Kind::reduce;
  refused(reduce, "positive");
  refused(but(reduce, [&](auto& s) { s.outer = s.length = s.inner = std::int64_t{1} << 40; }), "too many");
  refused(but(reduce, [](auto& s) { s.outer = s.length = s.inner = 1, s.how = ReduceHow::argmax; }), "i32");
  refused(but(reduce, [](auto& s) { s.kind = KernelSpec::Kind::gather; }), "positive");
  refused(but(reduce, [](auto& s) { s.kind = KernelSpec::Kind::append; }), "positive");
  refused(but(reduce, [](auto& s) { s.kind = KernelSpec::Kind::scan; }), "positive");
  refused(but(reduce, [](auto& s) { s.kind = KernelSpec::Kind::random, s.count = 0; }), "positive");
  refused(but(reduce, [](auto& s) { s.kind = KernelSpec::Kind::random, s.output = DType::u8; }), "f32");
  refused(but(reduce, [](auto& s) { s.outer = s.length = s.inner = 1, s.count = 2; }), "2 positions");
  refused(but(reduce, [](auto& s) { s.kind = KernelSpec::Kind::join; }), "no pieces");
  refused(but(reduce,
              [](auto& s) {
                s.kind = KernelSpec::Kind::join, s.pieces = {{0, false, 0}};
              }),
          "length");
  refused(but(reduce,
              [](auto& s) {
                s.kind = KernelSpec::Kind::join, s.pieces = {{1, false, 0}};
              }),
          "positive");
  refused(but(reduce, [](auto& s) { s.direction = 7, s.kind = KernelSpec::Kind::copy; }), "direction 7");
  KernelSpec copy;
  copy.bytes = 12;
  refused(but(copy, [](auto& s) { s.parts = 5; }), "12 bytes are not 5 equal parts");
  refused(but(copy, [](auto& s) { s.parts = 0; }), "0 equal parts");
  refused(but(copy, [](auto& s) { s.parts = 3, s.readCount = 2, s.writeCount = 1; }),
          "the kernel wants 3 and 1");
  KernelSpec scattered;
  scattered.kind = KernelSpec::Kind::scatterAdd;
  scattered.outer = scattered.length = scattered.inner = 1;
  scattered.readCount = 3, scattered.writeCount = 1;
  refused(but(scattered, [](auto& s) { s.count = 0; }), "positive");
  refused(but(scattered, [](auto& s) { s.count = std::int64_t{1} << 31; }), "i32 cannot hold the place");
  refused(but(scattered, [](auto& s) { s.readCount = 2; }), "the kernel wants 3 and 1");
  refused(but(reduce, [](auto& s) { s.kind = static_cast<KernelSpec::Kind>(77); }), "unknown kind");
  refused(but(reduce, [](auto& s) { s.kind = KernelSpec::Kind::cuda; }), "must have a name");
  refused(but(reduce, [](auto& s) { s.kind = KernelSpec::Kind::cuda, s.name = "f", s.block[2] = 0; }),
          "kernel f: grid");
}

}  // namespace
}  // namespace braid::test
