// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// reduce_into: folds buffers into one, by the memory space of the result.

#include <colls/base/buffer.hpp>
#include <colls/reduction/erased_reduction.hpp>

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

/// Whether many inputs are combined in one pass.
template <buffer Data, class Op>
bool folds(const Op& op) {
  if constexpr (std::is_same_v<Op, any_op>) {
    return op.fold != nullptr;
  } else {
    using T = element_t<Data>;
    return detail::fold_loop<T, default_accumulate_t<Op, T>, Op>::vector;
  }
}

namespace detail {

/// Part by part, where there is no pass over many.
[[gnu::noinline]] inline void reduce_in_turn(void* out, std::size_t count, std::size_t element,
                                             std::span<const void* const> parts, const any_op& op,
                                             void* second) {
  const void* sum = parts[0];
  for (const void* const part : parts.subspan(1)) {
    op(out, sum, part, count);
    sum = out;
  }
  if (second != nullptr) std::memcpy(second, sum, count * element);
}

}  // namespace detail

/// out[i] = parts[0][i] (+) parts[1][i] (+) ..., two parts or more, in that order; `second` gets
/// the same unless it is null. Where `op` folds, both may be any of the parts; else `out` may be
/// one of the first two. Sums of halves are made in float and rounded once, as on a device; an
/// erased operation rounds them each time. Host memory only.
template <buffer Data, class Op>
[[gnu::always_inline]] inline void reduce_into(const Data& out, std::span<const void* const> parts,
                                               const Op& op, void* second = nullptr) {
  static_assert(std::is_same_v<memory_space_t<Data>, host_memory>);
  if (out.size() == 0) return;
  if constexpr (!std::is_same_v<Op, any_op>) {
    using T = element_t<Data>;
    using compute = default_accumulate_t<Op, T>;
    const any_op erased = detail::erase_as<T, T, compute, detail::rounding::once>(op).op;
    reduce_into(any_buffer(out.data(), out.size(), element_size(out)), parts, erased, second);
  } else if (op.fold != nullptr && (parts.size() > 2 || second != nullptr)) {
    op.fold(op.state, out.data(), second, parts.data(), parts.size(), out.size());
  } else {
    detail::reduce_in_turn(out.data(), out.size(), element_size(out), parts, op, second);
  }
}

}  // namespace colls
