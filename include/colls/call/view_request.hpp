// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// view_request: checks of the arguments of calls on strided views, and their fingerprint.

#include <colls/base/strided_view.hpp>
#include <colls/call/arguments.hpp>
#include <colls/call/call_request.hpp>

namespace colls::detail {

/// Makes `check` fail if no call can read `view`.
inline checks& check_readable(checks& check, const any_view& view) {
  if (view.problem() != nullptr) return check.require(false, "%s", view.problem());
  if (view.is_contiguous()) return check.check_size(view.contiguous());
  return check.require(view.has_memory(), "a view has elements, and no memory");
}
/// Makes `check` fail if no call can write `view`.
inline checks& check_writable(checks& check, const any_view& view) {
  return check_readable(check, view)
      .require(!view.overlaps_itself(), "two elements of a view that is written may share memory");
}
inline void check_equal_size(checks& check, const any_view& in, const any_view& out) {
  check.require(in.size() == out.size(), "in has %zu elements, out has %zu", in.size(), out.size());
}

/// Makes `check` fail if `in` and the elements of `out` from `first` on share memory, unless they
/// are the same elements.
inline void check_overlap(checks& check, const any_view& in, const any_view& out,
                          std::size_t first = 0) {
  if (check.failed() || in.size() == 0 || !in.shares_elements(out)) return;
  const bool is_same = in.size() <= out.size() - first && in.address(0) == out.address(first) &&
                       in.address(in.size() - 1) == out.address(first + in.size() - 1);
  check.require(is_same, "in and out overlap in part");
}

/// Returns the fingerprint of a call that moves views. Views move in pieces, so it differs from the
/// fingerprint of the same call of contiguous buffers.
inline fingerprint of_views(fingerprint result) {
  result.shape = with_name(result.shape, "views");
  return result;
}

}  // namespace colls::detail
