#pragma once

#include <string>

#include "driver/status.h"

namespace braid::cuda {

// Details of the last failure on the calling thread, returned by Driver::lastDetail.
inline std::string& detail() {
  thread_local std::string text;
  return text;
}

inline Status fail(Status status, std::string text) {
  detail() = std::move(text);
  return status;
}

}  // namespace braid::cuda
