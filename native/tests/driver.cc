// Every variant of the kernel that this processor runs, without Python: for the sanitizers.
#include <cstdio>
#include <vector>

#include "kernel.h"

int main() {
  int wrong = 0;
  for (const powerzoo::Kernel* const* each = powerzoo::kernels(); *each; ++each) {
    std::vector<double> x(37, 1.5), out(x.size());
    (*each)->scale(x.data(), x.size(), 2.0, out.data());
    for (double value : out) wrong += value != 3.0;
    std::printf("%s: %d wrong\n", (*each)->name, wrong);
  }
  return wrong != 0;
}
