// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// direct_data_movement: collectives without a reduction, for ranks that can access each other's
// memory. Ranks read and write each other's buffers in shared memory. They also read private memory
// of other processes by cross memory attach (CMA), which is a system call.

#include <colls/algorithm/direct_short.hpp>
#include <colls/algorithm/multi_send_recv.hpp>
#include <colls/algorithm/exposed_buffers.hpp>
#include <colls/algorithm/shared_window.hpp>

namespace colls::direct {

/// Returns the value of `readers` for a collective of `ranks` ranks in which all ranks except the
/// root read the root's private memory. If there are only two ranks, the root has only one reader.
inline readers readers_of_root(int ranks) { return ranks == 2 ? readers::one : readers::all; }
/// The minimum size, in bytes, at which the ranks of a broadcast read the root's buffer by CMA. For
/// a shorter buffer, CMA is no faster than a message from the root.
inline constexpr std::size_t min_cma_broadcast_bytes = 32 * 1024;
/// The maximum size, in bytes, of a block that a rank of an all_to_all copies to a bounce buffer.
/// For a longer block, the bounce buffer is no faster than CMA.
inline constexpr std::size_t max_bounced_block_bytes = 64 * 1024;

/// Implements `all_gather` for long vectors. Each rank copies the inputs that it can access, and
/// receives the other inputs as messages.
template <channel Channel, buffer Data>
task<> all_gather_long(Channel net, Data in, Data out, partition parts) {
  const chunks chunk(out, parts);
  if (net.size() == 1) {
    net.copy(bytes(chunk[0]), bytes(in));
    co_return;
  }
  shared_window<Channel> window(net, bytes(in), const_bytes(), readers::all);
  const auto extent = [&](int peer) { return bytes(chunk[peer]).size; };
  co_await window.begin(extent, multi_send_recv::all_ranks(net), multi_send_recv::all_ranks(net));
  const auto send = [&](int peer) { return net.send(peer, bytes(in)); };
  const auto recv = [&](int peer) { return net.recv(peer, bytes(chunk[peer])); };
  const auto get_all = [&]() -> task<> {
    net.copy(bytes(chunk[net.rank()]), bytes(in));
    // Each rank first reads from the rank after it, so that the ranks do not all read the same
    // rank's memory at the same time.
    for (int i = 1; i < net.size(); ++i) {
      const int peer = (net.rank() + i) % net.size();
      if (window.accesses_in(peer)) co_await window.get(chunk[peer], peer);
    }
  };
  const auto needs_send = [&](int peer) { return !window.exposes_in(peer); };
  const auto needs_recv = [&](int peer) { return !window.accesses_in(peer); };
  co_await when_all(window.for_each_peer(needs_send, send), window.for_each_peer(needs_recv, recv),
                    net.concurrent(get_all()));
  co_await window.end();
}
/// Short inputs are sent to all ranks in one round.
struct all_gather_algorithm : direct_short::built_in_direct<collective::all_gather> {
  template <channel Channel, buffer Data>
    requires shared_window_transport<typename Channel::transport_type>
  static task<> run(Channel net, Data in, Data out, partition parts) {
    if (is_short_vector(operation, bytes(out).size, net.size())) {
      return run_frameless<direct_short::all_gather<Channel, Data>>(net, in, out, parts);
    }
    return all_gather_long(net, in, out, parts);
  }
  template <class Channel>
  using frameless = step_if_supported<Channel, direct_short::all_gather<Channel, any_buffer>>;

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    const std::uint64_t chunk = model.chunk_bytes();
    if (is_short(model)) return model.batch(model.mesh(chunk), chunk);
    return model.descriptor_exchange() +
           (model.has_windows() ? model.window_access_by_all(2 * (model.bytes() - chunk))
                                : model.mesh(chunk));
  }
};
inline constexpr all_gather_algorithm all_gather;

/// Implements `broadcast` for long vectors. Each rank copies the data from the root's buffer if it
/// can access that buffer. Otherwise it receives the data as a message.
template <channel Channel, buffer Data>
task<> broadcast_long(Channel net, Data data, int root) {
  const bool at_root = net.rank() == root;
  const bool is_sent = bytes(data).size < min_cma_broadcast_bytes;
  const readers cma_readers = is_sent ? readers::no_rank : readers_of_root(net.size());
  shared_window<Channel> window(net, at_root ? bytes(data) : mutable_bytes(), const_bytes(),
                                cma_readers);
  const auto extent = [&](int) { return bytes(data).size; };
  const pattern::rank_range dests =
      at_root ? multi_send_recv::all_ranks(net) : pattern::rank_range{0, 0};
  co_await window.begin(extent, dests, multi_send_recv::one_rank(root));
  if (at_root) {
    const auto needs_send = [&](int peer) { return !window.exposes_in(peer); };
    const auto send = [&](int peer) { return net.send(peer, bytes(data)); };
    co_await window.for_each_peer(needs_send, send);
  } else if (window.accesses_in(root)) {
    co_await window.get(data, root);
  } else {
    co_await net.recv(root, bytes(data));
  }
  co_await window.end();
}
/// A short buffer is sent to all ranks.
struct broadcast_algorithm : direct_short::built_in_direct<collective::broadcast> {
  template <channel Channel, buffer Data>
    requires shared_window_transport<typename Channel::transport_type>
  static task<> run(Channel net, Data data, int root) {
    if (is_short_vector(operation, bytes(data).size, net.size())) {
      return run_frameless<direct_short::broadcast<Channel, Data>>(net, data, root);
    }
    return broadcast_long(net, data, root);
  }
  template <class Channel>
  using frameless = step_if_supported<Channel, direct_short::broadcast<Channel, any_buffer>>;

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    const std::uint64_t n = model.bytes();
    if (is_short(model)) return model.batch(model.star_out(n), n);
    const auto readers = model.number(model.ranks() - 1);
    return model.batch(model.star_out(model.descriptor_bytes)) +
           (model.has_windows() ? model.window_access(model.star_in(0), 2 * n, readers)
                                : model.star_out(n));
  }
};
inline constexpr broadcast_algorithm broadcast;

/// Returns the cost of a gather or a scatter of a long vector.
constexpr auto rooted_exchange_cost(const loggp_model& model) {
  const auto others = model.number(model.ranks() - 1);
  const std::uint64_t chunk = model.chunk_bytes();
  const auto both = model.batch(model.star_in(model.descriptor_bytes) +
                                loggp::phase{others, others * model.descriptor_bytes});
  return both + (model.has_windows() ? model.window_access(model.star_in(0), 2 * chunk, others)
                                     : model.star_in(chunk));
}

/// Implements `gather` for long vectors. Each rank writes its data to the root's buffer if the rank
/// can access that buffer. Otherwise the root reads the rank's buffer if the root can access it. If
/// neither can access the other's buffer, the rank sends its data as a message.
template <channel Channel, buffer Data>
task<> gather_long(Channel net, Data own, Data all, partition parts, int root) {
  const bool at_root = net.rank() == root;
  const chunks chunk(all, parts);
  const std::size_t element = element_size(own);
  const auto in = [&](int peer) { return peer == root ? const_bytes(bytes(own)) : const_bytes(); };
  const auto out = [&](int peer) { return at_root ? bytes(chunk[peer]) : mutable_bytes(); };
  shared_window<Channel> window(net, in, out, readers::one);
  const auto extent = [&](int peer) { return parts.count(at_root ? peer : net.rank()) * element; };
  const pattern::rank_range peers =
      at_root ? multi_send_recv::all_ranks(net) : multi_send_recv::one_rank(root);
  co_await window.begin(extent, peers, peers);
  if (at_root) {
    const auto needs_recv = [&](int peer) {
      return !window.exposes_out(peer) && !window.accesses_in(peer);
    };
    const auto recv = [&](int peer) { return net.recv(peer, bytes(chunk[peer])); };
    const auto get_all = [&]() -> task<> {
      net.copy(bytes(chunk[root]), bytes(own));
      for (int peer = 0; peer < net.size(); ++peer) {
        if (peer == root || window.exposes_out(peer) || !window.accesses_in(peer)) continue;
        co_await window.get(chunk[peer], peer);
      }
    };
    co_await when_all(window.for_each_peer(needs_recv, recv), net.concurrent(get_all()));
  } else if (window.accesses_out(root)) {
    co_await window.put(window.remote_out(root), own);
  } else if (!window.exposes_in(root)) {
    co_await net.send(root, bytes(own));
  }
  co_await window.end();
}
/// Short chunks are sent to the root.
struct gather_algorithm : direct_short::built_in_direct<collective::gather> {
  template <channel Channel, buffer Data>
    requires shared_window_transport<typename Channel::transport_type>
  static task<> run(Channel net, Data own, Data all, partition parts, int root) {
    if (is_short_vector(operation, parts.total() * element_size(own), net.size())) {
      return run_frameless<direct_short::gather<Channel, Data>>(net, own, all, parts, root);
    }
    return gather_long(net, own, all, parts, root);
  }
  template <class Channel>
  using frameless = step_if_supported<Channel, direct_short::gather<Channel, any_buffer>>;

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    const std::uint64_t chunk = model.chunk_bytes();
    return is_short(model) ? model.batch(model.star_in(chunk), chunk) : rooted_exchange_cost(model);
  }
};
inline constexpr gather_algorithm gather;

/// Implements `scatter` for long vectors. Each rank reads its data from the root's buffer if the
/// rank can access that buffer. Otherwise the root writes to the rank's buffer if the root can
/// access it. If neither can access the other's buffer, the root sends the data as a message.
template <channel Channel, buffer Data>
task<> scatter_long(Channel net, Data all, Data own, partition parts, int root) {
  const bool at_root = net.rank() == root;
  const chunks chunk(all, parts);
  const std::size_t element = element_size(own);
  const auto in = [&](int peer) {
    return at_root ? const_bytes(bytes(chunk[peer])) : const_bytes();
  };
  const auto out = [&](int peer) { return peer == root ? bytes(own) : mutable_bytes(); };
  shared_window<Channel> window(net, in, out, readers_of_root(net.size()));
  const auto extent = [&](int peer) { return parts.count(at_root ? peer : net.rank()) * element; };
  const pattern::rank_range peers =
      at_root ? multi_send_recv::all_ranks(net) : multi_send_recv::one_rank(root);
  co_await window.begin(extent, peers, peers);
  if (at_root) {
    const auto needs_send = [&](int peer) {
      return !window.exposes_in(peer) && !window.accesses_out(peer);
    };
    const auto send = [&](int peer) { return net.send(peer, bytes(chunk[peer])); };
    const auto put_all = [&]() -> task<> {
      net.copy(bytes(own), bytes(chunk[root]));
      for (int peer = 0; peer < net.size(); ++peer) {
        if (peer == root || window.exposes_in(peer) || !window.accesses_out(peer)) continue;
        co_await window.put(window.remote_out(peer), chunk[peer]);
      }
    };
    co_await when_all(window.for_each_peer(needs_send, send), net.concurrent(put_all()));
  } else if (window.accesses_in(root)) {
    co_await window.get(own, root);
  } else if (!window.exposes_out(root)) {
    co_await net.recv(root, bytes(own));
  }
  co_await window.end();
}
/// Short chunks are sent by the root.
struct scatter_algorithm : direct_short::built_in_direct<collective::scatter> {
  template <channel Channel, buffer Data>
    requires shared_window_transport<typename Channel::transport_type>
  static task<> run(Channel net, Data all, Data own, partition parts, int root) {
    if (is_short_vector(operation, parts.total() * element_size(own), net.size())) {
      return run_frameless<direct_short::scatter<Channel, Data>>(net, all, own, parts, root);
    }
    return scatter_long(net, all, own, parts, root);
  }
  template <class Channel>
  using frameless = step_if_supported<Channel, direct_short::scatter<Channel, any_buffer>>;

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    const std::uint64_t chunk = model.chunk_bytes();
    return is_short(model) ? model.batch(model.star_out(chunk), chunk)
                           : rooted_exchange_cost(model);
  }
};
inline constexpr scatter_algorithm scatter;

/// Implements `all_to_all` for long vectors. Each rank copies its chunks from the inputs that it
/// can access, and receives its chunks of the other inputs as messages.
template <channel Channel, buffer Data>
task<> all_to_all_long(Channel net, Data in, partition in_parts, Data out, partition out_parts) {
  const chunks outgoing(in, in_parts);
  const chunks arriving(out, out_parts);
  // If the chunks may have different lengths, the ranks send them as messages. The receiver of a
  // message checks that both ranks passed the same count. A rank that reads the memory of a peer
  // cannot check this.
  const bool is_equal = in_parts.is_blocks() && out_parts.is_blocks();
  const bool may_bounce =
      is_equal && in_parts.longest() * element_size(in) <= max_bounced_block_bytes;
  const auto buffers = exposed_buffers<Channel>::for_three_or_more(
      net, may_bounce ? const_bytes(bytes(in)) : const_bytes());
  const auto readable = [&](int peer) {
    return is_equal ? buffers.in(bytes(outgoing[peer])) : const_bytes();
  };
  const auto writable = [&](int peer) {
    return is_equal ? buffers.writable_in(bytes(outgoing[peer])) : mutable_bytes();
  };
  shared_window<Channel> window(net, readable, writable,
                                is_equal ? readers::all : readers::no_rank);
  buffers.copy_in(net, window, outgoing);
  const auto extent = [&](int peer) { return bytes(arriving[peer]).size; };
  co_await window.begin(extent, multi_send_recv::all_ranks(net), multi_send_recv::all_ranks(net));
  const auto needs_send = [&](int peer) { return !window.exposes_in(peer); };
  const auto needs_recv = [&](int peer) { return !window.accesses_in(peer); };
  const auto send = [&](int peer) { return net.send(peer, bytes(outgoing[peer])); };
  const auto recv = [&](int peer) { return net.recv(peer, bytes(arriving[peer])); };
  const auto get_all = [&]() -> task<> {
    net.copy(bytes(arriving[net.rank()]), bytes(outgoing[net.rank()]));
    for (int i = 1; i < net.size(); ++i) {
      const int peer = (net.rank() + i) % net.size();
      if (window.accesses_in(peer)) co_await window.get(arriving[peer], peer);
    }
  };
  co_await when_all(window.for_each_peer(needs_send, send), window.for_each_peer(needs_recv, recv),
                    net.concurrent(get_all()));
  co_await window.end();
}
/// Short chunks of equal lengths are sent in one round.
struct all_to_all_algorithm : direct_short::built_in_direct<collective::all_to_all> {
  template <channel Channel, buffer Data>
    requires shared_window_transport<typename Channel::transport_type>
  static task<> run(Channel net, Data in, partition in_parts, Data out, partition out_parts) {
    if (in_parts.is_blocks() && out_parts.is_blocks() &&
        is_short_vector(operation, bytes(in).size, net.size())) {
      return run_frameless<direct_short::all_to_all<Channel, Data>>(net, in, in_parts, out,
                                                                    out_parts);
    }
    return all_to_all_long(net, in, in_parts, out, out_parts);
  }
  template <class Channel>
  using frameless = step_if_supported<Channel, direct_short::all_to_all<Channel, any_buffer>>;

  static constexpr auto cost(const loggp_model& model, const algorithm_choice& choice) {
    return all_gather.cost(model, choice);
  }
};
inline constexpr all_to_all_algorithm all_to_all;

/// All ranks send an empty message to all others.
struct barrier_algorithm : direct_short::built_in_direct<collective::barrier> {
  template <channel Channel>
    requires shared_window_transport<typename Channel::transport_type>
  static task<> run(Channel net) {
    return run_frameless<direct_short::barrier<Channel>>(net);
  }
  template <class Channel>
  using frameless = step_if_supported<Channel, direct_short::barrier<Channel>>;

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    return model.batch(model.mesh(0), 0);
  }
};
inline constexpr barrier_algorithm barrier;

}  // namespace colls::direct
