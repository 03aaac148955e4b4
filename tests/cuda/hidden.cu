// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// A shared library that launches kernels by colls' launch functions. It must not export these
// kernels, or two libraries that have the same one would share it. It does export the kernel
// `seen`.

#include <colls/cuda/one_shot.cuh>

struct nothing {
  template <class... Where>
  __host__ __device__ void operator()(Where...) const {}
};

template <class T>
__global__ void seen(T* at) {
  *at = T();
}

void launch_all(colls::stream_ref on, int* at) {
  colls::cuda::detail::launch(nothing(), 1, on);
  colls::cuda::detail::launch_blocks(nothing(), 1, on);
  seen<<<1, 1, 0, colls::cuda::api::native(on)>>>(at);
}
