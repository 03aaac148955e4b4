// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// reduce_into: folds two buffers into one, by the memory space of the result.

#include <colls/buffer.hpp>
#include <colls/reduction.hpp>

namespace colls {

/// out[i] = left[i] (+) right[i]; `out` may be exactly `left` or `right`. Host memory only: for
/// `device_span` include <colls/cuda/reduce.cuh> and compile with nvcc.
template <buffer Data, class Op>
void reduce_into(Data out, const void* left, const void* right, const Op& op) {
  static_assert(std::is_same_v<memory_space_t<Data>, host_memory>,
                "a reduction of device memory needs <colls/cuda/reduce.cuh> and nvcc");
  if (out.size() == 0) return;
  if constexpr (std::is_same_v<Op, any_op>) {
    op(out.data(), left, right, out.size());
  } else {
    erase<element_t<Data>>(op, wire::storage).op(out.data(), left, right, out.size());
  }
}

}  // namespace colls
