// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// ipc_ring: all_reduce of long vectors by a ring of ranks, each on a GPU of its own. A rank reads
// only the memory of the previous rank. Where GPUs of two NUMA nodes share the link between the
// nodes, less data crosses it than if each rank read from all.

#include <colls/base/partition.hpp>
#include <colls/cuda/ipc_operation.hpp>

#include <algorithm>
#include <vector>

namespace colls::cuda {

/// The least size in bytes for which `automatic` may choose the ring: its steps, of which each rank
/// has two, each cost a launch, a wait and a message.
inline constexpr std::size_t min_ring_bytes = 4 << 20;

/// Whether the ring is used; equal on all ranks. Each rank must have a GPU of its own. And either
/// the call pins the ring; or it permits it, links of GPUs differ in performance, and at least two
/// nodes have two ranks or more: to and from a lone rank a ring moves no less data.
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

/// The ranks in the order of the ring: those of a node are neighbours.
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

/// One rank's part in the ring, in an operation that has begun.
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

  /// Runs pieces concurrently, each of which has a segment of every chunk: while a message of one
  /// piece travels, the device works on another one.
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
  static constexpr int first_lane = 8;  // the operation itself uses lower ones

  int rank_at(int position) const {
    return order_[static_cast<std::size_t>(position) % order_.size()];
  }

  /// First a reduce_scatter, whose partial sums grow from rank to rank in the outputs; then an
  /// all_gather of the sums.
  task<> run_piece(Channel lane, partition parts) {
    const int ranks = lane.size();
    const int previous = rank_at(position_ + ranks - 1);
    const int next = rank_at(position_ + 1);
    const mutable_bytes empty;
    for (int step = 1; step < 2 * ranks - 1; ++step) {
      // This step reads what the previous rank has written in its last step.
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
