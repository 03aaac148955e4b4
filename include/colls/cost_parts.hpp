// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// cost_parts: what the parts cost that collectives are made of: stars, trees, rings, pipelines.

#include <colls/fwd.hpp>
#include <colls/network_cost.hpp>
#include <colls/pattern.hpp>

namespace colls {

/// How a call will be done; equal on all ranks.
struct plan {
  colls::algorithm how = colls::algorithm::linear;
  std::size_t segment = 0;  // bytes of a pipelined piece of a chunk; 0: chunks travel whole
  int lanes = 1;            // pieces in flight
  int radix = 4;            // of the algorithms that have one

  friend constexpr bool operator==(const plan&, const plan&) = default;
};

struct cost {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  picoseconds time = 0;
};

namespace detail {

/// The parts over one network, of a call with `bytes` in the whole vector. Chunks count as equally
/// long.
class cost_parts {
 protected:
  constexpr cost_parts(const network_cost& net, std::uint64_t bytes, int ranks, int on_host)
      : net_(net),
        n_(bytes < most ? bytes : most),
        ranks_(ranks),
        on_host_(on_host),
        p_(number(ranks)),
        chunk_((n_ + p_ - 1) / p_) {}

  static constexpr std::uint64_t most = std::uint64_t{1} << 42;  // nothing overflows
  static constexpr std::uint64_t eager = 64 * 1024;  // longer messages wait to be asked for

  struct part {
    std::uint64_t messages = 0;
    std::uint64_t bytes = 0;
    picoseconds wire = 0;       // of the longest chain of messages
    std::uint64_t touched = 0;  // bytes that a rank on it reduces or copies, waiting
    std::uint64_t copied = 0;   // bytes that all ranks touch beyond taking in messages

    constexpr part operator+(const part& then) const {
      return {messages + then.messages, bytes + then.bytes, wire + then.wire,
              touched + then.touched, copied + then.copied};
    }
  };

  static constexpr std::uint64_t number(int n) { return static_cast<std::uint64_t>(n); }
  static constexpr picoseconds over(std::uint64_t bytes, picoseconds per_kib) {
    return (bytes >> 10) * per_kib + (((bytes & 1023) * per_kib) >> 10);
  }
  static constexpr std::uint64_t larger(std::uint64_t a, std::uint64_t b) { return a < b ? b : a; }
  static constexpr std::uint64_t pieces(std::uint64_t whole, std::uint64_t segment) {
    return segment == 0 || whole <= segment ? 1 : (whole + segment - 1) / segment;
  }

  constexpr cost finish(const part& all) const {
    if (net_.one_thread) {
      // And a rank that has to wait is left and entered again.
      return {all.messages, all.bytes,
              all.messages * net_.near.overhead + over(all.bytes, net_.near.per_kib) +
                  over(all.copied, net_.reduce_per_kib) + all.wire / 2};
    }
    return {all.messages, all.bytes, all.wire + over(all.touched, net_.reduce_per_kib)};
  }

  // ---- one message

  constexpr bool one_host() const { return on_host_ >= ranks_; }
  /// How many of the ranks of a host have a peer on another one, if all have theirs `distance`
  /// further on the circle.
  constexpr int crossing(int distance) const {
    if (one_host()) return 0;
    const int shorter = distance < ranks_ - distance ? distance : ranks_ - distance;
    return shorter < on_host_ ? shorter : on_host_;
  }
  /// From start to end, when `crossing` ranks of each host send to other hosts.
  constexpr picoseconds hop(std::uint64_t bytes, int crossing) const {
    const link_cost& link = crossing == 0 ? net_.near : net_.far;
    return link.latency + 2 * link.overhead + moving(bytes, crossing);
  }
  constexpr picoseconds moving(std::uint64_t bytes, int crossing) const {
    if (crossing == 0) return over(bytes, net_.near.per_kib);
    return larger(over(bytes, net_.far.per_kib), over(bytes * number(crossing), net_.host_per_kib));
  }
  /// How long it keeps its sender from sending the next.
  constexpr picoseconds gap(std::uint64_t bytes) const {
    const link_cost& link = one_host() ? net_.near : net_.far;
    return link.overhead + over(bytes, link.per_kib);
  }
  constexpr picoseconds around(std::uint64_t bytes, int distance) const {
    return hop(bytes, crossing(distance));
  }
  /// With the partner whose number differs in that bit.
  constexpr picoseconds across(std::uint64_t bytes, int bit) const {
    const bool inside = one_host() || (bit < 30 && on_host_ % (2 << bit) == 0);
    return hop(bytes, inside ? 0 : crossing(1 << bit));
  }
  constexpr int cube_rounds() const { return pattern::bit_width(ranks_) - 1; }
  constexpr std::uint64_t left_over() const { return p_ - (std::uint64_t{1} << cube_rounds()); }

  // ---- parts that collectives are made of

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
  /// Every rank and every other one, all beginning with the same.
  constexpr part mesh(std::uint64_t bytes) const {
    const std::uint64_t h = number(on_host_);
    // All hosts begin with the same one, whose way in the others wait for.
    const picoseconds out =
        one_host() ? 0 : 2 * (p_ - h) * over(h * (p_ - h) * bytes, net_.host_per_kib) / p_;
    return {p_ * (p_ - 1), p_ * (p_ - 1) * bytes,
            hop(0, one_host() ? 0 : 1) + larger((2 * p_ - 3) * gap(bytes), out)};
  }
  /// The same, one peer at a time.
  constexpr part rounds_of_one(std::uint64_t bytes) const {
    picoseconds time = 0;
    int near_by = 0;  // distances at which not all ranks of a host cross to another
    for (int d = 1; !one_host() && d < on_host_ && 2 * d < ranks_; ++d, near_by += 2) {
      time += 2 * around(bytes, d);
    }
    time += (p_ - 1 - number(near_by)) * around(bytes, on_host_);
    return {p_ * (p_ - 1), p_ * (p_ - 1) * bytes, time};
  }
  /// `bytes` down (or up) a k-nomial tree. A path takes a hop where it branches off and, for each
  /// child that is served before, a gap.
  constexpr part tree(std::uint64_t bytes, int radix) const {
    const std::uint64_t k = number(radix);
    picoseconds full = 0;  // of the tree of k^level ranks
    picoseconds time = 0;  // of the ranks that the digits so far make
    std::uint64_t left = p_ - 1;
    for (std::uint64_t step = 1; step <= p_ - 1; step *= k, left /= k) {
      const bool inside = one_host() || step < number(on_host_);
      const picoseconds down = hop(bytes, inside ? 0 : 1);
      const link_cost& link = inside ? net_.near : net_.far;
      const picoseconds each = link.overhead + over(bytes, link.per_kib);
      // Children 1, ..., digit of this level; the last one has what the lower digits make.
      const std::uint64_t digit = left % k;
      if (digit > 0) {
        const picoseconds partial = down + time;
        const picoseconds others = digit > 1 ? down + (digit - 1) * each + full : 0;
        time = larger(partial, larger(others, digit * each + full));
      }
      full = larger(down + (k - 2) * each + full, (k - 1) * each + full);
    }
    return {p_ - 1, (p_ - 1) * bytes, time};
  }
  /// Chunks to or from the root down a binomial tree.
  constexpr part chunk_tree() const {
    part sum{p_ - 1, 0, 0};
    for (std::uint64_t step = 1; step < p_; step *= 2) {
      const std::uint64_t held = chunk_ * (step < p_ - step ? step : p_ - step);
      sum.wire += hop(held, step < number(on_host_) || one_host() ? 0 : 1);
      // Ranks with this bit: their chunks travel this step.
      const std::uint64_t with_bit =
          p_ / (2 * step) * step + (p_ % (2 * step) > step ? p_ % (2 * step) - step : 0);
      sum.bytes += with_bit * chunk_;
    }
    return sum;
  }
  /// Chunks exchanged over a hypercube, each time twice as many.
  constexpr part chunk_cube(std::uint64_t folded) const {
    const std::uint64_t corners = std::uint64_t{1} << cube_rounds();
    part sum{corners * number(cube_rounds()) + 2 * left_over(),
             (corners - 1 + left_over()) * n_ + left_over() * chunk_, 0};
    for (int bit = 0; bit < cube_rounds(); ++bit) {
      sum.wire += across(n_ / (corners >> bit), bit);
    }
    if (left_over() > 0) sum.wire += hop(n_, 0) + hop(chunk_, 0) + folded;
    return sum;
  }
  /// Chunks over the circulant graph of `ranks` ranks, all on one host or each on its own with
  /// `crossing` of them side by side.
  constexpr part circle(int ranks, std::uint64_t chunk, bool inside, int crossing_all) const {
    part sum{0, number(ranks) * number(ranks - 1) * chunk, 0};
    for (int left = ranks; left > 1; left = (left + 1) / 2) {
      const int skip = (left + 1) / 2;
      const int across = inside ? 0 : crossing_all > 0 ? crossing_all : crossing(skip);
      sum.messages += number(ranks);
      sum.wire += hop(number(left - skip) * chunk, across);
    }
    return sum;
  }
  constexpr part circle() const { return circle(ranks_, chunk_, one_host(), 0); }

  /// Segments in lanes: a lane's step takes a hop, and those of all lanes together a gap each.
  /// `steps` of them follow each other.
  constexpr picoseconds lanes_around(std::uint64_t steps, const plan& by, bool reduces) const {
    const std::uint64_t s = pieces(chunk_, by.segment);
    const std::uint64_t piece = (chunk_ + s - 1) / s;
    const picoseconds local = reduces ? over(piece, net_.reduce_per_kib) : 0;
    const int one = one_host() ? 0 : 1;
    const picoseconds alone = hop(piece, one) + local;
    const link_cost& link = one_host() ? net_.near : net_.far;
    const picoseconds each = link.overhead + larger(moving(piece, one), local);
    const std::uint64_t width = number(by.lanes);
    const std::uint64_t turns = s / width;
    const std::uint64_t rest = s % width;
    picoseconds time = turns * steps * larger(alone, width * each);
    if (rest > 0) time += steps * larger(alone, rest * each);
    return time;
  }
  constexpr part ring(const plan& by, bool reduces) const {
    return {p_ * (p_ - 1) * pieces(chunk_, by.segment), p_ * (p_ - 1) * chunk_,
            lanes_around(p_ - 1, by, reduces)};
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
  /// Both halves of the buffer over two trees, up or down.
  constexpr part two_trees(const plan& by, bool reduces) const {
    const auto depth = number(ranks_ < 3 ? ranks_ - 1 : 1 + pattern::bit_width(ranks_ - 2));
    part half = line(n_ / 2, depth, 2, by, reduces);
    const std::uint64_t s = pieces(n_ / 2, by.segment);
    const picoseconds each = gap((n_ / 2 + s - 1) / s);
    half.wire += each;  // the root has both halves
    // Who sums up takes in one side after the other, while its own parent waits.
    if (reduces) half.wire += (s - 1) * each / 2;
    // Who stands high has both children on other hosts, in both trees.
    const std::uint64_t leaving = p_ > 3 * number(on_host_) ? 5 : 3;
    if (!reduces && !one_host()) {
      half.wire = larger(half.wire, s * leaving * over((n_ / 2 + s - 1) / s, net_.host_per_kib));
    }
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
            there + (s - 1) * larger(busy, there / number(by.lanes))};
  }
  /// Digits of distances: rounds of messages to up to k-1 peers. `blocks(step, peers)` are those of
  /// one of them.
  template <class Blocks>
  constexpr part digits(int radix, const Blocks& blocks) const {
    const pattern::dissemination circle{0, ranks_, radix};
    part sum;
    for (int step = 1; step < ranks_; step = circle.after(step)) {
      const std::uint64_t peers = number(circle.peers(step));
      const std::uint64_t bytes = blocks(step) * chunk_;
      sum.messages += p_ * peers;
      // All ranks ask for long ones at once, and everybody answers the same one first.
      const std::uint64_t waits = bytes > eager ? 2 * (peers - 1) : peers - 1;
      const int middle = step * (1 + circle.peers(step)) / 2;
      const picoseconds each = larger(gap(bytes), moving(bytes, crossing(middle)));
      sum.wire += around(bytes, step) + waits * each;
    }
    return sum;
  }

  network_cost net_;
  std::uint64_t n_;
  int ranks_;
  int on_host_;
  std::uint64_t p_;
  std::uint64_t chunk_;
};

}  // namespace detail

}  // namespace colls
