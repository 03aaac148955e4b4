// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// channel: the interface through which an algorithm sends and receives messages. A channel uses one
// transport for one operation and one lane. Concurrent parts of an operation use different lanes,
// so that their messages do not match each other's receives.

#include <colls/base/function_ref.hpp>
#include <colls/channel/recv_reduce.hpp>
#include <colls/channel/scratch.hpp>
#include <colls/channel/transport.hpp>
#include <colls/coroutine/when_all.hpp>

#include <climits>
#include <cstring>

namespace colls {

/// The number of the lane on which a rank waits until the communicator is revoked. Algorithms use
/// only lanes with smaller numbers. If an operation fails on a peer, the peer first withdraws its
/// buffers and then revokes the communicator. Between these two steps, this rank may find that it
/// can no longer access the buffers. It then posts a receive on this lane. No rank sends a message
/// on this lane, so the receive waits until the revocation makes it fail. CUDA peer groups are an
/// exception: each waiting rank also sends messages on this lane and posts receives from all ranks.
/// The failed peer sends nothing on the lane, so the receive from it waits for the revocation.
inline constexpr int unused_lane = 0x7f00;

namespace detail {

/// A task that runs concurrently with other parts of its operation. If the task throws, it fails
/// the operation on all ranks, because the other parts and the peers may be waiting for messages
/// that the task no longer sends.
template <class Transport>
class concurrent_task : completion {
 public:
  concurrent_task(Transport& net, const operation_record& record, task<> work)
      : net_(net), record_(record), work_(std::move(work)) {}
  concurrent_task(concurrent_task&& other) noexcept
      : net_(other.net_), record_(other.record_), work_(std::move(other.work_)) {}

  bool start(completion& done) {
    done_ = &done;
    bind(
        [](completion& self) noexcept {
          auto& ended = static_cast<concurrent_task&>(self);
          ended.check_failure();
          ended.done_->run();
        },
        done);
    if (!work_.start(*this)) return false;
    check_failure();
    return true;
  }
  void result() { work_.result(); }

 private:
  void check_failure() const noexcept {
    if (!work_.thrown() || record_.communicator->failed()) return;
    detail::revoke(net_, record_, failure_of(work_.thrown()));
  }

  Transport& net_;
  const operation_record& record_;
  task<> work_;
  completion* done_ = nullptr;
};

}  // namespace detail

/// A view of a transport for one operation of one communicator. Messages on the channel carry the
/// operation's fingerprint and have the operation's deadline. A channel of the complete
/// communicator uses the rank numbers of the communicator. A channel of a subset (see `subset`,
/// `intra_node` and `inter_node`) numbers the ranks of the subset from 0. A channel is cheap to
/// copy. The operation's record must outlive the channel.
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
  /// Returns the world rank of rank `rank` of this channel.
  int world_rank(int rank) const { return key(rank).peer; }

  /// Returns the number of segments that may be in flight at the same time. The number is equal on
  /// all ranks.
  int width() const { return record_->lanes; }
  /// Returns the number of lanes that an algorithm may use. This is twice `width()`, because some
  /// algorithms process two halves of their data concurrently.
  int lanes() const { return 2 * width(); }
  /// Returns the radix for an algorithm with a variable radix, such as `knomial_tree` or `bruck`.
  /// The radix is equal on all ranks.
  int radix() const { return record_->radix; }
  /// Returns the number of segments into which each chunk is cut if the longest chunk has
  /// `longest_chunk_bytes` bytes. The number is equal on all ranks.
  int segments(std::size_t longest_chunk_bytes) const {
    if (record_->segment == 0 || longest_chunk_bytes <= record_->segment) return 1;
    const std::size_t pieces = (longest_chunk_bytes - 1) / record_->segment + 1;
    return pieces < INT_MAX ? static_cast<int>(pieces) : INT_MAX;
  }

  /// Returns a copy of this channel on another lane, for a concurrent part of the operation. A
  /// receive matches only messages on its own lane. The lane of the copy is the sum of this
  /// channel's lane and `number`. The caller must choose numbers such that no two concurrent parts
  /// have the same lane.
  basic_channel lane(int number) const {
    basic_channel copy = *this;
    copy.lane_ = static_cast<std::uint16_t>(lane_ + number);
    return copy;
  }

  /// Returns a channel among the `count` ranks `first`, `first + stride`, and so on, which must
  /// include this rank. The new channel has the same lane as the result of `lane(number)`.
  basic_channel subset(int first, int stride, int count, int number) const {
    basic_channel copy = lane(number);
    copy.first_ = first_ + first * stride_;
    copy.stride_ = stride_ * stride;
    copy.rank_ = (rank_ - first) / stride;
    copy.size_ = count;
    return copy;
  }

  /// Returns the map of ranks to hosts. This function, `intra_node` and `inter_node` may only be
  /// called on a channel of the complete communicator.
  const node_map& nodes() const {
    return record_->communicator->nodes([&](int rank) { return net_->node_of(rank); });
  }
  /// Returns a channel among the ranks on this rank's host. The new channel has the same lane as
  /// the result of `lane(number)`.
  basic_channel intra_node(int number) const {
    const node_map::position own = nodes().position_of(rank_);
    return listed_subset(nodes().node_ranks(own.node), own.local_rank, nodes().node_size(own.node),
                         number);
  }
  /// Returns a channel among all ranks with the same local rank as this rank. The local rank of a
  /// rank is its number among the ranks on its host. Every host must have a rank with this local
  /// rank, so the new channel has one rank on each host. It has the same lane as the result of
  /// `lane(number)`.
  basic_channel inter_node(int number) const {
    const node_map::position own = nodes().position_of(rank_);
    return listed_subset(nodes().ranks_with_local_rank(own.local_rank), own.node, nodes().nodes(),
                         number);
  }

  [[gnu::always_inline]] auto send(int peer, const_bytes data) const {
    return send_request{net_, record_, key(peer), data};
  }
  [[gnu::always_inline]] auto recv(int peer, mutable_bytes buffer) const {
    return recv_request{net_, record_, key(peer), buffer};
  }

  /// Sends the messages of `sends` and receives those of `receives` in one operation. Requires a
  /// channel of the complete communicator.
  [[gnu::always_inline]] auto multi_send_recv(const multi_send_buffers& sends,
                                              const multi_recv_buffers& receives) const
    requires multi_send_recv_transport<Transport>
  {
    return multi_send_recv_request<Transport>{net_, record_, lane_, sends, receives};
  }

  /// Returns a task that runs `work` concurrently with other parts of this operation. If `work`
  /// throws, the operation fails on all ranks.
  detail::concurrent_task<Transport> concurrent(task<> work) const {
    return {*net_, *record_, std::move(work)};
  }

  /// Returns an operation that joins a barrier of all ranks. The last rank to join gets the
  /// `arguments` of the other ranks (see `completion_barrier_transport`). Requires a channel of the
  /// complete communicator.
  auto arrive(void* arguments) const
    requires completion_barrier_transport<Transport>
  {
    return net_->arrive(lane_, arguments, *record_);
  }

  /// Receives a message from `peer`, reduces it with `local`, and writes the result to `out`.
  /// `side` tells whether the message is the left or the right operand. `out` may be the buffer
  /// `local` only if no concurrent send reads that buffer.
  template <buffer Data, class Op>
  [[gnu::always_inline]] auto recv_reduce(int peer, const Data& local, const Data& out,
                                          const Op& op, incoming side) const {
    return recv_reduce_request<Transport, Data, Op>{
        net_, record_, key(peer), {local, out, &op, side}};
  }

  /// Sends `local` to `peer`, receives the data of `peer`, reduces the two in rank order, and
  /// writes the result to `out`. Both ranks must call this function, and both get the same result.
  /// `out` must not be the buffer `local`.
  template <buffer Data, class Op>
  [[gnu::always_inline]] auto exchange_reduce(int peer, const Data& local, const Data& out,
                                              const Op& op) const {
    const incoming side = peer < rank_ ? incoming::left : incoming::right;
    return when_all(send(peer, bytes(local)), recv_reduce(peer, local, out, op, side));
  }

  /// Writes the reduction of `left` and `right` to `out`. This function sends nothing. If the
  /// reduction throws, the operation fails on all ranks.
  template <buffer Data, class Op>
  [[gnu::always_inline]] void reduce(const Data& out, const Data& left, const Data& right,
                                     const Op& op) const {
    const auto sum = [&] { reduce_into(out, left.data(), right.data(), op); };
    if (!detail::try_reduce(*net_, *record_, sum)) throw error(errc::user_op_failed);
  }
  /// Combines all parts in the order of `parts`, and writes the result to `out`. Also writes the
  /// result to `second` unless `second` is null. There must be two or more parts. If `op` can
  /// combine more than two operands in one pass, `out` and `second` may be any of the parts. If
  /// `op` can combine only two operands in one pass, `out` may be the first or the second part, but
  /// no other part.
  template <buffer Data, class Op>
  void reduce(Data out, std::span<const void* const> parts, const Op& op,
              void* second = nullptr) const {
    const auto sum = [&] { reduce_into(out, parts, op, second); };
    if (!detail::try_reduce(*net_, *record_, sum)) throw error(errc::user_op_failed);
  }

  /// Copies the bytes of `source` to `dest`. The two buffers must be identical or must not overlap.
  void copy(mutable_bytes dest, const_bytes source) const {
    if (is_phantom()) return;
    if (source.size != 0 && dest.data != source.data)
      std::memcpy(dest.data, source.data, source.size);
  }

  /// Returns scratch (temporary) memory for `count` elements of the type of `data`. If there is not
  /// enough memory, fails the operation on all ranks and throws.
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

  /// Throws if the communicator has failed. Must be called after a wait and before the next access
  /// to a peer's buffers, because a peer may reuse its buffers once the communicator has failed.
  void throw_if_failed() const {
    if (record_->communicator->failed()) throw error(record_->communicator->reason().code);
  }

  /// Returns whether the transport is a simulation whose messages have lengths but no bytes. In
  /// this case, functions that would access the bytes of a buffer do nothing.
  bool is_phantom() const { return detail::is_phantom(*net_); }

  /// Fails the operation on all ranks with `reason`. Called when the operation has failed on this
  /// rank.
  void revoke(const failure& reason) const { detail::revoke(*net_, *record_, reason); }

  /// Converts this channel to a channel that uses the next lower transport for the same operation.
  /// For example, a transport of device memory copies data to host memory and sends the copy on
  /// the converted channel.
  template <class NextLayer>
    requires layered_on<Transport, NextLayer>
  operator basic_channel<NextLayer>() const {
    return {net_->next_layer(), *record_};
  }

  Transport& net() const { return *net_; }
  operation_record& record() const { return *record_; }

 private:
  [[gnu::always_inline]] message_key key(int peer) const {
    const int index = first_ + peer * stride_;
    const int rank = list_ == nullptr ? index : list_[index];
    return {record_->communicator->world_rank(rank), record_->communicator->id(), record_->sequence,
            lane_};
  }
  basic_channel listed_subset(const int* ranks, int own_rank, int count, int number) const {
    basic_channel copy = lane(number);
    copy.list_ = ranks;
    copy.rank_ = own_rank;
    copy.size_ = count;
    return copy;
  }

  struct send_request {
    using operation = decltype(std::declval<Transport&>().send(
        std::declval<message_key>(), const_bytes{}, std::declval<operation_record&>()));
    [[gnu::always_inline]] operator operation() const { return net->send(key, data, *record); }

    Transport* net;
    operation_record* record;
    message_key key;
    const_bytes data;
  };

  struct recv_request {
    using operation = detail::receive_operation_of<Transport>;
    [[gnu::always_inline]] operator operation() const { return net->recv(key, buffer, *record); }

    Transport* net;
    operation_record* record;
    message_key key;
    mutable_bytes buffer;
  };

  template <class Net>
  struct multi_send_recv_request {
    using operation = typename Net::multi_send_recv_operation;
    [[gnu::always_inline]] operator operation() const {
      return {*net, lane, sends, receives, *record};
    }

    Transport* net;
    operation_record* record;
    std::uint16_t lane;
    multi_send_buffers sends;
    multi_recv_buffers receives;
  };

  Transport* net_;
  operation_record* record_;
  int rank_;
  int size_;
  int first_ = 0;
  int stride_ = 1;
  const int* list_ = nullptr;  // null if the ranks are an arithmetic sequence
  std::uint16_t lane_ = 0;
};

template <class Channel>
inline constexpr bool is_channel = false;
template <class Transport>
inline constexpr bool is_channel<basic_channel<Transport>> = true;

/// Satisfied by the specializations of `basic_channel`. The first parameter of each algorithm is a
/// channel.
template <class Channel>
concept channel = is_channel<Channel>;

/// Runs `piece(lane, s)` for `s` = `first`, `first + step`, and so on up to but not including
/// `end`, one piece after the other.
template <channel Channel>
task<> run_segments(Channel lane, int first, int step, int end,
                    function_ref<task<>(Channel, int)> piece) {
  for (int s = first; s < end; s += step) co_await piece(lane, s);
}

/// Runs `piece(net.lane(k), s)` for each segment `s` from 0 to `segments - 1`, up to `width`
/// segments concurrently. Lane `k` runs segments `k`, `k + width`, and so on. `width` and
/// `segments` must be equal on all ranks.
template <channel Channel, class Piece>
task<> run_in_lanes(Channel net, int width, int segments, Piece piece) {
  if (segments <= 1) {
    co_await piece(net, 0);
    co_return;
  }
  const auto lane = [&](int k) {
    return net.concurrent(run_segments<Channel>(net.lane(k), k, width, segments, piece));
  };
  co_await each_of(0, width < segments ? width : segments, lane);
}

}  // namespace colls
