// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// probe: finds out what messages cost on a network, by sending some.

#include <colls/algorithm/dissemination.hpp>
#include <colls/algorithm/recursive_doubling.hpp>
#include <colls/base/network_cost.hpp>
#include <colls/reduction/erased_reduction.hpp>

#include <array>

namespace colls::detail {

/// What two ranks found who sent each other messages at the same time.
struct sample {
  picoseconds empty = 0;    // one message each way
  picoseconds burst = 0;    // `more` further ones
  picoseconds full = 0;     // one of `size` bytes
  picoseconds pair = 0;     // two of them at once
  picoseconds reduced = 0;  // one, and summed up

  static constexpr int more = 8;
  static constexpr std::size_t size = 256 * 1024;

  static picoseconds beyond(picoseconds all, picoseconds part) {
    return all > part ? all - part : 0;
  }
  picoseconds per_kib() const { return beyond(full, empty) / (size / 1024); }
  /// Where others' messages keep a link busy, a latency passes meanwhile.
  picoseconds per_kib_of_more() const { return beyond(pair, full) / (size / 1024); }
  link_cost link() const {
    const picoseconds overhead = beyond(burst, empty) / more;
    return {beyond(empty, 2 * overhead), overhead, per_kib()};
  }
};

/// How long an exchange takes in a row of some, at best. (Of a row, since of two ranks that do not
/// begin at once the later one finds its message waiting.)
template <channel Channel, class Exchange>
task<picoseconds> time_of(Channel net, Exchange exchange) {
  constexpr int row = 4;
  time_point best = never;
  for (int i = 0; i < 4; ++i) {
    const time_point start = net.net().now();
    for (int k = 0; k < row; ++k) co_await exchange();
    const time_point took = net.net().now() - start;
    if (i > 0 && took < best) best = took;
  }
  co_return static_cast<picoseconds>(best) * 1000 / row;
}

template <channel Channel>
task<sample> exchanges(Channel net, int peer, bool alone) {
  co_await dissemination::barrier(net);
  sample found;
  if (peer < 0) co_return found;
  const scratch memory = net.scratch_bytes(2 * sample::size);
  const mutable_bytes out{memory.data(), sample::size};
  const mutable_bytes in{memory.data() + sample::size, sample::size};
  for (std::size_t i = 0; i < 2 * sample::size; ++i) memory.data()[i] = std::byte{0};
  const any_buffer sum(in.data, in.size / sizeof(float), sizeof(float));
  constexpr plus added;
  const any_op add = erase<float>(added).op;
  const auto messages = [&](int count) {
    return [&, count] {
      const auto give = [&](int) { return net.send(peer, mutable_bytes()); };
      const auto take = [&](int) { return net.recv(peer, mutable_bytes()); };
      return when_all(each_of(0, count, give), each_of(0, count, take));
    };
  };
  const auto full = [&] { return when_all(net.send(peer, out), net.recv(peer, in)); };
  const auto reduced = [&] {
    return when_all(net.send(peer, out), net.recv_reduce(peer, sum, sum, add, incoming::left));
  };
  const auto pair = [&] {
    const auto give = [&](int) { return net.send(peer, out); };
    const auto take = [&](int) { return net.recv(peer, in); };
    return when_all(each_of(0, 2, give), each_of(0, 2, take));
  };
  found.full = co_await time_of(net, full);
  if (!alone) {
    found.pair = co_await time_of(net, pair);
    co_return found;
  }
  found.empty = co_await time_of(net, messages(1));
  found.burst = co_await time_of(net, messages(1 + sample::more));
  found.reduced = co_await time_of(net, reduced);
  co_return found;
}

/// Afterwards `costs` is what the slowest pairs of neighbours found, equal on all ranks: first
/// those of one host, then one rank of each host, then all ranks of each host together.
template <channel Channel>
task<> measure(Channel net, network_cost& costs) {
  const node_map& map = net.nodes();
  const node_map::place at = map.of(net.rank());
  const int near_peer = at.local ^ 1;
  const int far_node = at.node ^ 1;
  const bool has_near = near_peer < map.ranks_of(at.node);
  const bool has_far = far_node < map.nodes() && at.local < map.smallest();
  const int counterpart = has_far ? map.ranks_across(at.local)[far_node] : -1;

  const sample near =
      co_await exchanges(net, has_near ? map.ranks_on(at.node)[near_peer] : -1, true);
  const sample far = co_await exchanges(net, at.local == 0 ? counterpart : -1, true);
  const sample crowd = co_await exchanges(net, counterpart, false);

  const link_cost one = near.link();
  const link_cost other = far.link();
  const picoseconds reducing = sample::beyond(near.reduced, near.full);
  const picoseconds far_reducing = sample::beyond(far.reduced, far.full);
  std::array<picoseconds, 8> all{
      one.latency,
      one.overhead,
      one.per_kib,
      other.latency,
      other.overhead,
      other.per_kib,
      crowd.per_kib_of_more() / static_cast<picoseconds>(map.smallest()),
      (reducing > far_reducing ? reducing : far_reducing) / (sample::size / 1024)};
  const any_buffer slowest(all.data(), all.size(), sizeof(picoseconds));
  constexpr maximum greatest;
  const any_op larger = erase<picoseconds>(greatest).op;
  co_await recursive_doubling::all_reduce(net, slowest, larger);
  costs.near = {all[0], all[1], all[2]};
  costs.far = {all[3], all[4], all[5]};
  costs.host_per_kib = all[6];
  costs.reduce_per_kib = all[7];
  if (costs.near == link_cost{}) costs.near = costs.far;
}

}  // namespace colls::detail
