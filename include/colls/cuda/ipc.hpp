// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// cuda_ipc: ranks of one host work where each other's device memory lies. Of the ranks that share a
// GPU one does all of their work, so that no kernel waits for another process. Ranks on GPUs of
// their own sum short vectors by kernels that write to each other, and may pass long ones round.
// What ranks cannot see of each other, and messages, are staged.

#include <colls/algorithm/multi_send_recv.hpp>
#include <colls/cuda/ipc_operation.hpp>
#include <colls/cuda/ipc_ring.hpp>
#include <colls/cuda/peer_group.hpp>
#include <colls/cuda/staged.hpp>
#if defined(__CUDACC__) || defined(COLLS_CUDA_STAND_IN)
#include <colls/cuda/one_shot.cuh>
#endif

namespace colls::cuda {

/// A transport of the host, for communicators whose buffers are in device memory that other ranks
/// see.
template <transport Host>
class ipc_transport : public staged_transport<Host> {
 public:
  static constexpr bool reduces_on_device = true;
  static constexpr bool shoots_on_device = true;
  static constexpr bool has_own_way = true;

  ipc_transport(std::shared_ptr<Host> host, int device, const staging& how)
      : staged_transport<Host>(host, device, how),
        here_(std::make_unique<neighbourhood>(device, host->rank(), host->size())),
        islands_(std::make_unique<islands>(*here_)) {}

  neighbourhood& here() const { return *here_; }
  /// Zeros in memory that other ranks may keep mapped when it is freed, where that can be had.
  std::shared_ptr<std::byte> allocate(std::size_t size) {
    std::shared_ptr<std::byte> made = here_->allocate(size, passable_memory::work::of_users);
    this->stage().clear(made.get(), size);
    return made;
  }
  island& island_of(const communicator_state& which) {
    return islands_->of(which, this->matching());
  }

 private:
  std::unique_ptr<neighbourhood> here_;
  std::unique_ptr<islands> islands_;
};

}  // namespace colls::cuda

namespace colls {

template <class Host>
struct transport_memory<cuda::ipc_transport<Host>> {
  using type = device_memory;
};

namespace detail {

/// The host's algorithms, for what is staged.
template <class Host>
struct catalogue<basic_channel<cuda::ipc_transport<Host>>> : catalogue<basic_channel<Host>> {};

/// Messages of point to point are staged.
template <class Host>
struct messages<cuda::ipc_transport<Host>> : messages<cuda::staged_transport<Host>> {};

/// What calls run: each its work in one visit.
template <class Host>
struct bodies<basic_channel<cuda::ipc_transport<Host>>> {
  using channel = basic_channel<cuda::ipc_transport<Host>>;
  using below = basic_channel<Host>;
  using staged_channel = basic_channel<cuda::staged_transport<Host>>;
  using staged = bodies<staged_channel>;
  using visit = cuda::visit<below>;
  template <class Function>
  using run = Function*;
  using offsets = std::vector<std::size_t>;

  static bool moves_nothing(any_buffer, any_buffer, const reduction&) { return false; }

  /// all_reduce and scan.
  static task<> in_place(channel net, run<task<>(below, any_buffer, any_op)> algorithm,
                         any_buffer in, any_buffer out, reduction by, int ranks) {
    cuda::island* const with = island_for(net, in, by);
    if (with == nullptr) {
      co_await visited(net, algorithm, in, out, by, ranks);
      co_return;
    }
    const below host = net;
    const cuda::stream_pool::loan after(net.net().here().streams());
    after->follow(net.record().stream);
    const bool done = co_await cuda::shoot(host, *with, *after, in, out, by);
    net.record().stream = after->ref();
    if (!done) co_await visited(net, algorithm, in, out, by, ranks);
  }

  static task<> visited(channel net, run<task<>(below, any_buffer, any_op)> algorithm,
                        any_buffer in, any_buffer out, reduction by, int ranks) {
    const bool is_scan = net.record().what == collective::scan;
    const auto work = [&](visit& call) {
      if (is_scan) {
        prefixes(call, by, net.size(), in.size(), 0);
      } else {
        sum(call, by, net.size(), in.size(), each_rank(net.size()));
      }
    };
    const bool done = co_await together(net, in, out, work, true, &by);
    if (!done) co_await staged::in_place(as_staged(net), algorithm, in, out, by, ranks);
  }

  static task<> exscan(channel net, run<task<>(below, any_buffer, any_op)> algorithm,
                       any_buffer data, reduction by) {
    const auto work = [&](visit& call) { prefixes(call, by, net.size(), data.size(), 1); };
    const bool done = co_await together(net, data, data, work);
    if (!done) co_await staged::exscan(as_staged(net), algorithm, data, by);
  }

  static task<> reduce(channel net,
                       run<task<>(below, any_buffer, any_buffer, int, any_op)> algorithm,
                       any_buffer in, any_buffer out, int root, reduction by) {
    const auto work = [&](visit& call) { sum(call, by, net.size(), in.size(), {root}); };
    const bool done = co_await together(net, in, out, work);
    if (!done) co_await staged::reduce(as_staged(net), algorithm, in, out, root, by);
  }

  static task<> broadcast(channel net, run<task<>(below, any_buffer, int)> algorithm,
                          any_buffer data, int root) {
    const auto work = [&](visit& call) {
      for (const int rank : each_rank(net.size())) {
        if (call.works_for(rank)) call.copy(call.out(rank), call.in(root), bytes(data).size);
      }
    };
    const bool done = co_await together(net, data, data, work);
    if (!done) co_await staged::broadcast(as_staged(net), algorithm, data, root);
  }

  /// One buffer after the other.
  static task<> grouped(channel net, run<task<>(below, any_buffer, any_op)> algorithm,
                        std::vector<any_buffer> group, reduction by, bool packed) {
    if (!reaches_all(net)) {
      co_await staged::grouped(as_staged(net), algorithm, std::move(group), by, packed);
      co_return;
    }
    for (const any_buffer& part : group) {
      co_await visited(net, algorithm, part, part, by, net.size());
    }
  }

  static task<> reduce_scatter(
      channel net, run<task<>(below, any_buffer, any_buffer, partition, any_op)> algorithm,
      any_buffer in, any_buffer out, offsets table, reduction by) {
    const partition parts = shares_of(table, out.size(), net.size());
    const std::size_t element = in.element_size();
    const auto work = [&](visit& call) {
      for (const int rank : each_rank(net.size())) {
        if (!call.works_for(rank)) continue;
        const auto ins = inputs(call, net.size(), parts.offset(rank) * element);
        call.fold(by, ins, {call.out(rank)}, parts.count(rank), net.size());
      }
    };
    const bool done = co_await together(net, in, out, work);
    if (!done) {
      co_await staged::reduce_scatter(as_staged(net), algorithm, in, out, std::move(table), by);
    }
  }

  static task<> all_gather(channel net, run<task<>(below, any_buffer, partition)> algorithm,
                           any_buffer in, any_buffer out, offsets table) {
    const bool done = co_await gathered(net, in, out, table);
    if (!done) co_await staged::all_gather(as_staged(net), algorithm, in, out, table);
  }
  static task<> all_gather_apart(channel net,
                                 run<task<>(below, any_buffer, any_buffer, partition)> algorithm,
                                 any_buffer in, any_buffer out, offsets table) {
    const bool done = co_await gathered(net, in, out, table);
    if (!done) co_await staged::all_gather_apart(as_staged(net), algorithm, in, out, table);
  }

  /// gather and scatter: `share` elements are this rank's, all lie on the root.
  static task<> rooted(channel net,
                       run<task<>(below, any_buffer, any_buffer, partition, int)> algorithm,
                       any_buffer first, any_buffer second, std::size_t share, offsets table,
                       int root) {
    const partition parts = shares_of(table, share, net.size());
    const bool gathers = net.record().what == collective::gather;
    const std::size_t element = first.element_size();
    const auto work = [&](visit& call) {
      if (gathers) {
        if (call.works_for(root)) gather_to(call, root, parts, element);
        return;
      }
      for (const int rank : each_rank(net.size())) {
        if (!call.works_for(rank)) continue;
        call.copy(call.out(rank), call.in(root) + parts.offset(rank) * element,
                  parts.count(rank) * element);
      }
    };
    const bool done = co_await together(net, first, second, work);
    if (!done) {
      co_await staged::rooted(as_staged(net), algorithm, first, second, share, std::move(table),
                              root);
    }
  }

  /// Where counts are a rank's own, all tell all of theirs first. What is in place on any rank is
  /// staged.
  static task<> all_to_all(
      channel net, run<task<>(below, any_buffer, partition, any_buffer, partition)> algorithm,
      any_buffer in, any_buffer out, offsets sends, offsets receives) {
    const std::size_t block = in.size() / static_cast<std::size_t>(net.size());
    std::vector<blocks> of(
        static_cast<std::size_t>(net.size()),
        {shares_of(sends, block, net.size()), shares_of(receives, block, net.size())});
    if (reaches_all(net) && !(sends.empty() && receives.empty())) {
      co_await exchange(net, of);
    }
    const std::size_t element = in.element_size();
    const auto work = [&](visit& call) {
      for (const int to : each_rank(net.size())) {
        if (!call.works_for(to)) continue;
        for (const int from : each_rank(net.size())) {
          const span part = of[static_cast<std::size_t>(from)].sent[to];
          const std::size_t at = of[static_cast<std::size_t>(to)].received[from].first;
          call.copy(call.out(to) + at * element, call.in(from) + part.first * element,
                    part.count * element);
        }
      }
    };
    const bool is_apart = in.data() != out.data() || in.size() == 0;
    const bool done = co_await together(net, in, out, work, is_apart);
    if (!done) {
      co_await staged::all_to_all(as_staged(net), algorithm, in, out, std::move(sends),
                                  std::move(receives));
    }
  }

 private:
  static staged_channel as_staged(const channel& net) { return {net.net(), net.record()}; }
  /// Whether a visit is what a call asks for, or a round; one that pins another algorithm is staged
  /// by that.
  static bool may_visit(const operation_record& asked) {
    return asked.pinned == algorithm::automatic || asked.pinned == algorithm::native ||
           asked.pinned == algorithm::direct || pins_ring(asked);
  }
  static bool pins_ring(const operation_record& asked) {
    return asked.pinned == algorithm::ring && asked.what == collective::all_reduce;
  }
  static bool reaches_all(const channel& net) {
    return may_visit(net.record()) && net.size() <= cuda::most_visitors && net.nodes().nodes() == 1;
  }

  /// For what may be summed without a word before it; null: that has to be a visit, on all ranks.
  static cuda::island* island_for(const channel& net, const any_buffer& data, const reduction& by) {
    if (by.shot_on_device == nullptr || net.size() < 2 || !reaches_all(net)) return nullptr;
    if (pins_ring(net.record())) return nullptr;
    if (cuda::shots_for(bytes(data).size, data.element_size(), net.size()) == 0) return nullptr;
    cuda::island& with = net.net().island_of(*net.record().communicator);
    return with.is_refused() ? nullptr : &with;
  }

  /// Elements of a buffer.
  struct span {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
  };
  /// Which a rank sends to each other one, and where it takes what they send.
  struct blocks {
    span sent[cuda::most_visitors];
    span received[cuda::most_visitors];

    blocks(const partition& from, const partition& to) {
      for (int rank = 0; rank < from.ranks() && rank < cuda::most_visitors; ++rank) {
        sent[rank] = {from.offset(rank), from.count(rank)};
        received[rank] = {to.offset(rank), to.count(rank)};
      }
    }
  };
  /// Replaces all but this rank's by those that the others have.
  static task<> exchange(channel net, std::vector<blocks>& of) {
    const below host = net;
    auto* const all = reinterpret_cast<std::byte*>(of.data());
    const auto mine = static_cast<std::size_t>(net.rank());
    const const_bytes own(all + mine * sizeof(blocks), sizeof(blocks));
    co_await one_round::share_with_all(host, own, all);
    for (int rank = 0; rank < net.size(); ++rank) {
      const std::uint64_t sent = of[static_cast<std::size_t>(rank)].sent[mine].count;
      const std::uint64_t received = of[mine].received[rank].count;
      if (sent == received) continue;
      failure why(errc::mismatch);
      why.say("rank %d sends %llu elements to rank %d, which receives %llu", rank,
              static_cast<unsigned long long>(sent), net.rank(),
              static_cast<unsigned long long>(received));
      throw error(why);
    }
  }

  /// Whether a sum may go round: in any order, and its elements travel as they are.
  static cuda::ring_use ring_for(const operation_record& asked, std::size_t size,
                                 const reduction& by) {
    const bool keeps_order = asked.sum == order::rank || !by.op.commutative || !by.op.associative;
    const bool is_wider = by.prepare != nullptr || by.accumulate_size != by.storage_size;
    const bool is_sum = asked.what == collective::all_reduce;
    if (!is_sum || keeps_order || is_wider) return cuda::ring_use::never;
    if (pins_ring(asked)) return cuda::ring_use::always;
    const bool is_long = size >= cuda::least_round && asked.pinned == algorithm::automatic;
    return is_long ? cuda::ring_use::between_nodes : cuda::ring_use::never;
  }

  /// `work(visit)` on the ranks that work, after what all ranks' streams had when they called; or
  /// the sum of all by `ring`. False: the call is staged, on all ranks.
  template <class Work>
  static task<bool> together(channel net, any_buffer in, any_buffer out, const Work& work,
                             bool lends = true, const reduction* ring = nullptr) {
    const below host = net;
    cuda::neighbourhood& here = net.net().here();
    if (!reaches_all(net)) co_return false;
    const cuda::stream_pool::loan before(here.streams());
    before->follow(net.record().stream);
    cuda::ring_use rings = cuda::ring_use::never;
    if (ring != nullptr) rings = ring_for(net.record(), bytes(in).size, *ring);
    const bool only_round = pins_ring(net.record());
    if (only_round && rings != cuda::ring_use::always) co_return false;
    visit call(host, here, bytes(in), bytes(out), lends, rings);
    co_await before->followed(*net.record().communicator);
    // What the call does after this (a group's next part, what is staged) follows a stream that
    // waits for no caller's.
    net.record().stream = here.by().ref();
    if (!co_await call.begin()) co_return false;
    if (cuda::goes_round(call.cards())) {
      cuda::ring_visit round(call, *ring, in.size());
      co_await round.run(net.net().stage());
    } else if (only_round) {
      call.decline();
      co_return false;
    } else {
      co_await call.run(work);
    }
    co_return true;
  }

  static task<bool> gathered(channel net, any_buffer in, any_buffer out, const offsets& table) {
    const partition parts = shares_of(table, in.size(), net.size());
    const std::size_t element = in.element_size();
    const auto work = [&](visit& call) {
      for (const int rank : each_rank(net.size())) {
        if (call.works_for(rank)) gather_to(call, rank, parts, element);
      }
    };
    const bool done = co_await together(net, in, out, work);
    co_return done;
  }

  static std::vector<int> each_rank(int ranks) {
    std::vector<int> all;
    for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
    return all;
  }
  static std::vector<const void*> inputs(const visit& call, int ranks, std::size_t at) {
    std::vector<const void*> all;
    for (int rank = 0; rank < ranks; ++rank) all.push_back(call.in(rank) + at);
    return all;
  }
  static void gather_to(visit& call, int to, const partition& parts, std::size_t element) {
    for (int from = 0; from < parts.ranks(); ++from) {
      call.copy(call.out(to) + parts.offset(from) * element, call.in(from),
                parts.count(from) * element);
    }
  }
  /// This rank's share of the sum of all inputs, to each of the outputs.
  static void sum(visit& call, const reduction& by, int ranks, std::size_t count,
                  const std::vector<int>& outputs) {
    const partition parts(count, call.workers());
    const std::size_t at = parts.offset(call.number()) * by.storage_size;
    std::vector<std::byte*> outs;
    for (const int rank : outputs) outs.push_back(call.out(rank) + at);
    call.fold(by, inputs(call, ranks, at), outs, parts.count(call.number()), ranks);
  }
  /// The same for the sums over the ranks up to each one, or before it: the highest first, since
  /// what it overwrites no other one needs.
  static void prefixes(visit& call, const reduction& by, int ranks, std::size_t count,
                       int left_out) {
    const partition parts(count, call.workers());
    const std::size_t at = parts.offset(call.number()) * by.storage_size;
    for (int rank = ranks - 1; rank >= left_out; --rank) {
      const int summed = rank + 1 - left_out;
      call.fold(by, inputs(call, summed, at), {call.out(rank) + at}, parts.count(call.number()),
                summed);
    }
  }
};

}  // namespace detail

}  // namespace colls

namespace colls::cuda {

/// A model for `attach`: ranks of one host whose device memory others can map (by descriptors what
/// `allocate` gives, by legacy CUDA IPC, or as threads of one process) work where it lies, by
/// kernels, which sum in the order of the ranks and send nothing (`options.wire`): up to 8 ranks,
/// on one GPU or several that reach each other. Where that cannot be, calls are staged by `how`,
/// and a line of the log says why; so are those that pin an algorithm, but `native` and `direct`,
/// which name the kernels, and `ring` where each rank has a GPU of its own: an all_reduce of long
/// vectors goes round then. Memory that was given to a call stays mapped by other ranks until their
/// communicators are destroyed, or they see other memory in its place.
struct cuda_ipc {
  using settings = staging;

  template <class Transport>
  static auto attach(communicator<Transport>& comm, int device, const staging& how, options call) {
    how.check();
    const auto make = [&](std::shared_ptr<Transport> host) {
      return std::make_shared<ipc_transport<Transport>>(std::move(host), device, how);
    };
    return comm.over(mix(how.shape(), 1), make, call);
  }
};

}  // namespace colls::cuda
