// The kernel as one table of functions for each set of instructions, and the choice among them.
#pragma once
#include <cstddef>

#if defined(_MSC_VER)
#define POWERZOO_EXPORT extern "C" __declspec(dllexport)
#else
#define POWERZOO_EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace powerzoo {

struct Kernel {
  const char* name;
  void (*scale)(const double* x, size_t count, double factor, double* out);
};

// kernel.cc, compiled once for each of them
extern const Kernel kernel_base, kernel_v3, kernel_v4;

// Those that this processor runs, the widest first; nullptr ends them.
const Kernel* const* kernels();

}  // namespace powerzoo
