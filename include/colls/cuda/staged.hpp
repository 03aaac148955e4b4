// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// staged: the class `staged`. `attach<staged>` creates a communicator for buffers in device memory
// that sends its messages through an existing transport for host memory. A collective divides its
// data into pieces. For each piece, it copies the input from the device to pinned host memory,
// communicates, and copies the result from pinned memory to the device. Different pieces can be in
// different steps at the same time.

#include <colls/algorithm/table.hpp>
#include <colls/call/call_body.hpp>
#include <colls/call/call_request.hpp>
#include <colls/call/point_to_point.hpp>
#include <colls/channel/layered_transport.hpp>
#include <colls/cuda/attach.hpp>
#include <colls/cuda/stream.hpp>

#include <memory>
#include <optional>

namespace colls::cuda {

/// The settings of calls that divide their data into pieces. These are the staged collectives of
/// `staged` and `cuda_ipc`, and the ring of `cuda_ipc` (ipc_ring.hpp). The settings must be equal
/// on all ranks.
struct staging {
  std::size_t segment = 1 << 20;  // the size of a piece in bytes
  int slots = 4;                  // the number of pieces in flight at a time

  void check() const {
    if (segment == 0 || slots < 1) {
      throw error(errc::invalid_argument, "a staging has a segment and at least one slot");
    }
  }
  std::uint64_t shape() const { return mix(segment, static_cast<std::uint64_t>(slots)); }
};

/// The streams and the pinned memory that one rank uses to copy data from and to its device.
class staging_area {
 public:
  staging_area(int device, const staging& stage_opts)
      : pool_(device), streams_(device), opts_(stage_opts) {}

  int device() const { return streams_.device(); }
  stream_pool& streams() { return streams_; }
  pinned_pool& pool() { return pool_; }
  int slots() const { return opts_.slots; }
  /// Fills device memory with zeros. Blocks until the memory is filled.
  void clear(std::byte* memory, std::size_t size) {
    const on_device guard(device());
    const stream_pool::lease stream(streams_);
    stream->clear(memory, size);
    check(api::synchronize(stream->ref()), "cudaStreamSynchronize");
  }
  int pieces(std::size_t bytes) const {
    const std::size_t count = bytes == 0 ? 1 : (bytes - 1) / opts_.segment + 1;
    return count < INT_MAX ? static_cast<int>(count) : INT_MAX;
  }

 private:
  // `streams_` is declared after `pool_` and is therefore destroyed first. The destructors of the
  // streams wait for work that may still use memory of the pool.
  pinned_pool pool_;
  stream_pool streams_;
  staging opts_;
};

/// The two streams of one call. The stream `down` copies from the device to pinned memory, and the
/// stream `up` copies from pinned memory to the device. Both streams wait for the work that is on
/// the caller's stream when this object is constructed.
class staged_call {
 public:
  staged_call(staging_area& area, stream_ref caller)
      : pool_(area.pool()), down_(area.streams()), up_(area.streams()) {
    down_->follow(caller);
    up_->follow(caller);
  }

  pinned_pool& pool() const { return pool_; }
  stream& down() const { return *down_; }
  stream& up() const { return *up_; }

 private:
  pinned_pool& pool_;
  stream_pool::lease down_;
  stream_pool::lease up_;
};

/// A transport for communicators whose buffers are in device memory. The template parameter `Host`
/// is the transport of host memory that carries all messages.
template <transport Host>
class staged_transport : public layered_transport<Host> {
 public:
  using next_layer_type = Host;

  staged_transport(std::shared_ptr<Host> host, int device, const staging& stage_opts)
      : layered_transport<Host>(std::move(host)),
        stage_(std::make_unique<staging_area>(device, stage_opts)) {}

  staging_area& stage() const { return *stage_; }
  int device() const { return stage_->device(); }
  /// Allocates device memory that is filled with zeros.
  std::shared_ptr<std::byte> allocate(std::size_t size) {
    const on_device guard(device());
    const auto buffer = std::make_shared<device_buffer<std::byte>>(size);
    stage_->clear(buffer->data(), size);
    return {buffer, buffer->data()};
  }
  const char* usage_error(const any_buffer& data) const {
    return cuda::usage_error(data, device());
  }
  const char* usage_error(stream_ref stream) const { return cuda::usage_error(stream, device()); }

 private:
  std::unique_ptr<staging_area> stage_;
};

}  // namespace colls::cuda

namespace colls {

template <class Host>
struct transport_memory<cuda::staged_transport<Host>> {
  using type = device_memory;
};

namespace detail {

/// The algorithm table of a staged transport. It is equal to the algorithm table of the transport
/// `Host`, because the algorithms work on pinned host memory.
template <class Host>
struct algorithm_table<basic_channel<cuda::staged_transport<Host>>>
    : algorithm_table<basic_channel<Host>> {};

/// The implementations of the collectives. A call copies its input from the device to pinned
/// memory, runs the implementation for the transport `Host` on pinned memory, and copies the result
/// from pinned memory to the device.
template <class Host>
struct call_body<basic_channel<cuda::staged_transport<Host>>> {
  using channel = basic_channel<cuda::staged_transport<Host>>;
  using host_channel = basic_channel<Host>;
  using host_body = call_body<host_channel>;
  using block = cuda::pinned_pool::block;
  template <class Function>
  using function_pointer = Function*;
  using offsets = std::vector<std::size_t>;

  static task<> reduce_to_all(
      channel net, function_pointer<task<>(host_channel, any_buffer, any_buffer, any_op)> algorithm,
      any_buffer in, any_buffer out, const reduction& op, int ranks) {
    const auto run_on_host = [algorithm, op, ranks](host_channel lane, any_buffer part) {
      return host_body::reduce_to_all(lane, algorithm, part, part, op, ranks);
    };
    return elementwise(net, in, ranks > 0 ? out : nothing(), in.size(), run_on_host);
  }

  static task<> reduce(
      channel net,
      function_pointer<task<>(host_channel, any_buffer, any_buffer, int, any_op)> algorithm,
      any_buffer in, any_buffer out, int root, const reduction& op) {
    const auto run_on_host = [algorithm, root, op](host_channel lane, any_buffer part) {
      return host_body::reduce(lane, algorithm, part, lane.rank() == root ? part : nothing(), root,
                               op);
    };
    return elementwise(net, in, net.rank() == root ? out : nothing(), in.size(), run_on_host);
  }

  static task<> broadcast(channel net,
                          function_pointer<task<>(host_channel, any_buffer, int)> algorithm,
                          any_buffer data, int root) {
    const auto run_on_host = [algorithm, root](host_channel lane, any_buffer part) {
      return host_body::broadcast(lane, algorithm, part, root);
    };
    const bool sends = net.rank() == root;
    return elementwise(net, sends ? data : nothing(), sends ? nothing() : data, data.size(),
                       run_on_host, data.element_size());
  }

  /// Performs an all_reduce of each buffer of `group`. If `packed` is true, copies all buffers into
  /// one block and performs a single all_reduce of this block, to save latency. Otherwise, reduces
  /// one buffer after the other.
  static task<> all_reduce_group(
      channel net, function_pointer<task<>(host_channel, any_buffer, any_buffer, any_op)> algorithm,
      std::vector<any_buffer> group, reduction op, bool packed) {
    if (!packed) {
      // Each reduction waits for the stream `net.record().stream`. If this were the caller's
      // stream, later reductions would also wait for work that the caller enqueues during the first
      // reduction. Therefore the stream `preceding` replaces the caller's stream. It waits only for
      // the work that is on the caller's stream now.
      const cuda::stream_pool::lease preceding(net.net().stage().streams());
      preceding->follow(net.record().stream);
      net.record().stream = preceding->ref();
      for (const any_buffer& part : group) {
        co_await reduce_to_all(net, algorithm, part, part, op, net.size());
      }
      co_return;
    }
    std::size_t total = 0;
    for (const any_buffer& part : group) total += part.size();
    const std::size_t element = op.storage_size;
    const auto piece = [&](host_channel lane, int, const cuda::staged_call& call) -> task<> {
      const block slot(call.pool(), total * element);
      const any_buffer all(slot.data(), total, element);
      cuda::copy_batch down(call.down());
      cuda::copy_batch up(call.up());
      std::size_t offset = 0;
      for (const any_buffer& part : group) {
        down.copy(all.subspan(offset, 0).data(), part.data(), bytes(part).size);
        offset += part.size();
      }
      co_await down.reached();
      co_await host_body::reduce_to_all(lane, algorithm, all, all, op, lane.size());
      offset = 0;
      for (const any_buffer& part : group) {
        up.copy(part.data(), all.subspan(offset, 0).data(), bytes(part).size);
        offset += part.size();
      }
      co_await up.reached();
    };
    co_await pipelined(net, 1, piece);
  }

  static task<> reduce_scatter(
      channel net,
      function_pointer<task<>(host_channel, any_buffer, any_buffer, partition, any_op)> algorithm,
      any_buffer in, any_buffer out, offsets table, reduction op) {
    const partition parts = partition_of(table, out.size(), net.size());
    const int pieces = net.net().stage().pieces(bytes(in).size);
    const auto piece = [&](host_channel lane, int k, const cuda::staged_call& call) -> task<> {
      const partition cut = parts.segment(k, pieces);
      offsets packed = pack(cut);
      const std::size_t own_count = cut.count(lane.rank());
      const block slot(call.pool(), packed.back() * in.element_size());
      const block own(call.pool(), own_count * in.element_size());
      const any_buffer all(slot.data(), packed.back(), in.element_size());
      const any_buffer result(own.data(), own_count, in.element_size());
      cuda::copy_batch down(call.down());
      cuda::copy_batch up(call.up());
      copy_chunks(down, all, packed, in, cut, true);
      co_await down.reached();
      co_await host_body::reduce_scatter(lane, algorithm, all, result, std::move(packed), op);
      const std::size_t offset = cut.offset(lane.rank()) - parts.offset(lane.rank());
      up.copy(out.subspan(offset, own_count).data(), result.data(), bytes(result).size);
      co_await up.reached();
    };
    co_await pipelined(net, pieces, piece);
  }

  static task<> all_gather(
      channel net,
      function_pointer<task<>(host_channel, any_buffer, any_buffer, partition)> algorithm,
      any_buffer in, any_buffer out, offsets table) {
    const partition parts = partition_of(table, in.size(), net.size());
    const int pieces = net.net().stage().pieces(bytes(out).size);
    const auto piece = [&](host_channel lane, int k, const cuda::staged_call& call) -> task<> {
      const partition cut = parts.segment(k, pieces);
      offsets packed = pack(cut);
      const offsets starts = packed;
      const block slot(call.pool(), packed.back() * in.element_size());
      const any_buffer all(slot.data(), packed.back(), in.element_size());
      const auto rank = static_cast<std::size_t>(lane.rank());
      const any_buffer own = all.subspan(packed[rank], cut.count(lane.rank()));
      const std::size_t offset = cut.offset(lane.rank()) - parts.offset(lane.rank());
      cuda::copy_batch down(call.down());
      cuda::copy_batch up(call.up());
      down.copy(own.data(), in.subspan(offset, own.size()).data(), bytes(own).size);
      co_await down.reached();
      co_await host_body::all_gather(lane, algorithm, own, all, std::move(packed));
      copy_chunks(up, all, starts, out, cut, false);
      co_await up.reached();
    };
    co_await pipelined(net, pieces, piece);
  }

  /// Performs a gather or a scatter, depending on `net.record().operation`. `first` is the input
  /// buffer, and `second` is the output buffer. `share` is the number of elements that this rank
  /// contributes to a gather or receives from a scatter.
  static task<> gather_or_scatter(
      channel net,
      function_pointer<task<>(host_channel, any_buffer, any_buffer, partition, int)> algorithm,
      any_buffer first, any_buffer second, std::size_t share, offsets table, int root) {
    const partition parts = partition_of(table, share, net.size());
    const bool gathers = net.record().operation == collective::gather;
    const any_buffer own_data = gathers ? first : second;
    const any_buffer root_data = gathers ? second : first;
    const int pieces = net.net().stage().pieces(parts.total() * own_data.element_size());
    const auto piece = [&](host_channel lane, int k, const cuda::staged_call& call) -> task<> {
      const bool is_root = lane.rank() == root;
      const partition cut = parts.segment(k, pieces);
      offsets packed = pack(cut);
      const offsets starts = packed;
      const std::size_t element = own_data.element_size();
      const std::size_t total = is_root ? packed.back() : 0;
      const block slot(call.pool(), total * element);
      const block own(call.pool(), cut.count(lane.rank()) * element);
      const any_buffer all(slot.data(), total, element);
      const any_buffer part(own.data(), cut.count(lane.rank()), element);
      const std::size_t offset = cut.offset(lane.rank()) - parts.offset(lane.rank());
      const any_buffer own_part = own_data.subspan(offset, part.size());
      cuda::copy_batch down(call.down());
      cuda::copy_batch up(call.up());
      if (gathers) {
        down.copy(part.data(), own_part.data(), bytes(part).size);
      } else if (is_root) {
        copy_chunks(down, all, starts, root_data, cut, true);
      }
      co_await down.reached();
      co_await host_body::gather_or_scatter(lane, algorithm, gathers ? part : all,
                                            gathers ? all : part, part.size(), std::move(packed),
                                            root);
      if (!gathers) {
        up.copy(own_part.data(), part.data(), bytes(part).size);
      } else if (is_root) {
        copy_chunks(up, all, starts, root_data, cut, false);
      }
      co_await up.reached();
    };
    co_await pipelined(net, pieces, piece);
  }

  /// Performs an all_to_all. If `sends` or `receives` is not empty, the ranks may have different
  /// amounts of data and would compute different numbers of pieces. In this case, sends all data as
  /// one piece.
  static task<> all_to_all(
      channel net,
      function_pointer<task<>(host_channel, any_buffer, partition, any_buffer, partition)>
          algorithm,
      any_buffer in, any_buffer out, offsets sends, offsets receives) {
    const auto ranks = static_cast<std::size_t>(net.size());
    const partition send_parts = partition_of(sends, in.size() / ranks, net.size());
    const partition recv_parts = partition_of(receives, out.size() / ranks, net.size());
    const bool equal_blocks = sends.empty() && receives.empty();
    const int pieces = equal_blocks ? net.net().stage().pieces(bytes(in).size) : 1;
    const auto piece = [&](host_channel lane, int k, const cuda::staged_call& call) -> task<> {
      const partition cut_in = send_parts.segment(k, pieces);
      const partition cut_out = recv_parts.segment(k, pieces);
      offsets packed_in = pack(cut_in);
      offsets packed_out = pack(cut_out);
      const offsets starts = packed_out;
      const block slot_in(call.pool(), packed_in.back() * in.element_size());
      const block slot_out(call.pool(), packed_out.back() * in.element_size());
      const any_buffer all_in(slot_in.data(), packed_in.back(), in.element_size());
      const any_buffer all_out(slot_out.data(), packed_out.back(), in.element_size());
      cuda::copy_batch down(call.down());
      cuda::copy_batch up(call.up());
      copy_chunks(down, all_in, packed_in, in, cut_in, true);
      co_await down.reached();
      co_await host_body::all_to_all(lane, algorithm, all_in, all_out, std::move(packed_in),
                                     std::move(packed_out));
      copy_chunks(up, all_out, starts, out, cut_out, false);
      co_await up.reached();
    };
    co_await pipelined(net, pieces, piece);
  }

 private:
  static any_buffer nothing() { return {}; }
  /// Returns the offsets of the chunks of the partition `cut` in a buffer that holds these chunks
  /// without gaps. The last entry of the result is the total size of the chunks.
  static offsets pack(const partition& cut) {
    offsets packed{0};
    for (int i = 0; i < cut.ranks(); ++i) packed.push_back(packed.back() + cut.count(i));
    return packed;
  }
  static void copy_chunks(cuda::copy_batch& batch, const any_buffer& packed, const offsets& starts,
                          const any_buffer& data, const partition& cut, bool down) {
    for (int i = 0; i < cut.ranks(); ++i) {
      const any_buffer chunk = data.subspan(cut.offset(i), cut.count(i));
      const any_buffer packed_chunk =
          packed.subspan(starts[static_cast<std::size_t>(i)], cut.count(i));
      batch.copy(down ? packed_chunk.data() : chunk.data(),
                 down ? chunk.data() : packed_chunk.data(), bytes(packed_chunk).size);
    }
  }

  /// Divides `count` elements into pieces. Copies each piece from `in` to pinned memory, calls
  /// `run_on_host(lane, piece)`, and copies the piece from pinned memory to `out`. If `in` is
  /// empty, omits the first copy. If `out` is empty, omits the second copy. `element` is the size
  /// of an element in bytes. If `element` is 0, uses the element size of `in`.
  template <class RunOnHost>
  static task<> elementwise(channel net, any_buffer in, any_buffer out, std::size_t count,
                            RunOnHost run_on_host, std::size_t element = 0) {
    if (element == 0) element = in.element_size();
    const int pieces = net.net().stage().pieces(count * element);
    const partition parts(count, pieces);
    const auto piece = [&](host_channel lane, int k, const cuda::staged_call& call) -> task<> {
      const block slot(call.pool(), parts.count(k) * element);
      const any_buffer part(slot.data(), parts.count(k), element);
      cuda::copy_batch down(call.down());
      cuda::copy_batch up(call.up());
      if (in.size() != 0) {
        down.copy(part.data(), in.subspan(parts.offset(k), 0).data(), bytes(part).size);
        co_await down.reached();
      }
      co_await run_on_host(lane, part);
      if (out.size() != 0) {
        up.copy(out.subspan(parts.offset(k), 0).data(), part.data(), bytes(part).size);
        co_await up.reached();
      }
    };
    co_await pipelined(net, pieces, piece);
  }

  /// Runs the tasks `piece(lane, k, call)` for k = 0, ..., pieces - 1. At most `staging::slots` of
  /// these tasks run at the same time. `pieces` and `staging::slots` must be equal on all ranks.
  template <class Piece>
  static task<> pipelined(channel net, int pieces, const Piece& piece) {
    const host_channel host = net;
    std::optional<cuda::staged_call> call;
    try {
      call.emplace(net.net().stage(), net.record().stream);
    } catch (const error& thrown) {
      host.revoke(thrown.record());
      throw;
    }
    const int slots = net.net().stage().slots();
    const int width = pieces < slots ? pieces : slots;
    const auto run_slot = [&](int slot) {
      const host_channel lane = host.lane(slot * host.lanes());
      return run_every(lane, slot, width, pieces, piece, *call);
    };
    co_await each_of(0, width, run_slot);
  }
  template <class Piece>
  static task<> run_every(host_channel lane, int first, int step, int end, const Piece& piece,
                          const cuda::staged_call& call) {
    try {
      for (int k = first; k < end; k += step) co_await piece(lane, k, call);
    } catch (const error& thrown) {
      // Other pieces of this operation may be running, on this rank and on others. `revoke` fails
      // the whole operation, so that these pieces fail too and do not wait for this piece.
      lane.revoke(thrown.record());
      throw;
    }
  }
};

/// The implementations of point-to-point calls. `send` copies the whole message from the device to
/// pinned memory and then sends it. `recv` receives the whole message in pinned memory and then
/// copies it to the device.
template <class Host>
struct point_to_point_body<cuda::staged_transport<Host>> {
  using staged = cuda::staged_transport<Host>;
  using host_body = point_to_point_body<Host>;
  using block = cuda::pinned_pool::block;

  static task<> send(staged& net, call_base& call, message_key key, const_bytes data) {
    const block copy(net.stage().pool(), data.size);
    cuda::event preceding(net.device());
    preceding.record(call.stream);
    call.can_withdraw = [](const call_base&) { return true; };
    co_await copy_after(net, preceding, copy.data(), data.data, data.size);
    co_await host_body::send(net.next_layer(), call, key, {copy.data(), data.size});
  }

  static task<received> recv(staged& net, call_base& call, message_key key, mutable_bytes buffer,
                             std::size_t element) {
    const block copy(net.stage().pool(), buffer.size);
    cuda::event preceding(net.device());
    preceding.record(call.stream);
    const received result =
        co_await host_body::recv(net.next_layer(), call, key, {copy.data(), buffer.size}, element);
    call.can_withdraw = nullptr;
    co_await copy_after(net, preceding, buffer.data, copy.data(), result.count * element);
    co_return result;
  }

  static task<received> send_recv(staged& net, call_base& call, message_key dest, const_bytes data,
                                  message_key source, mutable_bytes buffer, std::size_t element) {
    const block outgoing(net.stage().pool(), data.size);
    const block incoming(net.stage().pool(), buffer.size);
    cuda::event preceding(net.device());
    preceding.record(call.stream);
    call.can_withdraw = [](const call_base&) { return true; };
    co_await copy_after(net, preceding, outgoing.data(), data.data, data.size);
    const received result =
        co_await host_body::send_recv(net.next_layer(), call, dest, {outgoing.data(), data.size},
                                      source, {incoming.data(), buffer.size}, element);
    call.can_withdraw = nullptr;
    co_await copy_after(net, preceding, buffer.data, incoming.data(), result.count * element);
    co_return result;
  }

 private:
  /// Copies `size` bytes from `source` to `dest`. The copy waits for the event `preceding`, which
  /// marks the end of the caller's earlier work. The task completes when the copy is done.
  static task<> copy_after(staged& net, const cuda::event& preceding, std::byte* dest,
                           const std::byte* source, std::size_t size) {
    const cuda::stream_pool::lease stream(net.stage().streams());
    stream->follow(preceding);
    cuda::copy_batch batch(*stream);
    batch.copy(dest, source, size);
    co_await batch.reached();
  }
};

}  // namespace detail

}  // namespace colls

namespace colls::cuda {

/// A template argument of `attach` for communication of device memory over any transport for host
/// memory. Calls copy the data through pinned memory, and the CPU performs reductions. In most
/// calls, pinned memory holds at most `slots` pieces of `segment` bytes each at a time (see
/// `staging`). The size of each block of pinned memory is rounded up to a power of two.
struct staged {
  using settings = staging;

  template <class Transport>
  static auto attach(communicator<Transport>& comm, int device, const staging& stage_opts,
                     options opts) {
    stage_opts.check();
    const auto make = [&](std::shared_ptr<Transport> host) {
      return std::make_shared<staged_transport<Transport>>(std::move(host), device, stage_opts);
    };
    return comm.attach(stage_opts.shape(), make, opts);
  }
};

}  // namespace colls::cuda
