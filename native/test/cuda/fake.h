#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "cuda/driver.h"

namespace braid::test {

inline const cuda::LibraryPaths kFake{
    {BRAID_FAKE_CUDA}, {BRAID_FAKE_CUDA}, {BRAID_FAKE_CUDA}, {BRAID_FAKE_CUDA}};

template <class Function>
Function* fake(const char* name) {
  static void* library = dlopen(BRAID_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\nRun these tests where they were built.\n", dlerror());
    std::abort();
  }
  return reinterpret_cast<Function*>(dlsym(library, name));
}
inline void failNext(const char* call, int code, int nth = 1) {
  fake<void(const char*, int, int)>("fake_fail")(call, nth, code);
}
inline int live(const char* kind = "") { return fake<int(const char*)>("fake_live")(kind); }
inline int calls(const char* name) { return fake<int(const char*)>("fake_calls")(name); }
inline std::string lastLaunch() { return fake<const char*()>("fake_last_launch")(); }

class CudaFake : public ::testing::Test {
 protected:
  void SetUp() override {
    failNext("", 0);
    before_ = live();
    ASSERT_EQ(cuda::CudaDriver::open(0, kFake, &driver_), Status::ok) << cuda::detail();
    ASSERT_EQ(driver_->bind(), Status::ok);
  }
  // Nothing that the device made outlives it.
  void TearDown() override {
    driver_.reset();
    EXPECT_EQ(live(), before_);
  }

  std::unique_ptr<Driver> driver_;
  int before_ = 0;
};

}  // namespace braid::test
