// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// neighbours: collectives in which each rank exchanges data with its neighbours in a graph, as the
// neighbourhood collectives of MPI do.

#include <colls/call/call_request.hpp>
#include <colls/call/communicator_core.hpp>
#include <colls/call/view_body.hpp>
#include <colls/call/view_request.hpp>
#include <colls/channel/channel.hpp>
#include <colls/coroutine/when_all.hpp>

#include <algorithm>
#include <climits>
#include <vector>

namespace colls::detail {

/// Returns the positions of all ranks in `list` except `rank`.
inline std::vector<int> positions_of_peers(const std::vector<int>& list, int rank) {
  std::vector<int> positions;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] != rank) positions.push_back(static_cast<int>(i));
  }
  return positions;
}

/// Block i of `in` is sent to the destination i, or all of `in` to each destination if there is one
/// block. Block i of `out` is received from the source i. What this rank sends to itself is copied.
template <class Channel>
task<> exchange_with_neighbours(Channel net, any_buffer in, any_buffer out, std::size_t count,
                                bool sends_blocks, neighbour_graph graph) {
  const auto block = [&](const any_buffer& data, int i) {
    return bytes(data.subspan(static_cast<std::size_t>(i) * count, count));
  };
  const std::vector<int> targets = positions_of_peers(graph.destinations, net.rank());
  const std::vector<int> origins = positions_of_peers(graph.sources, net.rank());
  const auto send = [&](int k) {
    const int i = targets[static_cast<std::size_t>(k)];
    return net.send(graph.destinations[static_cast<std::size_t>(i)],
                    block(in, sends_blocks ? i : 0));
  };
  const auto recv = [&](int k) {
    const int i = origins[static_cast<std::size_t>(k)];
    return net.recv(graph.sources[static_cast<std::size_t>(i)], block(out, i));
  };
  auto to_self = graph.destinations.begin();
  for (std::size_t i = 0; i < graph.sources.size(); ++i) {
    if (graph.sources[i] != net.rank()) continue;
    to_self = std::find(to_self, graph.destinations.end(), net.rank());
    const auto from = static_cast<int>(to_self++ - graph.destinations.begin());
    net.copy(block(out, static_cast<int>(i)), block(in, sends_blocks ? from : 0));
  }
  co_await when_all(each_of(0, static_cast<int>(targets.size()), send),
                    each_of(0, static_cast<int>(origins.size()), recv));
}

/// Returns the exchanges of the same call on views, ordered by peer. What is sent to a peer first
/// is exchanged with what is received from it first.
inline std::vector<view_exchange> exchanges_of(const any_view& in, const any_view& out,
                                               std::size_t count, bool sends_blocks,
                                               const neighbour_graph& graph) {
  struct edge {
    int peer;
    std::size_t block;
  };
  const auto by_peer = [](const std::vector<int>& list) {
    std::vector<edge> edges;
    for (std::size_t i = 0; i < list.size(); ++i) edges.push_back({list[i], i});
    std::sort(edges.begin(), edges.end(), [](const edge& a, const edge& b) {
      return a.peer != b.peer ? a.peer < b.peer : a.block < b.block;
    });
    edges.push_back({INT_MAX, 0});
    return edges;
  };
  const std::vector<edge> sends = by_peer(graph.destinations);
  const std::vector<edge> receives = by_peer(graph.sources);
  std::vector<view_exchange> pairs;
  auto send = sends.begin();
  auto receive = receives.begin();
  while (true) {
    const int peer = std::min(send->peer, receive->peer);
    if (peer == INT_MAX) return pairs;
    view_exchange pair{peer, send->peer == peer, {}, receive->peer == peer, {}};
    if (pair.sends) {
      pair.out = view_range(in, sends_blocks ? send->block * count : 0, count);
      ++send;
    }
    if (pair.receives) {
      pair.in = view_range(out, receive->block * count, count);
      ++receive;
    }
    pairs.push_back(pair);
  }
}

template <class Transport>
operation<> core<Transport>::exchange_with_neighbours(collective coll, std::uint32_t type,
                                                      const any_view& in, const any_view& out,
                                                      bool in_pieces, neighbour_graph graph,
                                                      const options& opts) {
  checks check(coll);
  check_readable(check, in);
  check_writable(check, out);
  for (const std::vector<int>* const list : {&graph.sources, &graph.destinations}) {
    for (const int rank : *list) check_peer(check, rank, state().size());
  }
  const std::size_t sources = graph.sources.size();
  const std::size_t destinations = graph.destinations.size();
  const bool sends_blocks = coll == collective::all_to_all;
  const std::size_t count = !sends_blocks       ? in.size()
                            : destinations != 0 ? in.size() / destinations
                            : sources != 0      ? out.size() / sources
                                                : 0;
  std::size_t incoming = 0;
  const bool fits = !__builtin_mul_overflow(sources, count, &incoming) && out.size() == incoming;
  check
      .require(!sends_blocks || in.size() == destinations * count,
               "in has %zu elements, no multiple of %zu destinations", in.size(), destinations)
      .require(fits, "out has %zu elements, and needs %zu for each of %zu sources", out.size(),
               count, sources)
      .require(in_pieces ? !in.shares_elements(out) : !in.may_overlap(out), "in and out overlap");
  const auto own_edges = [&](const std::vector<int>& list) {
    return std::count(list.begin(), list.end(), state().rank());
  };
  check.require(opts.algorithm == algorithm::automatic,
                "calls between neighbours have no algorithm to choose");
  check.require(own_edges(graph.sources) == own_edges(graph.destinations),
                "this rank is %td times its own source and %td times its own destination",
                own_edges(graph.sources), own_edges(graph.destinations));
  if (check.failed()) return refuse(make(coll), check.reason());
  // The fingerprint does not contain the length of a block, because a rank without neighbours does
  // not know it. The receiver of each message compares the lengths.
  fingerprint agreed = fingerprint_of(coll, type, in.element_size(), 0, -1, {});
  agreed.shape = with_name(0, "neighbours");
  if (in_pieces) {
    agreed.segment = opts.segment;
    return exchange_views(of_views(agreed), exchanges_of(in, out, count, sends_blocks, graph),
                          opts);
  }
  return begin<call<void>>(cached_call(agreed), opts, 0, [&](call<void>& new_call) {
    (void)(new_call.body = detail::exchange_with_neighbours(
               basic_channel<Transport>(*net_, new_call), in.contiguous(), out.contiguous(), count,
               sends_blocks, std::move(graph)));
  });
}

}  // namespace colls::detail
