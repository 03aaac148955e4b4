// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// loggp: uses the LogGP model to predict the cost of the phases of collectives. A phase is a
// communication pattern such as a full exchange, a ring, a hypercube or a circulant graph.

#include <colls/base/algorithm_choice.hpp>
#include <colls/base/algorithm_names.hpp>
#include <colls/base/network_cost.hpp>
#include <colls/base/pattern.hpp>

namespace colls {

/// The costs of the phases of a collective on the network `net`. The collective has `ranks` ranks,
/// `per_host` of them on each host, and a vector of `bytes` bytes. A chunk is the part of the
/// vector that belongs to one rank. The model assumes that all chunks are equally long. A window is
/// a buffer that the other ranks of the host access directly. A hop is the time from the start of
/// sending a message to the end of receiving it. A gap is the time from the start of sending one
/// message to the earliest start of sending the next one. In the names below, `near` stands for
/// links between ranks of one host, and `far` stands for links between hosts.
class loggp {
 public:
  constexpr loggp(const network_cost& net, std::uint64_t bytes, int ranks, int per_host)
      : net_(net),
        n_(bytes < max_bytes ? bytes : max_bytes),
        ranks_(ranks),
        per_host_(per_host),
        p_(number(ranks)),
        chunk_((n_ + p_ - 1) / p_) {}

  /// The greatest vector length of the model. Longer vectors are treated as vectors of this length,
  /// so that no computation overflows.
  static constexpr std::uint64_t max_bytes = std::uint64_t{1} << 42;
  /// The size of a window descriptor, the message with which a rank exposes a window to a peer.
  static constexpr std::uint64_t descriptor_bytes = 3 * 8;

  constexpr const network_cost& net() const { return net_; }
  /// Returns the length of the vector, at most `max_bytes`.
  constexpr std::uint64_t bytes() const { return n_; }
  constexpr std::uint64_t chunk_bytes() const { return chunk_; }
  constexpr int ranks() const { return ranks_; }
  constexpr int per_host() const { return per_host_; }

  /// The cost of one phase of a collective.
  struct phase {
    std::uint64_t messages = 0;
    std::uint64_t bytes = 0;
    picoseconds critical_path = 0;   // the time of the longest chain of messages
    std::uint64_t path_bytes = 0;    // bytes that are reduced or copied on the critical path
    std::uint64_t copied = 0;        // bytes that all ranks copy or reduce outside of receives
    std::uint64_t window_bytes = 0;  // bytes that all ranks access in windows of peers
    std::uint64_t batched = 0;       // messages that a receiver finds together, not one by one
    std::uint64_t time_slices = 0;   // how often a rank waits for a core, not for a message

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

  /// Returns the cost `moved` plus the cost of reducing `bytes` bytes on the critical path.
  constexpr phase reduced(phase moved, std::uint64_t bytes) const {
    moved.path_bytes += bytes;
    return moved;
  }
  /// Returns the cost `moved` plus the cost of copying `bytes` bytes on every rank.
  constexpr phase copied(phase moved, std::uint64_t bytes) const {
    moved.path_bytes += bytes;
    moved.copied += p_ * bytes;
    return moved;
  }

  static constexpr std::uint64_t number(int n) { return static_cast<std::uint64_t>(n); }
  static constexpr picoseconds duration(std::uint64_t bytes, picoseconds per_kib) {
    return (bytes >> 10) * per_kib + (((bytes & 1023) * per_kib) >> 10);
  }
  static constexpr std::uint64_t max(std::uint64_t a, std::uint64_t b) { return a < b ? b : a; }
  static constexpr std::uint64_t pieces(std::uint64_t length, std::uint64_t segment) {
    return segment == 0 || length <= segment ? 1 : (length + segment - 1) / segment;
  }

  /// Returns the cost of a call. `all` is the sum of the costs of the phases of this call.
  constexpr cost finish(const phase& all) const {
    if (net_.one_thread) {
      // All ranks run on one thread, so the total time is the sum of the times of their work. The
      // model adds half of the critical path for suspending and resuming the ranks that wait.
      return {all.messages, all.bytes,
              all.messages * net_.near.overhead + duration(all.bytes, net_.near.per_kib) +
                  duration(all.copied, net_.reduce_per_kib) + all.critical_path / 2};
    }
    return {all.messages, all.bytes,
            all.critical_path + duration(all.path_bytes, net_.reduce_per_kib)};
  }

  // ---- ranks that outnumber the cores of their host

  constexpr bool shares_cores() const { return net_.cores > 0 && ranks_per_host() > net_.cores; }
  /// Returns how long the cores of a host need for the work of all ranks of this host. Each message
  /// causes work for its sender and for its receiver.
  constexpr picoseconds busy_time(const phase& all) const {
    const picoseconds start_work = (all.messages - all.batched * 2 / 3) * net_.near.overhead;
    const picoseconds message_work = 2 * (start_work + duration(all.bytes, net_.near.per_kib));
    const picoseconds local_work =
        duration(all.copied, net_.reduce_per_kib) + duration(all.window_bytes, net_.window_per_kib);
    return (message_work + local_work) / (hosts() * number(net_.cores));
  }
  /// Returns how long a rank waits for its core while each other rank on this core runs for one
  /// time slice.
  constexpr picoseconds slice_wait() const {
    return number(ranks_per_host() - net_.cores) * net_.time_slice / number(net_.cores);
  }
  /// Returns the network parameters for ranks that share cores. The latencies are longer than in
  /// `net_`, because a receiver continues only after each other rank on its core has run for one
  /// time slice. The overheads and the transfer time within a host are 0, because `busy_time`
  /// counts them.
  constexpr network_cost waiting_network() const {
    network_cost net = net_;
    if (has_windows()) net.window_per_kib = 1;  // because 0 would mean that there are no windows
    net.near = {net_.near.latency + slice_wait(), 0, 0};
    net.far.latency += slice_wait();
    net.far.overhead = 0;
    return net;
  }

  // ---- one message

  constexpr bool is_one_host() const { return per_host_ >= ranks_; }
  /// Returns the number of ranks of this communicator on a host.
  constexpr int ranks_per_host() const { return is_one_host() ? ranks_ : per_host_; }
  constexpr std::uint64_t hosts() const { return (p_ + number(per_host_) - 1) / number(per_host_); }
  /// Returns whether ranks can access each other's windows. colls selects an algorithm before it
  /// knows which ranks expose a window. The model therefore assumes that all ranks do.
  constexpr bool has_windows() const { return is_one_host() && net_.window_per_kib > 0; }
  /// Returns the number of ranks of each host that send to another host in one round. In this
  /// round, each rank sends to the rank that is `distance` steps ahead in the circle of ranks.
  constexpr int crossing(int distance) const {
    if (is_one_host()) return 0;
    const int shorter = distance < ranks_ - distance ? distance : ranks_ - distance;
    return shorter < per_host_ ? shorter : per_host_;
  }
  /// Returns the time from the start of sending a message to the end of receiving it. If `crossing`
  /// is 0, the message stays on its host. Otherwise the message goes to another host, and
  /// `crossing` ranks of each host send to other hosts at the same time.
  constexpr picoseconds hop(std::uint64_t bytes, int crossing) const {
    const link_cost& link = crossing == 0 ? net_.near : net_.far;
    return link.latency + 2 * link.overhead + transfer(bytes, crossing);
  }
  constexpr picoseconds transfer(std::uint64_t bytes, int crossing) const {
    if (crossing == 0) return duration(bytes, net_.near.per_kib);
    return max(duration(bytes, net_.far.per_kib),
               duration(bytes * number(crossing), net_.host_per_kib));
  }
  /// Returns the time from the start of sending a message of `bytes` bytes to the earliest time at
  /// which its sender can send another message.
  constexpr picoseconds gap(std::uint64_t bytes) const {
    const link_cost& link = is_one_host() ? net_.near : net_.far;
    return link.overhead + duration(bytes, link.per_kib);
  }
  /// Returns the time of a round in which each rank sends a message to the rank that is `distance`
  /// steps ahead in the circle of ranks.
  constexpr picoseconds shift_hop(std::uint64_t bytes, int distance) const {
    return hop(bytes, crossing(distance));
  }
  /// Returns the same time as the overload above if `waits` is true. If `waits` is false, replaces
  /// the latency and the overheads of a message between hosts with those of a message within a
  /// host, but still counts the transfer time between hosts. Callers pass false for a round in
  /// which no rank waits for another host. For example, if the sum of the distances of several
  /// rounds does not exceed the number of ranks of a host, a rank waits for another host in only
  /// one of these rounds. The caller then passes false for the other rounds.
  constexpr picoseconds shift_hop(std::uint64_t bytes, int distance, bool waits) const {
    if (is_one_host() || waits) return shift_hop(bytes, distance);
    return net_.near.latency + 2 * net_.near.overhead + transfer(bytes, crossing(distance));
  }
  /// Returns the time of a message between two corners of the hypercube whose numbers differ in the
  /// bit `bit`. A corner is a rank that takes part in the exchange. The number of corners is a
  /// power of two. Each rank that is not a corner folds: it sends its data to a corner, which
  /// represents it in the exchange.
  constexpr picoseconds cube_hop(std::uint64_t bytes, int bit) const {
    if (is_one_host()) return hop(bytes, 0);
    // If some ranks fold, the corners with the lowest numbers represent two ranks each. The
    // difference between the ranks of two such corners is twice the difference between their
    // corner numbers. The model doubles the distance for every bit except the highest.
    const bool wide = folded_ranks() > 0 && bit + 1 < cube_rounds();
    const int distance = 1 << (wide ? bit + 1 : bit);
    const bool inside = per_host_ % (std::int64_t{folded_ranks() > 0 ? 4 : 2} << bit) == 0;
    if (inside) return hop(bytes, 0);
    return hop(bytes, wide ? (crossing(distance) + 1) / 2 : crossing(distance));
  }
  /// Returns the time of a message between a rank that folds and the corner that represents it.
  /// These two ranks are one of the pairs (0, 1), (2, 3), ...
  constexpr picoseconds fold(std::uint64_t bytes) const {
    return hop(bytes, is_one_host() || per_host_ % 2 == 0 ? 0 : 1);
  }
  constexpr int cube_rounds() const { return pattern::bit_width(ranks_) - 1; }
  constexpr std::uint64_t folded_ranks() const { return p_ - (std::uint64_t{1} << cube_rounds()); }

  // ---- phases of collectives

  /// Returns the cost of a phase in which each rank sends a message to every other rank. All ranks
  /// send to the same peer first.
  constexpr phase mesh(std::uint64_t bytes) const {
    const std::uint64_t h = number(per_host_);
    // All hosts send to the same host first, so the incoming bandwidth of that host limits the
    // phase.
    const picoseconds out =
        is_one_host() ? 0 : 2 * (p_ - h) * duration(h * (p_ - h) * bytes, net_.host_per_kib) / p_;
    return {p_ * (p_ - 1), p_ * (p_ - 1) * bytes,
            hop(0, is_one_host() ? 0 : 1) + max((2 * p_ - 3) * gap(bytes), out)};
  }
  /// Returns the cost of a phase in which each rank sends a message to every other rank. A rank
  /// sends to only one peer at a time.
  constexpr phase pairwise_rounds(std::uint64_t bytes) const {
    picoseconds time = 0;
    int near_by = 0;  // the number of distances at which some messages stay on their host
    for (int d = 1; !is_one_host() && d < per_host_ && 2 * d < ranks_; ++d, near_by += 2) {
      time += 2 * shift_hop(bytes, d);
    }
    time += (p_ - 1 - number(near_by)) * shift_hop(bytes, per_host_);
    return {p_ * (p_ - 1), p_ * (p_ - 1) * bytes, time};
  }
  /// Returns the cost of a reduce-scatter or an all-gather over the hypercube. The model assumes
  /// that each of the c corners holds 1/c of the vector. A message between corners whose numbers
  /// differ in the bit b contains 2^b/c of the vector. `fold_time` is the time that a corner needs
  /// to reduce the data of the rank that folds into it. In an all-gather it is 0.
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
  /// Returns the cost of a reduce-scatter or an all-gather over the circulant graph of `ranks`
  /// ranks. Only the first `filled` ranks have a chunk. Each chunk is `chunk` bytes long. This
  /// function calls `time(bytes, skip, distance)` once per round. `time` must return the time of a
  /// message of `bytes` bytes to the rank that is `skip` steps ahead in the circle of ranks.
  /// `distance` is the longest distance that a chunk still has to travel when the round begins.
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
    // In some of the rounds with `skip < per_host_`, a rank waits for a message from another host.
    // `waits` is the number of these rounds that remain, or -1 if this number is unknown. The
    // lambda computes an unknown number in the next round with `skip < per_host_`. After a round in
    // which no rank waits, the number is unknown again.
    int waits = -1;
    return circulant_rounds(ranks_, chunk_, ranks_,
                            [&](std::uint64_t bytes, int skip, int distance) {
                              if (skip >= per_host_) return shift_hop(bytes, skip);
                              if (waits < 0) waits = (distance + per_host_ - 1) / per_host_;
                              return shift_hop(bytes, skip, waits-- > 0);
                            });
  }
  /// Returns the time that the segments of a chunk take to move `steps` steps around a ring. A lane
  /// is a concurrent part of the call. The segments move in groups of at most one segment per lane.
  /// Each step of a group takes at least the time of one hop. It also takes at least the time of
  /// one gap per segment of the group.
  constexpr picoseconds pipelined_ring(std::uint64_t steps, const algorithm_choice& choice,
                                       bool reduces) const {
    const std::uint64_t s = pieces(chunk_, choice.segment);
    const std::uint64_t piece = (chunk_ + s - 1) / s;
    const picoseconds local = reduces ? duration(piece, net_.reduce_per_kib) : 0;
    const int crossing_ranks = is_one_host() ? 0 : 1;
    // The sender of a short segment does not wait for the receiver. Therefore only the `hosts()`
    // steps in which the segment moves to another host take the time of a hop between hosts. The
    // sender of a long segment waits for a clear to send (CTS) from the receiver. All ranks
    // therefore wait for the slowest rank, and every step takes as long as a hop between hosts.
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
  /// Returns the cost of a neighbour exchange. In each round, a rank exchanges chunks with one of
  /// its two neighbours, and it alternates between them. The rank sends one chunk in the first
  /// round and two chunks in each later round.
  constexpr phase neighbours() const {
    const std::uint64_t rounds = p_ / 2;
    if (is_one_host() || per_host_ % 2 != 0) {
      return {p_ * rounds, (p_ - 1) * n_,
              shift_hop(chunk_, 1) + (rounds - 1) * shift_hop(2 * chunk_, 1)};
    }
    // In every other round, two ranks of each host exchange chunks with ranks of other hosts. The
    // model assumes that long messages of these two ranks share the bandwidth of the host, and that
    // short messages do not.
    const std::uint64_t far = rounds / 2;
    const picoseconds out = hop(2 * chunk_, 2 * chunk_ > eager_limit ? 2 : 1);
    return {p_ * rounds, (p_ - 1) * n_,
            hop(chunk_, 0) + (rounds - 1 - far) * hop(2 * chunk_, 0) + far * out};
  }
  /// Returns a copy of `messages`, the cost of a phase. If the ranks share memory, a receiver finds
  /// all its messages together and need not match each of them. The copy then counts all messages
  /// of the phase as batched.
  constexpr phase batch(phase messages) const {
    if (has_windows()) messages.batched = messages.messages;
    return messages;
  }
  /// Returns the cost of an exchange of window descriptors between all ranks. A window descriptor
  /// tells a peer how to access a window.
  constexpr phase descriptor_exchange() const { return batch(mesh(descriptor_bytes)); }
  /// Returns the total cost of several exchanges of window descriptors, one for each segment of a
  /// chunk. `choice` contains the size of a segment.
  constexpr phase descriptor_exchange(const algorithm_choice& choice) const {
    const std::uint64_t s = pieces(chunk_, choice.segment);
    const phase once = descriptor_exchange();
    return batch({s * once.messages, s * once.bytes, s * once.critical_path});
  }
  /// Returns a copy of `messages` with a more exact critical path. `messages` is the cost of a
  /// round in which all ranks, or one rank and all others, exchange short messages of `bytes`
  /// bytes. If the ranks share memory, each message is a cache line that its receiver polls, and
  /// the copy counts all messages as batched. Without shared memory, only the critical path of a
  /// round of two ranks changes. The two ranks send to each other at the same time, so the round
  /// takes the time of one message.
  constexpr phase batch(phase messages, std::uint64_t bytes) const {
    if (has_windows()) {
      messages.critical_path = net_.near.latency + (p_ - 1) * gap(bytes);
    } else if (ranks_ == 2) {
      messages.critical_path = hop(bytes, is_one_host() ? 0 : 1);
    }
    return batch(messages);
  }
  /// Returns the cost of a collective whose ranks all run on one thread. The rank that is the last
  /// to call the collective does the work of all ranks: it reduces and copies `bytes` bytes.
  constexpr phase last_arriver(std::uint64_t bytes) const {
    return {0, 0, p_ * net_.near.latency, bytes, bytes};
  }
  /// Returns the cost of a phase in which each of `ranks` ranks accesses `bytes` bytes in windows.
  /// These ranks then tell their peers that the accesses are done. `control` is the cost of the
  /// messages that they send for this purpose.
  constexpr phase window_access(phase control, std::uint64_t bytes, std::uint64_t ranks) const {
    control.critical_path += duration(bytes, net_.window_per_kib);
    control.window_bytes += ranks * bytes;
    return batch(control);
  }
  /// Returns the cost of a phase in which each rank accesses `bytes` bytes in windows. The accesses
  /// begin when all ranks have called the collective.
  constexpr phase window_access_by_all(std::uint64_t bytes) const {
    phase all = window_access(mesh(0), bytes, p_);
    all.time_slices = 1;
    return all;
  }
  /// Returns the cost of a phase in which each rank sends a chunk to each other rank, in one
  /// message per segment of the chunk.
  constexpr phase chunk_mesh(const algorithm_choice& choice) const {
    phase sum = mesh(chunk_);
    sum.messages *= pieces(chunk_, choice.segment);
    return sum;
  }
  /// Returns the cost of a dissemination (see `pattern::dissemination`), in which a rank sends to
  /// at most `radix` - 1 peers per round. Each round has a step, which is a power of `radix`.
  /// `blocks(step)` must return how many chunks each message of this round contains.
  template <class Blocks>
  constexpr phase dissemination_rounds(int radix, const Blocks& blocks) const {
    const pattern::dissemination circle{0, ranks_, radix};
    phase sum;
    for (int step = 1; step < ranks_; step = circle.next_step(step)) {
      const std::uint64_t peers = number(circle.peers(step));
      const std::uint64_t bytes = blocks(step) * chunk_;
      sum.messages += p_ * peers;
      // If the messages are long, each rank first sends an RTS (request to send) to all its peers
      // at once. All ranks answer the requests of their peers in the same order of distance. The
      // model therefore counts the time of two messages for each peer after the first.
      const std::uint64_t waits = bytes > eager_limit ? 2 * (peers - 1) : peers - 1;
      const int middle = step * (1 + circle.peers(step)) / 2;
      const picoseconds message_time = max(gap(bytes), transfer(bytes, crossing(middle)));
      const auto stays = [&](int s) { return s < ranks_ && s * circle.peers(s) < per_host_; };
      const bool crosses = !stays(step) || !stays(circle.next_step(step));
      sum.critical_path += shift_hop(bytes, step, crosses) + waits * message_time;
    }
    return sum;
  }

 protected:
  network_cost net_;
  std::uint64_t n_;
  int ranks_;
  int per_host_;
  std::uint64_t p_;
  std::uint64_t chunk_;
};

}  // namespace colls
