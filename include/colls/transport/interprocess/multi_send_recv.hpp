// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// multi_send_recv_operation: sends short messages to many ranks and receives short messages from
// many ranks as one operation. The operation bypasses the tag matcher. It writes its messages
// directly to the connections, and takes arriving messages directly from the connections.

#include <colls/channel/multi_send_recv.hpp>
#include <colls/transport/interprocess/connection.hpp>

#include <bit>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace colls::interprocess {

/// An operation that sends the messages of `sends` and receives the messages of `receives`. The
/// operation completes when it has sent and received all of these messages. Its frames are the same
/// as those of ordinary messages, so a peer may use ordinary sends and receives. If a connection
/// cannot take a message at once, the operation starts an ordinary send of that message. If a
/// message has not arrived after a while (at least a millisecond), the operation posts an ordinary
/// receive for that message. The matcher can then detect late ranks, ranks that have left and
/// mismatched calls.
template <class Transport>
class multi_send_recv_operation {
 public:
  [[gnu::always_inline]] multi_send_recv_operation(Transport& net, std::uint16_t lane,
                                                   const multi_send_buffers& sends,
                                                   const multi_recv_buffers& receives,
                                                   operation_record& record)
      : net_(net), record_(record), sends_(sends), receives_(receives) {
    const message_key key{0, record.communicator->id(), record.sequence, lane};
    frame_ = make_header(kind::data, key, 0, record.hash);
  }
  multi_send_recv_operation(multi_send_recv_operation&& other) noexcept
      : multi_send_recv_operation(other.net_, other.frame_.lane, other.sends_, other.receives_,
                                  other.record_) {}
  ~multi_send_recv_operation() {
    if (queued_) net_.dequeue(*this);
  }

  bool start(completion& done) {
    const communicator_state& comm = *record_.communicator;
    if (comm.failed()) {
      ec_ = comm.reason().code;
      return true;
    }
    done_ = &done;
    if (comm.size() > max_ranks)
      return start_converted([](int) { return true; }, [](int) { return true; });
    ranks unsent = 0;
    sends_.for_each(comm.rank(), [&](int rank) {
      const const_bytes message = sends_.buffer_for(rank);
      connection* const conn = net_.find_connection(comm.world_rank(rank));
      frame_.length = message.size;
      if (conn != nullptr && conn->try_send(frame_, message)) {
        record_.bytes += message.size;
      } else {
        unsent |= bit(rank);
      }
    });
    bool may_try_receive = unsent == 0;
    bool any_polled = false;
    receives_.for_each(comm.rank(), [&](int rank) {
      connection* const conn = net_.find_connection(comm.world_rank(rank));
      connections_[rank] = conn;
      missing_ |= bit(rank);
      may_try_receive &=
          conn != nullptr && conn->supports_try_receive(receives_.buffer_for(rank).size);
      any_polled |= conn != nullptr && conn->is_polled();
    });
    if ((unsent | missing_) == 0) return true;
    if (net_.matching().has_unexpected()) may_try_receive &= take_unexpected();
    if (!may_try_receive) return start_converted(unsent);
    if (missing_ == 0) return true;
    if (!any_polled) {
      net_.enqueue(*this);
      return false;
    }
    // This rank wakes its peers before it polls, so that they run while it polls. The slow memory
    // fence in `wake_peers` then also costs little, because this rank has to wait for them anyway.
    net_.wake_peers();
    // If each rank has its own core, the messages of the peers often arrive soon. The operation
    // therefore polls a few times before it waits.
    for (int polls = net_.initial_polls(); polls > 0; --polls) {
      if (take()) return true;
    }
    net_.enqueue(*this);
    return false;
  }
  std::error_code result() {
    if (converted_ != nullptr) {
      for (send_operation& send : converted_->sends) note(send.result());
      for (recv_operation& receive : converted_->receives) note(receive.result());
    }
    return ec_;
  }

  // ---- called by the transport

  bool belongs_to(const communicator_state& comm) const { return record_.communicator == &comm; }
  /// Returns whether this operation still waits for the message with this key.
  bool awaits(const message_key& key) const {
    const bool is_part = key.communicator == frame_.communicator &&
                         key.sequence == frame_.sequence && key.lane == frame_.lane;
    if (!is_part) return false;
    const int rank = record_.communicator->rank_of(key.peer);
    return rank >= 0 && (missing_ & bit(rank)) != 0;
  }
  /// Receives the missing messages that have arrived. Returns true if no message is missing any
  /// more.
  bool take() {
    for (ranks left = missing_; left != 0; left &= left - 1) take(std::countr_zero(left));
    return missing_ == 0;
  }
  /// Takes the next frame of the connection `source` if this operation waits for that frame.
  /// Returns whether the frame was taken.
  bool receive_from(const connection& source) {
    for (ranks left = missing_; left != 0; left &= left - 1) {
      const int rank = std::countr_zero(left);
      if (connections_[rank] == &source) return take(rank);
    }
    return false;
  }
  bool is_complete() const { return missing_ == 0; }
  /// Calls `visit(connection)` for each connection on which a message of this operation has yet to
  /// arrive.
  template <class Visit>
  void for_each_awaited(const Visit& visit) const {
    for (ranks left = missing_; left != 0; left &= left - 1) {
      visit(*connections_[std::countr_zero(left)]);
    }
  }
  void end() { done_->post(); }
  void fail(std::error_code reason) {
    ec_ = reason;
    end();
  }
  /// Posts ordinary receives for the messages that have not arrived. The operation completes when
  /// these receives have completed, or fails if there is no memory for them.
  void convert() {
    try {
      if (start_converted(0)) end();
    } catch (const std::bad_alloc&) {
      converted_.reset();
      fail(make_error_code(errc::not_enough_memory));
    }
  }
  /// Returns whether the transport must convert this operation into ordinary receives now. This is
  /// the case if a millisecond has passed since the first call of this function, or if the deadline
  /// of the operation has passed.
  bool is_due(time_point now) {
    if (since_ == 0) since_ = now;
    return now - since_ >= milliseconds || now >= record_.deadline;
  }

 private:
  friend Transport;
  using send_operation = typename Transport::send_operation;
  using recv_operation = typename Transport::recv_operation;
  using ranks = std::uint32_t;
  static constexpr int max_ranks = 16;

  struct wait : completion {
    multi_send_recv_operation* parent = nullptr;
  };
  /// The ordinary sends and receives that the operation has started for the messages that it could
  /// not send or receive directly.
  struct converted : detail::recycled {
    detail::recycled_vector<send_operation> sends;
    detail::recycled_vector<recv_operation> receives;
    detail::recycled_vector<wait> waits;
  };

  static constexpr ranks bit(int rank) { return ranks{1} << rank; }
  bool take(int rank) {
    const mutable_bytes out = receives_.buffer_for(rank);
    frame_.length = out.size;
    if (!connections_[rank]->try_receive(frame_, out.data)) return false;
    missing_ ^= bit(rank);
    record_.bytes += out.size;
    return true;
  }
  message_key key(int rank) const { return frame_.key(record_.communicator->world_rank(rank)); }
  void note(std::error_code ec) {
    if (!ec_) ec_ = ec;
  }

  // Receives the unexpected messages, that is, the messages of this operation that arrived before
  // the operation began. Returns false if one of them is incomplete, has the wrong length or
  // belongs to a different call.
  bool take_unexpected() {
    for (ranks left = missing_; left != 0; left &= left - 1) {
      const int rank = std::countr_zero(left);
      unexpected_frame* const message = net_.find_unexpected(key(rank));
      if (message == nullptr) continue;
      const mutable_bytes out = receives_.buffer_for(rank);
      const bool is_whole = message->buffered && message->filled == message->size;
      if (!is_whole || message->size != out.size || message->hash != record_.hash) return false;
      if (out.size != 0) std::memcpy(out.data, message->bytes(), out.size);
      net_.drop(*message);
      missing_ ^= bit(rank);
      record_.bytes += out.size;
    }
    return true;
  }
  bool start_converted(ranks unsent) {
    const ranks missing = std::exchange(missing_, 0);
    return start_converted([=](int rank) { return (unsent & bit(rank)) != 0; },
                           [=](int rank) { return (missing & bit(rank)) != 0; });
  }
  // Starts an ordinary send to each rank for which `unsent(rank)` returns true, and an ordinary
  // receive from each rank for which `missing(rank)` returns true. Returns true if all these sends
  // and receives have completed at once.
  template <class Unsent, class Missing>
  bool start_converted(Unsent unsent, Missing missing) {
    const int local = record_.communicator->rank();
    converted_.reset(new converted);
    converted_->sends.reserve(static_cast<std::size_t>(sends_.max_count()));
    converted_->receives.reserve(static_cast<std::size_t>(receives_.max_count()));
    sends_.for_each(local, [&](int rank) {
      if (!unsent(rank)) return;
      converted_->sends.emplace_back(net_, key(rank), sends_.buffer_for(rank), record_);
    });
    receives_.for_each(local, [&](int rank) {
      if (!missing(rank)) return;
      converted_->receives.emplace_back(net_, key(rank), receives_.buffer_for(rank), record_);
    });
    converted_->waits =
        detail::recycled_vector<wait>(converted_->sends.size() + converted_->receives.size());
    std::size_t next = 0;
    const auto begin = [&](auto& operation) {
      wait& entry = converted_->waits[next++];
      entry.parent = this;
      entry.bind(
          [](completion& self) noexcept {
            multi_send_recv_operation& parent = *static_cast<wait&>(self).parent;
            if (--parent.pending_ == 0) parent.done_->run();
          },
          *done_);
      if (!operation.start(entry)) ++pending_;
    };
    pending_ = 1;  // counts this function as a pending operation until it returns
    for (send_operation& send : converted_->sends) begin(send);
    for (recv_operation& receive : converted_->receives) begin(receive);
    return --pending_ == 0;
  }

  Transport& net_;
  operation_record& record_;
  multi_send_buffers sends_;
  multi_recv_buffers receives_;
  header frame_;  // the header of all messages, except for the length
  completion* done_ = nullptr;
  ranks missing_ = 0;
  int pending_ = 0;
  bool queued_ = false;
  time_point since_ = 0;
  std::error_code ec_;
  std::unique_ptr<converted> converted_;
  connection* connections_[max_ranks];
};

}  // namespace colls::interprocess
