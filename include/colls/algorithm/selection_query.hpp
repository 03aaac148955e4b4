// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// selection_query: what the choice of an algorithm may depend on.

#include <colls/base/algorithm_names.hpp>

#include <cstddef>
#include <cstdint>

namespace colls {

/// What a choice may depend on: values that are in the fingerprint, and nothing local.
struct question {
  collective what = collective::none;
  std::uint64_t bytes = 0;  // of the whole vector; all_to_all: of one rank's
  int ranks = 1;
  bool commutative = true;
  colls::order sum = colls::order::any;
  bool reduces = false;

  friend constexpr bool operator==(const question&, const question&) = default;
};

/// Some algorithms.
class algorithm_set {
 public:
  constexpr void add(algorithm how) { bits_ |= bit(how); }
  constexpr bool has(algorithm how) const { return (bits_ & bit(how)) != 0; }
  template <class Visit>
  constexpr void each(const Visit& visit) const {
    for (int i = 1; i < 32; ++i) {
      if (has(static_cast<algorithm>(i))) visit(static_cast<algorithm>(i));
    }
  }
  friend constexpr bool operator==(const algorithm_set&, const algorithm_set&) = default;

 private:
  static constexpr std::uint32_t bit(algorithm how) { return 1u << static_cast<unsigned>(how); }

  std::uint32_t bits_ = 0;
};

}  // namespace colls
