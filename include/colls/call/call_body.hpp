// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// call_body: runs the algorithm of a started collective. Provides the working buffers that the
// algorithm needs, and runs the steps of a reduction that come before the algorithm (prepare) and
// after the algorithm (finish).

#include <colls/algorithm/table.hpp>
#include <colls/base/strided_view.hpp>
#include <colls/call/call_request.hpp>

#include <algorithm>
#include <span>
#include <vector>

namespace colls::detail {

/// The bodies of collective calls that need work before or after the algorithm, or memory that
/// lives as long as the call. A body is a coroutine that awaits the algorithm. It does not depend
/// on the element type. A call that needs nothing of this runs the algorithm itself.
template <channel Channel>
struct call_body {
  template <class Function>
  using function_pointer = Function*;
  using offsets = std::vector<std::size_t>;

  static bool accumulates_in_storage(const reduction& op) { return op.prepare == nullptr; }
  /// Calls `use(first, block)` for all elements of `view`, a few at a time: `block` is memory for
  /// the elements from `first` on.
  template <class Use>
  static void in_blocks(const any_view& view, const Use& use) {
    std::vector<std::byte> memory(std::max<std::size_t>(4096, view.element_size()));
    const std::size_t most = memory.size() / view.element_size();
    for (std::size_t first = 0; first < view.size(); first += most) {
      const std::size_t count = std::min(most, view.size() - first);
      use(first, any_buffer(memory.data(), count, view.element_size()));
    }
  }
  static std::byte* address(const any_buffer& block) {
    return static_cast<std::byte*>(block.data());
  }

  /// Writes the elements of `in` to the working buffer `work`. If the reduction has a prepare step,
  /// this step converts the elements to the accumulate type, in which the algorithm combines them.
  static void widen(const Channel& net, const reduction& op, any_buffer in, std::byte* work) {
    if (net.is_phantom()) return;
    if (op.prepare != nullptr) {
      op.prepare(op.op.state, work, in.data(), in.size());
    } else {
      net.copy({work, in.size() * op.storage_size}, bytes(in));
    }
  }
  /// Does the same for the elements of a strided view.
  static void widen(const Channel& net, const reduction& op, const any_view& in, std::byte* work) {
    if (net.is_phantom()) return;
    if (op.prepare == nullptr) {
      pack(in, 0, in.size(), work);
      return;
    }
    in_blocks(in, [&](std::size_t first, const any_buffer& block) {
      pack(in, first, block.size(), address(block));
      op.prepare(op.op.state, work + first * op.accumulate_size, block.data(), block.size());
    });
  }
  /// Writes the result of a reduction over `ranks` ranks from the working buffer `work` to `out`.
  /// If the reduction has a finish step, this step converts the result back to the user's element
  /// type. `out` and `work` may be the same memory.
  static void narrow(const Channel& net, const reduction& op, any_buffer out, const void* work,
                     int ranks) {
    if (net.is_phantom()) return;
    if (op.finish != nullptr) {
      op.finish(op.op.state, out.data(), work, out.size(), ranks);
    } else {
      net.copy(bytes(out), {static_cast<const std::byte*>(work), bytes(out).size});
    }
  }
  /// Does the same for a strided view.
  static void narrow(const Channel& net, const reduction& op, const any_view& out, const void* work,
                     int ranks) {
    if (net.is_phantom()) return;
    const auto* const elements = static_cast<const std::byte*>(work);
    if (op.finish == nullptr) {
      unpack(out, 0, out.size(), elements);
      return;
    }
    in_blocks(out, [&](std::size_t first, const any_buffer& block) {
      op.finish(op.op.state, block.data(), elements + first * op.accumulate_size, block.size(),
                ranks);
      unpack(out, first, block.size(), address(block));
    });
  }
  static any_buffer wide(const reduction& op, std::byte* work, std::size_t count) {
    return {work, count, op.accumulate_size};
  }

  /// Runs an all_reduce, a scan or an exscan. If the elements must be converted first, or if they
  /// are strided, runs the algorithm on a working buffer of the accumulate type, and converts the
  /// result into `out`. The result combines the data of `ranks` ranks. If `ranks` is 0, `out` does
  /// not change.
  template <class Data>
  static task<> reduce_to_all(
      Channel net, function_pointer<task<>(Channel, any_buffer, any_buffer, any_op)> algorithm,
      Data in, Data out, reduction op, int ranks) {
    if constexpr (std::is_same_v<Data, any_buffer>) {
      if (accumulates_in_storage(op)) {
        co_await algorithm(net, in, out, op.op);
        if (ranks > 0) narrow(net, op, out, out.data(), ranks);
        co_return;
      }
    }
    const auto work = net.scratch_bytes(in.size() * op.accumulate_size);
    widen(net, op, in, work.data());
    const any_buffer all = wide(op, work.data(), in.size());
    co_await algorithm(net, all, all, op.op);
    if (ranks > 0) narrow(net, op, out, work.data(), ranks);
  }

  template <class Data>
  static task<> reduce(
      Channel net, function_pointer<task<>(Channel, any_buffer, any_buffer, int, any_op)> algorithm,
      Data in, Data out, int root, reduction op) {
    if constexpr (std::is_same_v<Data, any_buffer>) {
      if (accumulates_in_storage(op)) {
        co_await algorithm(net, in, out, root, op.op);
        if (net.rank() == root) narrow(net, op, out, out.data(), net.size());
        co_return;
      }
    }
    const auto work = net.scratch_bytes(in.size() * op.accumulate_size);
    widen(net, op, in, work.data());
    const any_buffer all = wide(op, work.data(), in.size());
    co_await algorithm(net, all, net.rank() == root ? all : any_buffer(), root, op.op);
    if (net.rank() == root) narrow(net, op, out, work.data(), net.size());
  }

  template <class Data>
  static task<> reduce_scatter(
      Channel net,
      function_pointer<task<>(Channel, any_buffer, any_buffer, partition, any_op)> algorithm,
      Data in, Data out, offsets table, reduction op) {
    const partition parts = partition_of(table, out.size(), net.size());
    if constexpr (std::is_same_v<Data, any_buffer>) {
      if (accumulates_in_storage(op)) {
        co_await algorithm(net, in, out, parts, op.op);
        narrow(net, op, out, out.data(), net.size());
        co_return;
      }
    }
    const auto work = net.scratch_bytes((in.size() + out.size()) * op.accumulate_size);
    widen(net, op, in, work.data());
    std::byte* const own_block = work.data() + in.size() * op.accumulate_size;
    co_await algorithm(net, wide(op, work.data(), in.size()), wide(op, own_block, out.size()),
                       parts, op.op);
    narrow(net, op, out, own_block, net.size());
  }

  static task<> broadcast(const Channel& net,
                          function_pointer<task<>(Channel, any_buffer, int)> algorithm,
                          const any_buffer& data, int root) {
    return algorithm(net, data, root);
  }

  using all_reduce_function = task<>(Channel, any_buffer, any_buffer, any_op);

  /// Reduces the parts of `group` after copying them into one working buffer.
  template <class Part>
  static task<> all_reduce_packed(Channel net, function_pointer<all_reduce_function> algorithm,
                                  std::span<const Part> group, reduction op) {
    std::size_t total = 0;
    for (const Part& part : group) total += part.size();
    const auto work = net.scratch_bytes(total * op.accumulate_size);
    std::byte* position = work.data();
    for (const Part& part : group) {
      widen(net, op, part, position);
      position += part.size() * op.accumulate_size;
    }
    const any_buffer all = wide(op, work.data(), total);
    co_await algorithm(net, all, all, op.op);
    position = work.data();
    for (const Part& part : group) {
      narrow(net, op, part, position, net.size());
      position += part.size() * op.accumulate_size;
    }
  }

  // Buffers of up to `max_small_bytes` that follow each other in a group are reduced together, up
  // to `max_pack_bytes` at a time.
  static constexpr std::size_t max_small_bytes = 64 * 1024;
  static constexpr std::size_t max_pack_bytes = 1024 * 1024;

  /// Cuts a group into rows that are reduced separately. A row is one part or several small ones.
  /// The result depends only on the sizes of the parts, which are equal on all ranks.
  template <class Part>
  static std::vector<std::span<const Part>> cut_group(std::span<const Part> group) {
    std::vector<std::span<const Part>> rows;
    std::size_t first = 0;
    std::size_t size = 0;
    bool is_full = false;
    for (std::size_t i = 0; i < group.size(); ++i) {
      const std::size_t length = group[i].size() * group[i].element_size();
      const bool is_small = length <= max_small_bytes;
      if (i > first && (is_full || !is_small || size + length > max_pack_bytes)) {
        rows.push_back(group.subspan(first, i - first));
        first = i;
        size = 0;
      }
      size += length;
      is_full = !is_small;
    }
    if (first < group.size()) rows.push_back(group.subspan(first));
    return rows;
  }

  static bool is_contiguous(const any_buffer&) { return true; }
  static bool is_contiguous(const any_view& part) { return part.is_contiguous(); }
  static any_buffer contiguous(const any_buffer& part) { return part; }
  static any_buffer contiguous(const any_view& part) { return part.contiguous(); }

  template <class Part>
  static task<> all_reduce_row(Channel net, function_pointer<all_reduce_function> algorithm,
                               std::span<const Part> row, reduction op) {
    if (row.size() > 1 || !is_contiguous(row[0])) {
      co_await all_reduce_packed(net, algorithm, row, op);
      co_return;
    }
    const any_buffer data = contiguous(row[0]);
    co_await algorithm(net, data, data, op.op);
    narrow(net, op, data, data.data(), net.size());
  }

  /// Runs an all_reduce of several buffers or views as one operation. If `packed` is true, or if
  /// the elements must be converted first, copies the parts into one working buffer and reduces
  /// that buffer. Otherwise reduces large parts in place and rows of small ones packed, several at
  /// a time. A large view is packed alone, so its messages are those of a buffer. What is reduced
  /// at the same time uses different lanes, so that the messages do not match. (A lane is a part of
  /// the key by which messages are matched.) Callers set `packed` if the parts are small.
  template <class Part>
  static task<> all_reduce_group(
      Channel net, function_pointer<task<>(Channel, any_buffer, any_buffer, any_op)> algorithm,
      std::vector<Part> group, reduction op, bool packed) {
    const std::span<const Part> parts(group);
    // A native collective must begin in the same order on all ranks, so a call has one of them.
    if (packed || !accumulates_in_storage(op) || net.record().is_native) {
      co_await all_reduce_packed(net, algorithm, parts, op);
      co_return;
    }
    const auto rows = cut_group(parts);
    const int count = static_cast<int>(rows.size());
    const int max_concurrent = std::min(64, unused_lane / net.lanes());
    const int concurrent = std::min(count, max_concurrent);
    const auto reduce_rows = [&](int first) -> task<> {
      const Channel lane = net.lane(first * net.lanes());
      for (int i = first; i < count; i += concurrent) {
        co_await all_reduce_row(lane, algorithm, rows[static_cast<std::size_t>(i)], op);
      }
    };
    const auto start = [&](int first) { return net.concurrent(reduce_rows(first)); };
    co_await each_of(0, concurrent, start);
  }

  static task<> all_gather(
      Channel net, function_pointer<task<>(Channel, any_buffer, any_buffer, partition)> algorithm,
      any_buffer in, any_buffer out, offsets table) {
    co_await algorithm(net, in, out, partition_of(table, in.size(), net.size()));
  }

  /// Runs a gather or a scatter. `first` is this rank's input and `second` is its output. `table`
  /// contains the offsets of the blocks in the root's buffer. If `table` is empty, each block has
  /// `share` elements.
  static task<> gather_or_scatter(
      Channel net,
      function_pointer<task<>(Channel, any_buffer, any_buffer, partition, int)> algorithm,
      any_buffer first, any_buffer second, std::size_t share, offsets table, int root) {
    co_await algorithm(net, first, second, partition_of(table, share, net.size()), root);
  }

  /// Runs an all_to_all. `in` and `out` may be the same buffer.
  static task<> all_to_all(
      Channel net,
      function_pointer<task<>(Channel, any_buffer, partition, any_buffer, partition)> algorithm,
      any_buffer in, any_buffer out, offsets sends, offsets receives) {
    const int ranks = net.size();
    const auto share = [&](const any_buffer& data) {
      return data.size() / static_cast<std::size_t>(ranks);
    };
    const partition in_parts = partition_of(sends, share(in), ranks);
    const partition out_parts = partition_of(receives, share(out), ranks);
    if (in.data() != out.data() || in.size() == 0) {
      co_await algorithm(net, in, in_parts, out, out_parts);
      co_return;
    }
    const auto copy = net.scratch_like(in, in.size());
    net.copy(copy.all(), bytes(in));
    co_await algorithm(net, any_buffer(copy.data(), in.size(), in.element_size()), in_parts, out,
                       out_parts);
  }
};

}  // namespace colls::detail
