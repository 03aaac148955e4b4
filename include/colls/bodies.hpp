// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What runs under a started collective: working buffers, prepare and finish round an algorithm.

#include <colls/algorithms.hpp>

namespace colls::detail {

/// The coroutines that calls run, over one channel type; nothing here sees an element type.
template <channel Channel>
struct bodies {
  template <class Function>
  using run = Function*;
  using offsets = std::vector<std::size_t>;

  static bool in_storage(const reduction& by) {
    return by.prepare == nullptr && by.accumulate_size == by.storage_size;
  }

  /// Elements in the accumulate type, prepared.
  static void widen(const Channel& net, const reduction& by, any_buffer in, std::byte* work) {
    if (net.is_phantom()) return;
    if (by.prepare != nullptr) {
      by.prepare(by.op.state, work, in.data(), in.size());
    } else {
      net.copy({work, in.size() * by.storage_size}, bytes(in));
    }
  }
  /// Elements as the user has them, finished; what was worked on in place stays.
  static void narrow(const Channel& net, const reduction& by, any_buffer out, const void* work,
                     int ranks) {
    if (net.is_phantom()) return;
    if (by.finish != nullptr) {
      by.finish(by.op.state, out.data(), work, out.size(), ranks);
    } else {
      net.copy(bytes(out), {static_cast<const std::byte*>(work), bytes(out).size});
    }
  }
  static any_buffer wide(const reduction& by, std::byte* work, std::size_t count) {
    return {work, count, by.accumulate_size};
  }

  /// Whether an algorithm may read `in` and write `out` as they are.
  static bool moves_nothing(any_buffer in, any_buffer out, const reduction& by) {
    return in.data() != out.data() && in_storage(by) && by.finish == nullptr;
  }

  /// In place on `out`, after a copy or in a wide working buffer: all_reduce and the scans. Where
  /// nothing is left to do after the algorithm, no coroutine stands round it.
  static task<> in_place(Channel net, run<task<>(Channel, any_buffer, any_op)> algorithm,
                         any_buffer in, any_buffer out, const reduction& by, int ranks) {
    if (!in_storage(by) || by.finish != nullptr) {
      return finished(net, algorithm, in, out, by, ranks);
    }
    net.copy(bytes(out), bytes(in));
    return algorithm(net, out, by.op);
  }
  static task<> finished(Channel net, run<task<>(Channel, any_buffer, any_op)> algorithm,
                         any_buffer in, any_buffer out, reduction by, int ranks) {
    if (in_storage(by)) {
      net.copy(bytes(out), bytes(in));
      co_await algorithm(net, out, by.op);
      narrow(net, by, out, out.data(), ranks);
      co_return;
    }
    const auto work = net.scratch_bytes(in.size() * by.accumulate_size);
    widen(net, by, in, work.data());
    co_await algorithm(net, wide(by, work.data(), in.size()), by.op);
    narrow(net, by, out, work.data(), ranks);
  }

  /// Rank 0 has nothing before it: its `out` stays as it is.
  static task<> exscan(Channel net, run<task<>(Channel, any_buffer, any_op)> algorithm,
                       any_buffer in, any_buffer out, reduction by) {
    const auto work = net.scratch_bytes(in.size() * by.accumulate_size);
    widen(net, by, in, work.data());
    co_await algorithm(net, wide(by, work.data(), in.size()), by.op);
    if (net.rank() > 0) narrow(net, by, out, work.data(), net.rank());
  }

  static task<> reduce(Channel net,
                       run<task<>(Channel, any_buffer, any_buffer, int, any_op)> algorithm,
                       any_buffer in, any_buffer out, int root, reduction by) {
    if (in_storage(by)) {
      co_await algorithm(net, in, out, root, by.op);
      if (net.rank() == root) narrow(net, by, out, out.data(), net.size());
      co_return;
    }
    const auto work = net.scratch_bytes(in.size() * by.accumulate_size);
    widen(net, by, in, work.data());
    const any_buffer all = wide(by, work.data(), in.size());
    co_await algorithm(net, all, net.rank() == root ? all : any_buffer(), root, by.op);
    if (net.rank() == root) narrow(net, by, out, work.data(), net.size());
  }

  static task<> reduce_scatter(
      Channel net, run<task<>(Channel, any_buffer, any_buffer, partition, any_op)> algorithm,
      any_buffer in, any_buffer out, offsets table, reduction by) {
    const partition parts = table.empty() ? partition::blocks(out.size(), net.size())
                                          : partition::from_offsets(table.data(), net.size());
    if (in_storage(by)) {
      co_await algorithm(net, in, out, parts, by.op);
      narrow(net, by, out, out.data(), net.size());
      co_return;
    }
    const auto work = net.scratch_bytes((in.size() + out.size()) * by.accumulate_size);
    widen(net, by, in, work.data());
    std::byte* const mine = work.data() + in.size() * by.accumulate_size;
    co_await algorithm(net, wide(by, work.data(), in.size()), wide(by, mine, out.size()), parts,
                       by.op);
    narrow(net, by, out, mine, net.size());
  }

  static task<> broadcast(Channel net, run<task<>(Channel, any_buffer, int)> algorithm,
                          any_buffer data, int root) {
    return algorithm(net, data, root);
  }

  /// Many buffers, one operation, no copy: each buffer is reduced in lanes of its own. Small ones
  /// are packed, so that their latency is paid once.
  static task<> grouped(Channel net, run<task<>(Channel, any_buffer, any_op)> algorithm,
                        std::vector<any_buffer> group, reduction by, bool packed) {
    if (packed || !in_storage(by)) {
      std::size_t total = 0;
      for (const any_buffer& part : group) total += part.size();
      const auto work = net.scratch_bytes(total * by.accumulate_size);
      std::byte* at = work.data();
      for (const any_buffer& part : group) {
        widen(net, by, part, at);
        at += part.size() * by.accumulate_size;
      }
      co_await algorithm(net, wide(by, work.data(), total), by.op);
      at = work.data();
      for (const any_buffer& part : group) {
        narrow(net, by, part, at, net.size());
        at += part.size() * by.accumulate_size;
      }
      co_return;
    }
    std::vector<task<>> parts;
    for (std::size_t i = 0; i < group.size(); ++i) {
      parts.push_back(algorithm(net.lane(static_cast<int>(i) * net.lanes()), group[i], by.op));
    }
    co_await when_all(std::move(parts));
    for (const any_buffer& part : group) narrow(net, by, part, part.data(), net.size());
  }

  static task<> all_gather(Channel net, run<task<>(Channel, any_buffer, partition)> algorithm,
                           any_buffer in, any_buffer out, offsets table) {
    const partition parts = table.empty() ? partition::blocks(in.size(), net.size())
                                          : partition::from_offsets(table.data(), net.size());
    net.copy(bytes(chunks{out, parts}[net.rank()]), bytes(in));
    co_await algorithm(net, out, parts);
  }

  /// gather and scatter: `mine` is this rank's share, `all` lies on the root.
  static task<> rooted(Channel net,
                       run<task<>(Channel, any_buffer, any_buffer, partition, int)> algorithm,
                       any_buffer first, any_buffer second, std::size_t share, offsets table,
                       int root) {
    const partition parts = table.empty() ? partition::blocks(share, net.size())
                                          : partition::from_offsets(table.data(), net.size());
    co_await algorithm(net, first, second, parts, root);
  }

  static task<> all_to_all(
      Channel net, run<task<>(Channel, any_buffer, partition, any_buffer, partition)> algorithm,
      any_buffer in, any_buffer out, offsets sends, offsets receives) {
    const int ranks = net.size();
    const auto parts = [&](const offsets& table, const any_buffer& data) {
      return table.empty() ? partition::blocks(data.size() / static_cast<std::size_t>(ranks), ranks)
                           : partition::from_offsets(table.data(), ranks);
    };
    const partition from = parts(sends, in);
    const partition to = parts(receives, out);
    if (in.data() != out.data() || in.size() == 0) {
      co_await algorithm(net, in, from, out, to);
      co_return;
    }
    const auto copy = net.scratch_like(in, in.size());
    net.copy(copy.all(), bytes(in));
    co_await algorithm(net, any_buffer(copy.data(), in.size(), in.element_size()), from, out, to);
  }
};

}  // namespace colls::detail
