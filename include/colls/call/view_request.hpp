// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// view_request: the arguments of calls on strided views, checks of them, and their fingerprint.

#include <colls/base/strided_view.hpp>
#include <colls/call/arguments.hpp>
#include <colls/call/call_request.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace colls::detail {

/// Elements of a view that follow each other.
struct view_range {
  any_view view;
  std::size_t first = 0;
  std::size_t count = 0;

  view_range() = default;
  explicit view_range(const any_view& all) : view(all), count(all.size()) {}
  view_range(const any_view& all, std::size_t first_element, std::size_t elements)
      : view(all), first(first_element), count(elements) {}

  /// Returns the elements of piece `k`, if each piece but the last has `most` elements.
  view_range piece(int k, std::size_t most) const {
    const std::size_t begin = std::min(count, static_cast<std::size_t>(k) * most);
    return {view, first + begin, std::min(most, count - begin)};
  }
};

/// What a rank sends to the rank `peer` and receives from it. The same pieces of `out` and `in` may
/// be the same elements.
struct view_exchange {
  int peer;
  bool sends;
  view_range out;
  bool receives;
  view_range in;
};

/// Makes `check` fail if no call can read `view`.
inline checks& check_readable(checks& check, const any_view& view) {
  if (view.problem() != nullptr) return check.require(false, "%s", view.problem());
  check.require(view.has_memory(), "a view or a buffer has elements, and no memory");
  return view.is_contiguous() ? check.check_size(view.contiguous()) : check;
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

/// Returns whether no two of the views share elements.
inline bool are_disjoint(std::vector<any_view> views) {
  std::erase_if(views, [](const any_view& each) { return each.size() == 0; });
  std::sort(views.begin(), views.end(),
            [](const any_view& a, const any_view& b) { return a.first_byte() < b.first_byte(); });
  for (std::size_t i = 0; i < views.size(); ++i) {
    for (std::size_t k = i + 1; k < views.size() && views[i].may_overlap(views[k]); ++k) {
      if (views[i].shares_elements(views[k])) return false;
    }
  }
  return true;
}

/// Returns the fingerprint of a call that moves views. Views move in pieces, so it differs from the
/// fingerprint of the same call of contiguous buffers.
inline fingerprint of_views(fingerprint result) {
  result.shape = with_name(result.shape, "views");
  return result;
}

}  // namespace colls::detail
