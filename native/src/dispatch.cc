// Compiled for every processor of the platform, as all files but kernel.cc.
#include "kernel.h"

namespace powerzoo {
namespace {

struct Found {
  const Kernel* tables[4] = {};

  Found() {
    size_t count = 0;
#ifdef POWERZOO_LEVELS
    // By feature: older compilers know no name of a level here. What has AVX2 and BMI2 has the rest of x86-64-v3 too.
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl");
    if (v4) tables[count++] = &kernel_v4;
    if (v3) tables[count++] = &kernel_v3;
#endif
    tables[count] = &kernel_base;
  }
};

}  // namespace

const Kernel* const* kernels() {
  static const Found found;
  return found.tables;
}

}  // namespace powerzoo
