// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// ring_visit: a sum of long vectors whose ranks, each on a GPU of its own, stand in a ring. Each
// reads the memory of the one before it alone: where GPUs of two nodes of the host share what joins
// those, less goes over that than if each read from all.

#include <colls/base/partition.hpp>
#include <colls/cuda/ipc_operation.hpp>

#include <algorithm>
#include <vector>

namespace colls::cuda {

/// Bytes from which on a sum goes round where nobody has asked for it. Each of the steps takes some
/// 20 us of launch, wait and word, and there are 2 for each rank.
inline constexpr std::size_t least_round = 4 << 20;

/// Whether a sum goes round, by what all ranks have told all. Each has a GPU of its own; and it was
/// asked for, or may be, GPUs have links of several kinds, and two nodes have two ranks or more: to
/// and from a lone one a ring moves no less.
inline bool goes_round(const std::vector<visiting_card>& cards) {
  ring_use use = ring_use::always;
  bool links_differ = false;
  int nodes = 0;
  for (auto at = cards.begin(); at != cards.end(); ++at) {
    const auto on_its_gpu = [at](const visiting_card& each) { return each.gpu == at->gpu; };
    const auto on_its_node = [at](const visiting_card& each) { return each.node == at->node; };
    if (std::any_of(cards.begin(), at, on_its_gpu)) return false;
    use = std::min(use, at->ring);
    links_differ |= at->links_differ != 0;
    nodes += std::count_if(cards.begin(), at, on_its_node) == 1 ? 1 : 0;
  }
  return cards.size() > 1 &&
         (use == ring_use::always || (use == ring_use::between_nodes && links_differ && nodes > 1));
}

/// The ranks as they stand: those of a node side by side.
inline std::vector<int> ring_order(const std::vector<visiting_card>& cards) {
  std::vector<int> order;
  const auto before = [&](int one, int other) {
    return cards[static_cast<std::size_t>(one)].node < cards[static_cast<std::size_t>(other)].node;
  };
  for (int rank = 0; rank < static_cast<int>(cards.size()); ++rank) {
    order.insert(std::upper_bound(order.begin(), order.end(), rank, before), rank);
  }
  return order;
}

/// One rank's part in such a sum, in a visit that has begun.
template <channel Channel>
class ring_visit {
 public:
  ring_visit(visit<Channel>& call, const reduction& by, std::size_t count)
      : call_(call),
        by_(by),
        parts_(count, call.net().size()),
        order_(ring_order(call.cards())),
        place_(static_cast<int>(std::find(order_.begin(), order_.end(), call.net().rank()) -
                                order_.begin())) {}
  ring_visit(const ring_visit&) = delete;

  /// In pieces of chunks, so many at a time: while a word of one travels, the device works on
  /// another one.
  template <class Staging>
  task<> run(const Staging& how) {
    const int pieces = how.pieces(parts_.longest() * by_.storage_size);
    const auto piece = [this, pieces](const Channel& lane, int k) {
      return go_round(lane, parts_.segment(k, pieces));
    };
    co_await in_lanes(call_.net().lane(first_lane), how.slots(), pieces, piece);
    co_await call_.end();
  }

 private:
  static constexpr int first_lane = 8;  // a visit has those before it

  int rank_at(int place) const { return order_[static_cast<std::size_t>(place) % order_.size()]; }

  /// First each chunk's sum grows from rank to rank, into the outputs; then it goes round itself.
  task<> go_round(Channel lane, partition parts) {
    const int ranks = lane.size();
    const int before = rank_at(place_ + ranks - 1);
    const int next = rank_at(place_ + 1);
    const mutable_bytes word;
    for (int step = 1; step < 2 * ranks - 1; ++step) {
      // What this step reads the one before has written in its last one.
      if (step > 1) co_await when_all(lane.send(next, word), lane.recv(before, word));
      const auto work = [&](visit<Channel>& call) {
        const int chunk = (place_ + 2 * ranks - step - 1) % ranks;
        const std::size_t at = parts.offset(chunk) * by_.storage_size;
        const std::size_t count = parts.count(chunk);
        std::byte* const out = call.out(lane.rank()) + at;
        if (step >= ranks) return call.copy(out, call.out(before) + at, count * by_.storage_size);
        const std::byte* const partial = (step == 1 ? call.in(before) : call.out(before)) + at;
        call.fold(by_, {partial, call.in(lane.rank()) + at}, {out}, count,
                  step + 1 == ranks ? ranks : 0);
      };
      co_await call_.part(work);
    }
  }

  visit<Channel>& call_;
  const reduction& by_;
  partition parts_;
  std::vector<int> order_;
  int place_;
};

}  // namespace colls::cuda
