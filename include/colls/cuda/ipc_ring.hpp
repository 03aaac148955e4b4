// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// ipc_ring: performs an all_reduce of a long vector in a ring of ranks. Each rank has a GPU of its
// own. A rank reads only the memory of the previous rank in the ring. If several GPUs share the
// link between two NUMA nodes, the ring moves less data over that link than an all_reduce in which
// each rank reads the memory of all other ranks.

#include <colls/base/partition.hpp>
#include <colls/cuda/ipc_operation.hpp>

#include <algorithm>
#include <vector>

namespace colls::cuda {

/// The length in bytes of the shortest vector for which `algorithm::automatic` may choose the ring.
/// The ring is too slow for shorter vectors, because it takes two steps per rank, and each step
/// costs a kernel launch, a wait and a message.
inline constexpr std::size_t min_ring_bytes = 4 << 20;

/// Returns whether an operation uses the ring. `infos` contains the messages that all ranks have
/// sent for this operation, so the result is equal on all ranks. The result is false if there is
/// only one rank, if two ranks share a GPU, or if any rank has `ring_use::never`. Otherwise, the
/// result is true if all ranks have `ring_use::always`. It is also true if the links between GPUs
/// differ in performance and at least two NUMA nodes have two or more ranks each. A NUMA node with
/// a single rank does not count, because a ring saves no traffic to and from such a node.
inline bool uses_ring(const std::vector<peer_info>& infos) {
  ring_use use = ring_use::always;
  bool links_differ = false;
  int nodes = 0;
  for (auto it = infos.begin(); it != infos.end(); ++it) {
    const auto is_same_gpu = [it](const peer_info& other) { return other.gpu == it->gpu; };
    const auto is_same_node = [it](const peer_info& other) { return other.node == it->node; };
    if (std::any_of(infos.begin(), it, is_same_gpu)) return false;
    use = std::min(use, it->ring);
    links_differ |= it->links_differ != 0;
    nodes += std::count_if(infos.begin(), it, is_same_node) == 1 ? 1 : 0;
  }
  return infos.size() > 1 &&
         (use == ring_use::always || (use == ring_use::between_nodes && links_differ && nodes > 1));
}

/// Returns the ranks in the order of the ring. Ranks of the same NUMA node are neighbours in the
/// ring.
inline std::vector<int> ring_order(const std::vector<peer_info>& infos) {
  std::vector<int> order;
  const auto precedes = [&](int rank, int other) {
    return infos[static_cast<std::size_t>(rank)].node < infos[static_cast<std::size_t>(other)].node;
  };
  for (int rank = 0; rank < static_cast<int>(infos.size()); ++rank) {
    order.insert(std::upper_bound(order.begin(), order.end(), rank, precedes), rank);
  }
  return order;
}

/// One rank's part in an all_reduce by the ring. The constructor takes an `ipc_operation` whose
/// `begin` has already returned true.
template <channel Channel>
class ipc_ring {
 public:
  ipc_ring(ipc_operation<Channel>& operation, const reduction& op, std::size_t count)
      : operation_(operation),
        op_(op),
        parts_(count, operation.net().size()),
        order_(ring_order(operation.infos())),
        position_(static_cast<int>(std::find(order_.begin(), order_.end(), operation.net().rank()) -
                                   order_.begin())) {}
  ipc_ring(const ipc_ring&) = delete;

  /// Performs the all_reduce. The vector consists of one chunk per rank. This function divides the
  /// vector into pieces, each of which contains a segment of every chunk. It reduces several pieces
  /// concurrently, so that the device works on one piece while the ranks exchange messages about
  /// another piece. `stage` determines the number of pieces, and how many of them are reduced
  /// concurrently.
  template <class Staging>
  task<> run(const Staging& stage) {
    const int pieces = stage.pieces(parts_.longest() * op_.storage_size);
    const auto piece = [this, pieces](const Channel& lane, int k) {
      return run_piece(lane, parts_.segment(k, pieces));
    };
    co_await run_in_lanes(operation_.net().lane(first_lane), stage.slots(), pieces, piece);
    co_await operation_.end();
  }

 private:
  static constexpr int first_lane = 8;  // `ipc_operation` uses lower lanes (message streams)

  int rank_at(int position) const {
    return order_[static_cast<std::size_t>(position) % order_.size()];
  }

  /// Performs the all_reduce of one piece in two phases. The first phase is a reduce_scatter: in
  /// each step, a rank reads a partial sum from the previous rank, adds its own input, and writes
  /// the result to its own output. The second phase is an all_gather: in each step, a rank copies a
  /// complete sum from the output of the previous rank to its own output.
  task<> run_piece(Channel lane, partition parts) {
    const int ranks = lane.size();
    const int previous = rank_at(position_ + ranks - 1);
    const int next = rank_at(position_ + 1);
    const mutable_bytes empty;
    for (int step = 1; step < 2 * ranks - 1; ++step) {
      // This step reads what the previous rank has written in its last step. Therefore this rank
      // waits for a message in which the previous rank says that its last step is done.
      if (step > 1) co_await when_all(lane.send(next, empty), lane.recv(previous, empty));
      const auto work = [&](ipc_operation<Channel>& operation) {
        const int chunk = (position_ + 2 * ranks - step - 1) % ranks;
        const std::size_t offset = parts.offset(chunk) * op_.storage_size;
        const std::size_t count = parts.count(chunk);
        std::byte* const out = operation.out(lane.rank()) + offset;
        if (step >= ranks)
          return operation.copy(out, operation.out(previous) + offset, count * op_.storage_size);
        const std::byte* const partial =
            (step == 1 ? operation.in(previous) : operation.out(previous)) + offset;
        operation.fold(op_, {partial, operation.in(lane.rank()) + offset}, {out}, count,
                       step + 1 == ranks ? ranks : 0);
      };
      co_await operation_.run_part(work);
    }
  }

  ipc_operation<Channel>& operation_;
  const reduction& op_;
  partition parts_;
  std::vector<int> order_;
  int position_;
};

}  // namespace colls::cuda
