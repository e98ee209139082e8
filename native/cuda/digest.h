#pragma once

#include <string>

namespace braid::cuda {

// SHA-256 of the bytes, in hexadecimal. Empty where the process has no OpenSSL: Node exports its own for
// addons, and other programs use the system's.
std::string digestOf(const std::string& bytes);

}  // namespace braid::cuda
