// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// ipc: `cuda_ipc`, the model (a template argument of `attach`) with which the ranks of one machine
// access each other's device memory directly. If several ranks share a GPU, one of them, the
// worker, does the work of all of them, so that no kernel waits for another process. If each rank
// has a GPU of its own, the ranks reduce short vectors with kernels that write to each other's
// memory (peer_group.hpp). Such ranks may reduce long vectors in a ring (ipc_ring.hpp).
// Point-to-point messages are staged: the data is copied through pinned host memory and sent by
// the transport for host memory. Calls on memory that the peers cannot map are also staged.

#include <colls/algorithm/multi_send_recv.hpp>
#include <colls/cuda/ipc_operation.hpp>
#include <colls/cuda/ipc_ring.hpp>
#include <colls/cuda/peer_group.hpp>
#include <colls/cuda/staged.hpp>
#if defined(__CUDACC__) || defined(COLLS_CUDA_STAND_IN)
#include <colls/cuda/one_shot.cuh>
#endif

namespace colls::cuda {

/// The transport of communicators that `attach` makes with the model `cuda_ipc`. The ranks of such
/// a communicator map each other's buffers in device memory. `Host` is the underlying transport for
/// host memory, which sends all messages.
template <transport Host>
class ipc_transport : public staged_transport<Host> {
 public:
  static constexpr bool reduces_on_device = true;
  static constexpr bool has_one_shot_kernels = true;
  static constexpr bool has_native_collectives = true;

  ipc_transport(std::shared_ptr<Host> host, int device, const staging& stage_opts)
      : staged_transport<Host>(host, device, stage_opts),
        peers_(std::make_unique<ipc_peers>(device, host->rank(), host->size())),
        groups_(std::make_unique<peer_groups>(*peers_)) {}

  ipc_peers& peers() const { return *peers_; }
  /// Allocates device memory and fills it with zeros. If CUDA can export device memory as file
  /// descriptors, other ranks may keep this memory mapped after this rank has freed it.
  std::shared_ptr<std::byte> allocate(std::size_t size) {
    std::shared_ptr<std::byte> memory =
        peers_->allocate(size, exportable_memory::usage::user_streams);
    this->stage().clear(memory.get(), size);
    return memory;
  }
  peer_group& peer_group_of(const communicator_state& comm) {
    return groups_->find_or_make(comm, this->matching());
  }

 private:
  std::unique_ptr<ipc_peers> peers_;
  std::unique_ptr<peer_groups> groups_;
};

}  // namespace colls::cuda

namespace colls {

template <class Host>
struct transport_memory<cuda::ipc_transport<Host>> {
  using type = device_memory;
};

namespace detail {

/// The table of algorithms of the transport `Host`. Staged calls run these algorithms.
template <class Host>
struct algorithm_table<basic_channel<cuda::ipc_transport<Host>>>
    : algorithm_table<basic_channel<Host>> {};

/// The implementation of point-to-point calls, which are always staged.
template <class Host>
struct point_to_point_body<cuda::ipc_transport<Host>>
    : point_to_point_body<cuda::staged_transport<Host>> {};

/// The implementations of the collectives. A call is staged if `reaches_all` returns false or if
/// the ranks cannot map each other's buffers. Otherwise it runs as an `ipc_operation`, except that
/// a peer group (peer_group.hpp) may perform an all_reduce of a short vector.
template <class Host>
struct call_body<basic_channel<cuda::ipc_transport<Host>>> {
  using channel = basic_channel<cuda::ipc_transport<Host>>;
  using host_channel = basic_channel<Host>;
  using staged_channel = basic_channel<cuda::staged_transport<Host>>;
  using staged = call_body<staged_channel>;
  using ipc_operation = cuda::ipc_operation<host_channel>;
  template <class Function>
  using function_pointer = Function*;
  using offsets = std::vector<std::size_t>;

  static task<> reduce_to_all(
      channel net, function_pointer<task<>(host_channel, any_buffer, any_buffer, any_op)> algorithm,
      any_buffer in, any_buffer out, reduction op, int ranks) {
    cuda::peer_group* const group = peer_group_for(net, in, op);
    if (group == nullptr) {
      co_await run_operation(net, algorithm, in, out, op, ranks);
      co_return;
    }
    const host_channel host = net;
    const cuda::stream_pool::lease stream(net.net().peers().streams());
    stream->follow(net.record().stream);
    const bool done = co_await cuda::one_shot_all_reduce(host, *group, *stream, in, out, op);
    net.record().stream = stream->ref();
    if (!done) co_await run_operation(net, algorithm, in, out, op, ranks);
  }

  static task<> run_operation(
      channel net, function_pointer<task<>(host_channel, any_buffer, any_buffer, any_op)> algorithm,
      any_buffer in, any_buffer out, reduction op, int ranks) {
    const collective kind = net.record().operation;
    const auto work = [&](ipc_operation& operation) {
      if (kind == collective::all_reduce) {
        sum(operation, op, net.size(), in.size(), each_rank(net.size()));
      } else {
        prefixes(operation, op, net.size(), in.size(), kind == collective::scan ? 0 : 1);
      }
    };
    const bool done = co_await run_in_place(net, in, out, work, true, &op);
    if (!done) co_await staged::reduce_to_all(as_staged(net), algorithm, in, out, op, ranks);
  }

  static task<> reduce(
      channel net,
      function_pointer<task<>(host_channel, any_buffer, any_buffer, int, any_op)> algorithm,
      any_buffer in, any_buffer out, int root, reduction op) {
    const auto work = [&](ipc_operation& operation) {
      sum(operation, op, net.size(), in.size(), {root});
    };
    const bool done = co_await run_in_place(net, in, out, work);
    if (!done) co_await staged::reduce(as_staged(net), algorithm, in, out, root, op);
  }

  static task<> broadcast(channel net,
                          function_pointer<task<>(host_channel, any_buffer, int)> algorithm,
                          any_buffer data, int root) {
    const auto work = [&](ipc_operation& operation) {
      for (const int rank : each_rank(net.size())) {
        if (operation.works_for(rank))
          operation.copy(operation.out(rank), operation.in(root), bytes(data).size);
      }
    };
    const bool done = co_await run_in_place(net, data, data, work);
    if (!done) co_await staged::broadcast(as_staged(net), algorithm, data, root);
  }

  /// Performs an all_reduce of each buffer of `group`. If `reaches_all(net)` is false, all buffers
  /// are staged, that is, copied through host memory. If it is true, reduces one buffer after the
  /// other and ignores `packed`.
  static task<> all_reduce_group(
      channel net, function_pointer<task<>(host_channel, any_buffer, any_buffer, any_op)> algorithm,
      std::vector<any_buffer> group, reduction op, bool packed) {
    if (!reaches_all(net)) {
      co_await staged::all_reduce_group(as_staged(net), algorithm, std::move(group), op, packed);
      co_return;
    }
    for (const any_buffer& part : group) {
      co_await run_operation(net, algorithm, part, part, op, net.size());
    }
  }

  static task<> reduce_scatter(
      channel net,
      function_pointer<task<>(host_channel, any_buffer, any_buffer, partition, any_op)> algorithm,
      any_buffer in, any_buffer out, offsets table, reduction op) {
    const partition parts = partition_of(table, out.size(), net.size());
    const std::size_t element = in.element_size();
    const auto work = [&](ipc_operation& operation) {
      for (const int rank : each_rank(net.size())) {
        if (!operation.works_for(rank)) continue;
        const auto ins = inputs(operation, net.size(), parts.offset(rank) * element);
        operation.fold(op, ins, {operation.out(rank)}, parts.count(rank), net.size());
      }
    };
    const bool done = co_await run_in_place(net, in, out, work);
    if (!done) {
      co_await staged::reduce_scatter(as_staged(net), algorithm, in, out, std::move(table), op);
    }
  }

  static task<> all_gather(
      channel net,
      function_pointer<task<>(host_channel, any_buffer, any_buffer, partition)> algorithm,
      any_buffer in, any_buffer out, offsets table) {
    const bool done = co_await gathered(net, in, out, table);
    if (!done) co_await staged::all_gather(as_staged(net), algorithm, in, out, table);
  }

  /// Performs a gather or a scatter from `first` to `second`, depending on
  /// `net.record().operation`. `share` is the number of elements that this rank contributes to a
  /// gather or receives from a scatter.
  static task<> gather_or_scatter(
      channel net,
      function_pointer<task<>(host_channel, any_buffer, any_buffer, partition, int)> algorithm,
      any_buffer first, any_buffer second, std::size_t share, offsets table, int root) {
    const partition parts = partition_of(table, share, net.size());
    const bool gathers = net.record().operation == collective::gather;
    const std::size_t element = first.element_size();
    const auto work = [&](ipc_operation& operation) {
      if (gathers) {
        if (operation.works_for(root)) gather_to(operation, root, parts, element);
        return;
      }
      for (const int rank : each_rank(net.size())) {
        if (!operation.works_for(rank)) continue;
        operation.copy(operation.out(rank), operation.in(root) + parts.offset(rank) * element,
                       parts.count(rank) * element);
      }
    };
    const bool done = co_await run_in_place(net, first, second, work);
    if (!done) {
      co_await staged::gather_or_scatter(as_staged(net), algorithm, first, second, share,
                                         std::move(table), root);
    }
  }

  /// Performs an all_to_all. If the counts may differ between ranks, the ranks first exchange their
  /// counts. The call is staged if `in` and `out` are the same buffer on any rank.
  static task<> all_to_all(
      channel net,
      function_pointer<task<>(host_channel, any_buffer, partition, any_buffer, partition)>
          algorithm,
      any_buffer in, any_buffer out, offsets sends, offsets receives) {
    const std::size_t block = in.size() / static_cast<std::size_t>(net.size());
    std::vector<blocks> layouts(
        static_cast<std::size_t>(net.size()),
        {partition_of(sends, block, net.size()), partition_of(receives, block, net.size())});
    if (reaches_all(net) && !(sends.empty() && receives.empty())) {
      co_await exchange(net, layouts);
    }
    const std::size_t element = in.element_size();
    const auto work = [&](ipc_operation& operation) {
      for (const int dest : each_rank(net.size())) {
        if (!operation.works_for(dest)) continue;
        for (const int source : each_rank(net.size())) {
          const span part = layouts[static_cast<std::size_t>(source)].sent[dest];
          const std::size_t offset = layouts[static_cast<std::size_t>(dest)].received[source].first;
          operation.copy(operation.out(dest) + offset * element,
                         operation.in(source) + part.first * element, part.count * element);
        }
      }
    };
    const bool is_out_of_place = in.data() != out.data() || in.size() == 0;
    const bool done = co_await run_in_place(net, in, out, work, is_out_of_place);
    if (!done) {
      co_await staged::all_to_all(as_staged(net), algorithm, in, out, std::move(sends),
                                  std::move(receives));
    }
  }

 private:
  static staged_channel as_staged(const channel& net) { return {net.net(), net.record()}; }
  /// Returns false if the caller has pinned (selected) an algorithm that exists only for host
  /// memory. The call must then be staged, so that it uses that algorithm. Otherwise returns true:
  /// the call may access device memory directly.
  static bool may_work_in_place(const operation_record& record) {
    return record.pinned == algorithm::automatic || record.pinned == algorithm::native ||
           record.pinned == algorithm::direct || pins_ring(record);
  }
  static bool pins_ring(const operation_record& record) {
    return record.pinned == algorithm::ring && record.operation == collective::all_reduce;
  }
  static bool reaches_all(const channel& net) {
    return may_work_in_place(net.record()) && net.size() <= cuda::max_ipc_ranks &&
           net.nodes().nodes() == 1;
  }

  /// Returns the peer group (peer_group.hpp) with which the ranks should try to perform the
  /// reduction. The group may not be set up yet; `one_shot_all_reduce` sets it up if necessary.
  /// Returns null on all ranks if the reduction cannot use a peer group.
  static cuda::peer_group* peer_group_for(const channel& net, const any_buffer& data,
                                          const reduction& op) {
    if (op.run_one_shot_on_device == nullptr || net.size() < 2 || !reaches_all(net)) return nullptr;
    if (pins_ring(net.record())) return nullptr;
    if (cuda::shot_count(bytes(data).size, data.element_size(), net.size()) == 0) return nullptr;
    cuda::peer_group& group = net.net().peer_group_of(*net.record().communicator);
    return group.is_refused() ? nullptr : &group;
  }

  /// A range of elements of a buffer.
  struct span {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
  };
  /// The layout of one rank's buffers in an all_to_all. For each peer, it contains the range of the
  /// input that is sent to the peer, and the range of the output that receives the peer's elements.
  struct blocks {
    span sent[cuda::max_ipc_ranks];
    span received[cuda::max_ipc_ranks];

    blocks(const partition& sends, const partition& receives) {
      for (int rank = 0; rank < sends.ranks() && rank < cuda::max_ipc_ranks; ++rank) {
        sent[rank] = {sends.offset(rank), sends.count(rank)};
        received[rank] = {receives.offset(rank), receives.count(rank)};
      }
    }
  };
  /// Sends `layouts[net.rank()]`, the layout of this rank, to all other ranks, and stores their
  /// layouts in `layouts`. Throws `errc::mismatch` if the number of elements that a rank sends to
  /// this rank differs from the number that this rank expects to receive.
  static task<> exchange(channel net, std::vector<blocks>& layouts) {
    const host_channel host = net;
    auto* const all = reinterpret_cast<std::byte*>(layouts.data());
    const auto self = static_cast<std::size_t>(net.rank());
    const const_bytes own(all + self * sizeof(blocks), sizeof(blocks));
    co_await multi_send_recv::exchange_with_all(host, own, all);
    for (int rank = 0; rank < net.size(); ++rank) {
      const std::uint64_t sent = layouts[static_cast<std::size_t>(rank)].sent[self].count;
      const std::uint64_t received = layouts[self].received[rank].count;
      if (sent == received) continue;
      failure reason(errc::mismatch);
      reason.set_detail("rank %d sends %llu elements to rank %d, which receives %llu", rank,
                        static_cast<unsigned long long>(sent), net.rank(),
                        static_cast<unsigned long long>(received));
      throw error(reason);
    }
  }

  /// Tells when a reduction may use the ring (ipc_ring.hpp). The result is `never` if the operation
  /// is not an all_reduce, if it must combine the ranks' elements in a fixed order, or if it
  /// converts the elements before it combines them. Otherwise the result is `always` if the caller
  /// has pinned the ring, and `between_nodes` if the vector is long and the caller has pinned no
  /// algorithm. In all other cases the result is `never`.
  static cuda::ring_use ring_for(const operation_record& record, std::size_t size,
                                 const reduction& op) {
    const bool keeps_order =
        record.reduction_order == order::rank || !op.op.commutative || !op.op.associative;
    const bool is_wider = op.prepare != nullptr;
    const bool is_sum = record.operation == collective::all_reduce;
    if (!is_sum || keeps_order || is_wider) return cuda::ring_use::never;
    if (pins_ring(record)) return cuda::ring_use::always;
    const bool is_long = size >= cuda::min_ring_bytes && record.pinned == algorithm::automatic;
    return is_long ? cuda::ring_use::between_nodes : cuda::ring_use::never;
  }

  /// Tries to perform a call as an `ipc_operation`. The operation begins when, on all ranks, the
  /// caller's stream has done the work that was enqueued before the call. If `ring_op` is not null
  /// and `uses_ring` returns true, the ranks reduce in the ring with `*ring_op`. Otherwise each
  /// worker calls `work(operation)`. `is_suitable` says whether the operation can use this rank's
  /// buffers. Returns false on all ranks if the operation cannot perform the call, which must then
  /// be staged.
  template <class Work>
  static task<bool> run_in_place(channel net, any_buffer in, any_buffer out, const Work& work,
                                 bool is_suitable = true, const reduction* ring_op = nullptr) {
    const host_channel host = net;
    cuda::ipc_peers& peers = net.net().peers();
    if (!reaches_all(net)) co_return false;
    const cuda::stream_pool::lease preceding(peers.streams());
    preceding->follow(net.record().stream);
    cuda::ring_use ring = cuda::ring_use::never;
    if (ring_op != nullptr) ring = ring_for(net.record(), bytes(in).size, *ring_op);
    const bool requires_ring = pins_ring(net.record());
    if (requires_ring && ring != cuda::ring_use::always) co_return false;
    ipc_operation operation(host, peers, bytes(in), bytes(out), is_suitable, ring);
    co_await preceding->followed(*net.record().communicator);
    // The caller's stream has done the work that was enqueued before the call. The call may wait
    // for `net.record().stream` again, for example because it is staged. It must not wait for work
    // that the caller enqueues later. Therefore the work stream replaces the caller's stream.
    net.record().stream = peers.work_stream().ref();
    if (!co_await operation.begin()) co_return false;
    if (cuda::uses_ring(operation.infos())) {
      cuda::ipc_ring ring_call(operation, *ring_op, in.size());
      co_await ring_call.run(net.net().stage());
    } else if (requires_ring) {
      operation.decline();
      co_return false;
    } else {
      co_await operation.run(work);
    }
    co_return true;
  }

  static task<bool> gathered(channel net, any_buffer in, any_buffer out, const offsets& table) {
    const partition parts = partition_of(table, in.size(), net.size());
    const std::size_t element = in.element_size();
    const auto work = [&](ipc_operation& operation) {
      for (const int rank : each_rank(net.size())) {
        if (operation.works_for(rank)) gather_to(operation, rank, parts, element);
      }
    };
    const bool done = co_await run_in_place(net, in, out, work);
    co_return done;
  }

  static std::vector<int> each_rank(int ranks) {
    std::vector<int> all;
    for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
    return all;
  }
  static std::vector<const void*> inputs(const ipc_operation& operation, int ranks,
                                         std::size_t offset) {
    std::vector<const void*> all;
    for (int rank = 0; rank < ranks; ++rank) all.push_back(operation.in(rank) + offset);
    return all;
  }
  static void gather_to(ipc_operation& operation, int dest, const partition& parts,
                        std::size_t element) {
    for (int source = 0; source < parts.ranks(); ++source) {
      operation.copy(operation.out(dest) + parts.offset(source) * element, operation.in(source),
                     parts.count(source) * element);
    }
  }
  /// Enqueues work that reduces this worker's share of the `count` elements of all inputs and
  /// writes the result to the outputs of the ranks in `outputs`.
  static void sum(ipc_operation& operation, const reduction& op, int ranks, std::size_t count,
                  const std::vector<int>& outputs) {
    const partition parts(count, operation.workers());
    const std::size_t offset = parts.offset(operation.worker_index()) * op.storage_size;
    std::vector<std::byte*> outs;
    for (const int rank : outputs) outs.push_back(operation.out(rank) + offset);
    operation.fold(op, inputs(operation, ranks, offset), outs,
                   parts.count(operation.worker_index()), ranks);
  }
  /// Enqueues work that computes the prefix of each rank, that is, the rank's result of a scan or
  /// an exscan, for this worker's share of the elements. `first` is 0 for a scan (inclusive
  /// prefixes) and 1 for an exscan (exclusive prefixes). The work computes the prefix of the
  /// highest rank first, because a prefix may overwrite the input of its rank, and the prefixes of
  /// lower ranks do not need that input.
  static void prefixes(ipc_operation& operation, const reduction& op, int ranks, std::size_t count,
                       int first) {
    const partition parts(count, operation.workers());
    const std::size_t offset = parts.offset(operation.worker_index()) * op.storage_size;
    for (int rank = ranks - 1; rank >= first; --rank) {
      const int summed = rank + 1 - first;
      operation.fold(op, inputs(operation, summed, offset), {operation.out(rank) + offset},
                     parts.count(operation.worker_index()), summed);
    }
  }
};

}  // namespace detail

}  // namespace colls

namespace colls::cuda {

/// A model for `attach` with which up to 8 ranks of one machine access each other's device memory
/// directly. The ranks use one GPU, or several GPUs that can access each other's memory. Ranks in
/// different processes share memory from `allocate` by file descriptors, and memory from cudaMalloc
/// by CUDA IPC handles. Ranks in one process use pointers. Kernels combine the inputs in rank
/// order, except in the ring. No data is sent in messages, so `options.wire` has no effect.
///
/// If the ranks cannot map each other's memory, a call is staged: its data is copied through host
/// memory in the pieces that the settings describe. A warning in the log gives the reason. A call
/// that pins (selects) an algorithm is also staged, with two exceptions: `native` and `direct` both
/// select the kernels, and an all_reduce can use `ring` if each rank has a GPU of its own. Memory
/// that was passed to a call stays mapped in the other ranks. They unmap it at the latest
/// when they destroy their communicators, and earlier in the cases that `mapped_memory` describes.
struct cuda_ipc {
  using settings = staging;

  template <class Transport>
  static auto attach(communicator<Transport>& comm, int device, const staging& stage_opts,
                     options opts) {
    stage_opts.check();
    const auto make = [&](std::shared_ptr<Transport> host) {
      return std::make_shared<ipc_transport<Transport>>(std::move(host), device, stage_opts);
    };
    return comm.attach(mix(stage_opts.shape(), 1), make, opts);
  }
};

}  // namespace colls::cuda
