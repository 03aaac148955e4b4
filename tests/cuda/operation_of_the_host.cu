// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: calling a __host__ function\("largest::operator \(\)
#include <colls/cuda/reduce.cuh>

struct largest {
#ifdef MUST_NOT_COMPILE
  int operator()(int a, int b) const { return a > b ? a : b; }
#else
  __host__ __device__ int operator()(int a, int b) const { return a > b ? a : b; }
#endif
};

void reduce(int* data) {
  reduce_into(colls::device_span(data, 8), std::array<const int*, 2>{data, data + 8}, largest(),
              {});
}
