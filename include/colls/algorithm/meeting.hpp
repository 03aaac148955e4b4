// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// meeting: collectives of ranks that one thread turns: the last to come does the work of all.
// Each is a step.

#include <colls/algorithm/placed.hpp>
#include <colls/algorithm/step.hpp>

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

/// Afterwards every rank holds the same sum in `out`, with the bits of the sequential sum, where
/// all ranks run on one thread; `in` is only read, and may be `out`. The last to come adds up all
/// inputs where they are, piece by piece of the cache's size, and writes each piece to all: every
/// input is read once and every output written once. No messages.
template <channel Channel, buffer Data, class Op>
class all_reduce {
 public:
  all_reduce(const Channel&, const Data& in, const Data& out, const Op& op)
      : in_(in), out_(out), op_(op) {}
  auto request(const Channel& net) { return net.meet(this); }
  void finish(const Channel& net, auto& all) const {
    if (!all.is_last()) return;
    const auto ranks = static_cast<std::size_t>(net.size());
    detail::recycled_vector<void*> places(2 * ranks);
    const std::span parts(places.data(), ranks);
    const void* const* const inputs = parts.data();
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
      if (ranks > 1) {
        net.reduce(sum, std::span(inputs, ranks), op_, sums[1]);
      } else {
        net.copy(bytes(sum), {static_cast<const std::byte*>(parts[0]), piece.size});
      }
      for (std::size_t rank = 2; rank < ranks; ++rank) {
        net.copy({static_cast<std::byte*>(sums[rank]), piece.size}, piece);
      }
      left -= sum.size();
      if (left == 0) break;
      for (void*& place : places) place = static_cast<std::byte*>(place) + piece.size;
    }
    all.release();
  }

 private:
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
