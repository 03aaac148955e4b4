// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// selection_query: a class that holds the values on which the choice of an algorithm depends, and a
// class for a set of algorithms.

#include <colls/base/algorithm_names.hpp>

#include <cstddef>
#include <cstdint>

namespace colls {

/// The values on which the choice of an algorithm may depend. They are computed from the number of
/// ranks and from those arguments of the call that must be equal on all ranks. Therefore all ranks
/// compute the same values. The ranks check that these arguments are equal.
struct selection_query {
  collective operation = collective::none;
  std::uint64_t bytes = 0;  // the size of the whole vector; for all_to_all, of one rank's vector
  int ranks = 1;
  bool commutative = true;
  order reduction_order = order::any;
  bool reduces = false;

  friend constexpr bool operator==(const selection_query&, const selection_query&) = default;
};

/// A set of algorithms.
class algorithm_set {
 public:
  constexpr void add(algorithm algo) { bits_ |= bit(algo); }
  constexpr bool has(algorithm algo) const { return (bits_ & bit(algo)) != 0; }
  /// Calls `visitor(algorithm)` for each algorithm of the set, in the order of the enumerators.
  template <class Visitor>
  constexpr void for_each(const Visitor& visitor) const {
    for (int i = 1; i < 32; ++i) {
      if (has(static_cast<algorithm>(i))) visitor(static_cast<algorithm>(i));
    }
  }
  friend constexpr bool operator==(const algorithm_set&, const algorithm_set&) = default;

 private:
  static constexpr std::uint32_t bit(algorithm algo) { return 1u << static_cast<unsigned>(algo); }

  std::uint32_t bits_ = 0;
};

}  // namespace colls
