// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// view_body: the work of calls that move the elements of strided views: they pack, move and unpack
// a piece at a time.

#include <colls/base/strided_view.hpp>
#include <colls/call/call_body.hpp>
#include <colls/call/view_message.hpp>
#include <colls/call/view_request.hpp>

#include <algorithm>
#include <climits>
#include <vector>

namespace colls::detail {

/// The number of pieces that are in motion at the same time, in all and for each pair of ranks that
/// exchange data.
inline constexpr int view_lanes = 4;
inline constexpr int view_lanes_per_peer = 2;

/// Returns the number of elements of a piece.
inline std::size_t piece_elements(std::size_t segment, std::size_t element_size) {
  return std::max<std::size_t>(1, (segment != 0 ? segment : view_piece_bytes) / element_size);
}
/// Returns the number of pieces of `count` elements, at least 1.
inline int pieces_of(std::size_t count, std::size_t most) {
  const std::size_t pieces = count == 0 ? 1 : (count - 1) / most + 1;
  return static_cast<int>(std::min<std::size_t>(pieces, INT_MAX));
}

template <channel Channel>
struct view_body {
  using offsets = std::vector<std::size_t>;

  /// One piece of a view as a buffer: the same piece of the blocks of all ranks, or of this rank's
  /// block alone. If the piece is contiguous in the view, the buffer lies there. Otherwise it is
  /// scratch memory.
  class piece {
   public:
    /// `part` is the piece of each block of `parts`. If `is_own`, `view` is this rank's block.
    piece(const Channel& net, const any_view& view, const partition& parts, const partition& part,
          bool is_own)
        : net_(net),
          view_(view),
          parts_(parts),
          part_(part),
          is_own_(is_own),
          is_in_place_(view.is_contiguous() && (is_own || is_whole(parts, part))),
          memory_(net.scratch_bytes(is_in_place_ ? 0 : count() * view.element_size())) {}

    any_buffer buffer() const {
      if (!is_in_place_) return {memory_.data(), count(), view_.element_size()};
      const any_buffer all = view_.contiguous();
      return is_own_ ? all.subspan(first_of(net_.rank()), count()) : all;
    }
    void read() const {
      each([&](std::size_t first, std::size_t n, std::byte* packed) {
        pack(view_, first, n, packed);
      });
    }
    void write() const {
      each([&](std::size_t first, std::size_t n, const std::byte* packed) {
        unpack(view_, first, n, packed);
      });
    }

   private:
    static bool is_whole(const partition& parts, const partition& part) {
      return part.longest() == parts.longest();
    }
    std::size_t first_of(int rank) const {
      return part_.offset(rank) - (is_own_ ? parts_.offset(rank) : 0);
    }
    std::size_t count() const {
      if (is_own_) return part_.count(net_.rank());
      std::size_t sum = 0;
      for (int rank = 0; rank < net_.size(); ++rank) sum += part_.count(rank);
      return sum;
    }
    template <class Use>
    void each(const Use& use) const {
      if (is_in_place_ || net_.is_phantom()) return;
      std::byte* packed = memory_.data();
      const int first = is_own_ ? net_.rank() : 0;
      const int last = is_own_ ? net_.rank() + 1 : net_.size();
      for (int rank = first; rank < last; ++rank) {
        use(first_of(rank), part_.count(rank), packed);
        packed += part_.count(rank) * view_.element_size();
      }
    }

    const Channel& net_;
    const any_view& view_;
    const partition& parts_;
    const partition& part_;
    bool is_own_;
    bool is_in_place_;
    colls::scratch memory_;
  };

  /// Runs a broadcast, an all_gather, a gather or a scatter, one piece of each block after the
  /// other. Several pieces are in motion at the same time, on different lanes. `first` is this
  /// rank's input, `second` its output; a broadcast has only `first`. `most` is the number of
  /// elements of a piece.
  template <collective Coll>
  static task<> move(Channel net, algorithm_function<Coll, Channel>* algorithm, any_view first,
                     any_view second, std::size_t share, offsets table, int root,
                     std::size_t most) {
    const partition parts = partition_of(table, share, net.size());
    // A native collective must begin in the same order on all ranks, so a call has one of them.
    const int pieces = net.record().is_native ? 1 : pieces_of(parts.longest(), most);
    const auto move_piece = [&](Channel lane, int k) -> task<> {
      const partition part = parts.segment(k, pieces);
      offsets packed{0};
      for (int rank = 0; rank < lane.size() && !table.empty(); ++rank) {
        packed.push_back(packed.back() + part.count(rank));
      }
      const partition blocks =
          partition_of(table.empty() ? table : packed, part.longest(), lane.size());
      const bool is_root = lane.rank() == root;
      if constexpr (Coll == collective::broadcast) {
        const piece data(lane, first, parts, part, true);
        if (is_root) data.read();
        co_await algorithm(lane, data.buffer(), root);
        if (!is_root) data.write();
      } else if constexpr (Coll == collective::all_gather) {
        const piece own(lane, first, parts, part, true);
        const piece all(lane, second, parts, part, false);
        own.read();
        co_await algorithm(lane, own.buffer(), all.buffer(), blocks);
        all.write();
      } else {
        constexpr bool gathers = Coll == collective::gather;
        const any_view nothing(any_buffer(nullptr, 0, first.element_size()));
        const piece own(lane, gathers ? first : second, parts, part, true);
        std::optional<piece> all;
        if (is_root) all.emplace(lane, gathers ? second : first, parts, part, false);
        const any_buffer every = all ? all->buffer() : nothing.contiguous();
        if (gathers) own.read();
        if (all && !gathers) all->read();
        const any_buffer input = gathers ? own.buffer() : every;
        const any_buffer output = gathers ? every : own.buffer();
        co_await algorithm(lane, input, output, blocks, root);
        if (all && gathers) all->write();
        if (!gathers) own.write();
      }
    };
    if (pieces == 1) {
      co_await move_piece(net, 0);
      co_return;
    }
    const int width = std::min(view_lanes, pieces);
    const auto lane = [&](int k) {
      return net.concurrent(
          run_segments<Channel>(net.lane(k * net.lanes()), k, width, pieces, move_piece));
    };
    co_await each_of(0, width, lane);
  }

  // ---- exchanges with given ranks

  /// Sends and receives what `pair` says, a piece at a time. Behind its first piece, each side
  /// sends the number of its elements, which the other compares with what it expects.
  static task<> swap(Channel net, view_exchange pair, std::size_t most) {
    const std::size_t longest = std::max(pair.out.count, pair.in.count);
    most = std::max(most, longest / INT_MAX + 1);  // longer than asked for, if there are too many
    const int pieces = pieces_of(longest, most);
    const auto swap_piece = [&](Channel lane, int k) -> task<> {
      const view_range outgoing = pair.out.piece(k, most);
      const view_range incoming = pair.in.piece(k, most);
      std::uint64_t total = pair.out.count;
      const std::size_t trailer = k == 0 ? sizeof total : 0;
      const std::size_t out_size = outgoing.count * outgoing.view.element_size();
      const std::size_t in_size = incoming.count * incoming.view.element_size();
      const auto sent = lane.scratch_bytes(out_size + trailer);
      const auto taken = lane.scratch_bytes(in_size + trailer);
      const bool sends = pair.sends && sent.all().size != 0;
      const bool receives = pair.receives && taken.all().size != 0;
      if (!lane.is_phantom()) {
        pack(outgoing.view, outgoing.first, outgoing.count, sent.data());
        std::memcpy(sent.data() + out_size, &total, trailer);
      }
      if (pair.peer == lane.rank()) {
        lane.copy(taken.all(), sent.all());
      } else if (sends && receives) {
        co_await when_all(lane.send(pair.peer, sent.all()), lane.recv(pair.peer, taken.all()));
      } else if (sends) {
        co_await lane.send(pair.peer, sent.all());
      } else if (receives) {
        co_await lane.recv(pair.peer, taken.all());
      }
      if (!receives || lane.is_phantom()) co_return;
      if (trailer != 0) {
        std::memcpy(&total, taken.data() + in_size, trailer);
        check_total(lane, pair, total);
      }
      unpack(incoming.view, incoming.first, incoming.count, taken.data());
    };
    co_await run_in_lanes(net, view_lanes_per_peer, pieces, swap_piece);
  }
  static void check_total(const Channel& net, const view_exchange& pair, std::uint64_t total) {
    if (total == pair.in.count) return;
    failure reason(errc::mismatch);
    reason.culprit = net.world_rank(pair.peer);
    throw error(reason.set_detail("rank %d sends %llu elements, and this rank receives %zu",
                                  pair.peer, static_cast<unsigned long long>(total),
                                  pair.in.count));
  }

  /// Makes the exchanges of `pairs`, which are ordered by peer: those with one peer one after the
  /// other, with different peers at the same time.
  static task<> exchange(Channel net, std::vector<view_exchange> pairs, std::size_t most) {
    std::vector<std::span<const view_exchange>> peers;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      if (i == 0 || pairs[i].peer != pairs[i - 1].peer) peers.push_back({&pairs[i], 0});
      peers.back() = {peers.back().data(), peers.back().size() + 1};
    }
    const auto start = [&](int i) {
      return net.concurrent(exchange_with_peer(net, peers[static_cast<std::size_t>(i)], most));
    };
    co_await each_of(0, static_cast<int>(peers.size()), start);
  }
  static task<> exchange_with_peer(Channel net, std::span<const view_exchange> pairs,
                                   std::size_t most) {
    for (const view_exchange& pair : pairs) co_await swap(net, pair, most);
  }
};

}  // namespace colls::detail
