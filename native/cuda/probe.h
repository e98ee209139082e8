#pragma once

#include "cuda/library.h"
#include "driver/driver.h"

namespace braid::cuda {

// What `doctor` shows. Never fails: a library that is missing or a device that will not open is a line of the
// report.
CudaReport probe(const LibraryPaths& paths);

}  // namespace braid::cuda
