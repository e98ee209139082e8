#include "cuda/digest.h"

#include <dlfcn.h>

#include <array>
#include <cstddef>

namespace braid::cuda {
namespace {

// OpenSSL's one call for a digest, the same in versions 1.1 and 3.
using Sha256 = unsigned char*(const unsigned char* bytes, std::size_t count, unsigned char* digest);

Sha256* sha256() {
  const auto in = [](void* library) { return reinterpret_cast<Sha256*>(dlsym(library, "SHA256")); };
  if (Sha256* const found = in(RTLD_DEFAULT)) return found;
  for (const char* name : {"libcrypto.so.3", "libcrypto.so.1.1"})
    if (void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL))
      if (Sha256* const found = in(library)) return found;
  return nullptr;
}

}  // namespace

std::string digestOf(const std::string& bytes) {
  static Sha256* const compute = sha256();
  std::array<unsigned char, 32> digest;
  if (compute == nullptr ||
      compute(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data()) == nullptr)
    return "";
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : digest) text += {digits[byte >> 4], digits[byte & 15]};
  return text;
}

}  // namespace braid::cuda
