// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// tuning: which algorithm, from what all ranks know: the collective, the bytes, the ranks.

#include <colls/fwd.hpp>

namespace colls {

/// How a call will be done; equal on all ranks.
struct plan {
  colls::algorithm how = colls::algorithm::linear;
  std::size_t segment = 0;  // bytes of a pipelined piece of a chunk; 0: chunks travel whole
  int lanes = 1;            // pieces in flight
  int radix = 4;            // of the algorithms that have one
};

/// What a choice may depend on: values that are in the fingerprint, and nothing local.
struct question {
  collective what = collective::none;
  std::size_t bytes = 0;  // of the whole vector
  int ranks = 1;
  bool commutative = true;
  colls::order sum = colls::order::any;
  bool reduces = false;
};

/// Latency decides below these sizes, bandwidth above.
struct tuning {
  std::size_t all_reduce_ring = 32 * 1024;
  std::size_t all_gather_ring = 32 * 1024;
  std::size_t segment = 2 * 1024 * 1024;
  int lanes = 2;

  constexpr plan choose(const question& call) const {
    const bool reorder = call.commutative && call.sum == order::any;
    switch (call.what) {
      case collective::barrier:
        return {algorithm::dissemination};
      case collective::broadcast:
        return {algorithm::binomial_tree};
      case collective::all_reduce:
        if (call.sum == order::rank) return {algorithm::linear};
        if (reorder && call.ranks > 2 && call.bytes > all_reduce_ring)
          return pipelined(algorithm::ring);
        if (reorder && call.ranks == 2 && call.bytes > 2 * all_reduce_ring) {
          return pipelined(algorithm::ring);
        }
        return {algorithm::recursive_doubling};
      case collective::reduce_scatter:
        return {reorder ? algorithm::ring : algorithm::linear};
      case collective::all_gather:
        return {call.bytes > all_gather_ring ? algorithm::ring : algorithm::recursive_doubling};
      case collective::reduce:
        return {call.sum == order::rank ? algorithm::linear : algorithm::binomial_tree};
      case collective::gather:
      case collective::scatter:
        return {algorithm::binomial_tree};
      case collective::all_to_all:
        return {algorithm::pairwise};
      case collective::scan:
      case collective::exscan:
        return {call.sum == order::rank ? algorithm::linear : algorithm::recursive_doubling};
      default:
        return {};
    }
  }

 private:
  constexpr plan pipelined(algorithm how) const { return {how, segment, lanes}; }
};

}  // namespace colls
