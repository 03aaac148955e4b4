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
/// buffers where they are, piece by piece of the cache's size, and writes each piece to all: every
/// input is read once and every output written once. No messages.
template <channel Channel, buffer Data, class Op>
class all_reduce {
 public:
  all_reduce(const Channel&, const Data& in, const Data& out, const Op& op)
      : in_(in), data_(out), op_(op) {}
  auto request(const Channel& net) {
    net.copy(bytes(data_), bytes(in_));
    return net.meet(data_.data());
  }
  void finish(const Channel& net, auto& all) const {
    if (!all.is_last()) return;
    detail::recycled_vector<void*> places(static_cast<std::size_t>(net.size()), data_.data());
    all.each_other(
        [&](int rank, void* theirs) { places[static_cast<std::size_t>(rank)] = theirs; });
    detail::recycled_vector<const void*> parts(places.size());
    constexpr std::size_t cached = 16 * 1024;
    const std::size_t step = elements_in(cached, element_size(data_));
    for (std::size_t at = 0; at < data_.size(); at += step) {
      const std::size_t n = step < data_.size() - at ? step : data_.size() - at;
      const auto part = [&](std::size_t rank) {
        return placed(data_, places[rank], data_.size()).subspan(at, n);
      };
      const Data sum = part(0);
      for (std::size_t rank = 0; rank < parts.size(); ++rank) parts[rank] = part(rank).data();
      if (parts.size() > 1) net.reduce(sum, parts, op_, part(1).data());
      for (std::size_t rank = 2; rank < parts.size(); ++rank) {
        net.copy(bytes(part(rank)), bytes(sum));
      }
    }
    all.release();
  }

 private:
  Data in_;
  Data data_;
  Op op_;
};
/// The same in place, as a coroutine.
template <channel Channel, buffer Data, class Op>
task<> all_reduce_in_place(Channel net, Data data, Op op) {
  return in_one_step<all_reduce<Channel, Data, Op>>(net, data, data, op);
}

}  // namespace colls::at_meeting
