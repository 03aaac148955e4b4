// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// whole: collectives of short vectors in one round. Each part goes to all who need it at once, and
// who needs a sum adds it up itself, in rank order. Each is a step.

#include <colls/algorithm/frameless.hpp>
#include <colls/algorithm/multi_send_recv.hpp>
#include <colls/algorithm/typed_view.hpp>
#include <colls/base/partition.hpp>

#include <optional>

namespace colls::whole {

using one_round::all;
using one_round::only;
using one_round::round;
using one_round::share_upwards;
using one_round::share_with_all;

/// No input lies where the sum goes.
inline constexpr int apart = -1;

/// sum = parts[0] (+) parts[1] (+) ..., where `sum` may be part `aliased`; `second` gets the same
/// unless it is null. The parts before that one are added up in `spare`, unless all are at once.
template <channel Channel, buffer Data, class Op>
void add_up(const Channel& net, const Data& sum, std::span<const void*> parts, int aliased,
            void* spare, const Op& op, void* second = nullptr) {
  if (parts.size() == 1) {
    return net.copy(bytes(sum), {static_cast<const std::byte*>(parts[0]), bytes(sum).size});
  }
  if (aliased > 1 && !folds<Data>(op)) {
    const auto before = static_cast<std::size_t>(aliased);
    net.reduce(placed(sum, spare, sum.size()), parts.first(before), op);
    parts = parts.subspan(before - 1);
    parts[0] = spare;
  }
  net.reduce(sum, parts, op, second);
}
/// Leaves in `sum` the sum over the ranks before `ranks`, of which each has its part in its place
/// in `taken`, but this rank's is `own`. `sum` may be `own`.
template <channel Channel, buffer Data, class Op>
void add_up_taken(const Channel& net, const Data& own, std::byte* taken, int ranks, const Data& sum,
                  const Op& op) {
  const std::size_t size = bytes(own).size;
  const auto part = [&](int rank) {
    std::byte* const there = taken + static_cast<std::size_t>(rank) * size;
    return rank == net.rank() ? own : placed(own, there, own.size());
  };
  if (ranks == 2) return net.reduce(sum, part(0), part(1), op);
  detail::recycled_vector<const void*> parts(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    parts[static_cast<std::size_t>(rank)] = part(rank).data();
  }
  const bool in_place = net.rank() < ranks && own.data() == sum.data();
  add_up(net, sum, parts, in_place ? net.rank() : apart, taken, op);
}
/// Room for such parts.
struct room {
  template <channel Channel, buffer Data>
  room(const Channel& net, const Data& part, int ranks)
      : memory(net.scratch_bytes(ranks > 1 ? static_cast<std::size_t>(ranks) * bytes(part).size
                                           : 0)) {}
  std::byte* data() const { return memory.data(); }

  scratch memory;
};

/// Ends on no rank before all ranks have called it. p(p-1) empty messages.
template <channel Channel>
class barrier {
 public:
  explicit barrier(const Channel&) {}
  [[gnu::always_inline]] auto request(const Channel& net) {
    return share_with_all(net, const_bytes(), nullptr);
  }
  void finish(const Channel&, const auto&) const {}
};

/// Afterwards every rank holds the same sum in `out`, with the bits of the sequential sum; `in` is
/// only read, and may be `out`. p(p-1) messages of the whole input.
template <channel Channel, buffer Data, class Op>
class all_reduce {
 public:
  all_reduce(const Channel&, const Data& in, const Data& out, const Op& op)
      : in_(in), out_(out), op_(op) {}
  [[gnu::always_inline]] auto request(const Channel& net) {
    parts_.emplace(net, in_, net.size());
    return share_with_all(net, bytes(in_), parts_->data());
  }
  void finish(const Channel& net, const auto&) const {
    add_up_taken(net, in_, parts_->data(), net.size(), out_, op_);
  }

 private:
  Data in_;
  Data out_;
  Op op_;
  std::optional<room> parts_;
};

/// Afterwards `out` of the root holds the sum, with the bits of the sequential sum; elsewhere `out`
/// is not looked at. `in` is only read; on the root it may be `out`. p-1 messages.
template <channel Channel, buffer Data, class Op>
class reduce {
 public:
  reduce(const Channel&, const Data& in, const Data& out, int root, const Op& op)
      : in_(in), out_(out), op_(op), root_(root) {}
  [[gnu::always_inline]] auto request(const Channel& net) {
    parts_.emplace(net, in_, net.rank() == root_ ? net.size() : 0);
    const mutable_bytes zeroth{parts_->data(), bytes(in_).size};
    return net.rank() == root_
               ? round(net, round_gives(), round_takes::blocks(all(net), zeroth))
               : round(net, round_gives::same(only(root_), bytes(in_)), round_takes());
  }
  void finish(const Channel& net, const auto&) const {
    if (net.rank() == root_) add_up_taken(net, in_, parts_->data(), net.size(), out_, op_);
  }

 private:
  Data in_;
  Data out_;
  Op op_;
  int root_;
  std::optional<room> parts_;
};

/// Afterwards rank r holds the finished chunk r in `out`, with the bits of the sequential sum; `in`
/// is only read, and `out` may be exactly this rank's chunk of it. p(p-1) messages of a chunk.
template <channel Channel, buffer Data, class Op>
class reduce_scatter {
 public:
  reduce_scatter(const Channel& net, const Data& in, const Data& out, const partition& parts,
                 const Op& op)
      : in_(in), own_(chunks(in, parts)[net.rank()]), out_(out), parts_(parts), op_(op) {}
  [[gnu::always_inline]] auto request(const Channel& net) {
    taken_.emplace(net, own_, net.size());
    const mutable_bytes zeroth{taken_->data(), bytes(own_).size};
    return round(net, round_gives::chunks(all(net), bytes(in_), parts_, element_size(in_)),
                 round_takes::blocks(all(net), zeroth));
  }
  void finish(const Channel& net, const auto&) const {
    add_up_taken(net, own_, taken_->data(), net.size(), out_, op_);
  }

 private:
  Data in_;
  Data own_;
  Data out_;
  partition parts_;
  Op op_;
  std::optional<room> taken_;
};

/// Afterwards `out` on rank r holds the sum over ranks 0 to r, with the bits of the sequential sum;
/// `in` is only read, and may be `out`. Each rank sends to all after it: p(p-1)/2 messages.
template <channel Channel, buffer Data, class Op>
class scan {
 public:
  scan(const Channel&, const Data& in, const Data& out, const Op& op)
      : in_(in), out_(out), op_(op) {}
  [[gnu::always_inline]] auto request(const Channel& net) {
    parts_.emplace(net, in_, net.rank() + 1);
    return share_upwards(net, bytes(in_), parts_->data());
  }
  void finish(const Channel& net, const auto&) const {
    add_up_taken(net, in_, parts_->data(), net.rank() + 1, out_, op_);
  }

 private:
  Data in_;
  Data out_;
  Op op_;
  std::optional<room> parts_;
};
/// Afterwards `data` on rank r > 0 holds the sum over the ranks before r, with the bits of the
/// sequential sum; that of rank 0 stays as it was. p(p-1)/2 messages.
template <channel Channel, buffer Data, class Op>
class exscan {
 public:
  exscan(const Channel&, const Data& data, const Op& op) : data_(data), op_(op) {}
  [[gnu::always_inline]] auto request(const Channel& net) {
    parts_.emplace(net, data_, net.rank() + 1);
    return share_upwards(net, bytes(data_), parts_->data());
  }
  void finish(const Channel& net, const auto&) const {
    if (net.rank() > 0) add_up_taken(net, data_, parts_->data(), net.rank(), data_, op_);
  }

 private:
  Data data_;
  Op op_;
  std::optional<room> parts_;
};

/// Afterwards chunk r of `out` on every rank holds `in` of rank r; `in` is only read, and may be
/// this rank's chunk of `out`. p(p-1) messages.
template <channel Channel, buffer Data>
class all_gather {
 public:
  all_gather(const Channel&, const Data& in, const Data& out, const partition& parts)
      : in_(in), out_(out), parts_(parts) {}
  [[gnu::always_inline]] auto request(const Channel& net) {
    return round(net, round_gives::same(all(net), bytes(in_)),
                 round_takes::chunks(all(net), bytes(out_), parts_, element_size(out_)));
  }
  void finish(const Channel& net, const auto&) const {
    net.copy(bytes(chunks(out_, parts_)[net.rank()]), bytes(in_));
  }

 private:
  Data in_;
  Data out_;
  partition parts_;
};

/// Afterwards `data` of every rank holds what `data` of the root held. p-1 messages.
template <channel Channel, buffer Data>
class broadcast {
 public:
  broadcast(const Channel&, const Data& data, int root) : data_(data), root_(root) {}
  [[gnu::always_inline]] auto request(const Channel& net) {
    return net.rank() == root_
               ? round(net, round_gives::same(all(net), bytes(data_)), round_takes())
               : round(net, round_gives(), round_takes::same(only(root_), bytes(data_)));
  }
  void finish(const Channel&, const auto&) const {}

 private:
  Data data_;
  int root_;
};

/// Afterwards chunk r of `data` on the root holds `mine` of rank r; elsewhere `data` is not looked
/// at. On the root `mine` may be exactly its chunk. p-1 messages.
template <channel Channel, buffer Data>
class gather {
 public:
  gather(const Channel&, const Data& mine, const Data& data, const partition& parts, int root)
      : mine_(mine), data_(data), parts_(parts), root_(root) {}
  [[gnu::always_inline]] auto request(const Channel& net) {
    // The others write meanwhile.
    if (net.rank() == root_) net.copy(bytes(chunks(data_, parts_)[root_]), bytes(mine_));
    return net.rank() == root_
               ? round(net, round_gives(),
                       round_takes::chunks(all(net), bytes(data_), parts_, element_size(mine_)))
               : round(net, round_gives::same(only(root_), bytes(mine_)), round_takes());
  }
  void finish(const Channel&, const auto&) const {}

 private:
  Data mine_;
  Data data_;
  partition parts_;
  int root_;
};

/// Afterwards `mine` on rank r holds chunk r of `data` on the root; elsewhere `data` is not looked
/// at. On the root `mine` may be exactly its chunk. p-1 messages.
template <channel Channel, buffer Data>
class scatter {
 public:
  scatter(const Channel&, const Data& data, const Data& mine, const partition& parts, int root)
      : data_(data), mine_(mine), parts_(parts), root_(root) {}
  [[gnu::always_inline]] auto request(const Channel& net) {
    return net.rank() == root_
               ? round(net,
                       round_gives::chunks(all(net), bytes(data_), parts_, element_size(mine_)),
                       round_takes())
               : round(net, round_gives(), round_takes::same(only(root_), bytes(mine_)));
  }
  void finish(const Channel& net, const auto&) const {
    if (net.rank() == root_) net.copy(bytes(mine_), bytes(chunks(data_, parts_)[root_]));
  }

 private:
  Data data_;
  Data mine_;
  partition parts_;
  int root_;
};

/// Afterwards chunk i of `out` holds the chunk of `in` that rank i had for this rank; `in` is only
/// read and does not overlap `out`. p(p-1) messages.
template <channel Channel, buffer Data>
class all_to_all {
 public:
  all_to_all(const Channel&, const Data& in, const partition& in_parts, const Data& out,
             const partition& out_parts)
      : in_(in), out_(out), in_parts_(in_parts), out_parts_(out_parts) {}
  [[gnu::always_inline]] auto request(const Channel& net) {
    return round(net, round_gives::chunks(all(net), bytes(in_), in_parts_, element_size(in_)),
                 round_takes::chunks(all(net), bytes(out_), out_parts_, element_size(out_)));
  }
  void finish(const Channel& net, const auto&) const {
    const int mine = net.rank();
    net.copy(bytes(chunks(out_, out_parts_)[mine]), bytes(chunks(in_, in_parts_)[mine]));
  }

 private:
  Data in_;
  Data out_;
  partition in_parts_;
  partition out_parts_;
};

}  // namespace colls::whole
