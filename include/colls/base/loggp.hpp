// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// loggp: the LogGP cost of the phases from which collectives are composed: full exchanges, rings,
// hypercubes, circulant graphs.

#include <colls/base/algorithm_choice.hpp>
#include <colls/base/algorithm_names.hpp>
#include <colls/base/network_cost.hpp>
#include <colls/base/pattern.hpp>

namespace colls {

namespace detail {

/// The costs of phases over one network, for a call on a vector of `bytes` between `ranks` ranks,
/// `per_host` of which share each host. Chunks are taken as equally long.
class loggp {
 protected:
  constexpr loggp(const network_cost& net, std::uint64_t bytes, int ranks, int per_host)
      : net_(net),
        n_(bytes < max_bytes ? bytes : max_bytes),
        ranks_(ranks),
        per_host_(per_host),
        p_(number(ranks)),
        chunk_((n_ + p_ - 1) / p_) {}

  static constexpr std::uint64_t max_bytes = std::uint64_t{1} << 42;  // avoids overflow
  static constexpr std::uint64_t descriptor_bytes = 3 * 8;            // of a window

  /// The cost of one phase of a collective.
  struct phase {
    std::uint64_t messages = 0;
    std::uint64_t bytes = 0;
    picoseconds critical_path = 0;   // the longest chain of messages
    std::uint64_t path_bytes = 0;    // reduced or copied by a rank on the critical path
    std::uint64_t copied = 0;        // bytes copied or reduced by all ranks, besides receiving
    std::uint64_t window_bytes = 0;  // bytes accessed in windows of peers by all ranks
    std::uint64_t batched = 0;       // messages that a receiver finds together, not one by one
    std::uint64_t time_slices = 0;   // waits for a shared core, besides those for messages

    constexpr phase operator+(const phase& next) const {
      return {messages + next.messages,
              bytes + next.bytes,
              critical_path + next.critical_path,
              path_bytes + next.path_bytes,
              copied + next.copied,
              window_bytes + next.window_bytes,
              batched + next.batched,
              time_slices + next.time_slices};
    }
  };

  static constexpr std::uint64_t number(int n) { return static_cast<std::uint64_t>(n); }
  static constexpr picoseconds duration(std::uint64_t bytes, picoseconds per_kib) {
    return (bytes >> 10) * per_kib + (((bytes & 1023) * per_kib) >> 10);
  }
  static constexpr std::uint64_t max(std::uint64_t a, std::uint64_t b) { return a < b ? b : a; }
  static constexpr std::uint64_t pieces(std::uint64_t length, std::uint64_t segment) {
    return segment == 0 || length <= segment ? 1 : (length + segment - 1) / segment;
  }

  /// The cost of a call that consists of these phases.
  constexpr cost finish(const phase& all) const {
    if (net_.one_thread) {
      // The last term is the cost of suspending and resuming ranks that wait.
      return {all.messages, all.bytes,
              all.messages * net_.near.overhead + duration(all.bytes, net_.near.per_kib) +
                  duration(all.copied, net_.reduce_per_kib) + all.critical_path / 2};
    }
    return {all.messages, all.bytes,
            all.critical_path + duration(all.path_bytes, net_.reduce_per_kib)};
  }

  // ---- ranks that outnumber the cores of their host

  constexpr bool shares_cores() const { return net_.cores > 0 && ranks_per_host() > net_.cores; }
  /// The time for which the cores of a host work for all of its ranks, at both ends of messages.
  constexpr picoseconds busy_time(const phase& all) const {
    const picoseconds start_work = (all.messages - all.batched * 2 / 3) * net_.near.overhead;
    const picoseconds message_work = 2 * (start_work + duration(all.bytes, net_.near.per_kib));
    const picoseconds local_work =
        duration(all.copied, net_.reduce_per_kib) + duration(all.window_bytes, net_.window_per_kib);
    return (message_work + local_work) / (hosts() * number(net_.cores));
  }
  /// The time for which a rank waits for the other ranks on its core.
  constexpr picoseconds slice_wait() const {
    return number(ranks_per_host() - net_.cores) * net_.time_slice / number(net_.cores);
  }
  /// The network without the overheads that `busy_time` counts. A receiver continues after the
  /// other ranks on its core have had their time slices.
  constexpr network_cost waiting_network() const {
    network_cost net = net_;
    if (has_windows()) net.window_per_kib = 1;  // not 0, which means that there are no windows
    net.near = {net_.near.latency + slice_wait(), 0, 0};
    net.far.latency += slice_wait();
    net.far.overhead = 0;
    return net;
  }

  // ---- one message

  constexpr bool is_one_host() const { return per_host_ >= ranks_; }
  /// The number of ranks of this communicator on a host.
  constexpr int ranks_per_host() const { return is_one_host() ? ranks_ : per_host_; }
  constexpr std::uint64_t hosts() const { return (p_ + number(per_host_) - 1) / number(per_host_); }
  /// Whether ranks access each other's buffers. Selection does not know which ranks expose theirs,
  /// so it assumes all of them if they can.
  constexpr bool has_windows() const { return is_one_host() && net_.window_per_kib > 0; }
  /// The number of ranks of a host whose peer is on another host, if each rank's peer is `distance`
  /// ranks further on the ring.
  constexpr int crossing(int distance) const {
    if (is_one_host()) return 0;
    const int shorter = distance < ranks_ - distance ? distance : ranks_ - distance;
    return shorter < per_host_ ? shorter : per_host_;
  }
  /// The time of one message from start to end, if `crossing` ranks of each host send to other
  /// hosts.
  constexpr picoseconds hop(std::uint64_t bytes, int crossing) const {
    const link_cost& link = crossing == 0 ? net_.near : net_.far;
    return link.latency + 2 * link.overhead + transfer(bytes, crossing);
  }
  constexpr picoseconds transfer(std::uint64_t bytes, int crossing) const {
    if (crossing == 0) return duration(bytes, net_.near.per_kib);
    return max(duration(bytes, net_.far.per_kib),
               duration(bytes * number(crossing), net_.host_per_kib));
  }
  /// The time before the sender of a message can send the next (the gap of LogGP).
  constexpr picoseconds gap(std::uint64_t bytes) const {
    const link_cost& link = is_one_host() ? net_.near : net_.far;
    return link.overhead + duration(bytes, link.per_kib);
  }
  /// The time of a message from each rank to the rank `distance` further on the ring.
  constexpr picoseconds shift_hop(std::uint64_t bytes, int distance) const {
    return hop(bytes, crossing(distance));
  }
  /// The time of such a message in one of several rounds whose distances add up to at most the
  /// ranks of a host. A rank that waits for another host in one of these rounds does not wait for a
  /// host in the others. Without `waits` only the transfer between hosts counts, not its latency.
  constexpr picoseconds shift_hop(std::uint64_t bytes, int distance, bool waits) const {
    if (is_one_host() || waits) return shift_hop(bytes, distance);
    return net_.near.latency + 2 * net_.near.overhead + transfer(bytes, crossing(distance));
  }
  /// The time of a message between corners of the hypercube whose numbers differ in that bit.
  constexpr picoseconds cube_hop(std::uint64_t bytes, int bit) const {
    if (is_one_host()) return hop(bytes, 0);
    // If some ranks fold, a corner may stand for two ranks; the last bit separates these corners
    // from the others.
    const bool wide = folded_ranks() > 0 && bit + 1 < cube_rounds();
    const int distance = 1 << (wide ? bit + 1 : bit);
    const bool inside = per_host_ % (std::int64_t{folded_ranks() > 0 ? 4 : 2} << bit) == 0;
    if (inside) return hop(bytes, 0);
    return hop(bytes, wide ? (crossing(distance) + 1) / 2 : crossing(distance));
  }
  /// The time of a message between ranks 0 and 1, 2 and 3, ...
  constexpr picoseconds fold(std::uint64_t bytes) const {
    return hop(bytes, is_one_host() || per_host_ % 2 == 0 ? 0 : 1);
  }
  constexpr int cube_rounds() const { return pattern::bit_width(ranks_) - 1; }
  constexpr std::uint64_t folded_ranks() const { return p_ - (std::uint64_t{1} << cube_rounds()); }

  // ---- phases of collectives

  /// Messages from each rank to each other rank; all ranks begin with the same peer.
  constexpr phase mesh(std::uint64_t bytes) const {
    const std::uint64_t h = number(per_host_);
    // All hosts begin with the same host, whose incoming bandwidth limits the others.
    const picoseconds out =
        is_one_host() ? 0 : 2 * (p_ - h) * duration(h * (p_ - h) * bytes, net_.host_per_kib) / p_;
    return {p_ * (p_ - 1), p_ * (p_ - 1) * bytes,
            hop(0, is_one_host() ? 0 : 1) + max((2 * p_ - 3) * gap(bytes), out)};
  }
  /// Messages from each rank to each other rank, one peer at a time.
  constexpr phase pairwise_rounds(std::uint64_t bytes) const {
    picoseconds time = 0;
    int near_by = 0;  // distances at which some ranks of a host have a peer on it
    for (int d = 1; !is_one_host() && d < per_host_ && 2 * d < ranks_; ++d, near_by += 2) {
      time += 2 * shift_hop(bytes, d);
    }
    time += (p_ - 1 - number(near_by)) * shift_hop(bytes, per_host_);
    return {p_ * (p_ - 1), p_ * (p_ - 1) * bytes, time};
  }
  /// Chunks exchanged over a hypercube, twice as many in each round.
  constexpr phase hypercube_chunks(std::uint64_t fold_time) const {
    const std::uint64_t corners = std::uint64_t{1} << cube_rounds();
    phase sum{corners * number(cube_rounds()) + 2 * folded_ranks(),
              (corners - 1 + folded_ranks()) * n_ + folded_ranks() * chunk_, 0};
    for (int bit = 0; bit < cube_rounds(); ++bit) {
      sum.critical_path += cube_hop(n_ / (corners >> bit), bit);
    }
    if (folded_ranks() > 0) sum.critical_path += fold(n_) + fold(chunk_) + fold_time;
    return sum;
  }
  /// Chunks over the circulant graph of `ranks` ranks, the first `filled` of which have a chunk.
  /// `time(bytes, skip, distance)` is the time of a message to the rank `skip` further, where
  /// `distance` is the longest distance still to cover.
  template <class Time>
  constexpr phase circulant_rounds(int ranks, std::uint64_t chunk, int filled,
                                   const Time& time) const {
    phase sum{0, number(ranks - 1) * number(filled) * chunk, 0};
    for (int left = ranks; left > 1; left = (left + 1) / 2) {
      const int skip = (left + 1) / 2;
      const int max_filled = left - skip < filled ? left - skip : filled;
      sum.messages += number(ranks);
      sum.critical_path += time(number(max_filled) * chunk, skip, left - 1);
    }
    return sum;
  }
  constexpr phase circulant_rounds() const {
    int waits = -1;  // rounds of short distances in which some rank waits for another host
    return circulant_rounds(ranks_, chunk_, ranks_,
                            [&](std::uint64_t bytes, int skip, int distance) {
                              if (skip >= per_host_) return shift_hop(bytes, skip);
                              if (waits < 0) waits = (distance + per_host_ - 1) / per_host_;
                              return shift_hop(bytes, skip, waits-- > 0);
                            });
  }
  /// The time of segments that move `steps` steps around a ring in lanes. A step of one lane takes
  /// a hop; a step of all lanes takes at least a gap per lane.
  constexpr picoseconds pipelined_ring(std::uint64_t steps, const algorithm_choice& choice,
                                       bool reduces) const {
    const std::uint64_t s = pieces(chunk_, choice.segment);
    const std::uint64_t piece = (chunk_ + s - 1) / s;
    const picoseconds local = reduces ? duration(piece, net_.reduce_per_kib) : 0;
    const int crossing_ranks = is_one_host() ? 0 : 1;
    // A short piece crosses hosts only in some steps. A long piece waits for a clear to send, so
    // each step waits for the slowest rank.
    const std::uint64_t far = piece > eager_limit || steps < hosts() ? steps : hosts();
    const picoseconds alone =
        (far * hop(piece, crossing_ranks) + (steps - far) * hop(piece, 0)) / steps + local;
    const link_cost& link = is_one_host() ? net_.near : net_.far;
    const picoseconds piece_time = link.overhead + max(transfer(piece, crossing_ranks), local);
    const std::uint64_t width = number(choice.lanes);
    const std::uint64_t full_rounds = s / width;
    const std::uint64_t rest = s % width;
    picoseconds time = full_rounds * steps * max(alone, width * piece_time);
    if (rest > 0) time += steps * max(alone, rest * piece_time);
    return time;
  }
  constexpr phase ring(const algorithm_choice& choice, bool reduces) const {
    return {p_ * (p_ - 1) * pieces(chunk_, choice.segment), p_ * (p_ - 1) * chunk_,
            pipelined_ring(p_ - 1, choice, reduces)};
  }
  /// Neighbour exchange: chunks exchanged with both neighbours alternately, two chunks in each
  /// round after the first.
  constexpr phase neighbours() const {
    const std::uint64_t rounds = p_ / 2;
    if (is_one_host() || per_host_ % 2 != 0) {
      return {p_ * rounds, (p_ - 1) * n_,
              shift_hop(chunk_, 1) + (rounds - 1) * shift_hop(2 * chunk_, 1)};
    }
    // In every other round, two ranks of each host have a partner on another host; short messages
    // do not wait for each other.
    const std::uint64_t far = rounds / 2;
    const picoseconds out = hop(2 * chunk_, 2 * chunk_ > eager_limit ? 2 : 1);
    return {p_ * rounds, (p_ - 1) * n_,
            hop(chunk_, 0) + (rounds - 1 - far) * hop(2 * chunk_, 0) + far * out};
  }
  /// Messages that a receiver finds together in shared memory, without matching each of them.
  constexpr phase batch(phase messages) const {
    if (has_windows()) messages.batched = messages.messages;
    return messages;
  }
  /// The exchange of window descriptors between all ranks.
  constexpr phase descriptor_exchange() const { return batch(mesh(descriptor_bytes)); }
  /// The exchange of window descriptors for each piece.
  constexpr phase descriptor_exchange(const algorithm_choice& choice) const {
    const std::uint64_t s = pieces(chunk_, choice.segment);
    const phase once = descriptor_exchange();
    return batch({s * once.messages, s * once.bytes, s * once.critical_path});
  }
  /// Messages of `bytes` bytes between all ranks, or between one rank and all others, in one round.
  /// In shared memory each is a cache line that its reader polls; two ranks write to each other at
  /// the same time.
  constexpr phase batch(phase messages, std::uint64_t bytes) const {
    if (has_windows()) {
      messages.critical_path = net_.near.latency + (p_ - 1) * gap(bytes);
    } else if (ranks_ == 2) {
      messages.critical_path = hop(bytes, is_one_host() ? 0 : 1);
    }
    return batch(messages);
  }
  /// All ranks of a thread wait for the last arriver, which reduces and copies `bytes` bytes.
  constexpr phase last_arriver(std::uint64_t bytes) const {
    return {0, 0, p_ * net_.near.latency, bytes, bytes};
  }
  /// Each of `ranks` ranks accesses `bytes` bytes in windows and sends `control` messages when
  /// done.
  constexpr phase window_access(phase control, std::uint64_t bytes, std::uint64_t ranks) const {
    control.critical_path += duration(bytes, net_.window_per_kib);
    control.window_bytes += ranks * bytes;
    return batch(control);
  }
  /// All ranks access `bytes` bytes in windows; they begin when the last rank has arrived.
  constexpr phase window_access_by_all(std::uint64_t bytes) const {
    phase all = window_access(mesh(0), bytes, p_);
    all.time_slices = 1;
    return all;
  }
  /// Chunks to or from all other ranks by messages, in segments.
  constexpr phase chunk_mesh(const algorithm_choice& choice) const {
    phase sum = mesh(chunk_);
    sum.messages *= pieces(chunk_, choice.segment);
    return sum;
  }
  /// Dissemination: rounds of messages to up to k-1 peers. `blocks(step)` is the number of blocks
  /// of a message.
  template <class Blocks>
  constexpr phase dissemination_rounds(int radix, const Blocks& blocks) const {
    const pattern::dissemination circle{0, ranks_, radix};
    phase sum;
    for (int step = 1; step < ranks_; step = circle.next_step(step)) {
      const std::uint64_t peers = number(circle.peers(step));
      const std::uint64_t bytes = blocks(step) * chunk_;
      sum.messages += p_ * peers;
      // All ranks send the RTS of long messages at once, and all answer the same peer first.
      const std::uint64_t waits = bytes > eager_limit ? 2 * (peers - 1) : peers - 1;
      const int middle = step * (1 + circle.peers(step)) / 2;
      const picoseconds message_time = max(gap(bytes), transfer(bytes, crossing(middle)));
      const auto stays = [&](int s) { return s < ranks_ && s * circle.peers(s) < per_host_; };
      const bool crosses = !stays(step) || !stays(circle.next_step(step));
      sum.critical_path += shift_hop(bytes, step, crosses) + waits * message_time;
    }
    return sum;
  }

  network_cost net_;
  std::uint64_t n_;
  int ranks_;
  int per_host_;
  std::uint64_t p_;
  std::uint64_t chunk_;
};

}  // namespace detail

}  // namespace colls
