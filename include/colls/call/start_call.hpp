// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// start_call: checks the arguments of each collective and starts the call. This header defines
// functions that communicator_core.hpp declares. They are compiled once per transport.

#include <colls/call/call_body.hpp>
#include <colls/call/call_request.hpp>
#include <colls/call/choose_algorithm.hpp>
#include <colls/call/communicator_core.hpp>
#include <colls/call/frameless_call.hpp>
#include <colls/call/view_request.hpp>
#include <colls/selection/calibrate.hpp>

namespace colls::detail {

template <class Transport>
template <collective Coll>
[[gnu::noinline]] const call_cache::entry* core<Transport>::choose(fingerprint requested,
                                                                   const selection_query& query,
                                                                   const options& opts,
                                                                   checks& check) {
  if (is_called_by_other_thread()) {
    check.fail(second_thread_failure(queue()));
    return nullptr;
  }
  const algorithm_info* const custom = custom_of(opts, Coll);
  if (custom != nullptr) requested.shape = with_name(requested.shape, custom->name);
  if (const call_cache::entry* const known = cache().find(requested, custom)) return known;
  selection_query complete = query;
  if constexpr (native_transport<Transport>) {
    complete.native_obstacle = net_->native_obstacle(state(), requested, tuning().costs());
  }
  const call_cache::entry chosen =
      choose_algorithm<Coll, Transport>(tuning(), requested, complete, opts, custom, check);
  return check.failed() ? nullptr : &cache().add(chosen);
}

template <class Transport>
explanation core<Transport>::explain(collective coll, std::uint64_t bytes, const options& opts,
                                     const algorithm_info* custom) const {
  const char* native_obstacle = nullptr;
  if constexpr (native_transport<Transport>) {
    fingerprint call;
    call.operation = coll;
    call.algorithm = opts.algorithm;
    native_obstacle = net_->native_obstacle(state(), call, tuning().costs());
  }
  return explain_choice<Transport>(tuning(), coll, bytes, state().size(), opts, custom,
                                   native_obstacle);
}

template <class Transport>
template <collective Coll, class MakeFingerprint, class MakeQuery, class Arguments, class Body>
[[gnu::always_inline]] inline operation<> core<Transport>::launch(
    const MakeFingerprint& make_fingerprint, const MakeQuery& make_query, const options& opts,
    checks& check, std::size_t working_bytes, bool is_plain, const Arguments& arguments,
    const Body& body) {
  using channel = basic_channel<Transport>;
  using table_entry = typename std::remove_cvref_t<
      decltype(algorithm_table<channel>::template algorithms<Coll>())>::value_type;
  if (check.failed()) return refuse(make(Coll), check.reason());
  // This finds no call that pins an algorithm of the user's own: the cached fingerprint of such a
  // call contains the name of the algorithm.
  const call_cache::entry* known = cache().find_last(make_fingerprint());
  if (known == nullptr) {
    known = choose<Coll>(make_fingerprint(), make_query(), opts, check);
    if (known == nullptr) return refuse(make(Coll), check.reason());
  }
  constexpr auto frameless = frameless_algorithms<Coll, Transport>();
  if constexpr (!std::is_same_v<decltype(frameless), const algorithm_list<>>) {
    if (is_plain && known->is_frameless) {
      const auto start = [&]<auto Algorithm>() __attribute__((always_inline)) {
        using step = typename class_of<Algorithm>::template frameless<channel>;
        const auto prepare =
            [&](frameless_call<channel, step>& new_call) __attribute__((always_inline)) {
              arguments(new_call, [&](const auto&... args) __attribute__((always_inline)) {
                new_call.prepare(*net_, args...);
              });
            };
        return begin<frameless_call<channel, step>>(known->cached, opts, working_bytes, prepare);
      };
      return dispatch(frameless, known->algorithm->id, start);
    }
  }
  const table_entry& chosen = static_cast<const table_entry&>(*known->algorithm);
  const auto make_body = [&](call<void>& new_call) __attribute__((always_inline)) {
    const channel net(*net_, new_call);
    if constexpr (works_on_caller_buffers<Transport>) {
      if (is_plain) {
        return arguments(new_call, [&](const auto&... args) __attribute__((always_inline)) {
          (void)(new_call.body = chosen.run(net, args...));
        });
      }
    }
    set_device_options<Transport>(new_call, opts);
    (void)(new_call.body = body(new_call, net, chosen));
  };
  return begin<call<void>>(known->cached, opts, working_bytes, make_body);
}

template <class Transport>
template <collective Coll>
operation<> core<Transport>::reduce_to_all(const reduction& op, const any_buffer& in,
                                           const any_buffer& out, const options& opts) {
  using channel = basic_channel<Transport>;
  checks check(Coll);
  check.check_size(in);
  if (in.data() != out.data() || in.size() != out.size()) {
    check_pair(check, in, out);
  }
  const auto make_fingerprint = [&] { return fingerprint_of(Coll, op, in.size(), -1, opts); };
  const auto make_query = [&] { return query_of(Coll, in.size(), state().size(), op, opts); };
  const auto arguments = [&](call<void>& new_call, const auto& use) {
    use(in, out, store_operation(new_call, op));
  };
  const auto body = [&](call<void>& new_call, const channel& net, const auto& chosen) {
    const int ranks = Coll == collective::all_reduce ? net.size()
                      : Coll == collective::scan     ? net.rank() + 1
                                                     : net.rank();
    return call_body<channel>::reduce_to_all(net, chosen.run, in, out,
                                             store_reduction(new_call, op), ranks);
  };
  return launch<Coll>(make_fingerprint, make_query, opts, check, in.size() * op.accumulate_size,
                      op.is_plain(), arguments, body);
}

/// Returns whether no two of the buffers overlap.
inline bool are_disjoint(std::vector<any_buffer> buffers) {
  std::erase_if(buffers, [](const any_buffer& each) { return each.size() == 0; });
  const auto address = [](const any_buffer& each) {
    return reinterpret_cast<std::uintptr_t>(each.data());
  };
  std::sort(buffers.begin(), buffers.end(),
            [&](const any_buffer& a, const any_buffer& b) { return address(a) < address(b); });
  for (std::size_t i = 1; i < buffers.size(); ++i) {
    const any_buffer& before = buffers[i - 1];
    if (address(before) + before.size() * before.element_size() > address(buffers[i])) return false;
  }
  return true;
}

/// Makes `check` fail if the call cannot write `part`.
inline void check_part(checks& check, const any_buffer& part) { check.check_size(part); }
inline void check_part(checks& check, const any_view& part) { check_writable(check, part); }

template <class Transport>
template <class Part>
operation<> core<Transport>::all_reduce_group(const reduction& op, std::vector<Part> parts,
                                              const options& opts) {
  using channel = basic_channel<Transport>;
  std::size_t total = 0;
  offsets sizes;
  sizes.reserve(parts.size());
  checks check(collective::all_reduce);
  for (const Part& part : parts) {
    total += part.size();
    sizes.push_back(part.size());
    check_part(check, part);
  }
  check.require(check.failed() || are_disjoint(parts), "two buffers of the group overlap");
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
  const auto no_arguments = [](call<void>&, const auto&) {};
  return launch<collective::all_reduce>(make_fingerprint, make_query, opts, check, working_bytes,
                                        false, no_arguments, body);
}

template <class Transport>
operation<> core<Transport>::reduce(const reduction& op, const any_buffer& in,
                                    const any_buffer& out, int root, const options& opts) {
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
  const any_buffer result = state().rank() == root ? out : any_buffer();
  const auto arguments = [&](call<void>& new_call, const auto& use) {
    use(in, result, root, store_operation(new_call, op));
  };
  const auto body = [&](call<void>& new_call, const channel& net, const auto& chosen) {
    return call_body<channel>::reduce(net, chosen.run, in, result, root,
                                      store_reduction(new_call, op));
  };
  return launch<collective::reduce>(make_fingerprint, make_query, opts, check,
                                    in.size() * op.accumulate_size, op.is_plain(), arguments, body);
}

template <class Transport>
operation<> core<Transport>::reduce_scatter(const reduction& op, const any_buffer& in,
                                            const any_buffer& out, offsets shares,
                                            const options& opts) {
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
  const auto arguments = [&](call<void>& new_call, const auto& use) {
    use(in, out, partition::blocks(out.size(), size), store_operation(new_call, op));
  };
  const auto body = [&](call<void>& new_call, const channel& net, const auto& chosen) {
    return call_body<channel>::reduce_scatter(net, chosen.run, in, out, std::move(shares),
                                              store_reduction(new_call, op));
  };
  return launch<collective::reduce_scatter>(make_fingerprint, make_query, opts, check,
                                            in.size() * op.accumulate_size,
                                            shares.empty() && op.is_plain(), arguments, body);
}

template <class Transport>
operation<> core<Transport>::broadcast(std::uint32_t type, any_buffer data, int root,
                                       const options& opts) {
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
  const auto arguments = [&](call<void>&, const auto& use) { use(data, root); };
  const auto body = [&](call<void>&, const channel& net, const auto& chosen) {
    return call_body<channel>::broadcast(net, chosen.run, data, root);
  };
  return launch<collective::broadcast>(make_fingerprint, make_query, opts, check, 0, true,
                                       arguments, body);
}

template <class Transport>
operation<> core<Transport>::barrier(const options& opts) {
  using channel = basic_channel<Transport>;
  checks check(collective::barrier);
  const auto make_fingerprint = [&] {
    fingerprint result;
    result.operation = collective::barrier;
    set_choice(result, pinned_choice(opts));
    return result;
  };
  const auto make_query = [&] { return selection_query{collective::barrier, 0, state().size()}; };
  const auto no_arguments = [](call<void>&, const auto& use) { use(); };
  const auto body = [](call<void>&, const channel& net, const auto& chosen) {
    return chosen.run(net);
  };
  return launch<collective::barrier>(make_fingerprint, make_query, opts, check, 0, true,
                                     no_arguments, body);
}

template <class Transport>
operation<> core<Transport>::all_gather(std::uint32_t type, any_buffer in, any_buffer out,
                                        offsets shares, const options& opts) {
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
  const auto arguments = [&](call<void>&, const auto& use) {
    use(in, out, partition::blocks(in.size(), size));
  };
  const auto body = [&](call<void>&, const channel& net, const auto& chosen) {
    return call_body<channel>::all_gather(net, chosen.run, in, out, std::move(shares));
  };
  return launch<collective::all_gather>(make_fingerprint, make_query, opts, check, 0,
                                        shares.empty(), arguments, body);
}

template <class Transport>
template <collective Coll>
operation<> core<Transport>::gather_or_scatter(std::uint32_t type, any_buffer own_block,
                                               any_buffer full, offsets shares, int root,
                                               const options& opts) {
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
  const any_buffer& first = gathers ? own_block : root_buffer;
  const any_buffer& second = gathers ? root_buffer : own_block;
  const auto arguments = [&](call<void>&, const auto& use) {
    use(first, second, partition::blocks(own_block.size(), size), root);
  };
  const auto body = [&](call<void>&, const channel& net, const auto& chosen) {
    return call_body<channel>::gather_or_scatter(net, chosen.run, first, second, own_block.size(),
                                                 std::move(shares), root);
  };
  return launch<Coll>(make_fingerprint, make_query, opts, check, 0, shares.empty(), arguments,
                      body);
}

template <class Transport>
operation<> core<Transport>::all_to_all(std::uint32_t type, any_buffer in, any_buffer out,
                                        offsets sends, offsets receives, const options& opts) {
  using channel = basic_channel<Transport>;
  checks check(collective::all_to_all);
  const auto ranks = static_cast<std::size_t>(state().size());
  const bool in_place = in.data() == out.data();
  const all_to_all_blocks blocks{type, in.element_size(), in.size(), out.size(), sends, receives};
  check.check_size(in).check_size(out);
  check_all_to_all(check, blocks, state().rank(), state().size(), in_place);
  check.require(!overlap_partially(in, out), "in and out overlap in part");
  // All ranks must choose the same algorithm. If the caller passes counts, the total size of the
  // blocks may differ between ranks, so the choice assumes long blocks.
  constexpr std::size_t long_block = 64 * 1024;
  const bool are_equal = blocks.are_equal();
  const auto make_fingerprint = [&] { return fingerprint_of(blocks, opts); };
  const auto make_query = [&] {
    return selection_query{collective::all_to_all,
                           are_equal ? in.size() * in.element_size() : ranks * long_block,
                           state().size()};
  };
  const auto arguments = [&](call<void>&, const auto& use) {
    const partition parts = partition::blocks(in.size() / ranks, state().size());
    use(in, parts, out, parts);
  };
  const auto body = [&](call<void>&, const channel& net, const auto& chosen) {
    return call_body<channel>::all_to_all(net, chosen.run, in, out, std::move(sends),
                                          std::move(receives));
  };
  return launch<collective::all_to_all>(make_fingerprint, make_query, opts, check, 0,
                                        are_equal && !in_place, arguments, body);
}

// ---- costs

template <class Transport>
operation<> core<Transport>::measure(const options& opts) {
  fingerprint agreed;
  agreed.operation = collective::measure;
  const auto measure_costs = [](basic_channel<Transport> net, core& comm) -> task<> {
    network_cost costs = comm.tuning().costs();
    co_await detail::calibrate(net, costs);
    if constexpr (native_transport<Transport>) {
      co_await net.net().measure_collectives(net, costs);
    }
    costs.cores = 0;  // because the measured times already include the sharing of cores
    comm.set_costs(costs);
  };
  return begin<call<void>>(cached_call(agreed), opts, 0, [&](auto& call) {
    (void)(call.body = measure_costs({*net_, call}, *this));
  });
}

}  // namespace colls::detail
