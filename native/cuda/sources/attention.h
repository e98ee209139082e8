#pragma once

#include <string>

#include "cuda/sources/source.h"

namespace braid::cuda {

// What the text of every kernel of attention begins with: types, sizes, strides, PARAMETERS, and which keys a
// query sees.
std::string attentionText(const KernelSpec& spec);
// Whether 32 bits can index every operand, also a tile beyond its end.
bool isSmallAttention(const KernelSpec& spec);
// Whether rows of 16-byte accesses stay aligned, where the pointers are.
bool isWideAttention(const KernelSpec& spec);
// Whether the kernels on tensor cores have these sizes and this type.
bool attentionFitsTensorCores(const KernelSpec& spec, int architecture);
// The text and the launch of a kernel whose result is another than the attended values.
void attentionGradientSource(const KernelSpec& spec, int architecture, std::string text,
                             KernelSource* source);

}  // namespace braid::cuda
