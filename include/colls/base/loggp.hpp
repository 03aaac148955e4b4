// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// cost_parts: what the parts cost that collectives are made of: exchanges of all with all, rings,
// cubes, circles.

#include <colls/base/algorithm_choice.hpp>
#include <colls/base/algorithm_names.hpp>
#include <colls/base/network_cost.hpp>
#include <colls/base/pattern.hpp>

namespace colls {

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
  static constexpr std::uint64_t card_bytes = 3 * 8;

  struct part {
    std::uint64_t messages = 0;
    std::uint64_t bytes = 0;
    picoseconds wire = 0;       // of the longest chain of messages
    std::uint64_t touched = 0;  // bytes that a rank on it reduces or copies, waiting
    std::uint64_t copied = 0;   // bytes that all ranks touch beyond taking in messages
    std::uint64_t lent = 0;     // and those that they touch where peers lend them
    std::uint64_t lines = 0;    // messages that are found at once, not each on its own
    std::uint64_t turns = 0;    // of others on its core, beyond those that messages wait for

    constexpr part operator+(const part& then) const {
      return {messages + then.messages, bytes + then.bytes,   wire + then.wire,
              touched + then.touched,   copied + then.copied, lent + then.lent,
              lines + then.lines,       turns + then.turns};
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

  // ---- ranks that outnumber the cores of their host

  constexpr bool shares_cores() const { return net_.cores > 0 && beside() > net_.cores; }
  /// How long the cores of a host are at work for all of its ranks: at both ends of messages.
  constexpr picoseconds work(const part& all) const {
    const picoseconds starts = (all.messages - all.lines * 2 / 3) * net_.near.overhead;
    const picoseconds ends = 2 * (starts + over(all.bytes, net_.near.per_kib));
    const picoseconds beside_them =
        over(all.copied, net_.reduce_per_kib) + over(all.lent, net_.lent_per_kib);
    return (ends + beside_them) / (hosts() * number(net_.cores));
  }
  constexpr picoseconds turn() const {
    return number(beside() - net_.cores) * net_.turn / number(net_.cores);
  }
  /// The network without that work: who is sent something goes on when the others on its core have
  /// had their turns.
  constexpr network_cost waits() const {
    network_cost net = net_;
    if (lends()) net.lent_per_kib = 1;  // it still does
    net.near = {net_.near.latency + turn(), 0, 0};
    net.far.latency += turn();
    net.far.overhead = 0;
    return net;
  }

  // ---- one message

  constexpr bool one_host() const { return on_host_ >= ranks_; }
  /// Ranks of a host.
  constexpr int beside() const { return one_host() ? ranks_ : on_host_; }
  constexpr std::uint64_t hosts() const { return (p_ + number(on_host_) - 1) / number(on_host_); }
  /// A choice cannot know who lends: where all can, all do.
  constexpr bool lends() const { return one_host() && net_.lent_per_kib > 0; }
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
  /// The same in one of several rounds whose distances add up to no more than a host has ranks: who
  /// waits for another host in one of them waits for none in the others. What crosses takes its
  /// time.
  constexpr picoseconds around(std::uint64_t bytes, int distance, bool waits) const {
    if (one_host() || waits) return around(bytes, distance);
    return net_.near.latency + 2 * net_.near.overhead + moving(bytes, crossing(distance));
  }
  /// With the corner of the hypercube whose number differs in that bit.
  constexpr picoseconds across(std::uint64_t bytes, int bit) const {
    if (one_host()) return hop(bytes, 0);
    // Where some fold, a corner may stand for two ranks; the last bit parts these from the others.
    const bool wide = left_over() > 0 && bit + 1 < cube_rounds();
    const int distance = 1 << (wide ? bit + 1 : bit);
    const bool inside = on_host_ % (std::int64_t{left_over() > 0 ? 4 : 2} << bit) == 0;
    if (inside) return hop(bytes, 0);
    return hop(bytes, wide ? (crossing(distance) + 1) / 2 : crossing(distance));
  }
  /// Between the ranks 0 and 1, 2 and 3, ...
  constexpr picoseconds fold(std::uint64_t bytes) const {
    return hop(bytes, one_host() || on_host_ % 2 == 0 ? 0 : 1);
  }
  constexpr int cube_rounds() const { return pattern::bit_width(ranks_) - 1; }
  constexpr std::uint64_t left_over() const { return p_ - (std::uint64_t{1} << cube_rounds()); }

  // ---- parts that collectives are made of

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
  /// Chunks exchanged over a hypercube, each time twice as many.
  constexpr part chunk_cube(std::uint64_t folded) const {
    const std::uint64_t corners = std::uint64_t{1} << cube_rounds();
    part sum{corners * number(cube_rounds()) + 2 * left_over(),
             (corners - 1 + left_over()) * n_ + left_over() * chunk_, 0};
    for (int bit = 0; bit < cube_rounds(); ++bit) {
      sum.wire += across(n_ / (corners >> bit), bit);
    }
    if (left_over() > 0) sum.wire += fold(n_) + fold(chunk_) + folded;
    return sum;
  }
  /// Chunks over the circulant graph of some ranks, of which the first `filled` have one. `time`:
  /// of a message of so many bytes to the rank `skip` further, when all within have `left` to go.
  template <class Time>
  constexpr part circle(int ranks, std::uint64_t chunk, int filled, const Time& time) const {
    part sum{0, number(ranks - 1) * number(filled) * chunk, 0};
    for (int left = ranks; left > 1; left = (left + 1) / 2) {
      const int skip = (left + 1) / 2;
      const int most_filled = left - skip < filled ? left - skip : filled;
      sum.messages += number(ranks);
      sum.wire += time(number(most_filled) * chunk, skip, left - 1);
    }
    return sum;
  }
  constexpr part circle() const {
    int waits = -1;  // how often someone waits for another host in the rounds of short distances
    return circle(ranks_, chunk_, ranks_, [&](std::uint64_t bytes, int skip, int way) {
      if (skip >= on_host_) return around(bytes, skip);
      if (waits < 0) waits = (way + on_host_ - 1) / on_host_;
      return around(bytes, skip, waits-- > 0);
    });
  }
  /// Segments in lanes: a lane's step takes a hop, and those of all lanes together a gap each.
  /// `steps` of them follow each other.
  constexpr picoseconds lanes_around(std::uint64_t steps, const plan& by, bool reduces) const {
    const std::uint64_t s = pieces(chunk_, by.segment);
    const std::uint64_t piece = (chunk_ + s - 1) / s;
    const picoseconds local = reduces ? over(piece, net_.reduce_per_kib) : 0;
    const int one = one_host() ? 0 : 1;
    // A short piece meets other hosts now and then; who asks for a long one waits for the slowest.
    const std::uint64_t far = piece > eager_limit || steps < hosts() ? steps : hosts();
    const picoseconds alone =
        (far * hop(piece, one) + (steps - far) * hop(piece, 0)) / steps + local;
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
  /// Chunks exchanged with both neighbours by turns, all but the first time two of them.
  constexpr part neighbours() const {
    const std::uint64_t rounds = p_ / 2;
    if (one_host() || on_host_ % 2 != 0) {
      return {p_ * rounds, (p_ - 1) * n_, around(chunk_, 1) + (rounds - 1) * around(2 * chunk_, 1)};
    }
    // All whose partners are on other hosts have them at once, two of each host; short messages
    // need not wait for each other.
    const std::uint64_t far = rounds / 2;
    const picoseconds out = hop(2 * chunk_, 2 * chunk_ > eager_limit ? 2 : 1);
    return {p_ * rounds, (p_ - 1) * n_,
            hop(chunk_, 0) + (rounds - 1 - far) * hop(2 * chunk_, 0) + far * out};
  }
  /// Messages that their receivers find together, without a list of what each waits for.
  constexpr part at_once(part messages) const {
    if (lends()) messages.lines = messages.messages;
    return messages;
  }
  /// What ranks tell each other who may lend their buffers: where those lie.
  constexpr part cards() const { return at_once(mesh(card_bytes)); }
  /// The same for each piece.
  constexpr part cards(const plan& by) const {
    const std::uint64_t s = pieces(chunk_, by.segment);
    const part once = cards();
    return at_once({s * once.messages, s * once.bytes, s * once.wire});
  }
  /// Messages of so many bytes between one rank, or each, and all others in one round: where memory
  /// is shared, each is a line that its reader finds; two ranks write to each other at one time.
  constexpr part at_once(part messages, std::uint64_t bytes) const {
    if (lends()) {
      messages.wire = net_.near.latency + (p_ - 1) * gap(bytes);
    } else if (ranks_ == 2) {
      messages.wire = hop(bytes, one_host() ? 0 : 1);
    }
    return at_once(messages);
  }
  /// All ranks of a thread wait for the last, which reduces and copies so many bytes.
  constexpr part met(std::uint64_t bytes) const {
    return {0, 0, p_ * net_.near.latency, bytes, bytes};
  }
  /// Each of so many ranks works on so many bytes where they lie, and says when it has.
  constexpr part worked(part told, std::uint64_t bytes, std::uint64_t ranks) const {
    told.wire += over(bytes, net_.lent_per_kib);
    told.lent += ranks * bytes;
    return at_once(told);
  }
  /// All ranks do, and begin when the last has come.
  constexpr part all_worked(std::uint64_t bytes) const {
    part all = worked(mesh(0), bytes, p_);
    all.turns = 1;
    return all;
  }
  /// Chunks to or from all others by messages, in segments.
  constexpr part chunks_apart(const plan& by) const {
    part sum = mesh(chunk_);
    sum.messages *= pieces(chunk_, by.segment);
    return sum;
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
      const std::uint64_t waits = bytes > eager_limit ? 2 * (peers - 1) : peers - 1;
      const int middle = step * (1 + circle.peers(step)) / 2;
      const picoseconds each = larger(gap(bytes), moving(bytes, crossing(middle)));
      const auto stays = [&](int at) { return at < ranks_ && at * circle.peers(at) < on_host_; };
      const bool crosses = !stays(step) || !stays(circle.after(step));
      sum.wire += around(bytes, step, crosses) + waits * each;
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
