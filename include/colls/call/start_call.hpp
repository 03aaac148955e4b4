// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// start_call: checks the arguments of each call, chooses an algorithm for the call, and starts it.
// This header defines the functions that communicator_core.hpp declares. They are compiled once per
// transport.

#include <colls/algorithm/table.hpp>
#include <colls/base/shared_buffer.hpp>
#include <colls/call/call_body.hpp>
#include <colls/call/call_request.hpp>
#include <colls/call/communicator_core.hpp>
#include <colls/call/frameless_call.hpp>
#include <colls/call/point_to_point.hpp>
#include <colls/selection/calibrate.hpp>

namespace colls::detail {

template <class Transport>
core<Transport>::core(std::shared_ptr<Transport> net, std::uint32_t id, int rank, int size,
                      std::shared_ptr<const std::vector<int>> members, bool is_world)
    : call_queue(net->matching(), net->queue(), id, rank, size, std::move(members), is_world),
      net_(std::move(net)) {
  static_assert(transport<Transport>);
  try {
    if constexpr (priced_transport<Transport>) set_costs(net_->costs());
  } catch (const std::bad_alloc&) {
    shut_down();
    throw;
  }
}
template <class Transport>
core<Transport>::~core() {
  shut_down();
}

template <class Transport>
std::shared_ptr<std::byte> core<Transport>::allocate(std::size_t size) {
  if constexpr (std::is_same_v<transport_memory_t<Transport>, device_memory>) {
    // An allocation of 0 bytes could return null. The caller would take this for a lack of memory,
    // so this function allocates at least one byte.
    return net_->allocate(size != 0 ? size : 1);
  } else if constexpr (shared_window_transport<Transport>) {
    return net_->allocate(size);
  } else {
    return allocate_private_memory(size);
  }
}

template <class Transport>
time_point core<Transport>::now() const {
  return net_->now();
}
template <class Transport>
int core<Transport>::host_of(int rank) const {
  return net_->node_of(rank);
}
/// Polls the transport once. Called when the user asks whether an operation has ended. The user may
/// compute for a long time before the next poll. Therefore, if the poll has made progress, this
/// function wakes the driver, which writes the remaining output to the peers. The parameter `net`
/// is a copy, because the poll can destroy the object that contains the caller's pointer.
template <class Transport>
void poll_once(const std::shared_ptr<Transport> net) {
  if (net->driver().poll()) net->wake_driver();
}
template <class Transport>
void core<Transport>::progress() {
  poll_once(net_);
}
template <class Transport>
void core<Transport>::wake_driver() {
  net_->wake_driver();
}
template <class Transport>
void core<Transport>::call_ended(call_base& ended_call) noexcept {
  call_queue::call_ended(ended_call);
  // The coroutine that awaits the call may compute for a long time before this rank polls again.
  // Therefore this rank wakes the sleeping peers now.
  if constexpr (waking_transport<Transport>) net_->wake_peers();
}

/// Returns the algorithms of `entries` that can perform a call, of which only `pinned` is considered
/// unless it is `automatic`.
template <class AlgorithmTable, class Entries>
algorithm_candidates candidates_for(const Entries& entries, const selection_query& query,
                                    algorithm pinned) {
  algorithm_candidates result;
  for (const algorithm_info& info : entries) {
    const bool is_considered = pinned == algorithm::automatic || pinned == info.id;
    if (is_considered && AlgorithmTable::refusal(info, query) == nullptr) result.add(info);
  }
  return result;
}
/// Returns why no algorithm of `entries` that is considered can perform a call.
template <class AlgorithmTable, class Entries>
[[gnu::cold]] failure no_candidate(const Entries& entries, const selection_query& query,
                                   algorithm pinned) {
  failure reason(errc::not_applicable);
  if (pinned == algorithm::automatic) {
    return reason.set_detail(
        "%s: no algorithm of this communicator gives the bits of the sequential order",
        name(query.operation));
  }
  const char* objection = pinned == algorithm::custom
                              ? "an algorithm of your own is a template argument of the call"
                              : "no such algorithm for this collective";
  for (const algorithm_info& info : entries) {
    if (info.id == pinned) objection = AlgorithmTable::refusal(info, query);
  }
  return reason.set_detail("%s %s: %s", name(query.operation), name(pinned), objection);
}

// Satisfied by a transport that can use frameless algorithms, that is, algorithms that need no
// coroutine. The layered transports of `staged` and `cuda_ipc` inherit the algorithm table of the
// transport below them. They cannot use the frameless algorithms of this table, because their
// buffers are in a kind of memory that the transport below cannot access.
template <class Transport>
concept has_frameless =
    std::same_as<typename algorithm_table<basic_channel<Transport>>::transport, Transport>;
template <collective Coll, class Transport>
constexpr auto frameless_algorithms() {
  if constexpr (has_frameless<Transport>) {
    return algorithm_table<basic_channel<Transport>>::template frameless_algorithms<Coll>();
  } else {
    return algorithm_list<>();
  }
}
/// Returns `run.operator()<Algorithm>()` for the algorithm of the list that has the number `id`.
template <class Run, auto First, auto... Others>
[[gnu::always_inline]] inline auto dispatch(algorithm_list<First, Others...>, algorithm id,
                                            const Run& run) {
  if constexpr (sizeof...(Others) > 0) {
    if (id != First.id) return dispatch(algorithm_list<Others...>(), id, run);
  }
  return run.template operator()<First>();
}

/// Satisfied by a transport with native collectives, that is, implementations of collectives that
/// are not in the algorithm table, such as the GPU kernels of `cuda_ipc`. A call tries to use the
/// native collective if the call pins no algorithm, or pins `native` or `direct`. The call also has
/// an algorithm of the table, which it uses if it cannot use the native collective.
template <class Transport>
concept has_native_collectives = requires { requires Transport::has_native_collectives; };
template <class Transport>
bool uses_native(const options& opts) {
  if constexpr (has_native_collectives<Transport>) {
    return opts.algorithm == algorithm::automatic || opts.algorithm == algorithm::native ||
           opts.algorithm == algorithm::direct;
  }
  return false;
}
/// Returns the options for choosing an algorithm from the algorithm table. These are equal to
/// `opts`, except that they pin no algorithm if the call tries to use a native collective.
template <class Transport>
options selectable_options(const options& opts) {
  options result = opts;
  if (uses_native<Transport>(opts)) result.algorithm = algorithm::automatic;
  return result;
}

template <class Transport>
template <collective Coll>
[[gnu::noinline]] const call_cache::entry* core<Transport>::choose(const fingerprint& requested,
                                                                   const selection_query& query,
                                                                   const options& opts,
                                                                   const algorithm_info* custom,
                                                                   checks& check) {
  using all = algorithm_table<basic_channel<Transport>>;
  if (queue().is_run_by_other_thread()) {
    check.fail(second_thread_failure());
    return nullptr;
  }
  if (const call_cache::entry* const known = cache().find(requested, custom)) return known;
  check.require(opts.radix == 0 || opts.radix >= 2, "radix %d is not 2 or more", opts.radix);
  if (check.failed()) return nullptr;
  const options selectable = selectable_options<Transport>(opts);
  algorithm_candidates candidates;
  if (custom == nullptr) {
    const auto& entries = all::template algorithms<Coll>();
    candidates = candidates_for<all>(entries, query, selectable.algorithm);
    if (candidates.empty()) {
      check.fail(no_candidate<all>(entries, query, selectable.algorithm));
    }
  } else if (const char* const objection = detail::refusal(*custom, query)) {
    failure reason(errc::not_applicable);
    check.fail(reason.set_detail("%s %s: %s", name(Coll), custom->name, objection));
  } else {
    candidates.add(*custom);
  }
  if (check.failed()) return nullptr;
  const prediction chosen = tuning().choose(query, pinned_choice(selectable), candidates);
  fingerprint agreed = requested;
  set_choice(agreed, chosen.choice);
  if (uses_native<Transport>(opts)) agreed.algorithm = algorithm::native;
  if (custom != nullptr) remember_custom_algorithm(agreed.shape, custom->name);
  bool is_frameless = false;
  frameless_algorithms<Coll, Transport>().for_each([&]<auto Algorithm>() {
    if (Algorithm.id == chosen.choice.id) is_frameless = Algorithm.is_frameless(query);
  });
  return &cache().add(
      {requested, cached_call(agreed, chosen.choice), chosen.algorithm, is_frameless});
}

template <class Transport>
template <collective Coll, class MakeFingerprint, class MakeQuery, class Body, class Prepare>
[[gnu::always_inline]] inline operation<> core<Transport>::launch(
    const MakeFingerprint& make_fingerprint, const MakeQuery& make_query, const options& opts,
    const algorithm_info* custom, checks& check, std::size_t working_bytes, const Body& body,
    bool is_plain, const Prepare& prepare) {
  using channel = basic_channel<Transport>;
  using table_entry = typename std::remove_cvref_t<
      decltype(algorithm_table<channel>::template algorithms<Coll>())>::value_type;
  if (check.failed()) return refuse(make(Coll), check.reason());
  const call_cache::entry* known =
      custom == nullptr ? cache().find_last(make_fingerprint()) : nullptr;
  if (known == nullptr) {
    fingerprint requested = make_fingerprint();
    if (custom != nullptr) requested.shape = mix(requested.shape, hash_of_name(custom->name));
    known = choose<Coll>(requested, make_query(), opts, custom, check);
    if (known == nullptr) return refuse(make(Coll), check.reason());
  }
  constexpr auto frameless = frameless_algorithms<Coll, Transport>();
  if constexpr (!std::is_same_v<decltype(frameless), const algorithm_list<>>) {
    if (is_plain && known->is_frameless) {
      const auto run_frameless = [&]<auto Algorithm>() __attribute__((always_inline)) {
        using step = typename decltype(Algorithm)::template frameless<channel>;
        return begin<frameless_call<channel, step>>(known->cached, opts, working_bytes, prepare);
      };
      return dispatch(frameless, known->algorithm->id, run_frameless);
    }
  }
  const table_entry& chosen = static_cast<const table_entry&>(*known->algorithm);
  const auto make_body = [&](call<void>& new_call) __attribute__((always_inline)) {
    (void)(new_call.body = body(new_call, channel(*net_, new_call), chosen));
  };
  return begin<call<void>>(known->cached, opts, working_bytes, make_body);
}

template <class Transport>
template <collective Coll>
operation<> core<Transport>::reduce_to_all(const reduction& op, const any_buffer& in,
                                           const any_buffer& out, const options& opts,
                                           const algorithm_info* custom) {
  using channel = basic_channel<Transport>;
  checks check(Coll);
  check.check_size(in);
  if (in.data() != out.data() || in.size() != out.size()) {
    check_pair(check, in, out);
  }
  const auto make_fingerprint = [&] { return fingerprint_of(Coll, op, in.size(), -1, opts); };
  const auto make_query = [&] { return query_of(Coll, in.size(), state().size(), op, opts); };
  const auto body = [&](call<void>& new_call, const channel& net, const auto& chosen)
                        __attribute__((always_inline)) {
                          const int ranks = Coll == collective::all_reduce ? net.size()
                                            : Coll == collective::scan     ? net.rank() + 1
                                                                           : net.rank();
                          return call_body<channel>::reduce_to_all(
                              net, chosen.run, in, out, store_reduction(new_call, op), ranks);
                        };
  const auto prepare = [&](auto& new_call) __attribute__((always_inline)) {
    new_call.prepare(*net_, in, out, store_operation(new_call, op));
  };
  return launch<Coll>(make_fingerprint, make_query, opts, custom, check,
                      in.size() * op.accumulate_size, body, op.is_plain(), prepare);
}

template <class Transport>
operation<> core<Transport>::all_reduce_group(const reduction& op, std::vector<any_buffer> parts,
                                              const options& opts, const algorithm_info* custom) {
  using channel = basic_channel<Transport>;
  std::size_t total = 0;
  offsets sizes;
  sizes.reserve(parts.size());
  checks check(collective::all_reduce);
  for (const any_buffer& part : parts) {
    total += part.size();
    sizes.push_back(part.size());
    check.check_size(part);
    for (const any_buffer& other : parts) {
      check.require(&part == &other || part.size() == 0 || other.size() == 0 ||
                        (part.data() != other.data() && !overlap_partially(part, other)),
                    "two buffers of the group overlap");
    }
  }
  const auto make_fingerprint = [&] {
    return with_shape(fingerprint_of(collective::all_reduce, op, total, -1, opts), sizes);
  };
  const auto make_query = [&] {
    return query_of(collective::all_reduce, total, state().size(), op, opts);
  };
  const std::size_t working_bytes = total * op.accumulate_size;
  constexpr std::size_t max_packed_bytes = 64 * 1024;
  const auto body = [&](call<void>& new_call, const channel& net, const auto& chosen) {
    return call_body<channel>::all_reduce_group(net, chosen.run, std::move(parts),
                                                store_reduction(new_call, op),
                                                working_bytes <= max_packed_bytes);
  };
  return launch<collective::all_reduce>(make_fingerprint, make_query, opts, custom, check,
                                        working_bytes, body, false, [](auto&) {});
}

template <class Transport>
operation<> core<Transport>::reduce(const reduction& op, const any_buffer& in,
                                    const any_buffer& out, int root, const options& opts,
                                    const algorithm_info* custom) {
  using channel = basic_channel<Transport>;
  checks check(collective::reduce);
  check.check_size(in);
  check_root(check, root, state().size());
  if (state().rank() == root) {
    check_pair(check, in, out);
  }
  const auto make_fingerprint = [&] {
    return fingerprint_of(collective::reduce, op, in.size(), root, opts);
  };
  const auto make_query = [&] {
    return query_of(collective::reduce, in.size(), state().size(), op, opts);
  };
  const auto body = [&](call<void>& new_call, const channel& net, const auto& chosen) {
    return call_body<channel>::reduce(net, chosen.run, in, net.rank() == root ? out : any_buffer(),
                                      root, store_reduction(new_call, op));
  };
  const auto prepare = [&](auto& new_call) {
    new_call.prepare(*net_, in, out, root, store_operation(new_call, op));
  };
  return launch<collective::reduce>(make_fingerprint, make_query, opts, custom, check,
                                    in.size() * op.accumulate_size, body, op.is_plain(), prepare);
}

template <class Transport>
operation<> core<Transport>::reduce_scatter(const reduction& op, const any_buffer& in,
                                            const any_buffer& out, offsets shares,
                                            const options& opts, const algorithm_info* custom) {
  using channel = basic_channel<Transport>;
  const int rank = state().rank();
  const int size = state().size();
  checks check(collective::reduce_scatter);
  check_counts(check, shares, size, in.element_size());
  check.check_size(in).check_size(out);
  if (!check.failed()) {
    const partition parts = partition_of(shares, out.size(), size);
    const any_buffer own_block = in.size() >= parts.offset(rank) + parts.count(rank)
                                     ? chunks{in, parts}[rank]
                                     : any_buffer();
    check
        .require(in.size() == parts.offset(size),
                 "in has %zu elements, the shares of %d ranks are %zu", in.size(), size,
                 parts.offset(size))
        .require(out.size() == parts.count(rank), "out has %zu elements, this rank's share is %zu",
                 out.size(), parts.count(rank))
        .require(out.data() == own_block.data() || !overlap_partially(in, out),
                 "in and out overlap in part");
  }
  const auto make_fingerprint = [&] {
    return with_shape(fingerprint_of(collective::reduce_scatter, op, in.size(), -1, opts), shares);
  };
  const auto make_query = [&] {
    return query_of(collective::reduce_scatter, in.size(), size, op, opts);
  };
  const auto body = [&](call<void>& new_call, const channel& net, const auto& chosen) {
    return call_body<channel>::reduce_scatter(net, chosen.run, in, out, std::move(shares),
                                              store_reduction(new_call, op));
  };
  const auto prepare = [&](auto& new_call) {
    new_call.prepare(*net_, in, out, partition::blocks(out.size(), size),
                     store_operation(new_call, op));
  };
  return launch<collective::reduce_scatter>(make_fingerprint, make_query, opts, custom, check,
                                            in.size() * op.accumulate_size, body,
                                            shares.empty() && op.is_plain(), prepare);
}

template <class Transport>
operation<> core<Transport>::broadcast(std::uint32_t type, any_buffer data, int root,
                                       const options& opts, const algorithm_info* custom) {
  using channel = basic_channel<Transport>;
  checks check(collective::broadcast);
  check.check_size(data);
  check_root(check, root, state().size());
  const auto make_fingerprint = [&] {
    return fingerprint_of(collective::broadcast, type, data.element_size(), data.size(), root,
                          opts);
  };
  const auto make_query = [&] {
    return selection_query{collective::broadcast, data.size() * data.element_size(),
                           state().size()};
  };
  const auto body = [&](call<void>&, const channel& net, const auto& chosen) {
    return call_body<channel>::broadcast(net, chosen.run, data, root);
  };
  const auto prepare = [&](auto& new_call) { new_call.prepare(*net_, data, root); };
  return launch<collective::broadcast>(make_fingerprint, make_query, opts, custom, check, 0, body,
                                       true, prepare);
}

template <class Transport>
operation<> core<Transport>::barrier(const options& opts, const algorithm_info* custom) {
  using channel = basic_channel<Transport>;
  checks check(collective::barrier);
  const auto make_fingerprint = [&] {
    fingerprint result;
    result.operation = collective::barrier;
    set_choice(result, pinned_choice(opts));
    return result;
  };
  const auto make_query = [&] { return selection_query{collective::barrier, 0, state().size()}; };
  const auto body = [](call<void>&, const channel& net, const auto& chosen) {
    return chosen.run(net);
  };
  const auto prepare = [&](auto& new_call) { new_call.prepare(*net_); };
  return launch<collective::barrier>(make_fingerprint, make_query, opts, custom, check, 0, body,
                                     true, prepare);
}

template <class Transport>
operation<> core<Transport>::all_gather(std::uint32_t type, any_buffer in, any_buffer out,
                                        offsets shares, const options& opts,
                                        const algorithm_info* custom) {
  using channel = basic_channel<Transport>;
  const int rank = state().rank();
  const int size = state().size();
  checks check(collective::all_gather);
  check_counts(check, shares, size, in.element_size());
  check.check_size(in).check_size(out);
  if (!check.failed()) {
    const partition parts = partition_of(shares, in.size(), size);
    check
        .require(out.size() == parts.offset(size),
                 "out has %zu elements, the blocks of %d ranks are %zu", out.size(), size,
                 parts.offset(size))
        .require(in.size() == parts.count(rank), "in has %zu elements, this rank's block is %zu",
                 in.size(), parts.count(rank));
    if (!check.failed()) {
      check.require(in.data() == chunks{out, parts}[rank].data() || !overlap_partially(in, out),
                    "in and out overlap in part");
    }
  }
  const auto make_fingerprint = [&] {
    return with_shape(
        fingerprint_of(collective::all_gather, type, in.element_size(), out.size(), -1, opts),
        shares);
  };
  const auto make_query = [&] {
    return selection_query{collective::all_gather, out.size() * out.element_size(), size};
  };
  const auto body = [&](call<void>&, const channel& net, const auto& chosen) {
    return call_body<channel>::all_gather(net, chosen.run, in, out, std::move(shares));
  };
  const auto prepare = [&](auto& new_call) {
    new_call.prepare(*net_, in, out, partition::blocks(in.size(), size));
  };
  return launch<collective::all_gather>(make_fingerprint, make_query, opts, custom, check, 0, body,
                                        shares.empty(), prepare);
}

template <class Transport>
template <collective Coll>
operation<> core<Transport>::gather_or_scatter(std::uint32_t type, any_buffer own_block,
                                               any_buffer full, offsets shares, int root,
                                               const options& opts, const algorithm_info* custom) {
  using channel = basic_channel<Transport>;
  const int rank = state().rank();
  const int size = state().size();
  checks check(Coll);
  check_root(check, root, size);
  check_counts(check, shares, size, own_block.element_size());
  check.check_size(own_block).check_size(full);
  const std::size_t total =
      shares.empty() ? own_block.size() * static_cast<std::size_t>(size) : shares.back();
  if (!check.failed()) {
    const partition parts = partition_of(shares, own_block.size(), size);
    if (own_block.size() != parts.count(rank)) {
      check.require(false, "the buffer has %zu elements, this rank's share is %zu",
                    own_block.size(), parts.count(rank));
    } else if (rank == root && full.size() != total) {
      check.require(false, "the root's buffer has %zu elements, all shares are %zu", full.size(),
                    total);
    } else if (rank == root && own_block.data() != chunks{full, parts}[rank].data() &&
               overlap_partially(own_block, full)) {
      check.require(false, "in and out overlap in part");
    }
  }
  const auto make_fingerprint = [&] {
    return with_shape(fingerprint_of(Coll, type, own_block.element_size(), total, root, opts),
                      shares);
  };
  const auto make_query = [&] {
    return selection_query{Coll, total * own_block.element_size(), size};
  };
  constexpr bool gathers = Coll == collective::gather;
  const any_buffer root_buffer =
      rank == root ? full : any_buffer(nullptr, 0, own_block.element_size());
  const auto body = [&](call<void>&, const channel& net, const auto& chosen) {
    return call_body<channel>::gather_or_scatter(net, chosen.run, gathers ? own_block : root_buffer,
                                                 gathers ? root_buffer : own_block,
                                                 own_block.size(), std::move(shares), root);
  };
  const auto prepare = [&](auto& new_call) {
    new_call.prepare(*net_, gathers ? own_block : root_buffer, gathers ? root_buffer : own_block,
                     partition::blocks(own_block.size(), size), root);
  };
  return launch<Coll>(make_fingerprint, make_query, opts, custom, check, 0, body, shares.empty(),
                      prepare);
}

template <class Transport>
operation<> core<Transport>::all_to_all(std::uint32_t type, any_buffer in, any_buffer out,
                                        offsets sends, offsets receives, const options& opts,
                                        const algorithm_info* custom) {
  using channel = basic_channel<Transport>;
  checks check(collective::all_to_all);
  const auto ranks = static_cast<std::size_t>(state().size());
  const bool equal_blocks = sends.empty() && receives.empty();
  const auto own_count = [&](const offsets& list) {
    const auto me = static_cast<std::size_t>(state().rank());
    return list[me + 1] - list[me];
  };
  check_counts(check, sends, state().size(), in.element_size());
  check_counts(check, receives, state().size(), in.element_size());
  check.check_size(in).check_size(out);
  if (equal_blocks) {
    check
        .require(in.size() % ranks == 0, "in has %zu elements, no multiple of %zu ranks", in.size(),
                 ranks)
        .require(in.size() == out.size(), "in has %zu elements, out has %zu", in.size(),
                 out.size());
  } else if (!check.failed()) {
    check
        .require(in.size() == sends.back(), "in has %zu elements, the send counts are %zu",
                 in.size(), sends.back())
        .require(out.size() == receives.back(), "out has %zu elements, the receive counts are %zu",
                 out.size(), receives.back())
        .require(own_count(sends) == own_count(receives),
                 "this rank sends %zu elements to itself and receives %zu", own_count(sends),
                 own_count(receives))
        .require(in.data() != out.data() || sends == receives,
                 "in place, both lists of counts are equal");
  }
  check.require(!overlap_partially(in, out), "in and out overlap in part");
  // If the caller passes counts, the total size of the blocks may differ between ranks. But all
  // ranks must choose the same algorithm, so in this case the choice does not depend on the total
  // size and assumes long blocks. All ranks must also have the same fingerprint, so the fingerprint
  // does not contain the total size. Instead, the receiver of each message compares the length of
  // the message with its own count.
  constexpr std::size_t long_block = 64 * 1024;
  const std::size_t count = equal_blocks ? in.size() : 0;
  const auto make_fingerprint = [&] {
    fingerprint result =
        fingerprint_of(collective::all_to_all, type, in.element_size(), count, -1, opts);
    result.shape = equal_blocks ? 0 : 1;
    return result;
  };
  const auto make_query = [&] {
    return selection_query{collective::all_to_all,
                           equal_blocks ? count * in.element_size() : ranks * long_block,
                           state().size()};
  };
  const auto body = [&](call<void>&, const channel& net, const auto& chosen) {
    return call_body<channel>::all_to_all(net, chosen.run, in, out, std::move(sends),
                                          std::move(receives));
  };
  const auto prepare = [&](auto& new_call) {
    const partition blocks = partition::blocks(in.size() / ranks, state().size());
    new_call.prepare(*net_, in, blocks, out, blocks);
  };
  return launch<collective::all_to_all>(make_fingerprint, make_query, opts, custom, check, 0, body,
                                        equal_blocks && in.data() != out.data(), prepare);
}

// ---- costs

template <class Transport>
operation<> core<Transport>::measure(const options& opts) {
  fingerprint agreed;
  agreed.operation = collective::measure;
  const auto measure_costs = [](basic_channel<Transport> net, core& comm) -> task<> {
    network_cost costs = comm.tuning().costs();
    co_await detail::calibrate(net, costs);
    costs.cores = 0;  // because the measured times already include the sharing of cores
    comm.set_costs(costs);
  };
  return begin<call<void>>(cached_call(agreed), opts, 0, [&](auto& call) {
    (void)(call.body = measure_costs({*net_, call}, *this));
  });
}

template <class Transport>
explanation core<Transport>::explain(collective coll, std::uint64_t bytes, const options& requested,
                                     const algorithm_info* custom) const {
  const options opts = selectable_options<Transport>(requested);
  using all = algorithm_table<basic_channel<Transport>>;
  const bool reduces = coll == collective::all_reduce || coll == collective::reduce ||
                       coll == collective::reduce_scatter || coll == collective::scan ||
                       coll == collective::exscan;
  const selection_query query{coll, bytes, state().size(), true, opts.order, reduces};
  algorithm_candidates candidates;
  if (custom == nullptr) {
    with_collective(coll, [&]<collective Coll>() {
      candidates = candidates_for<all>(all::template algorithms<Coll>(), query, opts.algorithm);
    });
  } else if (detail::refusal(*custom, query) == nullptr) {
    candidates.add(*custom);
  }
  return tuning().explain(query, pinned_choice(opts), candidates);
}

// ---- point to point

inline void check_peer(checks& check, int peer, int ranks) {
  check.require(peer >= 0 && peer < ranks, "rank %d is not in 0..%d", peer, ranks - 1);
}

template <class Transport>
operation<> core<Transport>::send(any_buffer data, int dest, int tag, const options& opts) {
  auto* const new_call = make(collective::send);
  checks check(collective::send);
  check_peer(check, dest, state().size());
  check.require(tag >= 0, "tag %d is negative", tag).check_size(data);
  if (check.failed()) return refuse(new_call, check.reason());
  const message_key key{state().world_rank(dest), state().id(), static_cast<std::uint64_t>(tag),
                        message_key::point_to_point};
  return begin_point_to_point(new_call, key.sequence, opts, [&](call_base& call) {
    return point_to_point_body<Transport>::send(net(), call, key, bytes(data));
  });
}

template <class Transport>
operation<received> core<Transport>::recv(any_buffer data, peer source, int tag,
                                          const options& opts) {
  auto* const new_call = make<call<received>>(collective::recv);
  checks check(collective::recv);
  if (!source.is_any()) check_peer(check, source.rank(), state().size());
  check.require(tag >= 0, "tag %d is negative", tag).check_size(data);
  if (check.failed()) return refuse(new_call, check.reason());
  const message_key key{
      source.is_any() ? posted_receive::any_source : state().world_rank(source.rank()),
      state().id(), static_cast<std::uint64_t>(tag), message_key::point_to_point};
  return begin_point_to_point(new_call, key.sequence, opts, [&](call_base& call) {
    return point_to_point_body<Transport>::recv(net(), call, key, bytes(data), data.element_size());
  });
}

template <class Transport>
operation<received> core<Transport>::send_recv(any_buffer outgoing, int dest, any_buffer incoming,
                                               peer source, int tag, const options& opts) {
  auto* const new_call = make<call<received>>(collective::send_recv);
  checks check(collective::send_recv);
  check_peer(check, dest, state().size());
  if (!source.is_any()) check_peer(check, source.rank(), state().size());
  check.require(tag >= 0, "tag %d is negative", tag)
      .check_size(outgoing)
      .check_size(incoming)
      .require(outgoing.data() != incoming.data() || outgoing.size() == 0,
               "what is sent and what is received are one buffer")
      .require(!overlap_partially(outgoing, incoming), "the two buffers overlap in part");
  if (check.failed()) return refuse(new_call, check.reason());
  const message_key to_key{state().world_rank(dest), state().id(), static_cast<std::uint64_t>(tag),
                           message_key::point_to_point};
  message_key from_key = to_key;
  from_key.peer = source.is_any() ? posted_receive::any_source : state().world_rank(source.rank());
  return begin_point_to_point(new_call, to_key.sequence, opts, [&](call_base& call) {
    return point_to_point_body<Transport>::send_recv(net(), call, to_key, bytes(outgoing), from_key,
                                                     bytes(incoming), incoming.element_size());
  });
}

}  // namespace colls::detail
