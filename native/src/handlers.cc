// Handlers of XLA's foreign function interface: operands are checked here, at every call, and handed to the kernel.
#include "kernel.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

ffi::Error scale(ffi::Buffer<ffi::F64> x, ffi::ResultBuffer<ffi::F64> out, double factor) {
  if (out->element_count() != x.element_count()) return ffi::Error::InvalidArgument("result and operand differ in size");
  powerzoo::kernels()[0]->scale(x.typed_data(), x.element_count(), factor, out->typed_data());
  return ffi::Error::Success();
}

}  // namespace

// Name of the instructions in use: "v4", "v3" or "base".
POWERZOO_EXPORT const char* powerzoo_variant() { return powerzoo::kernels()[0]->name; }

POWERZOO_EXPORT XLA_FFI_Error* powerzoo_scale(XLA_FFI_CallFrame*);
XLA_FFI_DEFINE_HANDLER_SYMBOL(powerzoo_scale, scale,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::Buffer<ffi::F64>>()
                                  .Ret<ffi::Buffer<ffi::F64>>()
                                  .Attr<double>("factor"));
