// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// half: makes CUDA's half-precision types usable with colls. Calls treat buffers of __half and
// __nv_bfloat16 as buffers of float16 and bfloat16. `to_cuda` and `from_cuda` convert single
// values. A conversion costs nothing, because the bits of the value stay the same.

#include <colls/base/element_type.hpp>

#if !__has_include(<cuda_fp16.h>)
#error \
    "colls/cuda/half.cuh needs the headers of the CUDA toolkit: nvcc, or -I/usr/local/cuda/include"
#endif
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace colls {

namespace detail {

template <>
struct counterpart<__half> {
  using type = float16;
};
template <>
struct counterpart<__nv_bfloat16> {
  using type = bfloat16;
};
static_assert(supported_type<__half> && supported_type<__nv_bfloat16>);

}  // namespace detail

namespace cuda {

COLLS_HOST_DEVICE inline __half to_cuda(float16 x) {
  __half_raw raw;
  raw.x = x.bits();
  return raw;
}
COLLS_HOST_DEVICE inline __nv_bfloat16 to_cuda(bfloat16 x) {
  __nv_bfloat16_raw raw;
  raw.x = x.bits();
  return raw;
}
COLLS_HOST_DEVICE inline float16 from_cuda(__half x) {
  return float16::from_bits(static_cast<__half_raw>(x).x);
}
COLLS_HOST_DEVICE inline bfloat16 from_cuda(__nv_bfloat16 x) {
  return bfloat16::from_bits(static_cast<__nv_bfloat16_raw>(x).x);
}

}  // namespace cuda

}  // namespace colls
