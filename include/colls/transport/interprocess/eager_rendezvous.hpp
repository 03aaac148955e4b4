// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// eager_rendezvous: the protocol by which messages are sent and received. A short message is sent
// eagerly, that is, without waiting for its receive, as long as the sender has credit (bytes that
// the receiver can still buffer). Any other message waits for a CTS (clear to send) from its
// receiver. An RTS (request to send) announces a message that waits.

#include <colls/matching/tag_matcher.hpp>
#include <colls/transport/interprocess/connection_table.hpp>
#include <colls/transport/interprocess/connector.hpp>

#include <new>

namespace colls::interprocess {

/// The message protocol of one rank. Starts and completes the sends and receives of the rank.
///
/// A message is sent eagerly if it is short and the sender has credit. Otherwise the message waits
/// for a CTS. The receiver of a long message of a collective knows the length of the message, and
/// therefore sends the CTS when it posts the receive. For every other message that waits, the
/// sender sends an RTS, and the receiver answers with a CTS when the matching receive is posted.
class eager_rendezvous {
 public:
  class owner {
   public:
    /// Called when a message with this key, or the RTS of such a message, has arrived. If an
    /// operation waits for this message and has not posted its receive yet, the owner must make the
    /// operation post the receive now.
    virtual void post_receive_for(const message_key& key) = 0;

   protected:
    ~owner() = default;
  };

  eager_rendezvous(tag_matcher& matcher, connection_table& connections, connector& dialer,
                   owner& transport)
      : matcher_(matcher), connections_(connections), connector_(dialer), owner_(transport) {}
  eager_rendezvous(const eager_rendezvous&) = delete;
  eager_rendezvous& operator=(const eager_rendezvous&) = delete;
  ~eager_rendezvous() { matcher_.drop_unexpected(); }

  /// Starts a send. Returns true if the send has completed at once, and false if its completion
  /// will be posted.
  bool start(posted_send& send) {
    connection& conn = connector_.connect(send.key.peer);
    if (conn.has_ended() || conn.received_goodbye()) {
      send.ec = departure_error(conn, *send.record);
      return true;
    }
    const bool is_p2p = send.key.is_point_to_point();
    send.frame = make_header(kind::data, send.key, send.size, send.record->hash);
    const bool is_next = conn.flow.none_pending(send.key);
    if (is_next && conn.flow.spend(send.size)) return conn.enqueue(send);
    if (is_next && !is_p2p && conn.flow.take_cts(send.key)) {
      send.frame.flags = flag::cleared;
      return conn.enqueue(send);
    }
    send.conn = &conn;
    if (is_p2p) {
      conn.flow.block(send);
      send.awaits_cts = true;
      advance(conn, send.key);
      conn.flush();
      return false;
    }
    conn.flow.collective_sends.push_back(send);
    send.awaits_cts = true;
    if (send.size <= eager_limit) {
      send_rts(conn, send);
      conn.flush();
    }
    return false;
  }

  /// Posts a receive. Returns true if the receive has completed at once, and false if its
  /// completion will be posted.
  bool start(posted_receive& receive) {
    unexpected_message* const message = matcher_.post(receive);
    if (message == nullptr) {
      const int peer = receive.key.peer;
      if (peer == posted_receive::any_source) return false;
      const bool is_long = !receive.key.is_point_to_point() && receive.size > eager_limit;
      connection* const conn = connections_.find(peer);
      if (conn != nullptr && (conn->has_ended() || conn->received_goodbye())) {
        matcher_.dequeue(receive);
        receive.ec = departure_error(*conn, *receive.record);
        return true;
      }
      if (is_long) send_cts(connector_.connect(peer), receive);
      return false;
    }
    return take(receive, static_cast<unexpected_frame&>(*message));
  }

  /// Cancels a send that has not completed.
  void withdraw(posted_send& send) {
    connection* const conn = send.conn;
    const bool was_announced = send.awaits_cts && !send.is_blocked && send.key.is_point_to_point();
    if (send.is_blocked) {
      conn->flow.unblock(send);
    } else if (send.awaits_cts && send.number != 0) {
      send_cancel(send);
    } else if (send.awaits_cts) {
      conn->flow.pending_sends(send.key).remove(send);
    }
    if (send.queued || send.is_moved_by_pipe) conn->withdraw(send);
    if (was_announced) resume_others(*conn, send.key);
  }

  /// Frees an unexpected message (one that arrived before its receive) that no receive will need.
  void drop(unexpected_frame& message) {
    connection& conn = *message.conn;
    message.drop();
    connections_.flush_soon(conn);
  }

  /// Sends deferred RTS until the limit on pending RTS is reached. An RTS is deferred if it could
  /// not be sent earlier because of this limit. Must be called after sends have failed, because
  /// their RTS no longer count towards the limit.
  void resume_deferred(connection& conn) noexcept;

  /// Sends one RTS, marked as repeated, for each long message that still waits for its CTS 100 ms
  /// after its collective has started. A receiver that expects a short message sends no CTS. Only
  /// this RTS lets such a receiver detect the mismatch.
  void repeat_rts(time_point now);

  // ---- handling of arriving frames

  /// Handles the header of an arriving message: chooses the destination of the payload.
  void receive_data(connection& conn, const header& frame, const message_key& key) {
    const bool is_eager = (frame.flags & flag::cleared) == 0;
    const auto size = static_cast<std::size_t>(frame.length);
    if (is_eager && !conn.flow.is_within_window(size)) {
      conn.fail(0, "an eager message for which it has no credit");
      return;
    }
    owner_.post_receive_for(key);
    posted_receive* const receive =
        key.is_point_to_point() && !is_eager ? matcher_.take_cleared(key) : matcher_.take(key);
    if (receive != nullptr) {
      if (const std::error_code ec = matcher_.check(*receive, key.peer, size, frame.hash)) {
        reject_and_finish(*receive, ec, nullptr);
      } else {
        receive->received = size;
        receive->source = key.peer;
        conn.deliver_to(*receive);
      }
      if (is_eager) conn.consumed(size);
      return;
    }
    const communicator_state* const comm = matcher_.find(key.communicator);
    if (!matcher_.inspect(key, frame.hash) || (comm != nullptr && comm->failed())) {
      if (is_eager) conn.consumed(size);
      return;
    }
    if (!is_eager) {
      if (comm != nullptr) conn.fail(0, "a message that answers no CTS");
      return;
    }
    unexpected_frame& stored = add_unexpected(conn, frame, key, true);
    conn.flow.add_buffered(size);
    conn.deliver_to(stored);
  }

  /// Handles an RTS, a repeated RTS, or an RTS cancel (a frame that withdraws an earlier RTS).
  void receive_rts(connection& conn, const header& frame, const message_key& key);

  /// Handles a CTS, or the peer's confirmation of an RTS cancel.
  void receive_cts(connection& conn, const header& frame, const message_key& key);

 private:
  // Returns the error for an operation whose peer has left the world or whose connection to the
  // peer has ended. If this rank has aborted the connection and the call of
  // `connection_owner::lost` is still pending, makes this call first.
  std::error_code departure_error(connection& conn, const operation_record& record) {
    conn.report_if_aborted();
    return matcher_.peer_left(conn.peer(), record);
  }

  // Matches a receive with an unexpected message. Returns true if the receive has completed at
  // once.
  bool take(posted_receive& receive, unexpected_frame& message) {
    const std::error_code ec =
        matcher_.check(receive, message.key.peer, message.size, message.hash);
    if (!message.buffered) {
      connection& conn = *message.conn;
      const std::uint64_t number = message.number;
      const message_key key = message.key;
      unexpected_frame::free(&message);
      receive.number = number;
      if (ec) return reject(receive, ec, &conn);
      matcher_.enqueue(receive);
      clear_to_send(conn, receive, key);
      return false;
    }
    if (ec) {
      message.drop();
      return reject(receive, ec, nullptr);
    }
    if (message.filled < message.size) {
      message.conn->complete_later(message, receive);
      return false;
    }
    receive.accept(message.bytes(), message.size, message.key.peer);
    receive.record->bytes += message.size;
    drop(message);
    return true;
  }

  // Queues as many blocked sends as possible, first those of `key` and then those of the deferred
  // keys. A point-to-point send is blocked until its message or its RTS is queued. A key is
  // deferred if its next send waits because too many RTS are pending. This function queues a send
  // as an eager message if there is credit and no earlier send of its key is pending. Otherwise it
  // queues the RTS of the send, if the limits on pending RTS permit this.
  void advance(connection& conn, const message_key& key);
  void advance_key(connection& conn, const message_key& key);
  // Calls `advance` and schedules a flush. Called after sends have failed or have been withdrawn.
  // If there is not enough memory, aborts the connection.
  void resume_others(connection& conn, const message_key& key) noexcept;

  // Cancels a send whose RTS has been written, at least in part. Sends an RTS cancel to the peer,
  // and replaces the send by a tombstone. If the peer has already sent a CTS for the RTS, this CTS
  // will match the tombstone and not a later send.
  void send_cancel(posted_send& send);
  // Handles an RTS cancel. `key` and `number` identify the cancelled RTS. If that RTS is still
  // stored here, discards it and sends a confirmation. If this rank has already answered that RTS
  // with a CTS, the message will not arrive. In that case, lets the receive match another message.
  void receive_cancel(connection& conn, const message_key& key, std::uint64_t number);
  // Answers an RTS with the key `key`. If it is the RTS of a point-to-point message, `number` of
  // the receive is the number of this RTS.
  void clear_to_send(connection& conn, posted_receive& receive, const message_key& key) {
    if (key.is_point_to_point()) matcher_.set_cleared(receive, key);
    send_cts(conn, receive);
  }

  void send_rts(connection& conn, posted_send& send, std::uint8_t flags = 0) {
    send.rts_sent = true;
    flags |= flag::rts;
    conn.control(make_header(kind::data, send.key, send.size, send.record->hash, flags));
  }
  void send_cts(connection& conn, posted_receive& receive, std::uint8_t flags = 0) {
    receive.cleared = true;
    const std::uint64_t length = receive.key.is_point_to_point() ? receive.number : receive.size;
    conn.control(make_header(kind::cts, receive.key, length, receive.record->hash, flags));
    conn.flush();
  }
  // Stores an unexpected message, that is, a message or an RTS that arrived before its receive was
  // posted. `buffered` is true for a message with its payload, and false for an RTS.
  unexpected_frame& add_unexpected(connection& conn, const header& frame, const message_key& key,
                                   bool buffered) {
    const auto size = static_cast<std::size_t>(frame.length);
    unexpected_frame& stored = *unexpected_frame::make(buffered ? size : 0);
    stored.key = key;
    stored.size = size;
    stored.hash = frame.hash;
    stored.conn = &conn;
    stored.buffered = buffered;
    if (!buffered) ++conn.flow.rts_waiting;
    try {
      matcher_.add_unexpected(stored);
    } catch (const std::bad_alloc&) {
      unexpected_frame::free(&stored);
      throw;
    }
    return stored;
  }

  // Handles a receive that cannot accept its message. `ec` is the reason. `rts_source` is the
  // connection on which the RTS of the message arrived, or null if the message itself arrived.
  //
  // If the two ranks run different calls and the communicator has not failed yet, queues the
  // receive again and returns false. Later, the communicator fails with an error that names both
  // calls, and this failure completes the receive. In all other cases, sets the error of the
  // receive and returns true. The caller must then complete the receive.
  bool reject(posted_receive& receive, std::error_code ec, connection* rts_source);
  void reject_and_finish(posted_receive& receive, std::error_code ec, connection* rts_source) {
    if (reject(receive, ec, rts_source)) receive.finish(ec);
  }

  tag_matcher& matcher_;
  connection_table& connections_;
  connector& connector_;
  owner& owner_;
};

}  // namespace colls::interprocess

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/eager_rendezvous.ipp>
#endif
