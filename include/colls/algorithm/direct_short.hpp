// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// direct_short: collectives that take one round, for short vectors. Every rank sends its data
// directly to all ranks that need it. A rank that needs a sum folds (combines) all inputs itself,
// in rank order. All algorithms here are frameless (see `frameless`): each consists of one
// transport operation with local work before and after it. In the comments, p is the number of
// ranks.

#include <colls/algorithm/description.hpp>
#include <colls/algorithm/direct_thresholds.hpp>
#include <colls/algorithm/frameless.hpp>
#include <colls/algorithm/multi_send_recv.hpp>
#include <colls/algorithm/typed_view.hpp>

#include <optional>

namespace colls::direct_short {

using multi_send_recv::all_ranks;
using multi_send_recv::exchange;
using multi_send_recv::exchange_upwards;
using multi_send_recv::exchange_with_all;
using multi_send_recv::one_rank;

/// The base class of each algorithm `direct` for ranks that access each other's memory. Calls with
/// short vectors are frameless, if the transport has fused exchanges.
template <collective Coll>
struct built_in_direct : built_in<Coll, algorithm::direct> {
  static constexpr algorithm_needs needs{.shared_windows = true};

  template <class Channel, class Step>
  using step_if_supported =
      std::conditional_t<multi_send_recv_transport<typename Channel::transport_type>, Step, void>;
  static constexpr bool is_frameless(const selection_query& query) {
    return is_short_vector(Coll, query.bytes, query.ranks);
  }
  /// Returns whether the algorithm treats the vector of the call as short.
  static constexpr bool is_short(const loggp_model& model) {
    return is_short_vector(Coll, model.bytes(), model.ranks());
  }
};

/// The value of the argument `aliased` of `fold_parts` if no part lies in the memory of the sum.
inline constexpr int no_alias = -1;

/// Computes sum = parts[0] (+) parts[1] (+) ..., where (+) is the operation `op`. `aliased` is the
/// index of the part that lies in the memory of `sum`, or `no_alias` if there is no such part. If
/// `second` is not null, also writes the sum to `second`. `spare` is scratch memory for one part.
/// It is used only if `aliased` is greater than 1 and `op` cannot fold all parts in one pass.
template <channel Channel, buffer Data, class Op>
void fold_parts(const Channel& net, const Data& sum, std::span<const void*> parts, int aliased,
                void* spare, const Op& op, void* second = nullptr) {
  if (parts.size() == 1) {
    return net.copy(bytes(sum), {static_cast<const std::byte*>(parts[0]), bytes(sum).size});
  }
  if (aliased > 1 && !has_fold<Data>(op)) {
    const auto before = static_cast<std::size_t>(aliased);
    net.reduce(typed_view(sum, spare, sum.size()), parts.first(before), op);
    parts = parts.subspan(before - 1);
    parts[0] = spare;
  }
  net.reduce(sum, parts, op, second);
}
/// Computes the sum of the parts of ranks 0 to `ranks` - 1, and leaves it in `sum`. The part of
/// this rank is `own`, and the part of any other rank r is block r of `received`. `sum` may be the
/// same buffer as `own`.
template <channel Channel, buffer Data, class Op>
void fold_received(const Channel& net, const Data& own, std::byte* received, int ranks,
                   const Data& sum, const Op& op) {
  const std::size_t size = bytes(own).size;
  const auto part = [&](int rank) {
    std::byte* const block = received + static_cast<std::size_t>(rank) * size;
    return rank == net.rank() ? own : typed_view(own, block, own.size());
  };
  if (ranks == 2) return net.reduce(sum, part(0), part(1), op);
  detail::recycled_vector<const void*> parts(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    parts[static_cast<std::size_t>(rank)] = part(rank).data();
  }
  const bool in_place = net.rank() < ranks && own.data() == sum.data();
  fold_parts(net, sum, parts, in_place ? net.rank() : no_alias, received, op);
}
/// Scratch memory for the parts of ranks 0 to `ranks` - 1, each as long as `part`. Allocates
/// nothing if `ranks` is less than 2.
struct part_scratch {
  template <channel Channel, buffer Data>
  part_scratch(const Channel& net, const Data& part, int ranks)
      : memory(net.scratch_bytes(ranks > 1 ? static_cast<std::size_t>(ranks) * bytes(part).size
                                           : 0)) {}
  std::byte* data() const { return memory.data(); }

  scratch memory;
};

/// A barrier, which no rank leaves before all ranks have entered it. All ranks together send p(p-1)
/// empty messages.
template <channel Channel>
class barrier {
 public:
  explicit barrier(const Channel&) {}
  [[gnu::always_inline]] auto request(const Channel& net) {
    return exchange_with_all(net, const_bytes(), nullptr);
  }
  void finish(const Channel&, const auto&) const {}
};

/// An all_reduce. Afterwards `out` on every rank holds the sum of `in` over all ranks, with the
/// same bits as the sequential sum in rank order. `in` may be the same buffer as `out`; otherwise
/// it is only read. All ranks together send p(p-1) messages, each with a whole input.
template <channel Channel, buffer Data, class Op>
class all_reduce {
 public:
  all_reduce(const Channel&, const Data& in, const Data& out, const Op& op)
      : in_(in), out_(out), op_(op) {}
  [[gnu::always_inline]] auto request(const Channel& net) {
    parts_.emplace(net, in_, net.size());
    return exchange_with_all(net, bytes(in_), parts_->data());
  }
  void finish(const Channel& net, const auto&) const {
    fold_received(net, in_, parts_->data(), net.size(), out_, op_);
  }

 private:
  Data in_;
  Data out_;
  Op op_;
  std::optional<part_scratch> parts_;
};

/// A reduce. Afterwards `out` on the root holds the sum of `in` over all ranks, with the same bits
/// as the sequential sum in rank order. On the other ranks, `out` is ignored. On the root, `in` may
/// be the same buffer as `out`; otherwise `in` is only read. All ranks together send p-1 messages.
template <channel Channel, buffer Data, class Op>
class reduce {
 public:
  reduce(const Channel&, const Data& in, const Data& out, int root, const Op& op)
      : in_(in), out_(out), op_(op), root_(root) {}
  [[gnu::always_inline]] auto request(const Channel& net) {
    parts_.emplace(net, in_, net.rank() == root_ ? net.size() : 0);
    const mutable_bytes first{parts_->data(), bytes(in_).size};
    return net.rank() == root_
               ? exchange(net, multi_send_buffers(),
                          multi_recv_buffers::blocks(all_ranks(net), first))
               : exchange(net, multi_send_buffers::same(one_rank(root_), bytes(in_)),
                          multi_recv_buffers());
  }
  void finish(const Channel& net, const auto&) const {
    if (net.rank() == root_) fold_received(net, in_, parts_->data(), net.size(), out_, op_);
  }

 private:
  Data in_;
  Data out_;
  Op op_;
  int root_;
  std::optional<part_scratch> parts_;
};

/// A reduce_scatter. Afterwards `out` on rank r holds chunk r of the sum of `in` over all ranks,
/// with the same bits as the sequential sum in rank order. `out` may be exactly this rank's chunk
/// of `in`. Apart from that, `in` is only read. All ranks together send p(p-1) messages of one
/// chunk each.
template <channel Channel, buffer Data, class Op>
class reduce_scatter {
 public:
  reduce_scatter(const Channel& net, const Data& in, const Data& out, const partition& parts,
                 const Op& op)
      : in_(in), own_(chunks(in, parts)[net.rank()]), out_(out), parts_(parts), op_(op) {}
  [[gnu::always_inline]] auto request(const Channel& net) {
    received_.emplace(net, own_, net.size());
    const mutable_bytes first{received_->data(), bytes(own_).size};
    return exchange(
        net, multi_send_buffers::chunks(all_ranks(net), bytes(in_), parts_, element_size(in_)),
        multi_recv_buffers::blocks(all_ranks(net), first));
  }
  void finish(const Channel& net, const auto&) const {
    fold_received(net, own_, received_->data(), net.size(), out_, op_);
  }

 private:
  Data in_;
  Data own_;
  Data out_;
  partition parts_;
  Op op_;
  std::optional<part_scratch> received_;
};

/// A scan. Afterwards `out` on rank r holds the sum of `in` over ranks 0 to r, with the same bits
/// as the sequential sum in rank order. `in` may be the same buffer as `out`; otherwise it is only
/// read. Each rank sends one message to every higher rank, so all ranks together send p(p-1)/2
/// messages.
template <channel Channel, buffer Data, class Op>
class scan {
 public:
  scan(const Channel&, const Data& in, const Data& out, const Op& op)
      : in_(in), out_(out), op_(op) {}
  [[gnu::always_inline]] auto request(const Channel& net) {
    parts_.emplace(net, in_, net.rank() + 1);
    return exchange_upwards(net, bytes(in_), parts_->data());
  }
  void finish(const Channel& net, const auto&) const {
    fold_received(net, in_, parts_->data(), net.rank() + 1, out_, op_);
  }

 private:
  Data in_;
  Data out_;
  Op op_;
  std::optional<part_scratch> parts_;
};
/// An exscan. Afterwards `out` on rank r > 0 holds the sum of `in` over ranks 0 to r-1, with the
/// same bits as the sequential sum in rank order. `out` on rank 0 is unchanged. `in` may be the
/// same buffer as `out`; otherwise it is only read. All ranks together send p(p-1)/2 messages.
template <channel Channel, buffer Data, class Op>
class exscan {
 public:
  exscan(const Channel&, const Data& in, const Data& out, const Op& op)
      : in_(in), out_(out), op_(op) {}
  [[gnu::always_inline]] auto request(const Channel& net) {
    parts_.emplace(net, in_, net.rank() + 1);
    return exchange_upwards(net, bytes(in_), parts_->data());
  }
  void finish(const Channel& net, const auto&) const {
    if (net.rank() > 0) fold_received(net, in_, parts_->data(), net.rank(), out_, op_);
  }

 private:
  Data in_;
  Data out_;
  Op op_;
  std::optional<part_scratch> parts_;
};

/// An all_gather that copies `in` of each rank r to chunk r of `out` on every rank. `in` is only
/// read, and may be exactly this rank's chunk of `out`. All ranks together send p(p-1) messages.
template <channel Channel, buffer Data>
class all_gather {
 public:
  all_gather(const Channel&, const Data& in, const Data& out, const partition& parts)
      : in_(in), out_(out), parts_(parts) {}
  [[gnu::always_inline]] auto request(const Channel& net) {
    return exchange(
        net, multi_send_buffers::same(all_ranks(net), bytes(in_)),
        multi_recv_buffers::chunks(all_ranks(net), bytes(out_), parts_, element_size(out_)));
  }
  void finish(const Channel& net, const auto&) const {
    net.copy(bytes(chunks(out_, parts_)[net.rank()]), bytes(in_));
  }

 private:
  Data in_;
  Data out_;
  partition parts_;
};

/// A broadcast that copies `data` of the root to `data` of every rank. The root sends p-1 messages.
template <channel Channel, buffer Data>
class broadcast {
 public:
  broadcast(const Channel&, const Data& data, int root) : data_(data), root_(root) {}
  [[gnu::always_inline]] auto request(const Channel& net) {
    return net.rank() == root_
               ? exchange(net, multi_send_buffers::same(all_ranks(net), bytes(data_)),
                          multi_recv_buffers())
               : exchange(net, multi_send_buffers(),
                          multi_recv_buffers::same(one_rank(root_), bytes(data_)));
  }
  void finish(const Channel&, const auto&) const {}

 private:
  Data data_;
  int root_;
};

/// A gather. Afterwards chunk r of `all` on the root holds `own` of rank r. On the other ranks,
/// `all` is ignored. On the root, `own` may be exactly the root's chunk of `all`. All ranks
/// together send p-1 messages.
template <channel Channel, buffer Data>
class gather {
 public:
  gather(const Channel&, const Data& own, const Data& all, const partition& parts, int root)
      : own_(own), all_(all), parts_(parts), root_(root) {}
  [[gnu::always_inline]] auto request(const Channel& net) {
    // The root copies its own chunk before it starts to receive. It makes this copy while the other
    // ranks send their messages, and not after the messages have arrived.
    if (net.rank() == root_) net.copy(bytes(chunks(all_, parts_)[root_]), bytes(own_));
    return net.rank() == root_
               ? exchange(net, multi_send_buffers(),
                          multi_recv_buffers::chunks(all_ranks(net), bytes(all_), parts_,
                                                     element_size(own_)))
               : exchange(net, multi_send_buffers::same(one_rank(root_), bytes(own_)),
                          multi_recv_buffers());
  }
  void finish(const Channel&, const auto&) const {}

 private:
  Data own_;
  Data all_;
  partition parts_;
  int root_;
};

/// A scatter. Afterwards `own` on rank r holds chunk r of `all` on the root. On the other ranks,
/// `all` is ignored. On the root, `own` may be exactly the root's chunk of `all`. The root sends
/// p-1 messages.
template <channel Channel, buffer Data>
class scatter {
 public:
  scatter(const Channel&, const Data& all, const Data& own, const partition& parts, int root)
      : all_(all), own_(own), parts_(parts), root_(root) {}
  [[gnu::always_inline]] auto request(const Channel& net) {
    return net.rank() == root_ ? exchange(net,
                                          multi_send_buffers::chunks(all_ranks(net), bytes(all_),
                                                                     parts_, element_size(own_)),
                                          multi_recv_buffers())
                               : exchange(net, multi_send_buffers(),
                                          multi_recv_buffers::same(one_rank(root_), bytes(own_)));
  }
  void finish(const Channel& net, const auto&) const {
    if (net.rank() == root_) net.copy(bytes(own_), bytes(chunks(all_, parts_)[root_]));
  }

 private:
  Data all_;
  Data own_;
  partition parts_;
  int root_;
};

/// An all_to_all that copies chunk r of `in` on rank i to chunk i of `out` on rank r, for all ranks
/// i and r. `in` is only read and must not overlap `out`. All ranks together send p(p-1) messages.
template <channel Channel, buffer Data>
class all_to_all {
 public:
  all_to_all(const Channel&, const Data& in, const partition& in_parts, const Data& out,
             const partition& out_parts)
      : in_(in), out_(out), in_parts_(in_parts), out_parts_(out_parts) {}
  [[gnu::always_inline]] auto request(const Channel& net) {
    return exchange(
        net, multi_send_buffers::chunks(all_ranks(net), bytes(in_), in_parts_, element_size(in_)),
        multi_recv_buffers::chunks(all_ranks(net), bytes(out_), out_parts_, element_size(out_)));
  }
  void finish(const Channel& net, const auto&) const {
    const int rank = net.rank();
    net.copy(bytes(chunks(out_, out_parts_)[rank]), bytes(chunks(in_, in_parts_)[rank]));
  }

 private:
  Data in_;
  Data out_;
  partition in_parts_;
  partition out_parts_;
};

}  // namespace colls::direct_short
