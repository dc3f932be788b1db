// Numerics. Compiled several times, for other instructions each: no inline function or template of another header
// may be used here, because the linker keeps one copy of it, and that may be the one for AVX-512.
#include "kernel.h"

#define POWERZOO_JOIN(a, b) a##b
#define POWERZOO_TABLE(variant) POWERZOO_JOIN(kernel_, variant)
#define POWERZOO_STRING(variant) #variant
#define POWERZOO_NAME(variant) POWERZOO_STRING(variant)

namespace powerzoo {
namespace {

void scale(const double* x, size_t count, double factor, double* out) {
  for (size_t k = 0; k < count; ++k) out[k] = factor * x[k];
}

}  // namespace

extern const Kernel POWERZOO_TABLE(POWERZOO_VARIANT) = {POWERZOO_NAME(POWERZOO_VARIANT), scale};

}  // namespace powerzoo
