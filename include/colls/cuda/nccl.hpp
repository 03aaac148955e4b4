// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// nccl: memory of devices by NCCL; what NCCL cannot reduce, by its messages and kernels of colls.

#include <colls/algorithm/table.hpp>
#include <colls/cuda/nccl_comm.hpp>
#include <colls/cuda/staged.hpp>

namespace colls::cuda {

/// A reduction as NCCL has it.
struct nccl_reduction {
  bool is_known = false;
  nccl_api::type type{};
  nccl_api::op op{};
};
/// By the numbers of the element type and the operation.
constexpr nccl_reduction nccl_reduction_of(std::uint32_t type, std::uint32_t op) {
  constexpr std::uint32_t types[] = {type_id<std::int8_t>(),  type_id<std::uint8_t>(),
                                     type_id<std::int32_t>(), type_id<std::uint32_t>(),
                                     type_id<std::int64_t>(), type_id<std::uint64_t>(),
                                     type_id<float16>(),      type_id<float>(),
                                     type_id<double>(),       type_id<bfloat16>()};
  constexpr std::uint32_t ops[] = {plus::op_number, multiplies::op_number, maximum::op_number,
                                   minimum::op_number, average::op_number};
  constexpr int integers = 6;  // whose averages NCCL rounds otherwise
  for (int t = 0; t < static_cast<int>(std::size(types)); ++t) {
    for (int o = 0; o < static_cast<int>(std::size(ops)); ++o) {
      if (types[t] != type || ops[o] != op) continue;
      const bool is_ours = t < integers && ops[o] == average::op_number;
      return {!is_ours, static_cast<nccl_api::type>(t), static_cast<nccl_api::op>(o)};
    }
  }
  return {};
}

/// A transport of the host, for communicators whose calls NCCL does on a device. Messages of point
/// to point go through pinned memory: NCCL's know no tags, and block the stream that they are on.
template <transport Host>
class nccl_transport : public staged_transport<Host> {
 public:
  static constexpr bool reduces_on_device = true;
  static constexpr bool folds_in_order = true;
  /// NCCL has no scans.
  template <collective What, class T, class Op>
  static constexpr bool has_reduction = What != collective::scan && What != collective::exscan &&
                                        nccl_reduction_of(type_id<T>(), op_id<Op>()).is_known;

  nccl_transport(std::shared_ptr<Host> host, int device)
      : staged_transport<Host>(std::move(host), device, staging()),
        area_(std::make_unique<nccl_area>(device)) {}

  nccl_area& area() const { return *area_; }

 private:
  std::unique_ptr<nccl_area> area_;
};

}  // namespace colls::cuda

namespace colls {

template <class Host>
struct transport_memory<cuda::nccl_transport<Host>> {
  using type = device_memory;
};

namespace detail {

template <class Host>
struct messages<cuda::nccl_transport<Host>> : messages<cuda::staged_transport<Host>> {};

/// Calls on NCCL: each enqueues what it has in its turn, and ends when the stream has got through.
template <class Host>
struct bodies<basic_channel<cuda::nccl_transport<Host>>> {
  using channel = basic_channel<cuda::nccl_transport<Host>>;
  using below = basic_channel<Host>;
  using call = cuda::nccl_call;
  using offsets = std::vector<std::size_t>;

  static bool moves_nothing(any_buffer, any_buffer, const reduction&) { return false; }

  /// On the ranks alone: nothing of a device takes part but the making of NCCL's communicator.
  static task<> barrier(channel net) {
    const auto work = [net](call&) -> task<> {
      const below host = net;
      co_await dissemination::barrier(host.lane(1));
    };
    return submitted(net, work);
  }

  /// all_reduce and scan.
  template <class Algorithm>
  static task<> in_place(channel net, const Algorithm&, any_buffer in, any_buffer out, reduction by,
                         int) {
    if (net.record().what == collective::scan) return prefixes(net, in, out, by, true);
    if (by.on_device == nullptr) {
      const auto work = [=](call& made) -> task<> {
        made.enqueue([&] { all_reduce(made, in, out, by); });
        co_await made.settled();
      };
      return submitted(net, work);
    }
    const auto work = [=](call& made) { return all_fold(net, made, in, out, by); };
    return submitted(net, work);
  }

  template <class Algorithm>
  static task<> exscan(channel net, const Algorithm&, any_buffer data, const reduction& by) {
    return prefixes(net, data, data, by, false);
  }

  template <class Algorithm>
  static task<> grouped(channel net, const Algorithm&, std::vector<any_buffer> group, reduction by,
                        bool) {
    const auto work = [&](call& made) -> task<> {
      if (by.on_device == nullptr) {
        made.grouped([&] {
          for (const any_buffer& part : group) all_reduce(made, part, part, by);
        });
        co_await made.settled();
        co_return;
      }
      for (const any_buffer& part : group) co_await all_fold(net, made, part, part, by);
    };
    co_await submitted(net, work);
  }

  template <class Algorithm>
  static task<> reduce(channel net, const Algorithm&, any_buffer in, any_buffer out, int root,
                       const reduction& by) {
    const auto work = [=](call& made) -> task<> {
      if (by.on_device == nullptr) {
        made.enqueue([&] { reduce_to(made, in.data(), out.data(), in.size(), root, by); });
        co_await made.settled();
        co_return;
      }
      const partition parts(in.size(), net.size());
      const bool is_root = net.rank() == root;
      const std::size_t mine = parts.count(net.rank()) * in.element_size();
      void* const result =
          is_root ? chunks{out, parts}[root].data() : static_cast<void*>(made.scratch(mine));
      co_await fold_own(net, made, in, parts, result, by);
      made.grouped([&] {
        if (!is_root) return send(made, {static_cast<std::byte*>(result), mine}, root);
        for (int r = 0; r < net.size(); ++r) {
          if (r != root) recv(made, bytes(chunks{out, parts}[r]), r);
        }
      });
      co_await made.settled();
    };
    return submitted(net, work);
  }

  template <class Algorithm>
  static task<> reduce_scatter(channel net, const Algorithm&, any_buffer in, any_buffer out,
                               offsets table, reduction by) {
    const partition parts = partition_of(table, out.size(), net.size());
    const auto work = [&](call& made) -> task<> {
      if (by.on_device != nullptr) {
        co_await fold_own(net, made, in, parts, out.data(), by);
        co_return;
      }
      const cuda::nccl_reduction with = nccls(by);
      if (table.empty()) {
        made.enqueue([&] {
          const auto how = cuda::nccl_api::reduce_scatter(
              in.data(), out.data(), out.size(), with.type, with.op, made.comm(), made.on());
          cuda::check_nccl(how, "ncclReduceScatter");
        });
      } else {
        made.grouped([&] {
          for (int r = 0; r < net.size(); ++r) {
            const any_buffer part = chunks{in, parts}[r];
            reduce_to(made, part.data(), r == net.rank() ? out.data() : nullptr, part.size(), r,
                      by);
          }
        });
      }
      co_await made.settled();
    };
    co_await submitted(net, work);
  }

  template <class Algorithm>
  static task<> broadcast(channel net, const Algorithm&, any_buffer data, int root) {
    const auto work = [=](call& made) -> task<> {
      made.enqueue([&] { send_to_all(made, data.data(), bytes(data), root); });
      co_await made.settled();
    };
    return submitted(net, work);
  }

  template <class Algorithm>
  static task<> all_gather(channel net, const Algorithm&, any_buffer in, any_buffer out,
                           offsets table) {
    const partition parts = partition_of(table, in.size(), net.size());
    const auto work = [&](call& made) -> task<> {
      if (table.empty()) {
        made.enqueue([&] {
          const auto how = cuda::nccl_api::all_gather(in.data(), out.data(), bytes(in).size,
                                                      made.comm(), made.on());
          cuda::check_nccl(how, "ncclAllGather");
        });
      } else {
        gather_all(net, made, in.data(), out, parts);
      }
      co_await made.settled();
    };
    co_await submitted(net, work);
  }

  template <class Algorithm>
  static task<> all_gather_apart(channel net, const Algorithm& none, any_buffer in, any_buffer out,
                                 offsets table) {
    return all_gather(net, none, in, out, std::move(table));
  }

  /// gather and scatter: `share` elements are this rank's, all lie on the root.
  template <class Algorithm>
  static task<> rooted(channel net, const Algorithm&, any_buffer first, any_buffer second,
                       std::size_t share, offsets table, int root) {
    const partition parts = partition_of(table, share, net.size());
    const bool gathers = net.record().what == collective::gather;
    const mutable_bytes mine = bytes(gathers ? first : second);
    const any_buffer whole = gathers ? second : first;
    const auto work = [&](call& made) -> task<> {
      if (table.empty() && cuda::nccl_api::has_blocks()) {
        made.enqueue([&] { rooted_blocks(made, mine, whole, root, gathers); });
        co_await made.settled();
        co_return;
      }
      if (net.rank() == root) {
        void* const own = chunks{whole, parts}[root].data();
        made.copy(gathers ? own : mine.data, gathers ? mine.data : own, mine.size);
      }
      made.grouped([&] {
        if (net.rank() != root) return gathers ? send(made, mine, root) : recv(made, mine, root);
        for (int r = 0; r < net.size(); ++r) {
          if (r == root) continue;
          const mutable_bytes part = bytes(chunks{whole, parts}[r]);
          gathers ? recv(made, part, r) : send(made, part, r);
        }
      });
      co_await made.settled();
    };
    co_await submitted(net, work);
  }

  template <class Algorithm>
  static task<> all_to_all(channel net, const Algorithm&, any_buffer in, any_buffer out,
                           offsets sends, offsets receives) {
    const auto ranks = static_cast<std::size_t>(net.size());
    const partition from = partition_of(sends, in.size() / ranks, net.size());
    const partition to = partition_of(receives, out.size() / ranks, net.size());
    const auto work = [&](call& made) -> task<> {
      any_buffer source = in;
      if (in.data() == out.data() && in.size() != 0) {
        source = any_buffer(made.scratch(bytes(in).size), in.size(), in.element_size());
        made.copy(source.data(), in.data(), bytes(in).size);
      }
      if (sends.empty() && receives.empty() && cuda::nccl_api::has_blocks()) {
        made.enqueue([&] { all_blocks(made, source, out, bytes(in).size / ranks); });
        co_await made.settled();
        co_return;
      }
      const mutable_bytes own = bytes(chunks{source, from}[net.rank()]);
      made.copy(chunks{out, to}[net.rank()].data(), own.data, own.size);
      made.grouped([&] {
        for (int r = 0; r < net.size(); ++r) {
          if (r == net.rank()) continue;
          send(made, bytes(chunks{source, from}[r]), r);
          recv(made, bytes(chunks{out, to}[r]), r);
        }
      });
      co_await made.settled();
    };
    co_await submitted(net, work);
  }

 private:
  static partition partition_of(const offsets& table, std::size_t block_size, int ranks) {
    return table.empty() ? partition::blocks(block_size, ranks)
                         : partition::from_offsets(table.data(), ranks);
  }

  static cuda::nccl_reduction nccls(const reduction& by) {
    return cuda::nccl_reduction_of(by.storage_id, by.op.id);
  }
  static void send(const call& made, const_bytes from, int peer) {
    if (from.size == 0) return;
    cuda::check_nccl(cuda::nccl_api::send(from.data, from.size, peer, made.comm(), made.on()),
                     "ncclSend");
  }
  static void recv(const call& made, mutable_bytes into, int peer) {
    if (into.size == 0) return;
    cuda::check_nccl(cuda::nccl_api::recv(into.data, into.size, peer, made.comm(), made.on()),
                     "ncclRecv");
  }
  static void all_reduce(const call& made, any_buffer in, any_buffer out, const reduction& by) {
    const cuda::nccl_reduction with = nccls(by);
    cuda::check_nccl(cuda::nccl_api::all_reduce(in.data(), out.data(), in.size(), with.type,
                                                with.op, made.comm(), made.on()),
                     "ncclAllReduce");
  }
  static void reduce_to(const call& made, const void* in, void* out, std::size_t count, int root,
                        const reduction& by) {
    const cuda::nccl_reduction with = nccls(by);
    cuda::check_nccl(
        cuda::nccl_api::reduce(in, out, count, with.type, with.op, root, made.comm(), made.on()),
        "ncclReduce");
  }
  static void send_to_all(const call& made, const void* from, mutable_bytes into, int root) {
    if (into.size == 0) return;
    cuda::check_nccl(
        cuda::nccl_api::broadcast(from, into.data, into.size, root, made.comm(), made.on()),
        "ncclBroadcast");
  }
  static void rooted_blocks(const call& made, mutable_bytes mine, any_buffer whole, int root,
                            bool gathers) {
    const auto how = gathers ? cuda::nccl_api::gather(mine.data, whole.data(), mine.size, root,
                                                      made.comm(), made.on())
                             : cuda::nccl_api::scatter(whole.data(), mine.data, mine.size, root,
                                                       made.comm(), made.on());
    cuda::check_nccl(how, gathers ? "ncclGather" : "ncclScatter");
  }
  static void all_blocks(const call& made, any_buffer in, any_buffer out, std::size_t block) {
    cuda::check_nccl(
        cuda::nccl_api::all_to_all(in.data(), out.data(), block, made.comm(), made.on()),
        "ncclAlltoAll");
  }
  /// Every rank's `out` gets the chunks of all; this rank's lies at `own`.
  static void gather_all(channel net, const call& made, const void* own, any_buffer out,
                         const partition& parts) {
    made.grouped([&] {
      for (int r = 0; r < net.size(); ++r) {
        const mutable_bytes part = bytes(chunks{out, parts}[r]);
        send_to_all(made, r == net.rank() ? own : part.data, part, r);
      }
    });
  }

  /// All ranks' parts of this rank's chunk, one after the other, in scratch.
  static task<> exchange(channel net, call& made, any_buffer in, partition parts,
                         std::byte* slots) {
    const int me = net.rank();
    const std::size_t each = bytes(chunks{in, parts}[me]).size;
    made.copy(slots + static_cast<std::size_t>(me) * each, chunks{in, parts}[me].data(), each);
    made.grouped([&] {
      for (int r = 0; r < net.size(); ++r) {
        if (r == me) continue;
        send(made, bytes(chunks{in, parts}[r]), r);
        recv(made, {slots + static_cast<std::size_t>(r) * each, each}, r);
      }
    });
    co_await made.settled();
  }
  /// `result` holds this rank's chunk, folded from the left: at once up to `most` ranks, else the
  /// rest by as many at a time.
  static task<> fold_own(channel net, call& made, any_buffer in, partition parts, void* result,
                         reduction by) {
    constexpr std::size_t most = 8;
    const auto ranks = static_cast<std::size_t>(net.size());
    const std::size_t count = parts.count(net.rank());
    const std::size_t each = count * in.element_size();
    std::byte* const slots = made.scratch(ranks * each);
    co_await exchange(net, made, in, parts, slots);
    const bool at_once = ranks <= most;
    if (!at_once && by.prepare != nullptr) prepare_all(made, slots, ranks, count, each, by);
    const void* inputs[most] = {slots};
    std::size_t done = 1;
    do {
      std::size_t with = 1;
      for (; with < most && done < ranks; ++with, ++done) inputs[with] = slots + done * each;
      const bool last = done == ranks;
      made.fold(by, {inputs,
                     with,
                     last ? result : slots,
                     nullptr,
                     count,
                     last ? net.size() : 0,
                     {},
                     !at_once});
    } while (done < ranks);
  }
  static void prepare_all(const call& made, std::byte* slots, std::size_t ranks, std::size_t count,
                          std::size_t each, const reduction& by) {
    for (std::size_t r = 0; r < ranks; ++r) {
      const void* const one = slots + r * each;
      made.fold(by, {&one, 1, slots + r * each, nullptr, count, 0, {}, false});
    }
  }
  static task<> all_fold(channel net, call& made, any_buffer in, any_buffer out, reduction by) {
    const partition parts(in.size(), net.size());
    void* const own = chunks{out, parts}[net.rank()].data();
    co_await fold_own(net, made, in, parts, own, by);
    gather_all(net, made, own, out, parts);
    co_await made.settled();
  }

  /// Each rank works on one chunk: the folds of the ranks up to 0, 1, ..., and each to its rank.
  static task<> prefixes(channel net, any_buffer in, any_buffer out, reduction by, bool with_own) {
    const auto work = [=](call& made) -> task<> {
      const int me = net.rank();
      const partition parts(in.size(), net.size());
      const std::size_t count = parts.count(me);
      const std::size_t each = count * in.element_size();
      const auto ranks = static_cast<std::size_t>(net.size());
      std::byte* const slots = made.scratch(ranks * each);
      co_await exchange(net, made, in, parts, slots);
      if (by.prepare != nullptr) prepare_all(made, slots, ranks, count, each, by);
      for (std::size_t r = 1; r < ranks; ++r) {
        const void* const both[] = {slots + (r - 1) * each, slots + r * each};
        made.fold(by, {both, 2, slots + r * each, nullptr, count, 0, {}, true});
      }
      if (by.finish != nullptr) {
        for (std::size_t r = 0; r < ranks; ++r) {
          const void* const one = slots + r * each;
          made.fold(by,
                    {&one, 1, slots + r * each, nullptr, count, static_cast<int>(r) + 1, {}, true});
        }
      }
      const int first = with_own ? 0 : 1;  // exscan: rank 0 gets nothing
      const auto slot = [&](int r) { return slots + static_cast<std::size_t>(r - first) * each; };
      if (me >= first) made.copy(chunks{out, parts}[me].data(), slot(me), each);
      made.grouped([&] {
        for (int r = 0; r < net.size(); ++r) {
          if (r == me) continue;
          if (r >= first) send(made, {slot(r), each}, r);
          if (me >= first) recv(made, bytes(chunks{out, parts}[r]), r);
        }
      });
      co_await made.settled();
    };
    co_await submitted(net, work);
  }

  /// What rank 0 tells the others before NCCL's communicator is made.
  struct introduction {
    int version = 0;
    cuda::nccl_api::unique_id id{};
  };
  static task<> make(channel net, call& made) {
    introduction mine;
    cuda::check_nccl(cuda::nccl_api::version(mine.version), "ncclGetVersion");
    check_version(mine.version);
    if (net.rank() == 0) cuda::check_nccl(cuda::nccl_api::make_id(mine.id), "ncclGetUniqueId");
    introduction heard = mine;
    const any_buffer words(&heard, sizeof heard, 1);
    const below host = net;
    co_await binomial_tree::broadcast(host.lane(1), words, 0);
    if (heard.version != mine.version) {
      failure why(errc::version_mismatch);
      why.say("rank 0 runs NCCL %d and rank %d NCCL %d", heard.version, net.rank(), mine.version);
      throw error(why);
    }
    {
      const cuda::on_device guard(net.net().device());
      made.with().make(net.size(), heard.id, net.rank());
    }
    co_await made.settled();
  }
  static void check_version(int runs) {
    constexpr int built = cuda::nccl_api::header_version;
    if (runs >= built && runs / 10'000 == built / 10'000) return;
    failure why(errc::version_mismatch);
    why.say(
        "this program was compiled with the header of NCCL %d and runs with NCCL %d, which is "
        "older or of another kind: see what libnccl.so.2 it loads",
        built, runs);
    throw error(why);
  }

  /// `work(call)` enqueues, in the order of the calls; then the stream is awaited. Meanwhile each
  /// rank says to the next what call this is: no round trip, and ranks that have made different
  /// calls are told.
  template <class Work>
  static task<> submitted(channel net, Work work) {
    cuda::nccl_area& area = net.net().area();
    cuda::nccl_clique& with = area.clique_of(*net.record().communicator, net.net().matching());
    call made(area, with, net.record());
    cuda::turns::place turn(with.line());
    co_await turn.come();
    // A call before it may have failed: another communicator of NCCL would wait for nobody.
    const communicator_state& group = *net.record().communicator;
    if (group.failed()) throw error(group.why());
    made.begin();
    if (with.is_made()) {
      co_await made.settled();  // a peer may have died since the last call
    } else {
      co_await make(net, made);
    }
    made.choose_stream();
    co_await work(made);
    turn.leave();
    if (net.size() == 1) {
      co_await made.landed(net);
      co_return;
    }
    const mutable_bytes nothing;
    const int next = net.rank() + 1 < net.size() ? net.rank() + 1 : 0;
    const int before = net.rank() > 0 ? net.rank() - 1 : net.size() - 1;
    co_await when_all(made.landed(net), net.send(next, nothing), net.recv(before, nothing));
  }
};

template <class Host>
struct catalogue<basic_channel<cuda::nccl_transport<Host>>> {
  using channel = basic_channel<cuda::nccl_transport<Host>>;
  template <class Function>
  using rows = std::array<row<Function>, 1>;

  /// What NCCL reduces has no order; what is folded here has that of the ranks.
  static algorithm_set legal(const question& asked) {
    algorithm_set found;
    const bool has_no_order = asked.reduces && asked.commutative && asked.sum == order::rank;
    if (!has_no_order) found.add(algorithm::native);
    return found;
  }

  static constexpr rows<task<>(channel)> barrier{
      {{{algorithm::native}, &bodies<channel>::barrier}}};
  static constexpr rows<void()> broadcast{{{{algorithm::native}, nullptr}}};
  static constexpr auto all_reduce = broadcast;
  static constexpr std::array<row<task<>(channel, any_buffer, any_buffer, any_op)>, 0>
      all_reduce_apart{};
  static constexpr std::array<row<task<>(channel, any_buffer, any_buffer, partition)>, 0>
      all_gather_apart{};
  static constexpr auto reduce = broadcast;
  static constexpr auto reduce_scatter = broadcast;
  static constexpr auto all_gather = broadcast;
  static constexpr auto all_to_all = broadcast;

  template <collective What>
  static constexpr const auto& algorithms() {
    if constexpr (What == collective::barrier) {
      return barrier;
    } else {
      return broadcast;
    }
  }
};

}  // namespace detail

}  // namespace colls

namespace colls::cuda {

/// A model for `attach`: NCCL, which the ranks meet in through the communicator that is attached
/// to. NCCL reduces what it has: sums, products, minima, maxima of 1, 4 and 8 byte integers and
/// floating types, and averages of the latter, in its own order and precision, at each hop. Any
/// other operation or type, and scans, are folded in the order of the ranks by kernels: in a .cu
/// file that nvcc compiles. Ends with `errc::version_mismatch` where NCCL is older than its header
/// was, or not the same on all ranks.
struct nccl {
  struct settings {};

  template <class Transport>
  static task<communicator<nccl_transport<Transport>>> attach(communicator<Transport>& comm,
                                                              int device, settings, options call) {
    const auto make = [&](std::shared_ptr<Transport> host) {
      return std::make_shared<nccl_transport<Transport>>(std::move(host), device);
    };
    auto made = co_await comm.over(4, make, call);
    co_await made.barrier(call);
    co_return std::move(made);  // nvcc moves nothing by itself
  }
};

}  // namespace colls::cuda
