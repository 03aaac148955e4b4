// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// calibrate: measures the cost of messages by sending test messages, both between ranks on one host
// (near) and between ranks on different hosts (far).

#include <colls/algorithm/dissemination.hpp>
#include <colls/algorithm/recursive_doubling.hpp>
#include <colls/base/network_cost.hpp>
#include <colls/reduction/erased_reduction.hpp>

#include <array>

namespace colls::detail {

/// The times that two ranks measured while they exchanged messages.
struct sample {
  picoseconds empty = 0;    // one empty message each way
  picoseconds burst = 0;    // 1 + `extra_messages` empty messages each way
  picoseconds full = 0;     // one message of `size` bytes each way
  picoseconds pair = 0;     // two messages of `size` bytes each way at the same time
  picoseconds reduced = 0;  // one message of `size` bytes each way, reduced on arrival

  static constexpr int extra_messages = 8;
  static constexpr std::size_t size = 256 * 1024;

  /// Returns `longer` - `shorter`, or 0 if this difference is negative because of noise.
  static picoseconds difference(picoseconds longer, picoseconds shorter) {
    return longer > shorter ? longer - shorter : 0;
  }
  picoseconds per_kib() const { return difference(full, empty) / (size / 1024); }
  /// Returns the additional cost per KiB of a second message that is sent at the same time as the
  /// first. The latencies of the two messages overlap, so this cost contains no latency.
  picoseconds per_kib_of_next() const { return difference(pair, full) / (size / 1024); }
  link_cost link() const {
    const picoseconds overhead = difference(burst, empty) / extra_messages;
    return {difference(empty, 2 * overhead), overhead, per_kib()};
  }
};

/// Measures several series of exchanges, and returns the mean time of an exchange in the fastest
/// series. The first series is a warm-up. Exchanges are not measured one by one, because a rank
/// that begins an exchange later than its peer finds the peer's message waiting and would measure
/// too short a time.
template <channel Channel, class Exchange>
task<picoseconds> best_time(Channel net, Exchange exchange) {
  constexpr int repetitions = 4;
  time_point best = never;
  for (int i = 0; i < 4; ++i) {
    const time_point start = net.net().now();
    for (int k = 0; k < repetitions; ++k) co_await exchange();
    const time_point elapsed = net.net().now() - start;
    if (i > 0 && elapsed < best) best = elapsed;
  }
  co_return static_cast<picoseconds>(best) * 1000 / repetitions;
}

/// Takes part in a barrier of all ranks, then measures exchanges with `peer`, and returns the
/// measured times. If `peer` is -1, measures nothing after the barrier. If `alone` is true,
/// measures all members of `sample` except `sample::pair`. Otherwise, measures only `sample::full`
/// and `sample::pair`. The caller passes false if several ranks of each host exchange messages with
/// another host at the same time.
template <channel Channel>
task<sample> measure_exchanges(Channel net, int peer, bool alone) {
  co_await dissemination::barrier.run(net);
  sample result;
  if (peer < 0) co_return result;
  const scratch memory = net.scratch_bytes(2 * sample::size);
  const mutable_bytes out{memory.data(), sample::size};
  const mutable_bytes in{memory.data() + sample::size, sample::size};
  for (std::size_t i = 0; i < 2 * sample::size; ++i) memory.data()[i] = std::byte{0};
  const any_buffer sum(in.data, in.size / sizeof(float), sizeof(float));
  constexpr plus sum_op;
  const any_op add = erase<float>(sum_op).op;
  const auto messages = [&](int count) {
    return [&, count] {
      const auto send = [&](int) { return net.send(peer, mutable_bytes()); };
      const auto recv = [&](int) { return net.recv(peer, mutable_bytes()); };
      return when_all(each_of(0, count, send), each_of(0, count, recv));
    };
  };
  const auto full = [&] { return when_all(net.send(peer, out), net.recv(peer, in)); };
  const auto reduced = [&] {
    return when_all(net.send(peer, out), net.recv_reduce(peer, sum, sum, add, incoming::left));
  };
  const auto pair = [&] {
    const auto send = [&](int) { return net.send(peer, out); };
    const auto recv = [&](int) { return net.recv(peer, in); };
    return when_all(each_of(0, 2, send), each_of(0, 2, recv));
  };
  result.full = co_await best_time(net, full);
  if (!alone) {
    result.pair = co_await best_time(net, pair);
    co_return result;
  }
  result.empty = co_await best_time(net, messages(1));
  result.burst = co_await best_time(net, messages(1 + sample::extra_messages));
  result.reduced = co_await best_time(net, reduced);
  co_return result;
}

/// Measures the costs of messages and stores them in `costs`. Each cost is the largest that any
/// pair of ranks has measured, and is equal on all ranks. First, pairs of ranks on the same host
/// exchange messages. Then one rank of each host exchanges messages with a rank of another host.
/// Finally, an equal number of ranks of each host exchange messages with ranks of another host at
/// the same time. If the number of hosts is odd, the last host has no partner.
template <channel Channel>
task<> calibrate(Channel net, network_cost& costs) {
  const node_map& map = net.nodes();
  const node_map::position position = map.position_of(net.rank());
  const int near_peer = position.local_rank ^ 1;
  const int far_node = position.node ^ 1;
  const bool has_near = near_peer < map.node_size(position.node);
  const bool has_far = far_node < map.nodes() && position.local_rank < map.min_node_size();
  const int counterpart = has_far ? map.ranks_with_local_rank(position.local_rank)[far_node] : -1;

  const sample near = co_await measure_exchanges(
      net, has_near ? map.node_ranks(position.node)[near_peer] : -1, true);
  const sample far =
      co_await measure_exchanges(net, position.local_rank == 0 ? counterpart : -1, true);
  const sample crowd = co_await measure_exchanges(net, counterpart, false);

  const link_cost near_link = near.link();
  const link_cost far_link = far.link();
  const picoseconds near_reducing = sample::difference(near.reduced, near.full);
  const picoseconds far_reducing = sample::difference(far.reduced, far.full);
  std::array<picoseconds, 8> all{
      near_link.latency,
      near_link.overhead,
      near_link.per_kib,
      far_link.latency,
      far_link.overhead,
      far_link.per_kib,
      crowd.per_kib_of_next() / static_cast<picoseconds>(map.min_node_size()),
      (near_reducing > far_reducing ? near_reducing : far_reducing) / (sample::size / 1024)};
  const any_buffer slowest(all.data(), all.size(), sizeof(picoseconds));
  constexpr maximum max_op;
  const any_op max = erase<picoseconds>(max_op).op;
  co_await recursive_doubling::all_reduce.run(net, slowest, slowest, max);
  costs.near = {all[0], all[1], all[2]};
  costs.far = {all[3], all[4], all[5]};
  costs.host_per_kib = all[6];
  costs.reduce_per_kib = all[7];
  if (costs.near == link_cost{}) costs.near = costs.far;
}

}  // namespace colls::detail
