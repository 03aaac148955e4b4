// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// make_reduction: makes the reduction of a call from the user's operation, which the compiler
// checks.

#include <colls/base/options.hpp>
#include <colls/reduction/erased_reduction.hpp>

#include <cstddef>

namespace colls::detail {

/// Checks at compile time that `Op` can reduce elements of type `T` and can be copied into a call.
/// If one of these checks fails, the compiler prints a readable message.
template <class T, class Op>
constexpr void check_op() {
  static_assert(
      reduction_for<Op, T>,
      "colls: this operation cannot reduce this element type: it needs combine(T, T) -> T "
      "(bitwise operations take integers, minimum and maximum take ordered types, a user's "
      "struct needs an operator or an operation of its own)");
  static_assert(
      sizeof(Op) <= 64 && alignof(Op) <= alignof(std::max_align_t) &&
          std::is_trivially_copyable_v<Op>,
      "colls: an operation is copied into the call: at most 64 bytes, trivially copyable");
}

/// Returns a type-erased reduction, which combines elements of type `T` in host memory with `op`.
/// The reduction may refer to `op`. Therefore `op` must stay alive until the call has copied its
/// state.
template <class T, class Op>
decltype(auto) make_host_reduction(const Op& op, const options& opts) {
  check_op<T, Op>();
  if constexpr (std::is_empty_v<Op>) {
    return cached_reduction<T>(op, opts.wire);
  } else {
    return erase<T>(op, opts.wire);
  }
}

}  // namespace colls::detail
