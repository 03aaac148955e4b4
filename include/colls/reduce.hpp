// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// reduce_into: folds buffers into one, by the memory space of the result.

#include <colls/buffer.hpp>
#include <colls/reduction.hpp>

#include <span>

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

/// out[i] = parts[0][i] (+) parts[1][i] (+) ..., two parts or more, in that order. `out` may be one
/// of the first two. Host memory only.
template <buffer Data, class Op>
void reduce_into(Data out, std::span<const void* const> parts, const Op& op) {
  static_assert(std::is_same_v<memory_space_t<Data>, host_memory>);
  if (out.size() == 0) return;
  if constexpr (std::is_same_v<Op, any_op>) {
    const void* sum = parts[0];
    std::size_t done = 1;
    for (; op.combine_four != nullptr && parts.size() - done >= 3; done += 3) {
      const void* const four[] = {sum, parts[done], parts[done + 1], parts[done + 2]};
      op.combine_four(op.state, out.data(), four, out.size());
      sum = out.data();
    }
    for (; done < parts.size(); ++done) {
      op(out.data(), sum, parts[done], out.size());
      sum = out.data();
    }
  } else {
    const any_op erased = erase<element_t<Data>>(op, wire::storage).op;
    reduce_into(any_buffer(out.data(), out.size(), element_size(out)), parts, erased);
  }
}

}  // namespace colls
