#include "cuda/driver.h"
#include "cuda/probe.h"

namespace braid {

Status openCuda(std::unique_ptr<Driver>* driver, int ordinal, std::string* detail) {
  const Status status = cuda::CudaDriver::open(ordinal, {}, driver);
  if (status == Status::ok) static_cast<cuda::CudaDriver&>(**driver).keepContext();
  if (status != Status::ok && detail) *detail = cuda::detail();
  return status;
}

CudaReport probeCuda() { return cuda::probe({}); }

}  // namespace braid
