// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// meeting: collectives of ranks that one thread turns: the last to come does the work of all.
// Each is a step.

#include <colls/algorithm/frameless.hpp>
#include <colls/algorithm/typed_view.hpp>

#include <bit>
#include <span>

namespace colls::at_meeting {

/// Ends on no rank before all ranks have called it, where they run on one thread. No messages.
template <channel Channel>
class barrier {
 public:
  explicit barrier(const Channel&) {}
  auto request(const Channel& net) const { return net.meet(nullptr); }
  void finish(const Channel&, auto& all) const {
    if (all.is_last()) all.release();
  }
};

/// How the last to come adds up a piece of what all ranks have: from `parts` to `sum`, which lies
/// at `sums[0]`. It may write to the others of `sums` too, and says how many, from the first, have
/// it.
struct in_rank_order {
  template <channel Channel, buffer Data, class Op>
  static std::size_t add(const Channel& net, const Data& sum, std::span<void* const> parts,
                         std::span<void* const> sums, const Op& op) {
    const void* const* const inputs = parts.data();
    net.reduce(sum, std::span(inputs, parts.size()), op, sums[1]);
    return 2;
  }
};
/// With the bits of recursive_doubling, in which all of a group make its sum: here the first does.
struct in_doubled_groups {
  template <channel Channel, buffer Data, class Op>
  static std::size_t add(const Channel& net, const Data& sum, std::span<void* const> parts,
                         std::span<void* const> sums, const Op& op) {
    // A corner of the hypercube is a rank; each of the first ones is two.
    const std::size_t corners = std::bit_floor(parts.size());
    const std::size_t doubled = parts.size() - corners;
    const auto first_of = [&](std::size_t corner) {
      return corner < doubled ? 2 * corner : corner + doubled;
    };
    const auto join = [&](std::size_t left, void* mine, void* theirs) {
      const auto here = [&](void* place) { return placed(sum, place, sum.size()); };
      net.reduce(here(sums[left]), here(mine), here(theirs), op);
    };
    for (std::size_t at = 0; at < 2 * doubled; at += 2) join(at, parts[at], parts[at + 1]);
    for (std::size_t group = 1; group < corners; group *= 2) {
      const auto held = [&](std::size_t corner) {
        const std::size_t rank = first_of(corner);
        return group > 1 || corner < doubled ? sums[rank] : parts[rank];
      };
      for (std::size_t at = 0; at < corners; at += 2 * group) {
        join(first_of(at), held(at), held(at + group));
      }
    }
    return 1;
  }
};

/// Afterwards every rank holds the same sum in `out`, where all ranks run on one thread; `in` is
/// only read, and may be `out`. The last to come adds up all inputs where they are, piece by piece
/// of the cache's size, and writes each piece to all. No messages.
template <channel Channel, buffer Data, class Op, class Sum = in_rank_order>
class all_reduce {
 public:
  all_reduce(const Channel&, const Data& in, const Data& out, const Op& op)
      : in_(in), out_(out), op_(op) {}
  auto request(const Channel& net) { return net.meet(this); }
  void finish(const Channel& net, auto& all) const {
    if (!all.is_last()) return;
    add_up(net, all);
    all.release();
  }

 private:
  void add_up(const Channel& net, const auto& all) const {
    const auto ranks = static_cast<std::size_t>(net.size());
    if (ranks == 1) return net.copy(bytes(out_), bytes(in_));
    detail::recycled_vector<void*> places(2 * ranks);
    const std::span parts(places.data(), ranks);
    const std::span sums(places.data() + ranks, ranks);
    const auto note = [&](int rank, const all_reduce& one) {
      parts[static_cast<std::size_t>(rank)] = one.in_.data();
      sums[static_cast<std::size_t>(rank)] = one.out_.data();
    };
    note(net.rank(), *this);
    all.each_other(
        [&](int rank, const void* theirs) { note(rank, *static_cast<const all_reduce*>(theirs)); });
    constexpr std::size_t cached = 16 * 1024;
    const std::size_t step = elements_in(cached, element_size(out_));
    for (std::size_t left = out_.size(); left > 0;) {
      const Data sum = placed(out_, sums[0], step < left ? step : left);
      const const_bytes piece = bytes(sum);
      std::size_t rank = Sum::add(net, sum, parts, sums, op_);
      for (; rank < ranks; ++rank) {
        net.copy({static_cast<std::byte*>(sums[rank]), piece.size}, piece);
      }
      left -= sum.size();
      if (left == 0) break;
      for (void*& place : places) place = static_cast<std::byte*>(place) + piece.size;
    }
  }

  Data in_;
  Data out_;
  Op op_;
};
/// The same in place, as a coroutine.
template <channel Channel, buffer Data, class Op>
task<> all_reduce_in_place(Channel net, Data data, Op op) {
  return in_one_step<all_reduce<Channel, Data, Op>>(net, data, data, op);
}

}  // namespace colls::at_meeting
