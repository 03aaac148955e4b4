// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// loggp_model: the LogGP model from which an algorithm computes its predicted cost. This file has
// the phases with a root (stars, trees and pipelines), and loggp.hpp has the others and the terms.

#include <colls/base/loggp.hpp>

#include <numeric>

namespace colls {

/// The costs of the phases of a collective on one network. In a rooted phase, data moves from a
/// root or to a root. All arithmetic uses integers, so that ranks that are built by different
/// compilers select the same algorithm.
class loggp_model : public loggp {
 public:
  using loggp::loggp;

  /// Returns the cost of a phase in which the root sends a message of `bytes` bytes to each other
  /// rank.
  constexpr phase star_out(std::uint64_t bytes) const {
    const std::uint64_t far = is_one_host() ? 0 : p_ - number(per_host_);
    const picoseconds near_gap = net_.near.overhead + duration(bytes, net_.near.per_kib);
    const picoseconds crossing =
        far == 0 ? 0
                 : (p_ - 1 - far) * near_gap +
                       (far - 1) * max(net_.far.overhead, duration(bytes, net_.far.per_kib));
    return {p_ - 1, (p_ - 1) * bytes,
            hop(bytes, far > 0 ? 1 : 0) + max((p_ - 2) * near_gap, crossing)};
  }
  /// Returns the cost of a phase in which every rank except the root sends a message of `bytes`
  /// bytes to the root. The root can receive several of these messages at the same time.
  constexpr phase star_in(std::uint64_t bytes) const {
    const std::uint64_t far = is_one_host() ? 0 : p_ - number(per_host_);
    const auto link_gap = [&](const link_cost& link) {
      return max(link.overhead, duration(bytes, link.per_kib));
    };
    return {p_ - 1, (p_ - 1) * bytes,
            hop(bytes, far > 0 ? 1 : 0) +
                max((p_ - 2) * link_gap(net_.near), far > 0 ? (far - 1) * link_gap(net_.far) : 0)};
  }
  /// Returns the cost of a phase in which every rank except the root sends a message to the root.
  /// The root receives and reduces one message after another. If the messages are long, the root
  /// sends the clear to send (CTS) of a message only after the previous message has arrived.
  constexpr phase star_sum(std::uint64_t bytes) const {
    phase sum = star_in(bytes);
    const std::uint64_t far = is_one_host() ? 0 : p_ - number(per_host_);
    if (bytes > eager_limit)
      sum.critical_path = (p_ - 1 - far) * hop(bytes, 0) + far * hop(bytes, 1);
    sum.path_bytes = (p_ - 1) * bytes;
    return sum;
  }
  enum class direction : std::uint8_t { down, up };

  /// Returns how many of the children on one level of a k-nomial tree are on the host of their
  /// parent. A parent has k - 1 children on this level. Their distances from the parent are `step`,
  /// 2 * `step`, ..., (k - 1) * `step`. If the result differs between parents, returns the smallest
  /// number.
  constexpr std::uint64_t on_same_host(std::uint64_t step, std::uint64_t k) const {
    if (is_one_host()) return k - 1;
    // The rank of a parent is a multiple of `k * step`. The first rank of a host is a multiple of
    // `per_host_`. The distance from a parent to the first rank of the next host is therefore at
    // least `room`.
    const std::uint64_t room = std::gcd(number(per_host_), k * step);
    const std::uint64_t within = (room - 1) / step;
    return within < k - 1 ? within : k - 1;
  }
  /// Returns the cost of a broadcast or a reduction of `bytes` bytes over a k-nomial tree. A parent
  /// serves its children one after another. On each level, a message first waits for one gap per
  /// child that the parent serves earlier, and then takes the time of one hop. In a reduction of
  /// long messages, the parent sends the clear to send (CTS) of a message only after the previous
  /// message has arrived.
  constexpr phase tree(std::uint64_t bytes, int radix, direction heading) const {
    const std::uint64_t k = number(radix);
    const bool up = heading == direction::up;
    const bool is_rendezvous = up && bytes > eager_limit;
    const picoseconds local = up ? duration(bytes, net_.reduce_per_kib) : 0;
    const auto gap_of = [&](picoseconds overhead, picoseconds moving) {
      return up ? max(max(overhead, moving), local) : overhead + moving;
    };
    const picoseconds near_hop = hop(bytes, 0) + local;
    const picoseconds near_gap = gap_of(net_.near.overhead, duration(bytes, net_.near.per_kib));
    const picoseconds far_hop = hop(bytes, 1) + local;
    // If a host has several ranks, the model assumes that a rank can start its next message while
    // the network port of the host is still sending the previous one. Each byte of a message to
    // another host then occupies the rank only for as long as a byte of a message within the host.
    const picoseconds port = per_host_ > 1 ? net_.near.per_kib : net_.far.per_kib;
    const picoseconds far_port = gap_of(net_.far.overhead, duration(bytes, port));
    const picoseconds far_gap = max(far_port, duration(bytes, net_.far.per_kib));
    picoseconds full = 0;  // the time of a full tree of k^level ranks
    picoseconds time = 0;  // the time of the tree up to the current level
    std::uint64_t left = p_ - 1;
    for (std::uint64_t step = 1; step <= p_ - 1; step *= k, left /= k) {
      const std::uint64_t max_near = on_same_host(step, k);
      // Returns the time of a tree whose root has `children` children on this level. The root
      // serves one of these children first, and the subtree of this child takes the time `first`.
      // The subtree of each other child takes the time `full`. The part of the tree that consists
      // of the root and the lower levels takes the time `full`, too.
      const auto parent_time = [&](std::uint64_t children, picoseconds first) {
        const std::uint64_t near = children < max_near ? children : max_near;
        const std::uint64_t far = children - near;
        if (is_rendezvous) return full + far * far_hop + near * near_hop;
        picoseconds last = (far > 0 ? far_hop : near_hop) + first;
        if (far > 1) last = max(last, far_hop + (far - 1) * far_gap + full);
        if (children > 1 && near > 0) {
          last = max(last, near_hop + far * far_port + (near - 1) * near_gap + full);
        }
        return max(last, far * (near > 0 ? far_port : far_gap) + near * near_gap + full);
      };
      if (left % k > 0) time = parent_time(left % k, time);
      full = parent_time(k - 1, full);
    }
    return {p_ - 1, (p_ - 1) * bytes, time};
  }
  /// Returns the cost of a scatter or a gather over a binomial tree. A scatter sends one chunk from
  /// the root to each rank, and a gather sends one chunk from each rank to the root.
  constexpr phase chunk_tree(direction heading) const {
    phase sum{p_ - 1, 0, 0};
    picoseconds full = 0;
    for (std::uint64_t step = 1; step < p_; step *= 2) {
      const int far = on_same_host(step, 2) > 0 ? 0 : 1;
      if ((p_ - 1) / step % 2 != 0) {
        const std::uint64_t held = chunk_ * (1 + (p_ - 1) % step);
        const bool is_rendezvous = heading == direction::up && held > eager_limit;
        const link_cost& link = far > 0 ? net_.far : net_.near;
        const picoseconds busy = link.overhead + duration(held, link.per_kib) + full;
        sum.critical_path =
            is_rendezvous ? full + hop(held, far) : max(hop(held, far) + sum.critical_path, busy);
      }
      full += hop(step * chunk_, far);
      // A relative rank is the distance of a rank from the root. If the relative rank has the bit
      // `step`, the chunk of the rank is in one message between ranks at the distance `step`.
      // `with_bit` is the number of such ranks.
      const std::uint64_t with_bit =
          p_ / (2 * step) * step + (p_ % (2 * step) > step ? p_ % (2 * step) - step : 0);
      sum.bytes += with_bit * chunk_;
    }
    return sum;
  }

  /// Returns the cost of sending a buffer in segments over a chain or a tree of ranks. The longest
  /// path of a segment has `depth` hops. Each segment keeps each rank busy for the time of `sends`
  /// gaps and, if `reduces` is true, of `sends` local reductions.
  constexpr phase pipeline(std::uint64_t bytes, std::uint64_t depth, std::uint64_t sends,
                           const algorithm_choice& choice, bool reduces) const {
    const std::uint64_t s = pieces(bytes, choice.segment);
    const std::uint64_t piece = (bytes + s - 1) / s;
    const picoseconds local = reduces ? duration(piece, net_.reduce_per_kib) : 0;
    const picoseconds busy = sends * (gap(piece) + local);
    const std::uint64_t hosts = is_one_host() ? 0 : (p_ - 1) / number(per_host_);
    const std::uint64_t far = hosts < depth ? hosts : depth;
    const picoseconds down = far * hop(piece, 1) + (depth - far) * hop(piece, 0) +
                             depth * ((sends - 1) * gap(piece) / 2 + local);
    const picoseconds lane = (hop(piece, far > 0 ? 1 : 0) + busy) / number(choice.lanes);
    return {(p_ - 1) * s, (p_ - 1) * bytes, down + (s - 1) * max(busy, lane)};
  }
  /// Returns how long the network port of the busiest host is occupied when data moves once up or
  /// down both trees. Every tree edge between two hosts carries half of the buffer. A rank near the
  /// root of a tree has both of its children on other hosts. On the busiest host, one rank is near
  /// the root of the first tree, and another rank is near the root of the second tree. If the ranks
  /// of a host do not form a complete subtree, there are more edges between hosts.
  constexpr picoseconds double_tree_crossing() const {
    if (is_one_host() || per_host_ == 1) return 0;
    const bool is_subtree = (per_host_ & (per_host_ - 1)) == 0;
    return (!is_subtree ? 6 : hosts() > 3 ? 5 : 3) * duration(n_ / 2, net_.host_per_kib);
  }
  /// Returns the cost of a reduction (if `reduces` is true) or a broadcast (otherwise) over two
  /// binary trees. Each tree carries one half of the buffer.
  constexpr phase double_tree(const algorithm_choice& choice, bool reduces) const {
    const auto depth = number(ranks_ < 3 ? ranks_ - 1 : 1 + pattern::bit_width(ranks_ - 2));
    phase half = pipeline(n_ / 2, depth, 2, choice, reduces);
    const std::uint64_t s = pieces(n_ / 2, choice.segment);
    const picoseconds piece_time = gap((n_ / 2 + s - 1) / s);
    half.critical_path += piece_time;  // because the root handles both halves
    // In a reduction, a rank receives each segment first from one child and then from the other.
    // The parent of the rank waits for both of these messages.
    if (reduces) half.critical_path += (s - 1) * piece_time / 2;
    half.critical_path = max(half.critical_path, double_tree_crossing());
    half.messages *= 2;
    half.bytes = (p_ - 1) * n_;
    return half;
  }
  /// Returns the cost of an all-reduce over two binary trees. Each tree carries one half of the
  /// buffer up to the root and down again. A lane is a concurrent part of the call. Each lane
  /// handles one segment at a time: it starts the next segment when the result of the previous one
  /// has come back from the root.
  constexpr phase double_tree_round_trip(const algorithm_choice& choice) const {
    const auto depth = number(ranks_ < 3 ? ranks_ - 1 : 1 + pattern::bit_width(ranks_ - 2));
    const std::uint64_t s = pieces(n_ / 2, choice.segment);
    const std::uint64_t piece = (n_ / 2 + s - 1) / s;
    const phase once = pipeline(piece, depth, 2, {}, true);
    const picoseconds there = 2 * once.critical_path;
    const picoseconds busy = 4 * gap(piece) + 2 * duration(piece, net_.reduce_per_kib);
    return {
        4 * (p_ - 1) * s, 2 * (p_ - 1) * n_,
        max(there + (s - 1) * max(busy, there / number(choice.lanes)), 2 * double_tree_crossing())};
  }
};

}  // namespace colls
