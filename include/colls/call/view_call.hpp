// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// view_call: starts the calls on strided views. This header defines functions that
// communicator_core.hpp declares.

#include <colls/call/call_request.hpp>
#include <colls/call/communicator_core.hpp>
#include <colls/call/start_call.hpp>
#include <colls/call/view_body.hpp>
#include <colls/call/view_message.hpp>
#include <colls/call/view_request.hpp>

namespace colls::detail {

template <class Transport>
void core<Transport>::check_blocks(checks& check, const any_view* all, const any_view& own,
                                   const offsets& shares) {
  const int size = state().size();
  const partition parts = partition_of(shares, own.size(), size);
  std::size_t total = 0;
  check
      .require(own.size() == parts.count(state().rank()),
               "the buffer has %zu elements, this rank's share is %zu", own.size(),
               parts.count(state().rank()))
      .require(!shares.empty() || (!__builtin_mul_overflow(own.size(), size, &total) &&
                                   total <= PTRDIFF_MAX / own.element_size()),
               "the shares of %d ranks are more elements than memory can hold", size);
  if (all == nullptr || check.failed()) return;
  check.require(all->size() == parts.offset(size),
                "the buffer of all blocks has %zu elements, the shares of %d ranks are %zu",
                all->size(), size, parts.offset(size));
}

template <class Transport>
std::size_t core<Transport>::first_of_own_block(const any_view& own, const offsets& shares) const {
  return partition_of(shares, own.size(), state().size()).offset(state().rank());
}

template <class Transport>
template <collective Coll, class Body>
operation<> core<Transport>::launch_body(const fingerprint& requested, const selection_query& query,
                                         const options& opts, checks& check,
                                         std::size_t working_bytes, const Body& body) {
  using channel = basic_channel<Transport>;
  using table_entry = typename std::remove_cvref_t<
      decltype(algorithm_table<channel>::template algorithms<Coll>())>::value_type;
  if (check.failed()) return refuse(make(Coll), check.reason());
  const call_cache::entry* known = cache().find_last(requested);
  if (known == nullptr) {
    known = choose<Coll>(requested, query, opts, check);
    if (known == nullptr) return refuse(make(Coll), check.reason());
  }
  const table_entry& chosen = static_cast<const table_entry&>(*known->algorithm);
  return begin<call<void>>(known->cached, opts, working_bytes, [&](call<void>& new_call) {
    (void)(new_call.body = body(new_call, channel(*net_, new_call), chosen));
  });
}

// ---- reductions

template <class Transport>
template <collective Coll>
operation<> core<Transport>::reduce_view_to_all(const reduction& op, const any_view& in,
                                                const any_view& out, const options& opts) {
  using channel = basic_channel<Transport>;
  if (in.is_contiguous() && out.is_contiguous()) {
    return reduce_to_all<Coll>(op, in.contiguous(), out.contiguous(), opts);
  }
  checks check(Coll);
  check_readable(check, in);
  check_writable(check, out);
  check_equal_size(check, in, out);
  check_overlap(check, in, out);
  const fingerprint requested = fingerprint_of(Coll, op, in.size(), -1, opts);
  const selection_query query = query_of(Coll, in.size(), state().size(), op, opts);
  const auto body = [&](call<void>& new_call, const channel& net, const auto& chosen) {
    const int ranks = Coll == collective::all_reduce ? net.size()
                      : Coll == collective::scan     ? net.rank() + 1
                                                     : net.rank();
    return call_body<channel>::reduce_to_all(net, chosen.run, in, out,
                                             store_reduction(new_call, op), ranks);
  };
  return launch_body<Coll>(requested, query, opts, check, in.size() * op.accumulate_size, body);
}

template <class Transport>
operation<> core<Transport>::reduce_view(const reduction& op, const any_view& in,
                                         const any_view& out, int root, const options& opts) {
  using channel = basic_channel<Transport>;
  const bool is_root = state().rank() == root;
  if (in.is_contiguous() && (!is_root || out.is_contiguous())) {
    return reduce(op, in.contiguous(), out.contiguous(), root, opts);
  }
  checks check(collective::reduce);
  check_readable(check, in);
  check_root(check, root, state().size());
  if (is_root) {
    check_writable(check, out);
    check_equal_size(check, in, out);
    check_overlap(check, in, out);
  }
  const fingerprint requested = fingerprint_of(collective::reduce, op, in.size(), root, opts);
  const selection_query query = query_of(collective::reduce, in.size(), state().size(), op, opts);
  const auto body = [&](call<void>& new_call, const channel& net, const auto& chosen) {
    return call_body<channel>::reduce(net, chosen.run, in, out, root,
                                      store_reduction(new_call, op));
  };
  return launch_body<collective::reduce>(requested, query, opts, check,
                                         in.size() * op.accumulate_size, body);
}

template <class Transport>
operation<> core<Transport>::reduce_scatter_view(const reduction& op, const any_view& in,
                                                 const any_view& out, offsets shares,
                                                 const options& opts) {
  using channel = basic_channel<Transport>;
  if (in.is_contiguous() && out.is_contiguous()) {
    return reduce_scatter(op, in.contiguous(), out.contiguous(), std::move(shares), opts);
  }
  const int size = state().size();
  checks check(collective::reduce_scatter);
  check_counts(check, shares, size, in.element_size());
  check_readable(check, in);
  check_writable(check, out);
  if (!check.failed()) check_blocks(check, &in, out, shares);
  if (!check.failed()) check_overlap(check, out, in, first_of_own_block(out, shares));
  const fingerprint requested =
      with_shape(fingerprint_of(collective::reduce_scatter, op, in.size(), -1, opts), shares);
  const selection_query query = query_of(collective::reduce_scatter, in.size(), size, op, opts);
  const auto body = [&](call<void>& new_call, const channel& net, const auto& chosen) {
    return call_body<channel>::reduce_scatter(net, chosen.run, in, out, std::move(shares),
                                              store_reduction(new_call, op));
  };
  return launch_body<collective::reduce_scatter>(requested, query, opts, check,
                                                 in.size() * op.accumulate_size, body);
}

// ---- moving data

template <class Transport>
template <collective Coll>
operation<> core<Transport>::move_view(std::uint32_t type, const any_view& own, const any_view& all,
                                       offsets shares, int root, const options& opts) {
  using channel = basic_channel<Transport>;
  constexpr bool broadcasts = Coll == collective::broadcast;
  constexpr bool has_root = Coll != collective::all_gather;
  const int size = state().size();
  const bool is_root = state().rank() == root;
  const bool writes_own = broadcasts ? !is_root : Coll == collective::scatter;
  const bool has_all = !broadcasts && (!has_root || is_root);
  checks check(Coll);
  if (has_root) check_root(check, root, size);
  check_counts(check, shares, size, own.element_size());
  writes_own ? check_writable(check, own) : check_readable(check, own);
  if (has_all)
    Coll == collective::scatter ? check_readable(check, all) : check_writable(check, all);
  if (!check.failed() && !broadcasts) check_blocks(check, has_all ? &all : nullptr, own, shares);
  if (!check.failed() && has_all) {
    check_overlap(check, own, all, first_of_own_block(own, shares));
  }
  const std::size_t total = broadcasts       ? own.size()
                            : shares.empty() ? own.size() * static_cast<std::size_t>(size)
                                             : shares.back();
  const std::size_t most = piece_elements(opts.segment, own.element_size());
  const fingerprint requested = of_views(
      with_shape(fingerprint_of(Coll, type, own.element_size(), total, root, opts), shares));
  const std::size_t blocks = broadcasts ? 1 : static_cast<std::size_t>(size);
  const std::size_t piece = std::min(total, most * blocks);
  const selection_query query{Coll, piece * own.element_size(), size};
  constexpr bool own_is_first = Coll != collective::scatter;
  const any_view absent(any_buffer(nullptr, 0, own.element_size()));
  const any_view& second = has_all ? all : absent;
  const auto body = [&](call<void>&, const channel& net, const auto& chosen) {
    return view_body<channel>::template move<Coll>(net, chosen.run, own_is_first ? own : second,
                                                   own_is_first ? second : own, own.size(),
                                                   std::move(shares), root, most);
  };
  return launch_body<Coll>(requested, query, opts, check, 0, body);
}

template <class Transport>
operation<> core<Transport>::all_to_all_view(std::uint32_t type, const any_view& in,
                                             const any_view& out, offsets sends, offsets receives,
                                             const options& opts) {
  constexpr collective coll = collective::all_to_all;
  const int size = state().size();
  const auto ranks = static_cast<std::size_t>(size);
  const all_to_all_blocks blocks{type, in.element_size(), in.size(), out.size(), sends, receives};
  checks check(coll);
  check_readable(check, in);
  check_writable(check, out);
  check.require(opts.algorithm == algorithm::automatic,
                "an all_to_all of views has no algorithm to choose");
  const bool in_place = in.size() != 0 && out.size() != 0 && in.address(0) == out.address(0);
  check_all_to_all(check, blocks, state().rank(), size, in_place);
  check_overlap(check, in, out);
  if (check.failed()) return refuse(make(coll), check.reason());
  const fingerprint agreed = fingerprint_of(blocks, opts);
  const partition in_parts = partition_of(sends, in.size() / ranks, size);
  const partition out_parts = partition_of(receives, out.size() / ranks, size);
  std::vector<view_exchange> pairs;
  for (int rank = 0; rank < size; ++rank) {
    const view_range outgoing(in, in_parts.offset(rank), in_parts.count(rank));
    const view_range incoming(out, out_parts.offset(rank), out_parts.count(rank));
    pairs.push_back({rank, true, outgoing, true, incoming});
  }
  return exchange_views(of_views(agreed), std::move(pairs), opts);
}

template <class Transport>
operation<> core<Transport>::exchange_views(const fingerprint& agreed,
                                            std::vector<view_exchange> pairs, const options& opts) {
  const std::size_t most = piece_elements(opts.segment, agreed.element_size);
  return begin<call<void>>(cached_call(agreed), opts, 0, [&](call<void>& new_call) {
    (void)(new_call.body = view_body<basic_channel<Transport>>::exchange({*net_, new_call},
                                                                         std::move(pairs), most));
  });
}

// ---- point to point

template <class Transport>
operation<> core<Transport>::send_view(const any_view& data, int dest, int tag,
                                       const options& opts) {
  auto* const new_call = make(collective::send);
  checks check(collective::send);
  const message_key key = send_key(check, dest, tag);
  check_readable(check, data);
  if (check.failed()) return refuse(new_call, check.reason());
  return begin_point_to_point(new_call, key.sequence, opts, [&](call_base& call) {
    return view_message_body<Transport>::send(net(), call, key, data);
  });
}

template <class Transport>
operation<received> core<Transport>::recv_view(const any_view& data, peer source, recv_tag tag,
                                               const options& opts) {
  auto* const new_call = make<call<received>>(collective::recv);
  checks check(collective::recv);
  const message_key key = receive_key(check, source, tag);
  check_writable(check, data);
  if (check.failed()) return refuse(new_call, check.reason());
  return begin_point_to_point(new_call, recorded_tag(tag), opts, [&](call_base& call) {
    return view_message_body<Transport>::recv(net(), call, key, data);
  });
}

template <class Transport>
operation<received> core<Transport>::send_recv_view(const any_view& outgoing, int dest,
                                                    const any_view& incoming, peer source, int tag,
                                                    const options& opts) {
  auto* const new_call = make<call<received>>(collective::send_recv);
  checks check(collective::send_recv);
  const message_key to = send_key(check, dest, tag);
  const message_key from = receive_key(check, source, tag);
  check_readable(check, outgoing);
  check_writable(check, incoming);
  if (check.failed()) return refuse(new_call, check.reason());
  return begin_point_to_point(new_call, to.sequence, opts, [&](call_base& call) {
    return view_message_body<Transport>::send_recv(net(), call, to, outgoing, from, incoming);
  });
}

}  // namespace colls::detail
