// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What runs under a started collective: working buffers, prepare and finish round an algorithm.

#include <colls/algorithm/table.hpp>

#include <vector>

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
  static bool moves_nothing(const any_buffer& in, const any_buffer& out, const reduction& by) {
    return in.data() != out.data() && by.is_plain();
  }

  /// In place on `out`, after a copy or in a wide working buffer: all_reduce and the scans. Where
  /// nothing is left to do after the algorithm, no coroutine stands round it.
  [[gnu::always_inline]] static task<> in_place(const Channel& net,
                                                run<task<>(Channel, any_buffer, any_op)> algorithm,
                                                const any_buffer& in, const any_buffer& out,
                                                const reduction& by, int ranks) {
    if (!by.is_plain()) {
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

  /// Rank 0 has nothing before it: its `data` stays as it is.
  static task<> exscan(Channel net, run<task<>(Channel, any_buffer, any_op)> algorithm,
                       any_buffer data, const reduction& by) {
    if (by.is_plain()) return algorithm(net, data, by.op);
    return widened_exscan(net, algorithm, data, by);
  }
  static task<> widened_exscan(Channel net, run<task<>(Channel, any_buffer, any_op)> algorithm,
                               any_buffer data, reduction by) {
    const auto work = net.scratch_bytes(data.size() * by.accumulate_size);
    widen(net, by, data, work.data());
    co_await algorithm(net, wide(by, work.data(), data.size()), by.op);
    if (net.rank() > 0) narrow(net, by, data, work.data(), net.rank());
  }

  /// In storage and without a finish no coroutine stands round the algorithm, here and below.
  static task<> reduce(Channel net,
                       run<task<>(Channel, any_buffer, any_buffer, int, any_op)> algorithm,
                       any_buffer in, any_buffer out, int root, const reduction& by) {
    if (!by.is_plain()) {
      return reduced(net, algorithm, in, out, root, by);
    }
    return algorithm(net, in, out, root, by.op);
  }
  static task<> reduced(Channel net,
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
      any_buffer in, any_buffer out, offsets table, const reduction& by) {
    if (!table.empty() || !by.is_plain()) {
      return reduced_and_scattered(net, algorithm, in, out, std::move(table), by);
    }
    return algorithm(net, in, out, partition::blocks(out.size(), net.size()), by.op);
  }
  static task<> reduced_and_scattered(
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

  static task<> broadcast(const Channel& net, run<task<>(Channel, any_buffer, int)> algorithm,
                          const any_buffer& data, int root) {
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
    const auto reduced = [&](int i) {
      const Channel lane = net.lane(i * net.lanes());
      return net.beside(algorithm(lane, group[static_cast<std::size_t>(i)], by.op));
    };
    co_await each_of(0, static_cast<int>(group.size()), reduced);
    for (const any_buffer& part : group) narrow(net, by, part, part.data(), net.size());
  }

  static partition shares(const offsets& table, any_buffer in, int ranks) {
    return table.empty() ? partition::blocks(in.size(), ranks)
                         : partition::from_offsets(table.data(), ranks);
  }
  static task<> all_gather(Channel net, run<task<>(Channel, any_buffer, partition)> algorithm,
                           any_buffer in, any_buffer out, offsets table) {
    const partition parts = shares(table, in, net.size());
    net.copy(bytes(chunks{out, parts}[net.rank()]), bytes(in));
    co_await algorithm(net, out, parts);
  }
  static task<> all_gather_apart(Channel net,
                                 run<task<>(Channel, any_buffer, any_buffer, partition)> algorithm,
                                 any_buffer in, any_buffer out, offsets table) {
    if (table.empty()) return algorithm(net, in, out, shares(table, in, net.size()));
    return all_gather_v_apart(net, algorithm, in, out, std::move(table));
  }
  static task<> all_gather_v_apart(
      Channel net, run<task<>(Channel, any_buffer, any_buffer, partition)> algorithm, any_buffer in,
      any_buffer out, offsets table) {
    co_await algorithm(net, in, out, shares(table, in, net.size()));
  }

  /// gather and scatter: `mine` is this rank's share, `all` lies on the root.
  static task<> rooted(Channel net,
                       run<task<>(Channel, any_buffer, any_buffer, partition, int)> algorithm,
                       any_buffer first, any_buffer second, std::size_t share, offsets table,
                       int root) {
    if (!table.empty()) return rooted_v(net, algorithm, first, second, std::move(table), root);
    return algorithm(net, first, second, partition::blocks(share, net.size()), root);
  }
  static task<> rooted_v(Channel net,
                         run<task<>(Channel, any_buffer, any_buffer, partition, int)> algorithm,
                         any_buffer first, any_buffer second, offsets table, int root) {
    const partition parts = partition::from_offsets(table.data(), net.size());
    co_await algorithm(net, first, second, parts, root);
  }

  static task<> all_to_all(
      Channel net, run<task<>(Channel, any_buffer, partition, any_buffer, partition)> algorithm,
      any_buffer in, any_buffer out, offsets sends, offsets receives) {
    if (sends.empty() && receives.empty() && in.data() != out.data()) {
      const partition parts =
          partition::blocks(in.size() / static_cast<std::size_t>(net.size()), net.size());
      return algorithm(net, in, parts, out, parts);
    }
    return all_to_all_v(net, algorithm, in, out, std::move(sends), std::move(receives));
  }
  /// With counts, or in place.
  static task<> all_to_all_v(
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
