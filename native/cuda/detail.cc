#include "cuda/detail.h"

namespace braid::cuda {

std::string& detail() {
  thread_local std::string words;
  return words;
}

}  // namespace braid::cuda
