// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: a reduction of device memory needs <colls/cuda/reduce.cuh> and nvcc
#include <colls/op.hpp>
#include <colls/reduction/reduce_into.hpp>

void add(float* one, float* other) {
#ifdef MUST_NOT_COMPILE
  colls::reduce_into(colls::device_span(one, 8), one, other, colls::plus());
#else
  colls::reduce_into(std::span(one, 8), one, other, colls::plus());
#endif
}
