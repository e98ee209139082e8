#pragma once

#include <string>

#include "driver/status.h"

namespace braid::cuda {

// More words about the last failure on the calling thread; what Driver::lastDetail answers.
std::string& detail();

inline Status fail(Status status, std::string words) {
  detail() = std::move(words);
  return status;
}

}  // namespace braid::cuda
