// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// channel: one operation's own lane through a transport; what algorithms send and receive by.

#include <colls/channel/recv_reduce.hpp>
#include <colls/channel/scratch.hpp>
#include <colls/channel/transport.hpp>
#include <colls/coroutine/when_all.hpp>

#include <climits>
#include <cstring>

namespace colls {

/// A lane that nobody sends on: no algorithm has so many.
inline constexpr int nobodys_lane = 0x7f00;

namespace detail {

/// A task that works beside others of its operation. If it fails the operation ends on all ranks:
/// what works beside it would wait for what it does not do any more.
template <class Transport>
class task_beside : completion {
 public:
  task_beside(Transport& net, const operation_record& record, task<> work)
      : net_(net), record_(record), work_(std::move(work)) {}
  task_beside(task_beside&& other) noexcept
      : net_(other.net_), record_(other.record_), work_(std::move(other.work_)) {}

  bool start(completion& done) {
    done_ = &done;
    become(
        [](completion& self) noexcept {
          auto& ended = static_cast<task_beside&>(self);
          ended.look();
          ended.done_->run();
        },
        done);
    if (!work_.start(*this)) return false;
    look();
    return true;
  }
  void result() { work_.result(); }

 private:
  void look() const noexcept {
    if (!work_.thrown() || record_.communicator->failed()) return;
    detail::revoke(net_, record_, failure_of(work_.thrown()));
  }

  Transport& net_;
  const operation_record& record_;
  task<> work_;
  completion* done_ = nullptr;
};

}  // namespace detail

/// A view of a transport that is bound to one operation of one communicator: it knows the
/// fingerprint and the deadline, so that no algorithm can forget them. Ranks are the
/// communicator's (or the subset's). Cheap to copy; the operation's record outlives it.
template <transport Transport>
class basic_channel {
 public:
  using transport_type = Transport;

  basic_channel(Transport& net, operation_record& record)
      : net_(&net),
        record_(&record),
        rank_(record.communicator->rank()),
        size_(record.communicator->size()) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Rank in the world of one of ours.
  int world_rank(int rank) const { return key(rank).peer; }

  /// How many segments may be in flight, and into how many a chunk is cut; equal on all ranks.
  int width() const { return record_->lanes; }
  /// How many lanes an algorithm may use: `width` for each half of its data.
  int lanes() const { return 2 * width(); }
  /// How many ways a tree or an exchange branches that can branch in any number; equal on all
  /// ranks.
  int radix() const { return record_->radix; }
  int segments(std::size_t longest_chunk_bytes) const {
    if (record_->segment == 0 || longest_chunk_bytes <= record_->segment) return 1;
    const std::size_t pieces = (longest_chunk_bytes - 1) / record_->segment + 1;
    return pieces < INT_MAX ? static_cast<int>(pieces) : INT_MAX;
  }

  /// The same channel for a concurrent piece of the operation: messages of different lanes never
  /// meet. Lanes of lanes need other numbers.
  basic_channel lane(int number) const {
    basic_channel copy = *this;
    copy.lane_ = static_cast<std::uint16_t>(lane_ + number);
    return copy;
  }

  /// A channel between the ranks first, first + stride, ... (`count` of them, this rank among
  /// them).
  basic_channel within(int first, int stride, int count, int number) const {
    basic_channel copy = lane(number);
    copy.first_ = first_ + first * stride_;
    copy.stride_ = stride_ * stride;
    copy.rank_ = (rank_ - first) / stride;
    copy.size_ = count;
    return copy;
  }

  /// Which ranks share a host. Asked of a channel of the whole communicator, as what follows.
  const node_map& nodes() const {
    return record_->communicator->nodes([&](int rank) { return net_->node_of(rank); });
  }
  /// A channel between the ranks of this rank's node.
  basic_channel on_node(int number) const {
    const node_map::place at = nodes().of(rank_);
    return listed(nodes().ranks_on(at.node), at.local, nodes().ranks_of(at.node), number);
  }
  /// A channel between the ranks of all nodes that have this rank's number on theirs; of a number
  /// that every node has.
  basic_channel across_nodes(int number) const {
    const node_map::place at = nodes().of(rank_);
    return listed(nodes().ranks_across(at.local), at.node, nodes().nodes(), number);
  }

  [[gnu::always_inline]] auto send(int peer, const_bytes from) const {
    return send_request{net_, record_, key(peer), from};
  }
  [[gnu::always_inline]] auto recv(int peer, mutable_bytes into) const {
    return recv_request{net_, record_, key(peer), into};
  }

  /// Sends each rank of `give` its message and takes those of `take`, as one operation. Of a
  /// channel of the whole communicator.
  [[gnu::always_inline]] auto round(const round_gives& give, const round_takes& take) const
    requires round_transport<Transport>
  {
    return round_request<Transport>{net_, record_, lane_, give, take};
  }

  /// A task to be awaited beside others of this operation.
  detail::task_beside<Transport> beside(task<> work) const {
    return {*net_, *record_, std::move(work)};
  }

  /// An operation by which all ranks meet (see `meeting_transport`). Of a channel of the whole
  /// communicator.
  auto meet(void* mine) const
    requires meeting_transport<Transport>
  {
    return net_->meet(lane_, mine, *record_);
  }

  /// out = mine (+) what `peer` sends, or what `peer` sends (+) mine. `out` may be `mine` only if
  /// no concurrent send reads it.
  template <buffer Data, class Op>
  [[gnu::always_inline]] auto recv_reduce(int peer, const Data& mine, const Data& out, const Op& op,
                                          incoming side) const {
    return reduce_request<Transport, Data, Op>{net_, record_, key(peer), {mine, out, &op, side}};
  }

  /// out = mine (+) what `peer` has, in the order of ranks, there as here: both call it. `out` is
  /// not `mine`.
  template <buffer Data, class Op>
  [[gnu::always_inline]] auto exchange_reduce(int peer, const Data& mine, const Data& out,
                                              const Op& op) const {
    const incoming side = peer < rank_ ? incoming::left : incoming::right;
    return when_all(send(peer, bytes(mine)), recv_reduce(peer, mine, out, op, side));
  }

  /// out = left (+) right, inside this rank; a reduction that throws ends the operation everywhere.
  template <buffer Data, class Op>
  [[gnu::always_inline]] void reduce(const Data& out, const Data& left, const Data& right,
                                     const Op& op) const {
    const auto sum = [&] { reduce_into(out, left.data(), right.data(), op); };
    if (!detail::guarded(*net_, *record_, sum)) throw error(errc::user_op_failed);
  }
  /// out = parts[0] (+) parts[1] (+) ..., two parts or more; `second` gets the same unless it is
  /// null. Where `op` folds, both may be any of the parts; else `out` may be one of the first two.
  template <buffer Data, class Op>
  void reduce(Data out, std::span<const void* const> parts, const Op& op,
              void* second = nullptr) const {
    const auto sum = [&] { reduce_into(out, parts, op, second); };
    if (!detail::guarded(*net_, *record_, sum)) throw error(errc::user_op_failed);
  }

  /// Copies inside this rank; the two do not overlap, or are the same.
  void copy(mutable_bytes to, const_bytes from) const {
    if (is_phantom()) return;
    if (from.size != 0 && to.data != from.data) std::memcpy(to.data, from.data, from.size);
  }

  /// Scratch for a buffer like `data` of `count` elements.
  template <buffer Data>
  colls::scratch scratch_like(const Data& data, std::size_t count) const {
    try {
      return colls::scratch(net_->matching(), count * element_size(data), is_phantom());
    } catch (const error&) {
      revoke(failure(errc::not_enough_memory));
      throw;
    }
  }
  colls::scratch scratch_bytes(std::size_t size) const {
    return scratch_like(any_buffer(nullptr, size, 1), size);
  }

  /// Throws if the communicator was revoked: before memory is touched that a peer may have given
  /// up.
  void require_good() const {
    if (record_->communicator->failed()) throw error(record_->communicator->why().code);
  }

  /// Messages have no bytes: whatever would look at them does nothing.
  bool is_phantom() const { return detail::is_phantom(*net_); }

  /// The operation has failed here: ends it on all ranks.
  void revoke(const failure& why) const { detail::revoke(*net_, *record_, why); }

  /// The same operation on the transport that this one stands on (memory of a device is staged).
  template <class Below>
    requires stands_on<Transport, Below>
  operator basic_channel<Below>() const {
    return {net_->below(), *record_};
  }

  Transport& net() const { return *net_; }
  operation_record& record() const { return *record_; }

 private:
  [[gnu::always_inline]] message_key key(int peer) const {
    const int at = first_ + peer * stride_;
    const int rank = list_ == nullptr ? at : list_[at];
    return {record_->communicator->world_rank(rank), record_->communicator->id(), record_->sequence,
            lane_};
  }
  basic_channel listed(const int* ranks, int mine, int count, int number) const {
    basic_channel copy = lane(number);
    copy.list_ = ranks;
    copy.rank_ = mine;
    copy.size_ = count;
    return copy;
  }

  struct send_request {
    using operation = decltype(std::declval<Transport&>().send(
        std::declval<message_key>(), const_bytes{}, std::declval<operation_record&>()));
    [[gnu::always_inline]] operator operation() const { return net->send(key, from, *record); }

    Transport* net;
    operation_record* record;
    message_key key;
    const_bytes from;
  };

  struct recv_request {
    using operation = detail::receive_of<Transport>;
    [[gnu::always_inline]] operator operation() const { return net->recv(key, into, *record); }

    Transport* net;
    operation_record* record;
    message_key key;
    mutable_bytes into;
  };

  template <class Round>
  struct round_request {
    using operation = typename Round::round_operation;
    [[gnu::always_inline]] operator operation() const { return {*net, lane, give, take, *record}; }

    Transport* net;
    operation_record* record;
    std::uint16_t lane;
    round_gives give;
    round_takes take;
  };

  Transport* net_;
  operation_record* record_;
  int rank_;
  int size_;
  int first_ = 0;
  int stride_ = 1;
  const int* list_ = nullptr;  // of ranks, if they are no arithmetic sequence
  std::uint16_t lane_ = 0;
};

template <class Channel>
inline constexpr bool is_channel = false;
template <class Transport>
inline constexpr bool is_channel<basic_channel<Transport>> = true;

/// What algorithms ask of their first argument.
template <class Channel>
concept channel = is_channel<Channel>;

/// Runs `piece(net.lane(k), s)` for the segments s = 0 .. segments-1, `width` of them at a time:
/// lane k takes the segments k, k + width, ... Both numbers are equal on all ranks.
template <channel Channel, class Piece>
task<> in_lanes(Channel net, int width, int segments, Piece piece) {
  if (segments <= 1) {
    co_await piece(net, 0);
    co_return;
  }
  const auto in_turn = [](Channel lane, int first, int step, int end, Piece each) -> task<> {
    for (int s = first; s < end; s += step) co_await each(lane, s);
  };
  const auto lane = [&](int k) {
    return net.beside(in_turn(net.lane(k), k, width, segments, piece));
  };
  co_await each_of(0, width < segments ? width : segments, lane);
}

}  // namespace colls
