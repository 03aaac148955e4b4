// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// reduce_into: combines several buffers into one, element by element. This header has the overloads
// for CPU memory. <colls/cuda/reduce.cuh> has the overloads for GPU memory.

#include <colls/base/buffer.hpp>
#include <colls/reduction/erased_reduction.hpp>

#include <span>

namespace colls {

/// Computes out[i] = left[i] (+) right[i], where (+) is the operation `op`. `out` may be equal to
/// `left` or `right`. This overload is for CPU memory. For a `device_span`, include
/// <colls/cuda/reduce.cuh> and compile with nvcc.
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

/// Returns whether `op` can combine many buffers of type `Data` in one pass.
template <buffer Data, class Op>
bool has_fold(const Op& op) {
  if constexpr (std::is_same_v<Op, any_op>) {
    return op.fold != nullptr;
  } else {
    using T = element_t<Data>;
    return detail::fold_loop<T, default_accumulate_t<Op, T>, Op>::vector;
  }
}

namespace detail {

/// Combines `parts` from left to right. Each call of `op` combines two buffers. Stores the result
/// to `out`, and also to `second` unless `second` is null.
[[gnu::noinline]] inline void reduce_one_by_one(void* out, std::size_t count, std::size_t element,
                                                std::span<const void* const> parts,
                                                const any_op& op, void* second) {
  const void* sum = parts[0];
  for (const void* const part : parts.subspan(1)) {
    op(out, sum, part, count);
    sum = out;
  }
  if (second != nullptr) std::memcpy(second, sum, count * element);
}

}  // namespace detail

/// Computes out[i] = parts[0][i] (+) parts[1][i] (+) ... from left to right, where (+) is the
/// operation `op`. There must be at least two parts. Also writes the result to `second` unless
/// `second` is null. If `has_fold<Data>(op)` is true, `out` and `second` may each be any of the
/// parts; otherwise `out` may be one of the first two parts. This overload is for CPU memory.
///
/// Sums of float16 and bfloat16 are computed in float. If `op` is an `any_op`, the sum is rounded
/// to the element type after each addition. Otherwise it is rounded once, after the last addition,
/// as on a GPU.
template <buffer Data, class Op>
[[gnu::always_inline]] inline void reduce_into(const Data& out, std::span<const void* const> parts,
                                               const Op& op, void* second = nullptr) {
  static_assert(std::is_same_v<memory_space_t<Data>, host_memory>);
  if (out.size() == 0) return;
  if constexpr (!std::is_same_v<Op, any_op>) {
    using T = element_t<Data>;
    using compute = default_accumulate_t<Op, T>;
    const any_op erased = detail::erase_as<T, T, compute, detail::rounding::at_end>(op).op;
    reduce_into(any_buffer(out.data(), out.size(), element_size(out)), parts, erased, second);
  } else if (op.fold != nullptr && (parts.size() > 2 || second != nullptr)) {
    op.fold(op.state, out.data(), second, parts.data(), parts.size(), out.size());
  } else {
    detail::reduce_one_by_one(out.data(), out.size(), element_size(out), parts, op, second);
  }
}

}  // namespace colls
