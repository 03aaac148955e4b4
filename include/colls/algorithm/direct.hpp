// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// direct: reductions for ranks that access each other's memory. Ranks tell each other where their
// buffers lie. Then they read the inputs in place and fold (combine) them. A rank can access a
// peer's buffer if the buffer, or a copy of it in a bounce buffer, lies in shared memory that all
// processes of a host map. A rank can also read a peer's private memory by cross memory attach
// (CMA), which is a system call. If a rank cannot expose its data in either of these two ways, it
// sends the data as messages.

#include <colls/algorithm/direct_short.hpp>
#include <colls/algorithm/direct_thresholds.hpp>
#include <colls/algorithm/linear.hpp>
#include <colls/algorithm/exposed_buffers.hpp>
#include <colls/algorithm/shared_window.hpp>

namespace colls::direct {

using direct_short::fold_parts;
using direct_short::no_alias;

/// Sums the same part of all ranks' inputs in rank order, and stores the result in `sum`. `own` is
/// this rank's part. The part of every other rank begins at element `offset` of that rank's input.
/// All inputs must be mapped into this process. `aliased` is the rank whose part lies in the memory
/// of `sum`, or `no_alias` if there is no such rank. If `second` is not null, also writes the sum
/// to `second`. Works piece by piece. After each piece, calls `deliver(first, count)`, where
/// `first` is the index of the piece's first element and `count` is its number of elements. At that
/// time, the piece of the sum is still in the cache.
template <channel Channel, buffer Data, class Op, class Deliver>
task<> fold_mapped(Channel net, shared_window<Channel>& window, Data own, std::size_t offset,
                   Data sum, int aliased, Op op, std::byte* second, Deliver deliver) {
  const std::size_t element = element_size(own);
  const std::size_t longest = std::max(element, window.piece_bytes);
  const scratch memory(net.scratch_bytes(aliased > 1 ? longest : 0));
  detail::recycled_vector<const void*> parts(static_cast<std::size_t>(net.size()));
  const auto work = [&](std::size_t position, std::size_t n) {
    for (int rank = 0; rank < net.size(); ++rank) {
      parts[static_cast<std::size_t>(rank)] =
          rank == net.rank() ? bytes(own.subspan(position, n)).data
                             : window.remote_in(rank) + (offset + position) * element;
    }
    std::byte* const copy = second == nullptr ? nullptr : second + position * element;
    fold_parts(net, sum.subspan(position, n), parts, aliased, memory.data(), op, copy);
    deliver(position, n);
  };
  co_await window.for_each_piece(own.size(), element, work);
}

/// Computes the same sum as `fold_mapped`, even if this rank cannot access the inputs of some
/// peers. From each such peer, this function receives a message with the part of the peer's input
/// that belongs to `sum`. `sum` may be the same buffer as `own`.
template <channel Channel, buffer Data, class Op>
task<> fold_mixed(Channel net, shared_window<Channel>& window, Data own, std::size_t offset,
                  Data sum, Op op) {
  const int own_rank = net.rank();
  const std::size_t element = element_size(own);
  const bool in_place = own.data() == sum.data();
  const scratch memory(net.scratch_like(own, in_place && own_rank > 1 ? own.size() : 0));
  const Data lower = in_place && own_rank > 1 ? typed_view(own, memory.data(), own.size()) : sum;
  const auto part = [&](int rank, std::size_t position, std::size_t n) {
    return typed_view(own, window.remote_in(rank) + (offset + position) * element, n);
  };
  Data partial = own;
  int next = 1;
  if (own_rank == 1) {
    const auto work = [&](std::size_t position, std::size_t n) {
      net.reduce(sum.subspan(position, n), part(0, position, n), own.subspan(position, n), op);
    };
    if (window.accesses_in(0)) {
      co_await window.for_each_piece(own.size(), element, work);
    } else {
      co_await net.recv_reduce(0, own, sum, op, incoming::left);
    }
    partial = sum;
    next = 2;
  } else if (own_rank > 1) {
    const auto work = [&](std::size_t position, std::size_t n) {
      net.copy(bytes(lower.subspan(position, n)), bytes(part(0, position, n)));
    };
    if (window.accesses_in(0)) {
      co_await window.for_each_piece(own.size(), element, work);
    } else {
      co_await net.recv(0, bytes(lower));
    }
    partial = lower;
  }
  for (int rank = next; rank < net.size(); ++rank) {
    const Data dest = rank < own_rank ? lower : sum;
    const auto work = [&](std::size_t position, std::size_t n) {
      net.reduce(dest.subspan(position, n), partial.subspan(position, n), part(rank, position, n),
                 op);
    };
    if (rank == own_rank) {
      net.reduce(dest, partial, own, op);
    } else if (window.accesses_in(rank)) {
      co_await window.for_each_piece(own.size(), element, work);
    } else {
      co_await net.recv_reduce(rank, partial, dest, op, incoming::right);
    }
    partial = dest;
  }
}

/// Returns whether this rank can access the inputs of all other ranks.
template <channel Channel>
bool accesses_all(const Channel& net, const shared_window<Channel>& window) {
  for (int peer = 0; peer < net.size(); ++peer) {
    if (peer != net.rank() && !window.accesses_in(peer)) return false;
  }
  return true;
}

/// Runs `fold_mapped` if this rank can access all inputs, and otherwise `fold_mixed`. Whenever
/// `fold_mapped` has summed a piece, calls `window.touch_input` for this piece of each peer's
/// input. That call may overwrite the piece, so that the peer can write new data there faster. Does
/// not touch the input of `root`, because `sum` may lie in that memory.
template <channel Channel, buffer Data, class Op>
task<> fold(Channel net, shared_window<Channel>& window, Data own, std::size_t offset, Data sum,
            int aliased, Op op, int root) {
  if (!accesses_all(net, window)) return fold_mixed(net, window, own, offset, sum, op);
  const auto touch_inputs = [net, &window, offset, root, element = element_size(own)](
                                std::size_t position, std::size_t n) {
    for (int peer = 0; peer < net.size(); ++peer) {
      if (peer == net.rank() || peer == root) continue;
      window.touch_input(peer, (offset + position) * element, n * element);
    }
  };
  return fold_mapped(net, window, own, offset, sum, aliased, op, nullptr, touch_inputs);
}

/// Returns whether the ranks should read inputs of `bytes` bytes by CMA. Assumes that the inputs
/// lie in private memory. For short inputs, the messages by which the ranks agree on CMA take more
/// time than CMA saves.
inline bool prefers_cma(std::size_t bytes) { return bytes >= 64 * 1024; }
/// Returns whether the root of a reduce should read inputs of `bytes` bytes by CMA. Assumes that
/// the inputs lie in private memory and that only the root reads them.
inline bool prefers_cma_at_root(std::size_t bytes, int ranks) {
  return static_cast<std::size_t>(ranks - 1) * bytes > 128 * 1024;
}

/// Computes the same sum as `fold_mapped`, block by block. For each block, first copies the peers'
/// elements to scratch memory. Reads elements in private memory by CMA. The blocks are so short
/// that the copies fit into the cache. Stops early if CMA fails to read an input. Returns the
/// number of elements that it has summed.
template <channel Channel, buffer Data, class Op>
task<std::size_t> fold_cma_blocks(Channel net, shared_window<Channel>& window, Data own,
                                  std::size_t offset, Data sum, int aliased, Op op) {
  const std::size_t element = element_size(own);
  const auto others = static_cast<std::size_t>(net.size() - 1);
  const std::size_t block =
      std::min(own.size(), elements_in(shared_window<Channel>::cma_block_bytes / others, element));
  const scratch memory(net.scratch_bytes((others + (aliased > 1 ? 1 : 0)) * block * element));
  detail::recycled_vector<const void*> parts(others + 1);
  for (std::size_t position = 0; position < own.size(); position += block) {
    const std::size_t n = std::min(block, own.size() - position);
    std::byte* free = memory.data();
    for (int rank = 0; rank < net.size(); ++rank) {
      const bool is_own = rank == net.rank();
      const Data part = is_own ? own.subspan(position, n) : typed_view(own, free, n);
      parts[static_cast<std::size_t>(rank)] = part.data();
      if (is_own) continue;
      if (!co_await window.get_block(part, rank, (offset + position) * element)) co_return position;
      free += block * element;
    }
    fold_parts(net, sum.subspan(position, n), parts, aliased, free, op);
    if (window.should_yield(n * element)) co_await window.yield_to_others();
  }
  co_return own.size();
}

/// Computes the same sum as `fold_mapped`. Reads inputs in private memory by CMA. Inputs that this
/// rank cannot access arrive as messages. Also calls `window.end()`, during which the inputs that
/// CMA has failed to read arrive as messages. The caller must not call `window.end()` again.
template <channel Channel, buffer Data, class Op>
task<> fold_cma(Channel net, shared_window<Channel>& window, Data own, std::size_t offset, Data sum,
                int aliased, Op op) {
  const std::size_t element = element_size(own);
  std::size_t done = 0;
  if (accesses_all(net, window)) {
    if (window.uses_cma()) {
      done = co_await fold_cma_blocks(net, window, own, offset, sum, aliased, op);
    } else {
      co_await fold(net, window, own, offset, sum, aliased, op, net.rank());
      done = own.size();
    }
    if (done == own.size()) {
      co_await window.end();
      co_return;
    }
  }
  const direct_short::part_scratch received(net, own, net.size());
  const auto part = [&](int rank) {
    const std::size_t before = static_cast<std::size_t>(rank) * bytes(own).size;
    return rank == net.rank() ? own : typed_view(own, received.data() + before, own.size());
  };
  const auto needs_recv = [&](int peer) { return !window.accesses_in(peer); };
  const auto recv = [&](int peer) { return net.recv(peer, bytes(part(peer))); };
  const auto get_all = [&]() -> task<> {
    for (int peer = 0; peer < net.size(); ++peer) {
      if (peer != net.rank() && !needs_recv(peer)) {
        co_await window.get(part(peer), peer, offset * element);
      }
    }
  };
  co_await when_all(window.for_each_peer(needs_recv, recv), net.concurrent(get_all()));
  co_await window.end();
  detail::recycled_vector<const void*> parts(static_cast<std::size_t>(net.size()));
  for (int rank = 0; rank < net.size(); ++rank) {
    parts[static_cast<std::size_t>(rank)] = bytes(part(rank)).data + done * element;
  }
  std::byte* const spare = received.data() + static_cast<std::size_t>(net.rank()) * bytes(own).size;
  fold_parts(net, sum.subspan(done, own.size() - done), parts, aliased, spare, op);
}

/// Sends chunk r of `in` as a message to each rank r to which this rank does not expose its input.
template <channel Channel, buffer Data>
task<> send_chunks(Channel net, shared_window<Channel>& window, Data in, partition parts) {
  const chunks chunk(in, parts);
  const auto needs_send = [&](int peer) { return !window.exposes_in(peer); };
  const auto send = [&](int peer) { return net.send(peer, bytes(chunk[peer])); };
  co_await window.for_each_peer(needs_send, send);
}

/// Sums this rank's chunk of all inputs, and stores the sum in this rank's chunk of `out`. Also
/// writes the sum to the output of each peer whose output this rank can access. Sends the sum to
/// the other peers through the channel `results`. `exposes_out` must be false if the peers write
/// their sums to a bounce buffer instead of `out`.
template <channel Channel, buffer Data, class Op>
task<> reduce_own_chunk(Channel net, Channel results, shared_window<Channel>& window, Data in,
                        Data out, bool exposes_out, partition parts, Op op) {
  const std::size_t offset = parts.offset(net.rank());
  const Data own = chunks(in, parts)[net.rank()];
  const Data sum = chunks(out, parts)[net.rank()];
  const std::size_t element = element_size(out);
  const auto next_accessed = [&](int peer) {
    while (peer < net.size() && (peer == net.rank() || !window.accesses_out(peer))) ++peer;
    return peer;
  };
  const int first = next_accessed(0);
  int next = first;  // the fold writes to peers before `next`, and `spread` writes to the others
  const auto spread = [&](std::size_t position, std::size_t n) {
    for (int peer = next; peer < net.size(); peer = next_accessed(peer + 1)) {
      const Data dest = typed_view(sum, window.remote_out(peer) + (offset + position) * element, n);
      net.copy(bytes(dest), bytes(sum.subspan(position, n)));
    }
  };
  if (accesses_all(net, window)) {
    next = next_accessed(first + 1);
    if (first == net.size() || exposes_out || in.data() == out.data()) {
      const int aliased = in.data() == out.data() ? net.rank() : no_alias;
      std::byte* const second =
          first < net.size() ? window.remote_out(first) + offset * element : nullptr;
      co_await fold_mapped(net, window, own, offset, sum, aliased, op, second, spread);
    } else {
      // This operation has not yet accessed `sum`, so the cache lines of `sum` are usually not in
      // this core's cache. A fold that wrote to `sum` would have to load these lines. A copy of
      // whole lines does not load them. Therefore this rank folds into the output of the peer
      // `first` and then copies the result to `sum`.
      const Data dest = typed_view(sum, window.remote_out(first) + offset * element, sum.size());
      const auto copy_and_spread = [&](std::size_t position, std::size_t n) {
        net.copy(bytes(sum.subspan(position, n)), bytes(dest.subspan(position, n)));
        spread(position, n);
      };
      const int aliased = window.is_in_place(first) ? first : no_alias;
      co_await fold_mapped(net, window, own, offset, dest, aliased, op, nullptr, copy_and_spread);
    }
  } else {
    co_await fold_mixed(net, window, own, offset, sum, op);
    co_await window.for_each_piece(sum.size(), element, spread);
  }
  const auto needs_send = [&](int peer) { return !window.accesses_out(peer); };
  const auto send = [&](int peer) { return results.send(peer, bytes(sum)); };
  co_await window.for_each_peer(needs_send, send);
}

/// Afterwards `out` on every rank holds the sum of `in` over all ranks, with the same bits as the
/// sequential sum in rank order. `in` may be the same buffer as `out`; otherwise it is only read.
/// Each rank sums one chunk of all inputs and writes the sum to all outputs, so each input is read
/// once and each output is written once. A rank whose buffers are not in shared memory copies its
/// input to a bounce buffer. At the end, it copies the sums from the bounce buffer to `out`. If
/// such a rank finds no free bounce buffer, it sends its input as messages and receives the sums as
/// messages. If all ranks do so, each rank sends 2(p-1)/p times the size of the buffer in total,
/// where p is the number of ranks.
template <channel Channel, buffer Data, class Op>
  requires shared_window_transport<typename Channel::transport_type>
task<> all_reduce_in_chunks(Channel net, Data in, Data out, Op op) {
  const partition parts(out.size(), net.size());
  const chunks inputs(in, parts);
  const chunks sums(out, parts);
  const exposed_buffers<Channel> buffers(net, bytes(in), bytes(out));
  shared_window<Channel> window(net, buffers.in(), buffers.out());
  buffers.copy_in(net, window, inputs);
  co_await window.begin(bytes(in).size);
  const Channel results = net.lane(net.width());
  const auto needs_recv = [&](int peer) { return !window.exposes_out(peer); };
  const auto recv = [&](int peer) { return results.recv(peer, bytes(sums[peer])); };
  co_await when_all(net.concurrent(send_chunks(net, window, in, parts)),
                    net.concurrent(reduce_own_chunk(net, results, window, in, out,
                                                    !buffers.bounces_out(), parts, op)),
                    window.for_each_peer(needs_recv, recv));
  co_await window.end();
  buffers.copy_out(net, window, sums);
}
/// Cuts `in` and `out` into pieces that fit into a bounce buffer, and runs `all_reduce_in_chunks`
/// for each piece.
template <channel Channel, buffer Data, class Op>
  requires shared_window_transport<typename Channel::transport_type>
task<> all_reduce_in_pieces(Channel net, Data in, Data out, Op op) {
  const std::size_t chunk = partition(in.size(), net.size()).longest() * element_size(in);
  const int count =
      std::max(pieces_of(exposed_buffers<Channel>::max_bytes, in), net.segments(chunk));
  const partition pieces(in.size(), count);
  const auto piece = [&](Channel lane, int k) {
    const std::size_t position = pieces.offset(k);
    const std::size_t n = pieces.count(k);
    return all_reduce_in_chunks(lane, in.subspan(position, n), out.subspan(position, n), op);
  };
  co_await run_in_lanes(net, net.width(), count, piece);
}

/// Short inputs are sent to all ranks. Otherwise each rank sums one chunk of all inputs.
struct all_reduce_algorithm : direct_short::built_in_direct<collective::all_reduce> {
  static constexpr order reduction_order = order::rank;

  template <channel Channel, buffer Data, class Op>
    requires shared_window_transport<typename Channel::transport_type>
  static task<> run(Channel net, Data in, Data out, Op op) {
    if (is_short_vector(operation, bytes(in).size, net.size())) {
      return run_frameless<direct_short::all_reduce<Channel, Data, Op>>(net, in, out, op);
    }
    return all_reduce_in_pieces(net, in, out, op);
  }
  template <class Channel>
  using frameless =
      step_if_supported<Channel, direct_short::all_reduce<Channel, any_buffer, any_op>>;

  static constexpr auto cost(const loggp_model& model, const algorithm_choice& choice) {
    const std::uint64_t n = model.bytes();
    if (is_short(model)) {
      return model.reduced(model.batch(model.mesh(n), n), model.number(model.ranks() - 1) * n);
    }
    if (model.has_windows()) return model.descriptor_exchange() + model.window_access_by_all(2 * n);
    return model.descriptor_exchange(choice) +
           model.reduced(model.chunk_mesh(choice), n - model.chunk_bytes()) +
           model.chunk_mesh(choice);
  }
};
inline constexpr all_reduce_algorithm all_reduce;

/// Implements `reduce_scatter` for long vectors. Every rank reads its chunk of each peer's input
/// from the peer's memory if it can access that input, and otherwise receives the chunk as a
/// message.
template <channel Channel, buffer Data, class Op>
task<> reduce_scatter_long(Channel net, Data in, Data out, partition parts, Op op) {
  if (net.size() == 1) {
    net.copy(bytes(out), bytes(in));
    co_return;
  }
  const bool may_use_cma = prefers_cma(bytes(in).size);
  const auto buffers = exposed_buffers<Channel>::for_three_or_more(net, bytes(in));
  shared_window<Channel> window(net, buffers.in(), buffers.writable_in(),
                                may_use_cma ? readers::all_to_reduce : readers::no_rank);
  if (may_use_cma) window.expose_to_all_or_none();
  const chunks chunk(in, parts);
  buffers.copy_in(net, window, chunk);
  co_await window.begin(bytes(in).size);
  const std::size_t start = parts.offset(net.rank());
  if (window.all_use_cma([&](int peer) { return bytes(chunk[peer]); })) {
    const Data own = chunk[net.rank()];
    const int aliased = own.data() == out.data() ? net.rank() : no_alias;
    co_await fold_cma(net, window, own, start, out, aliased, op);
    co_return;
  }
  const int segments = net.segments(parts.longest() * element_size(in));
  const auto piece = [&](Channel lane, int k) -> task<> {
    const partition part = parts.segment(k, segments);
    const std::size_t offset = part.offset(lane.rank());
    const Data own = chunks(in, part)[lane.rank()];
    const Data sum = out.subspan(offset - start, own.size());
    const int aliased = own.data() == sum.data() ? lane.rank() : no_alias;
    co_await when_all(
        lane.concurrent(send_chunks(lane, window, in, part)),
        lane.concurrent(fold(lane, window, own, offset, sum, aliased, op, lane.rank())));
  };
  co_await run_in_lanes(net, net.width(), segments, piece);
  co_await window.end();
}
/// Short chunks are sent in one round. Otherwise each rank sums its chunk of all inputs.
struct reduce_scatter_algorithm : direct_short::built_in_direct<collective::reduce_scatter> {
  static constexpr order reduction_order = order::rank;

  template <channel Channel, buffer Data, class Op>
    requires shared_window_transport<typename Channel::transport_type>
  static task<> run(Channel net, Data in, Data out, partition parts, Op op) {
    if (is_short_vector(operation, bytes(in).size, net.size())) {
      return run_frameless<direct_short::reduce_scatter<Channel, Data, Op>>(net, in, out, parts,
                                                                            op);
    }
    return reduce_scatter_long(net, in, out, parts, op);
  }
  template <class Channel>
  using frameless =
      step_if_supported<Channel, direct_short::reduce_scatter<Channel, any_buffer, any_op>>;

  static constexpr auto cost(const loggp_model& model, const algorithm_choice& choice) {
    const std::uint64_t n = model.bytes();
    const std::uint64_t chunk = model.chunk_bytes();
    if (is_short(model)) return model.reduced(model.batch(model.mesh(chunk), chunk), n - chunk);
    return model.descriptor_exchange() + (model.has_windows()
                                              ? model.window_access_by_all(n + chunk)
                                              : model.reduced(model.chunk_mesh(choice), n - chunk));
  }
};
inline constexpr reduce_scatter_algorithm reduce_scatter;

/// Implements a reduce in which only the root sums the inputs. The root reads the inputs that it
/// can access, and receives the other inputs as messages.
template <channel Channel, buffer Data, class Op>
task<> reduce_at_root(Channel net, Data in, Data out, int root, Op op) {
  const bool at_root = net.rank() == root;
  const auto exposed = [&](int peer) {
    return !at_root && peer == root ? const_bytes(bytes(in)) : const_bytes();
  };
  const auto nothing = [](int) { return const_bytes(); };
  const bool may_use_cma = prefers_cma_at_root(bytes(in).size, net.size());
  shared_window<Channel> window(net, exposed, nothing,
                                may_use_cma ? readers::all_to_reduce : readers::no_rank);
  const auto extent = [&](int) { return bytes(in).size; };
  constexpr pattern::rank_range no_rank{0, 0};
  co_await window.begin(extent, at_root ? no_rank : multi_send_recv::one_rank(root),
                        at_root ? multi_send_recv::all_ranks(net) : no_rank);
  if (at_root) {
    const int aliased = in.data() == out.data() ? root : no_alias;
    if (may_use_cma) {
      co_await fold_cma(net, window, in, 0, out, aliased, op);
      co_return;
    }
    co_await fold(net, window, in, 0, out, aliased, op, root);
  } else if (!window.exposes_in(root)) {
    co_await net.send(root, bytes(in));
  }
  co_await window.end();
}

/// Implements `reduce` for long vectors. Each rank sums one chunk of all inputs. If the rank can
/// access the root's output, it writes the sum there. Otherwise it sends the sum to the root. If
/// there are only two ranks and the root cannot access the other rank's input, the other rank sends
/// its whole input instead. The root does not read the sums by CMA, because the sums would no
/// longer be in the cache when the root reads them.
template <channel Channel, buffer Data, class Op>
task<> reduce_long(Channel net, Data in, Data out, int root, Op op) {
  const bool at_root = net.rank() == root;
  if (net.size() == 1) {
    net.copy(bytes(out), bytes(in));
    co_return;
  }
  const auto buffers = exposed_buffers<Channel>::for_three_or_more(
      net, bytes(in), at_root ? bytes(out) : mutable_bytes());
  shared_window<Channel> window(net, buffers.in(), at_root ? buffers.out() : buffers.writable_in());
  const partition parts(in.size(), net.size());
  const chunks chunk(in, parts);
  buffers.copy_in(net, window, chunk);
  co_await window.begin(bytes(in).size);
  const std::size_t element = element_size(in);
  // If there are two ranks and the root cannot read the other rank's input, the root receives the
  // whole input and sums both inputs itself. If each rank summed one half instead, the root would
  // have more work, because it would also send one half of its input and receive half of the sum.
  const auto root_can_read = [&] {
    return at_root ? window.accesses_in(1 - root) : window.exposes_in(root);
  };
  if (net.size() == 2 && !root_can_read()) {
    co_await linear::reduce.run(net, in, out, root, op);
    co_await window.end();
    co_return;
  }
  const int segments = net.segments(parts.longest() * element);
  const auto piece = [&](Channel lane, int k) -> task<> {
    const partition part = parts.segment(k, segments);
    const Channel results = lane.lane(lane.width());
    const std::size_t offset = part.offset(lane.rank());
    const Data own = chunks(in, part)[lane.rank()];
    if (!at_root && accesses_all(lane, window) && window.accesses_out(root)) {
      const Data dest = typed_view(own, window.remote_out(root) + offset * element, own.size());
      const int aliased = window.is_in_place(root) ? root : no_alias;
      co_await when_all(lane.concurrent(send_chunks(lane, window, in, part)),
                        lane.concurrent(fold(lane, window, own, offset, dest, aliased, op, root)));
      co_return;
    }
    const scratch memory(lane.scratch_like(own, at_root ? 0 : own.size()));
    const Data sum = at_root ? chunks(out, part)[root] : typed_view(own, memory.data(), own.size());
    const int aliased = own.data() == sum.data() ? root : no_alias;
    const auto needs_recv = [&](int peer) { return at_root && !window.exposes_out(peer); };
    const auto recv = [&](int peer) { return results.recv(peer, bytes(chunks(out, part)[peer])); };
    co_await when_all(lane.concurrent(send_chunks(lane, window, in, part)),
                      lane.concurrent(fold(lane, window, own, offset, sum, aliased, op, root)),
                      window.for_each_peer(needs_recv, recv));
    if (at_root) co_return;
    if (window.accesses_out(root)) {
      const auto write = [&](std::size_t position, std::size_t n) {
        net.copy({window.remote_out(root) + (offset + position) * element, n * element},
                 bytes(sum.subspan(position, n)));
      };
      co_await window.for_each_piece(sum.size(), element, write);
    } else {
      co_await results.send(root, bytes(sum));
    }
  };
  co_await run_in_lanes(net, net.width(), segments, piece);
  co_await window.end();
  if (at_root) buffers.copy_out(net, window, chunks(out, parts));
}
/// Short inputs are sent to the root. Otherwise the root sums all inputs, or each rank sums one
/// chunk of them.
struct reduce_algorithm : direct_short::built_in_direct<collective::reduce> {
  static constexpr order reduction_order = order::rank;

  template <channel Channel, buffer Data, class Op>
    requires shared_window_transport<typename Channel::transport_type>
  static task<> run(Channel net, Data in, Data out, int root, Op op) {
    const std::size_t size = bytes(in).size;
    if (is_short_vector(operation, size, net.size())) {
      return run_frameless<direct_short::reduce<Channel, Data, Op>>(net, in, out, root, op);
    }
    if (is_reduced_at_root(size, net.size())) return reduce_at_root(net, in, out, root, op);
    return reduce_long(net, in, out, root, op);
  }
  template <class Channel>
  using frameless = step_if_supported<Channel, direct_short::reduce<Channel, any_buffer, any_op>>;

  static constexpr auto cost(const loggp_model& model, const algorithm_choice& choice) {
    const std::uint64_t n = model.bytes();
    const std::uint64_t chunk = model.chunk_bytes();
    if (is_short(model)) return model.batch(model.star_sum(n), n);
    if (is_reduced_at_root(n, model.ranks())) {
      const auto inputs_and_sum = (model.number(model.ranks()) + 1) * n;
      return model.batch(model.star_in(model.descriptor_bytes)) +
             (model.has_windows() ? model.window_access(model.star_out(0), inputs_and_sum, 1)
                                  : model.star_sum(n));
    }
    if (model.has_windows()) {
      return model.descriptor_exchange() + model.window_access_by_all(n + chunk);
    }
    if (model.ranks() == 2) return model.descriptor_exchange() + model.star_sum(n);
    auto last = model.star_in(chunk);
    last.messages *= model.pieces(chunk, choice.segment);
    return model.descriptor_exchange() + model.reduced(model.chunk_mesh(choice), n - chunk) + last;
  }
};
inline constexpr reduce_algorithm reduce;

}  // namespace colls::direct
