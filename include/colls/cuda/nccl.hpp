// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// nccl: the model `nccl` (a template argument of `attach`), which uses NCCL for collectives on
// device memory. For a reduction that NCCL does not support, NCCL only moves the data, and kernels
// of colls reduce the data.

#include <colls/algorithm/table.hpp>
#include <colls/call/call_request.hpp>
#include <colls/cuda/nccl_comm.hpp>
#include <colls/cuda/staged.hpp>

namespace colls::cuda {

/// The element type and the operation of NCCL that correspond to a reduction of colls. `is_known`
/// is false if NCCL does not support the reduction.
struct nccl_reduction {
  bool is_known = false;
  nccl_api::type type{};
  nccl_api::op op{};
};
/// Returns the NCCL reduction for an element type and an operation of colls, which are given by
/// their ids.
constexpr nccl_reduction nccl_reduction_of(std::uint32_t type, std::uint32_t op) {
  constexpr std::uint32_t types[] = {type_id<std::int8_t>(),  type_id<std::uint8_t>(),
                                     type_id<std::int32_t>(), type_id<std::uint32_t>(),
                                     type_id<std::int64_t>(), type_id<std::uint64_t>(),
                                     type_id<float16>(),      type_id<float>(),
                                     type_id<double>(),       type_id<bfloat16>()};
  constexpr std::uint32_t ops[] = {plus::op_number, multiplies::op_number, maximum::op_number,
                                   minimum::op_number, average::op_number};
  constexpr int integers = 6;  // number of integer types; NCCL rounds their averages unlike colls
  for (int t = 0; t < static_cast<int>(std::size(types)); ++t) {
    for (int o = 0; o < static_cast<int>(std::size(ops)); ++o) {
      if (types[t] != type || ops[o] != op) continue;
      const bool is_excluded = t < integers && ops[o] == average::op_number;
      return {!is_excluded, static_cast<nccl_api::type>(t), static_cast<nccl_api::op>(o)};
    }
  }
  return {};
}

/// A transport for communicators that use NCCL for their collectives on device memory. The template
/// parameter `Host` is the transport for messages in host memory. It also carries the
/// point-to-point messages, which are staged (copied through pinned host memory). NCCL does not
/// carry them, because its messages have no tags, and because a stream that sends or receives such
/// a message does no other work until the peer takes part.
template <transport Host>
class nccl_transport : public staged_transport<Host> {
 public:
  static constexpr bool reduces_on_device = true;
  static constexpr bool folds_in_order = true;
  /// True if NCCL itself performs the collective `Coll` with the element type `T` and the operation
  /// `Op`. False for scans and exscans, which NCCL does not have.
  template <collective Coll, class T, class Op>
  static constexpr bool has_reduction = Coll != collective::scan && Coll != collective::exscan &&
                                        nccl_reduction_of(type_id<T>(), op_id<Op>()).is_known;

  nccl_transport(std::shared_ptr<Host> host, int device)
      : staged_transport<Host>(std::move(host), device, staging()),
        context_(std::make_unique<nccl_context>(device)) {}

  nccl_context& context() const { return *context_; }

 private:
  std::unique_ptr<nccl_context> context_;
};

}  // namespace colls::cuda

namespace colls {

template <class Host>
struct transport_memory<cuda::nccl_transport<Host>> {
  using type = device_memory;
};

namespace detail {

template <class Host>
struct point_to_point_body<cuda::nccl_transport<Host>>
    : point_to_point_body<cuda::staged_transport<Host>> {};

/// The implementations of the collectives on an `nccl_transport`. Each call enqueues its work on a
/// stream and completes when the stream has done that work. The calls on one communicator enqueue
/// their work in the order in which the program makes the calls.
template <class Host>
struct call_body<basic_channel<cuda::nccl_transport<Host>>> {
  using channel = basic_channel<cuda::nccl_transport<Host>>;
  using host_channel = basic_channel<Host>;
  using nccl_call = cuda::nccl_call;
  using offsets = std::vector<std::size_t>;

  /// Performs a barrier by messages on the transport `Host`. Like every other call, a barrier
  /// creates NCCL's communicator if there is none yet, and waits for the work that is already
  /// enqueued on the caller's stream.
  static task<> barrier(channel net) {
    const auto work = [net](nccl_call&) -> task<> {
      const host_channel host = net;
      co_await dissemination::barrier.run(host.lane(1));
    };
    return submit(net, work);
  }

  template <class Algorithm>
  static task<> reduce_to_all(channel net, const Algorithm&, any_buffer in, any_buffer out,
                              reduction op, int) {
    const collective kind = net.record().operation;
    if (kind != collective::all_reduce) {
      return prefixes(net, in, out, op, kind == collective::scan);
    }
    if (op.run_on_device == nullptr) {
      const auto work = [=](nccl_call& call) -> task<> {
        call.enqueue([&] { all_reduce(call, in, out, op); });
        co_await call.accepted();
      };
      return submit(net, work);
    }
    const auto work = [=](nccl_call& call) { return all_fold(net, call, in, out, op); };
    return submit(net, work);
  }

  template <class Algorithm>
  static task<> all_reduce_group(channel net, const Algorithm&, std::vector<any_buffer> group,
                                 reduction op, bool) {
    const auto work = [&](nccl_call& call) -> task<> {
      if (op.run_on_device == nullptr) {
        call.grouped([&] {
          for (const any_buffer& part : group) all_reduce(call, part, part, op);
        });
        co_await call.accepted();
        co_return;
      }
      for (const any_buffer& part : group) co_await all_fold(net, call, part, part, op);
    };
    co_await submit(net, work);
  }

  template <class Algorithm>
  static task<> reduce(channel net, const Algorithm&, any_buffer in, any_buffer out, int root,
                       const reduction& op) {
    const auto work = [=](nccl_call& call) -> task<> {
      if (op.run_on_device == nullptr) {
        call.enqueue([&] { reduce_to(call, in.data(), out.data(), in.size(), root, op); });
        co_await call.accepted();
        co_return;
      }
      const partition parts(in.size(), net.size());
      const bool is_root = net.rank() == root;
      const std::size_t own_size = parts.count(net.rank()) * in.element_size();
      void* const result =
          is_root ? chunks{out, parts}[root].data() : static_cast<void*>(call.scratch(own_size));
      co_await fold_own(net, call, in, parts, result, op);
      call.grouped([&] {
        if (!is_root) return send(call, {static_cast<std::byte*>(result), own_size}, root);
        for (int r = 0; r < net.size(); ++r) {
          if (r != root) recv(call, bytes(chunks{out, parts}[r]), r);
        }
      });
      co_await call.accepted();
    };
    return submit(net, work);
  }

  template <class Algorithm>
  static task<> reduce_scatter(channel net, const Algorithm&, any_buffer in, any_buffer out,
                               offsets table, reduction op) {
    const partition parts = partition_of(table, out.size(), net.size());
    const auto work = [&](nccl_call& call) -> task<> {
      if (op.run_on_device != nullptr) {
        co_await fold_own(net, call, in, parts, out.data(), op);
        co_return;
      }
      const cuda::nccl_reduction native = to_nccl(op);
      if (table.empty()) {
        call.enqueue([&] {
          const auto result =
              cuda::nccl_api::reduce_scatter(in.data(), out.data(), out.size(), native.type,
                                             native.op, call.handle(), call.work_stream());
          cuda::check_nccl(result, "ncclReduceScatter");
        });
      } else {
        call.grouped([&] {
          for (int r = 0; r < net.size(); ++r) {
            const any_buffer part = chunks{in, parts}[r];
            reduce_to(call, part.data(), r == net.rank() ? out.data() : nullptr, part.size(), r,
                      op);
          }
        });
      }
      co_await call.accepted();
    };
    co_await submit(net, work);
  }

  template <class Algorithm>
  static task<> broadcast(channel net, const Algorithm&, any_buffer data, int root) {
    const auto work = [=](nccl_call& call) -> task<> {
      call.enqueue([&] { broadcast_from(call, data.data(), bytes(data), root); });
      co_await call.accepted();
    };
    return submit(net, work);
  }

  template <class Algorithm>
  static task<> all_gather(channel net, const Algorithm&, any_buffer in, any_buffer out,
                           offsets table) {
    const partition parts = partition_of(table, in.size(), net.size());
    const auto work = [&](nccl_call& call) -> task<> {
      if (table.empty()) {
        call.enqueue([&] {
          const auto result = cuda::nccl_api::all_gather(in.data(), out.data(), bytes(in).size,
                                                         call.handle(), call.work_stream());
          cuda::check_nccl(result, "ncclAllGather");
        });
      } else {
        gather_all(net, call, in.data(), out, parts);
      }
      co_await call.accepted();
    };
    co_await submit(net, work);
  }

  /// Performs a gather or a scatter from `first` to `second`, depending on
  /// `net.record().operation`. `share` is the number of elements that this rank contributes to a
  /// gather or receives from a scatter.
  template <class Algorithm>
  static task<> gather_or_scatter(channel net, const Algorithm&, any_buffer first,
                                  any_buffer second, std::size_t share, offsets table, int root) {
    const partition parts = partition_of(table, share, net.size());
    const bool gathers = net.record().operation == collective::gather;
    const mutable_bytes own = bytes(gathers ? first : second);
    const any_buffer root_data = gathers ? second : first;
    const auto work = [&](nccl_call& call) -> task<> {
      if (table.empty() && cuda::nccl_api::has_blocks()) {
        call.enqueue([&] { rooted_blocks(call, own, root_data, root, gathers); });
        co_await call.accepted();
        co_return;
      }
      if (net.rank() == root) {
        void* const root_chunk = chunks{root_data, parts}[root].data();
        call.copy(gathers ? root_chunk : own.data, gathers ? own.data : root_chunk, own.size);
      }
      call.grouped([&] {
        if (net.rank() != root) return gathers ? send(call, own, root) : recv(call, own, root);
        for (int r = 0; r < net.size(); ++r) {
          if (r == root) continue;
          const mutable_bytes part = bytes(chunks{root_data, parts}[r]);
          gathers ? recv(call, part, r) : send(call, part, r);
        }
      });
      co_await call.accepted();
    };
    co_await submit(net, work);
  }

  template <class Algorithm>
  static task<> all_to_all(channel net, const Algorithm&, any_buffer in, any_buffer out,
                           offsets sends, offsets receives) {
    const auto ranks = static_cast<std::size_t>(net.size());
    const partition send_parts = partition_of(sends, in.size() / ranks, net.size());
    const partition recv_parts = partition_of(receives, out.size() / ranks, net.size());
    const auto work = [&](nccl_call& call) -> task<> {
      any_buffer source = in;
      if (in.data() == out.data() && in.size() != 0) {
        source = any_buffer(call.scratch(bytes(in).size), in.size(), in.element_size());
        call.copy(source.data(), in.data(), bytes(in).size);
      }
      if (sends.empty() && receives.empty() && cuda::nccl_api::has_blocks()) {
        call.enqueue([&] { all_blocks(call, source, out, bytes(in).size / ranks); });
        co_await call.accepted();
        co_return;
      }
      const mutable_bytes own = bytes(chunks{source, send_parts}[net.rank()]);
      call.copy(chunks{out, recv_parts}[net.rank()].data(), own.data, own.size);
      call.grouped([&] {
        for (int r = 0; r < net.size(); ++r) {
          if (r == net.rank()) continue;
          send(call, bytes(chunks{source, send_parts}[r]), r);
          recv(call, bytes(chunks{out, recv_parts}[r]), r);
        }
      });
      co_await call.accepted();
    };
    co_await submit(net, work);
  }

 private:
  static cuda::nccl_reduction to_nccl(const reduction& op) {
    return cuda::nccl_reduction_of(op.storage_id, op.op.id);
  }
  static void send(const nccl_call& call, const_bytes data, int peer) {
    if (data.size == 0) return;
    cuda::check_nccl(
        cuda::nccl_api::send(data.data, data.size, peer, call.handle(), call.work_stream()),
        "ncclSend");
  }
  static void recv(const nccl_call& call, mutable_bytes buffer, int peer) {
    if (buffer.size == 0) return;
    cuda::check_nccl(
        cuda::nccl_api::recv(buffer.data, buffer.size, peer, call.handle(), call.work_stream()),
        "ncclRecv");
  }
  static void all_reduce(const nccl_call& call, any_buffer in, any_buffer out,
                         const reduction& op) {
    const cuda::nccl_reduction native = to_nccl(op);
    cuda::check_nccl(cuda::nccl_api::all_reduce(in.data(), out.data(), in.size(), native.type,
                                                native.op, call.handle(), call.work_stream()),
                     "ncclAllReduce");
  }
  static void reduce_to(const nccl_call& call, const void* in, void* out, std::size_t count,
                        int root, const reduction& op) {
    const cuda::nccl_reduction native = to_nccl(op);
    cuda::check_nccl(cuda::nccl_api::reduce(in, out, count, native.type, native.op, root,
                                            call.handle(), call.work_stream()),
                     "ncclReduce");
  }
  static void broadcast_from(const nccl_call& call, const void* source, mutable_bytes dest,
                             int root) {
    if (dest.size == 0) return;
    cuda::check_nccl(cuda::nccl_api::broadcast(source, dest.data, dest.size, root, call.handle(),
                                               call.work_stream()),
                     "ncclBroadcast");
  }
  static void rooted_blocks(const nccl_call& call, mutable_bytes own, any_buffer blocks, int root,
                            bool gathers) {
    const auto result = gathers ? cuda::nccl_api::gather(own.data, blocks.data(), own.size, root,
                                                         call.handle(), call.work_stream())
                                : cuda::nccl_api::scatter(blocks.data(), own.data, own.size, root,
                                                          call.handle(), call.work_stream());
    cuda::check_nccl(result, gathers ? "ncclGather" : "ncclScatter");
  }
  static void all_blocks(const nccl_call& call, any_buffer in, any_buffer out, std::size_t block) {
    cuda::check_nccl(
        cuda::nccl_api::all_to_all(in.data(), out.data(), block, call.handle(), call.work_stream()),
        "ncclAlltoAll");
  }
  /// Enqueues an all_gather of the chunks of all ranks into `out`, which `parts` divides into
  /// chunks. `own` points to the chunk of this rank.
  static void gather_all(channel net, const nccl_call& call, const void* own, any_buffer out,
                         const partition& parts) {
    call.grouped([&] {
      for (int r = 0; r < net.size(); ++r) {
        const mutable_bytes part = bytes(chunks{out, parts}[r]);
        broadcast_from(call, r == net.rank() ? own : part.data, part, r);
      }
    });
  }

  /// Enqueues an exchange of chunks between all ranks. `parts` divides `in` into one chunk for each
  /// rank. This rank sends chunk r of its own `in` to each other rank r. From each other rank, it
  /// receives the chunk of that rank's `in` whose number is the number of this rank. When the
  /// exchange is done, `slots` contains the received chunks and this rank's own chunk, in rank
  /// order.
  static task<> exchange(channel net, nccl_call& call, any_buffer in, partition parts,
                         std::byte* slots) {
    const int self = net.rank();
    const std::size_t slot_size = bytes(chunks{in, parts}[self]).size;
    call.copy(slots + static_cast<std::size_t>(self) * slot_size, chunks{in, parts}[self].data(),
              slot_size);
    call.grouped([&] {
      for (int r = 0; r < net.size(); ++r) {
        if (r == self) continue;
        send(call, bytes(chunks{in, parts}[r]), r);
        recv(call, {slots + static_cast<std::size_t>(r) * slot_size, slot_size}, r);
      }
    });
    co_await call.accepted();
  }
  /// Reduces this rank's chunk over the inputs of all ranks, in rank order, and writes the reduced
  /// chunk to `result`. If there are at most `max_inputs` ranks, one kernel reduces the chunk. If
  /// there are more ranks, several kernels do this.
  static task<> fold_own(channel net, nccl_call& call, any_buffer in, partition parts, void* result,
                         reduction op) {
    constexpr std::size_t max_inputs = 8;
    const auto ranks = static_cast<std::size_t>(net.size());
    const std::size_t count = parts.count(net.rank());
    const std::size_t slot_size = count * in.element_size();
    std::byte* const slots = call.scratch(ranks * slot_size);
    co_await exchange(net, call, in, parts, slots);
    const bool is_single_pass = ranks <= max_inputs;
    if (!is_single_pass && op.prepare != nullptr)
      prepare_all(call, slots, ranks, count, slot_size, op);
    const void* inputs[max_inputs] = {slots};
    std::size_t done = 1;
    do {
      std::size_t input_count = 1;
      for (; input_count < max_inputs && done < ranks; ++input_count, ++done)
        inputs[input_count] = slots + done * slot_size;
      const bool last = done == ranks;
      call.fold(op, {inputs,
                     input_count,
                     last ? result : slots,
                     nullptr,
                     count,
                     last ? net.size() : 0,
                     {},
                     !is_single_pass});
    } while (done < ranks);
  }
  static void prepare_all(const nccl_call& call, std::byte* slots, std::size_t ranks,
                          std::size_t count, std::size_t slot_size, const reduction& op) {
    for (std::size_t r = 0; r < ranks; ++r) {
      const void* const input = slots + r * slot_size;
      call.fold(op, {&input, 1, slots + r * slot_size, nullptr, count, 0, {}, false});
    }
  }
  static task<> all_fold(channel net, nccl_call& call, any_buffer in, any_buffer out,
                         reduction op) {
    const partition parts(in.size(), net.size());
    void* const own = chunks{out, parts}[net.rank()].data();
    co_await fold_own(net, call, in, parts, own, op);
    gather_all(net, call, own, out, parts);
    co_await call.accepted();
  }

  /// Performs a scan or an exscan. Each rank is responsible for one chunk of the vector. For every
  /// rank's result, the responsible rank computes this chunk and then sends it to the rank to which
  /// the result belongs.
  static task<> prefixes(channel net, any_buffer in, any_buffer out, reduction op,
                         bool is_inclusive) {
    const auto work = [=](nccl_call& call) -> task<> {
      const int self = net.rank();
      const partition parts(in.size(), net.size());
      const std::size_t count = parts.count(self);
      const std::size_t slot_size = count * in.element_size();
      const auto ranks = static_cast<std::size_t>(net.size());
      std::byte* const slots = call.scratch(ranks * slot_size);
      co_await exchange(net, call, in, parts, slots);
      if (op.prepare != nullptr) prepare_all(call, slots, ranks, count, slot_size, op);
      for (std::size_t r = 1; r < ranks; ++r) {
        const void* const inputs[] = {slots + (r - 1) * slot_size, slots + r * slot_size};
        call.fold(op, {inputs, 2, slots + r * slot_size, nullptr, count, 0, {}, true});
      }
      if (op.finish != nullptr) {
        for (std::size_t r = 0; r < ranks; ++r) {
          const void* const input = slots + r * slot_size;
          call.fold(op, {&input,
                         1,
                         slots + r * slot_size,
                         nullptr,
                         count,
                         static_cast<int>(r) + 1,
                         {},
                         true});
        }
      }
      const int first = is_inclusive ? 0 : 1;  // an exscan gives rank 0 no result
      const auto slot = [&](int r) {
        return slots + static_cast<std::size_t>(r - first) * slot_size;
      };
      if (self >= first) call.copy(chunks{out, parts}[self].data(), slot(self), slot_size);
      call.grouped([&] {
        for (int r = 0; r < net.size(); ++r) {
          if (r == self) continue;
          if (r >= first) send(call, {slot(r), slot_size}, r);
          if (self >= first) recv(call, bytes(chunks{out, parts}[r]), r);
        }
      });
      co_await call.accepted();
    };
    co_await submit(net, work);
  }

  /// The message that rank 0 broadcasts, so that all ranks can create NCCL's communicator.
  struct bootstrap_info {
    int version = 0;
    cuda::nccl_api::unique_id id{};
  };
  static task<> make(channel net, nccl_call& call) {
    bootstrap_info own;
    cuda::check_nccl(cuda::nccl_api::version(own.version), "ncclGetVersion");
    check_version(own.version);
    if (net.rank() == 0) cuda::check_nccl(cuda::nccl_api::make_id(own.id), "ncclGetUniqueId");
    bootstrap_info root = own;
    const any_buffer message(&root, sizeof root, 1);
    const host_channel host = net;
    co_await binomial_tree::broadcast.run(host.lane(1), message, 0);
    if (root.version != own.version) {
      failure reason(errc::version_mismatch);
      reason.set_detail("rank 0 runs NCCL %d and rank %d NCCL %d", root.version, net.rank(),
                        own.version);
      throw error(reason);
    }
    {
      const cuda::on_device guard(net.net().device());
      call.comm().make(net.size(), root.id, net.rank());
    }
    co_await call.accepted();
  }
  static void check_version(int running) {
    constexpr int built = cuda::nccl_api::header_version;
    if (running >= built && running / 10'000 == built / 10'000) return;
    failure reason(errc::version_mismatch);
    reason.set_detail(
        "this program was compiled with the header of NCCL %d and runs with NCCL %d, which is "
        "older or of another kind: see what libnccl.so.2 it loads",
        built, running);
    throw error(reason);
  }

  /// Runs `work(call)`, which enqueues the work of a call on a stream, and then waits until the
  /// stream has done that work. A call enqueues its work only after all earlier calls on the
  /// communicator have enqueued their work. While the stream works, each rank sends one empty
  /// message to the next rank. The header of the message contains a fingerprint (a hash) of the
  /// sender's call. If the receiver has made a different call, it detects this from the header,
  /// without a round trip.
  template <class Work>
  static task<> submit(channel net, Work work) {
    cuda::nccl_context& context = net.net().context();
    cuda::nccl_comm& comm = context.comm_of(*net.record().communicator, net.net().matching());
    nccl_call call(context, comm, net.record());
    cuda::async_mutex::lock lock(comm.mutex());
    co_await lock.acquire();
    // If an earlier call has failed, NCCL's communicator must not be created, because its creation
    // could wait for the peers forever.
    const communicator_state& state = *net.record().communicator;
    if (state.failed()) throw error(state.reason());
    call.begin();
    if (comm.is_made()) {
      co_await call.accepted();  // throws if NCCL has detected a failure since the last call
    } else {
      co_await make(net, call);
    }
    call.choose_stream();
    co_await work(call);
    lock.release();
    if (net.size() == 1) {
      co_await call.finished(net);
      co_return;
    }
    const mutable_bytes empty;
    const int next = net.rank() + 1 < net.size() ? net.rank() + 1 : 0;
    const int previous = net.rank() > 0 ? net.rank() - 1 : net.size() - 1;
    co_await when_all(call.finished(net), net.send(next, empty), net.recv(previous, empty));
  }
};

/// The table of a communicator that uses NCCL. Its one algorithm is `native`, and NCCL chooses how
/// to perform it.
template <class Host>
class algorithm_table<basic_channel<cuda::nccl_transport<Host>>> {
  using channel = basic_channel<cuda::nccl_transport<Host>>;

  template <class Function>
  static constexpr std::array<algorithm_entry<Function>, 1> only(Function* run) {
    algorithm_entry<Function> entry;
    entry.id = algorithm::native;
    entry.name = name(entry.id);
    entry.cost = [](const loggp_model&, const algorithm_choice&) { return loggp::phase(); };
    entry.segmented_bytes = [](const loggp_model&) { return std::uint64_t{0}; };
    entry.run = run;
    return {entry};
  }
  static constexpr auto barrier = only(&call_body<channel>::barrier);
  static constexpr auto others = only<void()>(nullptr);

 public:
  using transport = void;  // no algorithm of colls runs on device memory

  /// Refuses a reduction that NCCL itself would perform if the call requires a reduction in rank
  /// order, because NCCL does not define the order. `query.commutative` is false for each reduction
  /// that kernels of colls perform. These kernels reduce in rank order.
  static const char* refusal(const algorithm_info&, const selection_query& query) {
    const bool has_no_order =
        query.reduces && query.commutative && query.reduction_order == order::rank;
    return has_no_order ? "NCCL does not define the order of its reductions" : nullptr;
  }
  template <collective Coll>
  static constexpr const auto& algorithms() {
    if constexpr (Coll == collective::barrier) {
      return barrier;
    } else {
      return others;
    }
  }
};

}  // namespace detail

}  // namespace colls

namespace colls::cuda {

/// A model for `attach` that uses NCCL. The ranks exchange the id of NCCL's communicator over the
/// communicator that is passed to `attach`. NCCL performs sums, products, minima and maxima of 1-,
/// 4- and 8-byte integers and of floating-point types, and averages of floating-point types. In
/// these reductions, NCCL chooses the order, and rounds each partial result that it passes from one
/// rank to the next. Kernels of colls perform all other reductions and all scans. These kernels
/// reduce in rank order. A source file that needs these kernels must be a .cu file and must be
/// compiled by nvcc. `attach` fails with `errc::version_mismatch` in three cases: NCCL is older
/// than the NCCL header with which the program was compiled, NCCL and this header have different
/// major versions, or the ranks use different versions of NCCL.
struct nccl {
  struct settings {};

  template <class Transport>
  static task<communicator<nccl_transport<Transport>>> attach(communicator<Transport>& comm,
                                                              int device, settings, options opts) {
    const auto make = [&](std::shared_ptr<Transport> host) {
      return std::make_shared<nccl_transport<Transport>>(std::move(host), device);
    };
    auto made = co_await comm.attach(4, make, opts);
    co_await made.barrier(opts);
    co_return std::move(made);  // nvcc does not move the result implicitly
  }
};

}  // namespace colls::cuda
