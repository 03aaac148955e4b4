// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// staged: memory of a device over a transport of the host. Calls go by pieces through pinned
// memory: while one piece travels, the next comes down and the last goes up.

#include <colls/algorithm/table.hpp>
#include <colls/call/call_body.hpp>
#include <colls/call/point_to_point.hpp>
#include <colls/cuda/attach.hpp>
#include <colls/cuda/stream.hpp>

#include <memory>
#include <optional>

namespace colls::cuda {

/// How calls are staged, and sums go round (ring_visit.hpp); equal on all ranks.
struct staging {
  std::size_t segment = 1 << 20;  // bytes of a piece
  int slots = 4;                  // pieces under way at a time

  void check() const {
    if (segment == 0 || slots < 1) {
      throw error(errc::invalid_argument, "a staging has a segment and at least one slot");
    }
  }
  std::uint64_t shape() const { return mix(segment, static_cast<std::uint64_t>(slots)); }
};

/// One rank's streams and pinned memory for its device.
class staging_area {
 public:
  staging_area(int device, const staging& how) : pool_(device), streams_(device), how_(how) {}

  int device() const { return streams_.device(); }
  stream_pool& streams() { return streams_; }
  pinned_pool& pool() { return pool_; }
  int slots() const { return how_.slots; }
  /// Writes zeros, and waits for that.
  void clear(std::byte* memory, std::size_t size) {
    const on_device guard(device());
    const stream_pool::loan by(streams_);
    by->clear(memory, size);
    check(api::synchronize(by->ref()), "cudaStreamSynchronize");
  }
  int pieces(std::size_t bytes) const {
    const std::size_t count = bytes == 0 ? 1 : (bytes - 1) / how_.segment + 1;
    return count < INT_MAX ? static_cast<int>(count) : INT_MAX;
  }

 private:
  // The streams go first, once their work is done.
  pinned_pool pool_;
  stream_pool streams_;
  staging how_;
};

/// What one call has of it: a stream each way, after what the caller's stream has when the call
/// begins.
class staged_call {
 public:
  staged_call(staging_area& of, stream_ref callers)
      : pool_(of.pool()), down_(of.streams()), up_(of.streams()) {
    down_->follow(callers);
    up_->follow(callers);
  }

  pinned_pool& pool() const { return pool_; }
  stream& down() const { return *down_; }
  stream& up() const { return *up_; }

 private:
  pinned_pool& pool_;
  stream_pool::loan down_;
  stream_pool::loan up_;
};

/// A transport of the host, for communicators whose buffers are in a device's memory.
template <transport Host>
class staged_transport {
 public:
  using below_type = Host;

  staged_transport(std::shared_ptr<Host> host, int device, const staging& how)
      : host_(std::move(host)), stage_(std::make_unique<staging_area>(device, how)) {}

  Host& below() const { return *host_; }
  staging_area& stage() const { return *stage_; }
  int device() const { return stage_->device(); }
  /// Zeros in the device's memory.
  std::shared_ptr<std::byte> allocate(std::size_t size) {
    const on_device guard(device());
    const auto made = std::make_shared<device_buffer<std::byte>>(size);
    stage_->clear(made->data(), size);
    return {made, made->data()};
  }
  const char* wrong_with(const any_buffer& data) const { return cuda::wrong_with(data, device()); }
  const char* wrong_with(stream_ref callers) const { return cuda::wrong_with(callers, device()); }

  int rank() const { return host_->rank(); }
  int size() const { return host_->size(); }
  auto send(const message_key& to, const_bytes from, operation_record& record) {
    return host_->send(to, from, record);
  }
  auto recv(const message_key& from, mutable_bytes into, operation_record& record) {
    return host_->recv(from, into, record);
  }
  time_point now() const { return host_->now(); }
  match& matching() { return host_->matching(); }
  run_queue& queue() { return host_->queue(); }
  void kick() { host_->kick(); }
  void hand_over()
    requires waking_transport<Host>
  {
    host_->hand_over();
  }
  auto& driver() { return host_->driver(); }
  int node_of(int rank) const { return host_->node_of(rank); }
  task<> close(time_point deadline) { return host_->close(deadline); }

 private:
  std::shared_ptr<Host> host_;
  std::unique_ptr<staging_area> stage_;
};

}  // namespace colls::cuda

namespace colls {

template <class Host>
struct transport_memory<cuda::staged_transport<Host>> {
  using type = device_memory;
};

namespace detail {

/// Algorithms see pinned memory: those of the host's transport do it.
template <class Host>
struct catalogue<basic_channel<cuda::staged_transport<Host>>> : catalogue<basic_channel<Host>> {};

/// What calls run: the host's bodies, on pinned memory, between a copy down and a copy up.
template <class Host>
struct bodies<basic_channel<cuda::staged_transport<Host>>> {
  using channel = basic_channel<cuda::staged_transport<Host>>;
  using below = basic_channel<Host>;
  using host = bodies<below>;
  using block = cuda::pinned_pool::block;
  template <class Function>
  using run = Function*;
  using offsets = std::vector<std::size_t>;

  /// Algorithms see pinned memory, never the caller's.
  static bool moves_nothing(any_buffer, any_buffer, const reduction&) { return false; }

  static task<> in_place(channel net, run<task<>(below, any_buffer, any_op)> algorithm,
                         any_buffer in, any_buffer out, const reduction& by, int ranks) {
    const auto between = [algorithm, by, ranks](below lane, any_buffer part) {
      return host::in_place(lane, algorithm, part, part, by, ranks);
    };
    return elementwise(net, in, out, in.size(), between);
  }

  static task<> exscan(channel net, run<task<>(below, any_buffer, any_op)> algorithm,
                       any_buffer data, const reduction& by) {
    const auto between = [algorithm, by](below lane, any_buffer part) {
      return host::exscan(lane, algorithm, part, by);
    };
    return elementwise(net, data, net.rank() > 0 ? data : nothing(), data.size(), between);
  }

  static task<> reduce(channel net,
                       run<task<>(below, any_buffer, any_buffer, int, any_op)> algorithm,
                       any_buffer in, any_buffer out, int root, const reduction& by) {
    const auto between = [algorithm, root, by](below lane, any_buffer part) {
      return host::reduce(lane, algorithm, part, lane.rank() == root ? part : nothing(), root, by);
    };
    return elementwise(net, in, net.rank() == root ? out : nothing(), in.size(), between);
  }

  static task<> broadcast(channel net, run<task<>(below, any_buffer, int)> algorithm,
                          any_buffer data, int root) {
    const auto between = [algorithm, root](below lane, any_buffer part) {
      return host::broadcast(lane, algorithm, part, root);
    };
    const bool sends = net.rank() == root;
    return elementwise(net, sends ? data : nothing(), sends ? nothing() : data, data.size(),
                       between, data.element_size());
  }

  /// One buffer after the other; small ones are one piece, so that their latency is paid once.
  static task<> grouped(channel net, run<task<>(below, any_buffer, any_op)> algorithm,
                        std::vector<any_buffer> group, reduction by, bool packed) {
    if (!packed) {
      // The parts follow this stream: the caller's may have more work when a later one begins.
      const cuda::stream_pool::loan so_far(net.net().stage().streams());
      so_far->follow(net.record().stream);
      net.record().stream = so_far->ref();
      for (const any_buffer& part : group) {
        co_await in_place(net, algorithm, part, part, by, net.size());
      }
      co_return;
    }
    std::size_t total = 0;
    for (const any_buffer& part : group) total += part.size();
    const std::size_t element = group.front().element_size();
    const auto piece = [&](below lane, int, const cuda::staged_call& with) -> task<> {
      const block slot(with.pool(), total * element);
      const any_buffer all(slot.data(), total, element);
      cuda::copies down(with.down());
      cuda::copies up(with.up());
      std::size_t at = 0;
      for (const any_buffer& part : group) {
        down.copy(all.subspan(at, 0).data(), part.data(), bytes(part).size);
        at += part.size();
      }
      co_await down.reached();
      co_await host::in_place(lane, algorithm, all, all, by, lane.size());
      at = 0;
      for (const any_buffer& part : group) {
        up.copy(part.data(), all.subspan(at, 0).data(), bytes(part).size);
        at += part.size();
      }
      co_await up.reached();
    };
    co_await pipelined(net, 1, piece);
  }

  static task<> reduce_scatter(
      channel net, run<task<>(below, any_buffer, any_buffer, partition, any_op)> algorithm,
      any_buffer in, any_buffer out, offsets table, reduction by) {
    const partition parts = partition_of(table, out.size(), net.size());
    const int pieces = net.net().stage().pieces(bytes(in).size);
    const auto piece = [&](below lane, int k, const cuda::staged_call& with) -> task<> {
      const partition cut = parts.segment(k, pieces);
      offsets packed = pack(cut);
      const std::size_t mine = cut.count(lane.rank());
      const block slot(with.pool(), packed.back() * in.element_size());
      const block own(with.pool(), mine * in.element_size());
      const any_buffer all(slot.data(), packed.back(), in.element_size());
      const any_buffer result(own.data(), mine, in.element_size());
      cuda::copies down(with.down());
      cuda::copies up(with.up());
      copy_chunks(down, all, packed, in, cut, true);
      co_await down.reached();
      co_await host::reduce_scatter(lane, algorithm, all, result, std::move(packed), by);
      const std::size_t at = cut.offset(lane.rank()) - parts.offset(lane.rank());
      up.copy(out.subspan(at, mine).data(), result.data(), bytes(result).size);
      co_await up.reached();
    };
    co_await pipelined(net, pieces, piece);
  }

  static task<> all_gather(channel net, run<task<>(below, any_buffer, partition)> algorithm,
                           any_buffer in, any_buffer out, const offsets& table) {
    const auto between = [algorithm](below lane, any_buffer own, any_buffer all, offsets packed) {
      return host::all_gather(lane, algorithm, own, all, std::move(packed));
    };
    return gathered(net, in, out, table, between);
  }
  static task<> all_gather_apart(channel net,
                                 run<task<>(below, any_buffer, any_buffer, partition)> algorithm,
                                 any_buffer in, any_buffer out, const offsets& table) {
    const auto between = [algorithm](below lane, any_buffer own, any_buffer all, offsets packed) {
      return host::all_gather_apart(lane, algorithm, own, all, std::move(packed));
    };
    return gathered(net, in, out, table, between);
  }

  /// gather and scatter: `share` elements are this rank's, all lie on the root.
  static task<> rooted(channel net,
                       run<task<>(below, any_buffer, any_buffer, partition, int)> algorithm,
                       any_buffer first, any_buffer second, std::size_t share, offsets table,
                       int root) {
    const partition parts = partition_of(table, share, net.size());
    const bool gathers = net.record().what == collective::gather;
    const any_buffer mine = gathers ? first : second;
    const any_buffer whole = gathers ? second : first;
    const int pieces = net.net().stage().pieces(parts.total() * mine.element_size());
    const auto piece = [&](below lane, int k, const cuda::staged_call& with) -> task<> {
      const bool is_root = lane.rank() == root;
      const partition cut = parts.segment(k, pieces);
      offsets packed = pack(cut);
      const offsets places = packed;
      const std::size_t element = mine.element_size();
      const std::size_t held = is_root ? packed.back() : 0;
      const block slot(with.pool(), held * element);
      const block own(with.pool(), cut.count(lane.rank()) * element);
      const any_buffer all(slot.data(), held, element);
      const any_buffer part(own.data(), cut.count(lane.rank()), element);
      const std::size_t at = cut.offset(lane.rank()) - parts.offset(lane.rank());
      const any_buffer place = mine.subspan(at, part.size());
      cuda::copies down(with.down());
      cuda::copies up(with.up());
      if (gathers) {
        down.copy(part.data(), place.data(), bytes(part).size);
      } else if (is_root) {
        copy_chunks(down, all, places, whole, cut, true);
      }
      co_await down.reached();
      co_await host::rooted(lane, algorithm, gathers ? part : all, gathers ? all : part,
                            part.size(), std::move(packed), root);
      if (!gathers) {
        up.copy(place.data(), part.data(), bytes(part).size);
      } else if (is_root) {
        copy_chunks(up, all, places, whole, cut, false);
      }
      co_await up.reached();
    };
    co_await pipelined(net, pieces, piece);
  }

  /// With counts of its own each rank has another total: that is one piece.
  static task<> all_to_all(
      channel net, run<task<>(below, any_buffer, partition, any_buffer, partition)> algorithm,
      any_buffer in, any_buffer out, offsets sends, offsets receives) {
    const auto ranks = static_cast<std::size_t>(net.size());
    const partition from = partition_of(sends, in.size() / ranks, net.size());
    const partition to = partition_of(receives, out.size() / ranks, net.size());
    const bool equal_blocks = sends.empty() && receives.empty();
    const int pieces = equal_blocks ? net.net().stage().pieces(bytes(in).size) : 1;
    const auto piece = [&](below lane, int k, const cuda::staged_call& with) -> task<> {
      const partition cut_in = from.segment(k, pieces);
      const partition cut_out = to.segment(k, pieces);
      offsets packed_in = pack(cut_in);
      offsets packed_out = pack(cut_out);
      const offsets places = packed_out;
      const block slot_in(with.pool(), packed_in.back() * in.element_size());
      const block slot_out(with.pool(), packed_out.back() * in.element_size());
      const any_buffer all_in(slot_in.data(), packed_in.back(), in.element_size());
      const any_buffer all_out(slot_out.data(), packed_out.back(), in.element_size());
      cuda::copies down(with.down());
      cuda::copies up(with.up());
      copy_chunks(down, all_in, packed_in, in, cut_in, true);
      co_await down.reached();
      co_await host::all_to_all(lane, algorithm, all_in, all_out, std::move(packed_in),
                                std::move(packed_out));
      copy_chunks(up, all_out, places, out, cut_out, false);
      co_await up.reached();
    };
    co_await pipelined(net, pieces, piece);
  }

 private:
  static any_buffer nothing() { return {}; }
  static partition partition_of(const offsets& table, std::size_t block_size, int ranks) {
    return table.empty() ? partition::blocks(block_size, ranks)
                         : partition::from_offsets(table.data(), ranks);
  }
  /// Where the chunks begin in memory that holds one after the other.
  static offsets pack(const partition& cut) {
    offsets packed{0};
    for (int i = 0; i < cut.ranks(); ++i) packed.push_back(packed.back() + cut.count(i));
    return packed;
  }
  static void copy_chunks(cuda::copies& by, const any_buffer& packed, const offsets& places,
                          const any_buffer& data, const partition& cut, bool down) {
    for (int i = 0; i < cut.ranks(); ++i) {
      const any_buffer there = data.subspan(cut.offset(i), cut.count(i));
      const any_buffer here = packed.subspan(places[static_cast<std::size_t>(i)], cut.count(i));
      by.copy(down ? here.data() : there.data(), down ? there.data() : here.data(),
              bytes(here).size);
    }
  }

  /// `between(lane, own, all, where chunks begin)` of the host for each piece of an all_gather.
  template <class Between>
  static task<> gathered(channel net, any_buffer in, any_buffer out, offsets table,
                         Between between) {
    const partition parts = partition_of(table, in.size(), net.size());
    const int pieces = net.net().stage().pieces(bytes(out).size);
    const auto piece = [&](below lane, int k, const cuda::staged_call& with) -> task<> {
      const partition cut = parts.segment(k, pieces);
      offsets packed = pack(cut);
      const offsets places = packed;
      const block slot(with.pool(), packed.back() * in.element_size());
      const any_buffer all(slot.data(), packed.back(), in.element_size());
      const auto rank = static_cast<std::size_t>(lane.rank());
      const any_buffer own = all.subspan(packed[rank], cut.count(lane.rank()));
      const std::size_t at = cut.offset(lane.rank()) - parts.offset(lane.rank());
      cuda::copies down(with.down());
      cuda::copies up(with.up());
      down.copy(own.data(), in.subspan(at, own.size()).data(), bytes(own).size);
      co_await down.reached();
      co_await between(lane, own, all, std::move(packed));
      copy_chunks(up, all, places, out, cut, false);
      co_await up.reached();
    };
    co_await pipelined(net, pieces, piece);
  }

  /// Pieces of `count` elements: down from `in`, `between(lane, piece)` of the host, up to `out`;
  /// either may be nothing.
  template <class Between>
  static task<> elementwise(channel net, any_buffer in, any_buffer out, std::size_t count,
                            Between between, std::size_t element = 0) {
    if (element == 0) element = in.element_size();
    const int pieces = net.net().stage().pieces(count * element);
    const partition parts(count, pieces);
    const auto piece = [&](below lane, int k, const cuda::staged_call& with) -> task<> {
      const block slot(with.pool(), parts.count(k) * element);
      const any_buffer part(slot.data(), parts.count(k), element);
      cuda::copies down(with.down());
      cuda::copies up(with.up());
      if (in.size() != 0) {
        down.copy(part.data(), in.subspan(parts.offset(k), 0).data(), bytes(part).size);
        co_await down.reached();
      }
      co_await between(lane, part);
      if (out.size() != 0) {
        up.copy(out.subspan(parts.offset(k), 0).data(), part.data(), bytes(part).size);
        co_await up.reached();
      }
    };
    co_await pipelined(net, pieces, piece);
  }

  /// `piece(lane, k, call)` for k = 0 .. pieces-1, as many at a time as there are slots. Both
  /// numbers are equal on all ranks.
  template <class Piece>
  static task<> pipelined(channel net, int pieces, const Piece& piece) {
    const below whole = net;
    std::optional<cuda::staged_call> call;
    try {
      call.emplace(net.net().stage(), net.record().stream);
    } catch (const error& thrown) {
      whole.revoke(thrown.record());
      throw;
    }
    const int slots = net.net().stage().slots();
    const int width = pieces < slots ? pieces : slots;
    const auto in_turn = [&](int slot) {
      const below lane = whole.lane(slot * whole.lanes());
      return each_in_turn(lane, slot, width, pieces, piece, *call);
    };
    co_await each_of(0, width, in_turn);
  }
  template <class Piece>
  static task<> each_in_turn(below lane, int first, int step, int end, const Piece& piece,
                             const cuda::staged_call& call) {
    try {
      for (int k = first; k < end; k += step) co_await piece(lane, k, call);
    } catch (const error& thrown) {
      // First, so that the pieces beside this one end too, here and on the other ranks.
      lane.revoke(thrown.record());
      throw;
    }
  }
};

/// Point to point: the whole message comes down before it is sent, and goes up when it has come.
template <class Host>
struct messages<cuda::staged_transport<Host>> {
  using staged = cuda::staged_transport<Host>;
  using host = messages<Host>;
  using block = cuda::pinned_pool::block;

  static task<> send(staged& net, call_base& made, message_key key, const_bytes from) {
    const block copy(net.stage().pool(), from.size);
    cuda::event called(net.device());
    called.record(made.stream);
    made.untouched = [](const call_base&) { return true; };
    co_await copied(net, called, copy.data(), from.data, from.size);
    co_await host::send(net.below(), made, key, {copy.data(), from.size});
  }

  static task<received> recv(staged& net, call_base& made, message_key key, mutable_bytes into,
                             std::size_t element) {
    const block copy(net.stage().pool(), into.size);
    cuda::event called(net.device());
    called.record(made.stream);
    const received got =
        co_await host::recv(net.below(), made, key, {copy.data(), into.size}, element);
    made.untouched = nullptr;
    co_await copied(net, called, into.data, copy.data(), got.count * element);
    co_return got;
  }

  static task<received> send_recv(staged& net, call_base& made, message_key to, const_bytes from,
                                  message_key source, mutable_bytes into, std::size_t element) {
    const block outgoing(net.stage().pool(), from.size);
    const block incoming(net.stage().pool(), into.size);
    cuda::event called(net.device());
    called.record(made.stream);
    made.untouched = [](const call_base&) { return true; };
    co_await copied(net, called, outgoing.data(), from.data, from.size);
    const received got =
        co_await host::send_recv(net.below(), made, to, {outgoing.data(), from.size}, source,
                                 {incoming.data(), into.size}, element);
    made.untouched = nullptr;
    co_await copied(net, called, into.data, incoming.data(), got.count * element);
    co_return got;
  }

 private:
  /// After what the caller's stream had when the message was called.
  static task<> copied(staged& net, const cuda::event& called, std::byte* to, const std::byte* from,
                       std::size_t size) {
    const cuda::stream_pool::loan by(net.stage().streams());
    by->follow(called);
    cuda::copies work(*by);
    work.copy(to, from, size);
    co_await work.reached();
  }
};

}  // namespace detail

}  // namespace colls

namespace colls::cuda {

/// A model for `attach`: every transport of the host, through pinned memory. Reductions are made by
/// the CPU. A call has how.slots pieces of how.segment bytes, rounded up to powers of two, in
/// pinned memory.
struct staged {
  using settings = staging;

  template <class Transport>
  static auto attach(communicator<Transport>& comm, int device, const staging& how, options call) {
    how.check();
    const auto make = [&](std::shared_ptr<Transport> host) {
      return std::make_shared<staged_transport<Transport>>(std::move(host), device, how);
    };
    return comm.over(how.shape(), make, call);
  }
};

}  // namespace colls::cuda
