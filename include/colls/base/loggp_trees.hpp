// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// cost_trees: the same of what has a root: stars, trees, pipelines.

#include <colls/base/loggp.hpp>

#include <numeric>

namespace colls::detail {

class cost_trees : protected cost_parts {
 protected:
  using cost_parts::cost_parts;

  /// From the root to every other rank, one message of `bytes` each, or the other way: that many
  /// come in while one is taken.
  constexpr part star_out(std::uint64_t bytes) const {
    const std::uint64_t far = one_host() ? 0 : p_ - number(on_host_);
    const picoseconds near_gap = net_.near.overhead + over(bytes, net_.near.per_kib);
    const picoseconds crossing =
        far == 0 ? 0
                 : (p_ - 1 - far) * near_gap +
                       (far - 1) * larger(net_.far.overhead, over(bytes, net_.far.per_kib));
    return {p_ - 1, (p_ - 1) * bytes,
            hop(bytes, far > 0 ? 1 : 0) + larger((p_ - 2) * near_gap, crossing)};
  }
  constexpr part star_in(std::uint64_t bytes) const {
    const std::uint64_t far = one_host() ? 0 : p_ - number(on_host_);
    const auto each = [&](const link_cost& link) {
      return larger(link.overhead, over(bytes, link.per_kib));
    };
    return {p_ - 1, (p_ - 1) * bytes,
            hop(bytes, far > 0 ? 1 : 0) +
                larger((p_ - 2) * each(net_.near), far > 0 ? (far - 1) * each(net_.far) : 0)};
  }
  /// The same where the root takes in one after the other, and sums them up: it asks for a long one
  /// when the one before is there.
  constexpr part star_sum(std::uint64_t bytes) const {
    part sum = star_in(bytes);
    const std::uint64_t far = one_host() ? 0 : p_ - number(on_host_);
    if (bytes > eager_limit) sum.wire = (p_ - 1 - far) * hop(bytes, 0) + far * hop(bytes, 1);
    sum.touched = (p_ - 1) * bytes;
    return sum;
  }
  enum class way : std::uint8_t { down, up };

  /// Of the ranks 1, ..., k - 1 steps further than a parent, how many are on its host, at worst.
  constexpr std::uint64_t on_same_host(std::uint64_t step, std::uint64_t k) const {
    if (one_host()) return k - 1;
    // Parents are this far from each other and from the edges of hosts, or a multiple of it.
    const std::uint64_t room = std::gcd(number(on_host_), k * step);
    const std::uint64_t within = (room - 1) / step;
    return within < k - 1 ? within : k - 1;
  }
  /// `bytes` down a k-nomial tree, or summed up on their way up. A path takes a hop where it
  /// branches off and, for each child that is served before, a gap. Who sums up asks for a long
  /// message when the one before is there.
  constexpr part tree(std::uint64_t bytes, int radix, way to) const {
    const std::uint64_t k = number(radix);
    const bool up = to == way::up;
    const bool asks = up && bytes > eager_limit;
    const picoseconds local = up ? over(bytes, net_.reduce_per_kib) : 0;
    const auto gap_of = [&](picoseconds overhead, picoseconds moving) {
      return up ? larger(larger(overhead, moving), local) : overhead + moving;
    };
    const picoseconds near_hop = hop(bytes, 0) + local;
    const picoseconds near_gap = gap_of(net_.near.overhead, over(bytes, net_.near.per_kib));
    const picoseconds far_hop = hop(bytes, 1) + local;
    // The sender is done before the link that its host's ranks share.
    const picoseconds port = on_host_ > 1 ? net_.near.per_kib : net_.far.per_kib;
    const picoseconds far_port = gap_of(net_.far.overhead, over(bytes, port));
    const picoseconds far_gap = larger(far_port, over(bytes, net_.far.per_kib));
    picoseconds full = 0;  // of the tree of k^level ranks
    picoseconds time = 0;  // of the ranks that the digits so far make
    std::uint64_t left = p_ - 1;
    for (std::uint64_t step = 1; step <= p_ - 1; step *= k, left /= k) {
      const std::uint64_t most_near = on_same_host(step, k);
      // The time of a parent with so many children of this level. The first that it serves has
      // `first` below it, the others and its lower levels are full.
      const auto with = [&](std::uint64_t children, picoseconds first) {
        const std::uint64_t near = children < most_near ? children : most_near;
        const std::uint64_t far = children - near;
        if (asks) return full + far * far_hop + near * near_hop;
        picoseconds last = (far > 0 ? far_hop : near_hop) + first;
        if (far > 1) last = larger(last, far_hop + (far - 1) * far_gap + full);
        if (children > 1 && near > 0) {
          last = larger(last, near_hop + far * far_port + (near - 1) * near_gap + full);
        }
        return larger(last, far * (near > 0 ? far_port : far_gap) + near * near_gap + full);
      };
      if (left % k > 0) time = with(left % k, time);
      full = with(k - 1, full);
    }
    return {p_ - 1, (p_ - 1) * bytes, time};
  }
  /// Chunks to or from the root over a binomial tree.
  constexpr part chunk_tree(way to) const {
    part sum{p_ - 1, 0, 0};
    picoseconds full = 0;
    for (std::uint64_t step = 1; step < p_; step *= 2) {
      const int far = on_same_host(step, 2) > 0 ? 0 : 1;
      if ((p_ - 1) / step % 2 != 0) {
        const std::uint64_t held = chunk_ * (1 + (p_ - 1) % step);
        const bool asks = to == way::up && held > eager_limit;
        const link_cost& link = far > 0 ? net_.far : net_.near;
        const picoseconds busy = link.overhead + over(held, link.per_kib) + full;
        sum.wire = asks ? full + hop(held, far) : larger(hop(held, far) + sum.wire, busy);
      }
      full += hop(step * chunk_, far);
      // Ranks with this bit: their chunks travel this step.
      const std::uint64_t with_bit =
          p_ / (2 * step) * step + (p_ % (2 * step) > step ? p_ % (2 * step) - step : 0);
      sum.bytes += with_bit * chunk_;
    }
    return sum;
  }

  /// Segments of a buffer handed on `depth` times; each keeps a rank busy for `sends` gaps.
  constexpr part line(std::uint64_t bytes, std::uint64_t depth, std::uint64_t sends, const plan& by,
                      bool reduces) const {
    const std::uint64_t s = pieces(bytes, by.segment);
    const std::uint64_t piece = (bytes + s - 1) / s;
    const picoseconds local = reduces ? over(piece, net_.reduce_per_kib) : 0;
    const picoseconds busy = sends * (gap(piece) + local);
    const std::uint64_t hosts = one_host() ? 0 : (p_ - 1) / number(on_host_);
    const std::uint64_t far = hosts < depth ? hosts : depth;
    const picoseconds down = far * hop(piece, 1) + (depth - far) * hop(piece, 0) +
                             depth * ((sends - 1) * gap(piece) / 2 + local);
    const picoseconds lane = (hop(piece, far > 0 ? 1 : 0) + busy) / number(by.lanes);
    return {(p_ - 1) * s, (p_ - 1) * bytes, down + (s - 1) * larger(busy, lane)};
  }
  /// What crosses the edge of the busiest host: who stands high has both children on other hosts,
  /// and some rank beside it in the other tree; where hosts are no whole subtrees, one more.
  constexpr picoseconds crossing_of_two_trees() const {
    if (one_host() || on_host_ == 1) return 0;
    const bool whole = (on_host_ & (on_host_ - 1)) == 0;
    return (!whole ? 6 : hosts() > 3 ? 5 : 3) * over(n_ / 2, net_.host_per_kib);
  }
  /// Both halves of the buffer over two trees, up or down.
  constexpr part two_trees(const plan& by, bool reduces) const {
    const auto depth = number(ranks_ < 3 ? ranks_ - 1 : 1 + pattern::bit_width(ranks_ - 2));
    part half = line(n_ / 2, depth, 2, by, reduces);
    const std::uint64_t s = pieces(n_ / 2, by.segment);
    const picoseconds each = gap((n_ / 2 + s - 1) / s);
    half.wire += each;  // the root has both halves
    // Who sums up takes in one side after the other, while its own parent waits.
    if (reduces) half.wire += (s - 1) * each / 2;
    half.wire = larger(half.wire, crossing_of_two_trees());
    half.messages *= 2;
    half.bytes = (p_ - 1) * n_;
    return half;
  }
  /// Up and down again: a lane has its segment until that is back.
  constexpr part two_trees_and_back(const plan& by) const {
    const auto depth = number(ranks_ < 3 ? ranks_ - 1 : 1 + pattern::bit_width(ranks_ - 2));
    const std::uint64_t s = pieces(n_ / 2, by.segment);
    const std::uint64_t piece = (n_ / 2 + s - 1) / s;
    const part once = line(piece, depth, 2, {}, true);
    const picoseconds there = 2 * once.wire;
    const picoseconds busy = 4 * gap(piece) + 2 * over(piece, net_.reduce_per_kib);
    return {4 * (p_ - 1) * s, 2 * (p_ - 1) * n_,
            larger(there + (s - 1) * larger(busy, there / number(by.lanes)),
                   2 * crossing_of_two_trees())};
  }
};

}  // namespace colls::detail
