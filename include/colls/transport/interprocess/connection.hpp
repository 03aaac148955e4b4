// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// connection: the connection of a rank to one peer. Frames go through a socket or through ring
// buffers in shared memory. A connection through shared memory keeps its socket, but only to wake
// the peer, to pass descriptors, and to see when the peer closes the connection.
//
// Eager messages, credit, RTS and CTS are explained in frame.hpp. A goodbye is the last frame of a
// peer that leaves the world. The shared heap of a rank is memory that its peers map. CMA
// (cross-memory attach) is the reading of another process's memory through the kernel.

#include <colls/driver/local_socket.hpp>
#include <colls/driver/socket.hpp>
#include <colls/transport/interprocess/carrier/shared_memory_frames.hpp>
#include <colls/transport/interprocess/carrier/socket_frames.hpp>
#include <colls/transport/interprocess/flow_control.hpp>
#include <colls/transport/interprocess/window/shared_heap.hpp>

#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>

namespace colls::interprocess {

/// The interface through which a connection reports events to its transport.
class connection_owner {
 public:
  /// Called when the connection has read the header of a frame. If the frame is a control frame,
  /// `payload` points to its payload, which is complete. If the frame is a message, the connection
  /// reads the payload after this call. The owner may set the destination of the payload with
  /// `connection::deliver_to`.
  virtual void received(connection& conn, const header& frame, const std::byte* payload) = 0;
  /// Called before the connection processes an arriving frame. The owner may receive the frame by
  /// calling `connection::try_receive`, and must then return true. If the owner returns false, the
  /// connection processes the frame and calls `received`.
  virtual bool take_next(connection& conn) = 0;
  /// Called when the connection ends. If the peer has sent a goodbye and then closed its end,
  /// `reason.code` is `errc::closed`.
  virtual void lost(connection& conn, const failure& reason) = 0;
  /// Called when the peer has passed the descriptor of its shared heap. `heap` is empty if this
  /// process could not receive the descriptor.
  virtual void heap_received(connection& conn, detail::descriptor heap) = 0;
  virtual tag_matcher& matching() = 0;
  /// Returns whether the store, which is the key-value service of the job, has sent data that this
  /// rank has not read yet. Such data may report a failure.
  virtual bool has_unread_failures() const { return false; }

 protected:
  ~connection_owner() = default;
};

/// The connection to one peer. The object exists before the connection opens. Frames that are
/// queued before the connection opens are written when it opens.
class connection final : public engine::watcher {
 public:
  connection(engine& driver, connection_owner& owner, int peer)
      : engine_(driver),
        owner_(owner),
        peer_(peer),
        target_(owner.matching()),
        abort_report_(*this) {}
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;
  ~connection() { shut(); }

  int peer() const { return peer_; }
  bool is_open() const { return static_cast<bool>(socket_); }
  bool received_goodbye() const { return goodbye_received_; }
  void note_goodbye() { goodbye_received_ = true; }
  bool has_ended() const { return ended_; }
  bool is_idle() const { return send_queue_.empty(); }
  bool has_control() const { return send_queue_.has_control(); }
  /// Returns whether this connection is in the middle of reading a message, has frames to write, or
  /// has sends that wait for a CTS.
  bool is_busy() const { return target_.left() > 0 || !is_idle() || flow.any_pending(); }
  std::string address() const { return address_; }
  void set_address(std::string text) { address_ = std::move(text); }

  // The connector uses the following members while it opens or probes this connection.
  bool is_dialing = false;
  bool is_accepted = false;   // the peer's dial was accepted, and the connection is about to open
  bool is_half_open = false;  // the peer may have opened its end already
  bool is_probing = false;    // the connector checks whether the peer's host still answers
  time_point next_probe = 0;
  int local_refusals = 0;              // how often the peer's local socket refused this rank
  time_point congested_since = never;  // the time at which the peer's local socket became congested

  // The next four members describe which memory of one rank the other rank can access directly.
  bool peer_maps_heap = false;     // the peer has mapped this rank's shared heap
  bool peer_reads_memory = false;  // the peer reads exposed private memory of this rank by CMA
  bool reads_peer_memory = false;  // this rank may read private memory of the peer by CMA
  std::unique_ptr<shm::shared_heap_view> peer_heap;
  flow_control flow;

  /// Opens the connection on `socket`, which must be authenticated. Writes the queued frames. If
  /// `ring` is not null, frames go through this ring buffer instead of the socket. `checks` enables
  /// checksums of frames on the socket. A ring buffer has its own checksums.
  void open(detail::descriptor socket, std::unique_ptr<shm::ring_buffer> ring = nullptr,
            bool checks = false);

  /// Queues a send, and writes as many queued frames as possible. Returns true if all of the send
  /// was written. In that case, the send is complete, but this function does not post its
  /// completion. The caller must report that the send has completed.
  bool enqueue(posted_send& send) {
    send.conn = this;
    if (!send_queue_.push(send) || !is_open()) return false;
    return send_queue_.ends_at_once(send, [this] { flush(); });
  }

  /// Queues a send. If `rts_only` is true, queues only the RTS of the send. Messages with the same
  /// key stay in order, because new sends go to the end of the queue. Writes nothing. The next call
  /// of `flush` writes the queued frames.
  void queue(posted_send& send, bool rts_only) {
    send.conn = this;
    send_queue_.push(send, rts_only);
  }

  /// Returns whether messages may still arrive on this connection.
  bool is_readable() const { return is_open() && !ended_ && !goodbye_received_; }

  /// Returns whether `try_receive` can receive a message of `size` bytes.
  bool supports_try_receive(std::size_t size) const {
    return is_readable() && (ring_ != nullptr || size <= socket_frames::max_try_receive);
  }
  /// Tries to send an eager message at once. Returns false and sends nothing if the connection is
  /// not open or the peer has said goodbye, if other frames or sends must go first, if the message
  /// is too long, or if there is not enough credit or space.
  bool try_send(const header& frame, const_bytes message) {
    if (!is_readable() || !is_idle() || flow.any_pending()) return false;
    if (!ring_) return try_send_by_socket(frame, message);
    if (!ring_->has_slot()) return false;
    const bool is_long = message.size > ring_->inline_bytes();
    if (is_long && ring_->room(message.size) < message.size) return false;
    if (!flow.spend(message.size)) return false;
    ring_->write(frame, message.data, message.size);
    return true;
  }
  /// Receives the message with the header `expected` into `out` if this message is the next frame
  /// and has arrived completely. Returns whether the message was received.
  bool try_receive(const header& expected, std::byte* out) {
    if (!is_open() || target_.left() > 0) return false;
    if (!ring_) {
      if (!in_.try_receive(expected, out)) return false;
      note_sequence(expected);
      consumed(static_cast<std::size_t>(expected.length));
      if (send_queue_.has_control()) flush();
      return true;
    }
    const shm::slot* const next = ring_->front();
    if (next == nullptr) {
      ring_->prefetch_for_write();
      return false;
    }
    if (std::memcmp(&next->frame, &expected, sizeof expected) != 0) return false;
    if (!ring_->is_intact(*next)) return false;
    const std::size_t size = expected.length;
    const std::size_t piece = shm::load_once(next->piece);
    note_sequence(expected);
    if (size <= ring_->inline_bytes()) {
      if (piece != 0) return false;
      if (size != 0) std::memcpy(out, next->data, size);
      if (!ring_->pop(0)) return false;
    } else {
      if (piece != size || !ring_->pop(size)) return false;
      std::memcpy(out, ring_->data(), size);
      ring_->take(size);
    }
    ring_->publish_if_due();
    consumed(size);
    if (send_queue_.has_control()) write_frames(*ring_, send_queue_);
    return true;
  }

  /// Returns the sequence number of the peer's latest frame of a collective, if that frame belongs
  /// to `communicator`. Otherwise returns 0.
  std::uint64_t newest_sequence_in(std::uint32_t communicator) const {
    return latest_communicator_ == communicator ? latest_sequence_ : 0;
  }

  /// Queues a control frame. Aborts the connection if there is no memory for the frame, or if the
  /// peer has left too many frames unread.
  void control(const header& frame, const void* payload = nullptr) {
    if (!send_queue_.control(frame, payload)) abort();
  }
  void withdraw(posted_send& send) {
    return_credit(send);
    if (!send_queue_.withdraw(send)) abort();
  }

  /// Counts an eager message of `size` bytes as consumed. When the consumed messages add up to
  /// enough credit, queues a frame that gives this credit back to the peer.
  void consumed(std::size_t size) {
    if (const std::size_t bytes = flow.consumed(size)) {
      header frame;
      frame.kind = kind::cts;
      frame.flags = flag::credit;
      frame.length = bytes;
      control(frame);
    }
  }

  /// Calls `visit(send)` for every send that is queued, waits for a CTS, or waits for other sends
  /// with the same key.
  template <class Visit>
  void each_send(Visit visit) {
    flow.for_each(visit);
    send_queue_.for_each(visit);
  }
  /// Fails, with the error `ec`, every queued or waiting send for which `matches(send)` returns
  /// true.
  template <class Predicate>
  void fail_sends(std::error_code ec, Predicate matches) {
    flow.fail(ec, matches);
    send_queue_.for_each([&](const posted_send& send) {
      if (matches(send)) return_credit(send);
    });
    if (!send_queue_.fail(ec, matches)) abort();
  }
  /// Returns whether this connection is reading a payload for a receive of the operation `record`.
  bool is_receiving(const operation_record& record) const { return target_.is_for(record); }
  /// Fails the receive for which this connection is reading a payload, with the error `ec`. Does
  /// nothing if there is no such receive, or if `matches(receive)` returns false.
  template <class Predicate>
  void fail_receive(std::error_code ec, Predicate matches) {
    target_.fail(ec, matches);
  }

  /// Sets the destination for the payload of the frame that is being read. A payload without a
  /// destination is discarded.
  void deliver_to(posted_receive& receive) { target_.deliver_to(receive, uses_shared_memory()); }
  void deliver_to(unexpected_frame& message) { target_.deliver_to(message); }
  /// Pairs `receive` with `message`, which has only partly arrived. When the rest of `message`
  /// arrives, the connection completes `receive`.
  void complete_later(unexpected_frame& message, posted_receive& receive) {
    target_.complete_later(message, receive);
  }
  void forget(unexpected_frame& message) { target_.forget(message); }

  /// Sets whether epoll reports bytes that arrive on the socket. If `enabled` is false, the caller
  /// must regularly call `pump`, which reads such bytes without a report.
  void set_read_events(bool enabled) {
    read_events_enabled_ = enabled;
    update_events();
  }

  /// Writes as many queued frames as the socket or the ring buffer accepts. Returns whether any
  /// bytes were written.
  bool flush() {
    if (!is_open()) return false;
    if (ring_) return write_frames(*ring_, send_queue_);
    const auto [moved, is_full] = socket_frames::write(socket_.get(), send_queue_);
    set_write_events(is_full);
    return moved;
  }

  /// Reads frames that have arrived. If frames go through shared memory, also writes queued frames.
  /// Returns whether there was any progress.
  bool pump() {
    if (ring_) return pump_ring_buffer();
    const auto is_taken = [this] { return owner_.take_next(*this); };
    const auto begin_frame = [this](const header& frame, const std::byte* payload) {
      return is_running() && begin(frame, payload);
    };
    bool moved = false;
    for (int rounds = 0; is_running() && rounds < 64; ++rounds) {
      const ssize_t got = in_.read(socket_.get(), target_);
      if (got < 0) {
        if (detail::would_block()) break;
        const int system_error = errno;
        if (!awaits_explanation()) fail(system_error);
        return true;
      }
      if (got == 0) {
        handle_end_of_file();
        return true;
      }
      moved = true;
      if (const char* const fault = in_.take(target_, is_taken, begin_frame)) {
        fail(0, fault);
        return true;
      }
      if (!in_.may_have_more()) break;
    }
    return moved;
  }

  /// Returns whether frames go through shared memory. In that case, epoll does not report arriving
  /// frames.
  bool uses_shared_memory() const { return ring_ != nullptr; }
  /// Wakes the peer if it sleeps and this rank has used the ring buffer since the previous call of
  /// this function, that is, written a frame or released space. The check needs a memory fence,
  /// which is slow. This rank therefore calls this function only once after several reads and
  /// writes.
  void wake_peer() {
    if (is_open() && ring_->take_wake_request()) {
      // An error does not matter here. Either the peer has closed the connection, or the socket is
      // full. If the socket is full, the bytes that it already holds wake the peer.
      (void)::send(socket_.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
  }
  /// Called before this thread sleeps. Asks the peer to wake this thread, writes queued frames, and
  /// wakes the peer if necessary. Returns false if a frame has arrived or was written. This thread
  /// must not sleep in that case.
  bool arm() {
    if (!is_open()) return true;
    const bool nothing_arrived = ring_->request_wake();
    // Model step: request_room_check
    const bool nothing_written = is_idle() || !write_frames(*ring_, send_queue_);
    wake_peer();  // Model step: request_wakes_peer
    return nothing_arrived && nothing_written;
  }
  void disarm() { ring_->cancel_wake(); }

  /// Passes the descriptor of this rank's shared heap to the peer through the socket.
  std::error_code pass_heap(const shm::shared_heap& heap) {
    if (shm::send_descriptor(socket_.get(), heap.memory().descriptor())) return {};
    return {errno, std::system_category()};
  }
  /// Returns the process id of the peer, as the kernel reports it.
  pid_t peer_process() const { return shm::peer_process(socket_.get()); }
  /// Returns whether the peer's process has ended, which means that it no longer accesses shared
  /// memory.
  bool has_peer_exited() const;

  /// Ends the connection. Called when this rank has no more memory, or when the peer has left too
  /// many frames unread. In both cases, this rank may be unable to complete a frame that it has
  /// partly written. The caller may be a destructor or be iterating over a list, so `abort` does
  /// not call `connection_owner::lost` itself. Instead, it posts a completion, which calls `lost`
  /// after `abort` has returned.
  void abort();
  /// Calls `connection_owner::lost` now if `abort` has posted a completion that has not run yet.
  /// Called before the transport looks up why an operation on this connection must fail.
  void report_if_aborted();
  /// Returns whether this rank has data in flight and the peer's host has acknowledged nothing for
  /// 5 s. TCP keep-alive cannot replace this check, because it sends no probes while data is in
  /// flight. The caller must call this function at least once per second.
  bool is_silent(time_point now);

  void shut_writing() { (void)::shutdown(socket_.get(), SHUT_WR); }  // fails if the peer is gone

  void shut();

  /// Ends the connection. If `fault` is null, the reason is the error number `system_error`.
  /// Otherwise, the reason is an invalid frame from the peer. `fault` then says what is wrong with
  /// the frame, and this rank sends the reason to the peer.
  void fail(int system_error, const char* fault = nullptr);

 private:
  /// The completion that `abort` posts to the run queue. It calls `connection_owner::lost`.
  struct abort_report : completion {
    explicit abort_report(connection& aborted)
        : completion(
              [](completion& self) noexcept {
                static_cast<abort_report&>(self).conn.report_abort();
              },
              &aborted.engine_.queue()),
          conn(aborted) {}
    connection& conn;
  };

  // Refunds the credit that `send` has spent. Called if `send` is withdrawn or fails. Does nothing
  // unless `send` is an eager send of which nothing has been written.
  void return_credit(const posted_send& send) {
    if (send.queued && send.written == 0 && !send.is_rts_only &&
        (send.frame.flags & flag::cleared) == 0) {
      flow.refill(credit_cost(send.size));
    }
  }
  void report_lost(errc code, const char* message);
  void report_abort();

  void set_write_events(bool enabled) {
    write_events_enabled_ = enabled;
    update_events();
  }
  void update_events() {
    const std::uint32_t events =
        (read_events_enabled_ ? static_cast<std::uint32_t>(EPOLLIN) : 0U) |
        (write_events_enabled_ ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
    if (is_open() && !ended_ && events != events_) {
      events_ = events;
      engine_.rewatch(socket_.get(), events_, *this);
    }
  }

  void ready(std::uint32_t events) override;

  // Tries to send a message through the socket. If the socket accepts only a part of the frame,
  // queues a copy of the rest. Returns false and sends nothing if there is not enough credit or if
  // the socket accepts no bytes.
  bool try_send_by_socket(const header& frame, const_bytes message) {
    if (!flow.spend(message.size)) return false;
    const std::size_t sent = in_.try_send(socket_.get(), frame, message);
    if (sent == 0) {
      flow.refill(credit_cost(message.size));
      return false;
    }
    if (sent < in_.header_bytes() + message.size) {
      if (!send_queue_.append_rest(frame, message, sent)) abort();
      set_write_events(true);
    }
    return true;
  }

  void note_sequence(const header& frame) {
    latest_communicator_ = frame.communicator;
    latest_sequence_ = frame.sequence;
  }

  bool is_running() const { return is_open() && !ended_; }
  bool begin(const header& frame, const std::byte* payload) {
    const bool has_payload = frame.kind == kind::data && (frame.flags & flag::rts) == 0;
    if (frame.hash != 0 && frame.kind <= kind::announce) note_sequence(frame);
    target_.begin(has_payload ? frame.length : 0);
    try {
      owner_.received(*this, frame, payload);
    } catch (const std::bad_alloc&) {
      abort();
    }
    if (has_payload && frame.length == 0) target_.end();
    return is_running();
  }
  bool pump_ring_buffer() {
    const auto begin_frame = [this](const header& frame, const std::byte* payload) {
      return begin(frame, payload);
    };
    bool moved = false;
    for (int rounds = 0; is_running() && rounds < 256; ++rounds) {
      const shm::slot* const next = ring_->front();
      if (next == nullptr) {
        if (!ring_->has_valid_number()) {
          fail(0, bad_checksum);
          return true;
        }
        ring_->prefetch_for_write();
        break;
      }
      moved = true;
      if (owner_.take_next(*this)) continue;
      if (const char* const fault = take_slot(*ring_, *next, target_, begin_frame)) {
        fail(0, fault);
        return true;
      }
      ring_->publish_if_due();
    }
    if (is_open() && !is_idle()) moved |= write_frames(*ring_, send_queue_);
    wake_peer();
    return moved;
  }

  // Ends the connection because of an invalid frame, and tells the peer why.
  void refuse(const char* fault);

  // Reads from the socket of a connection through shared memory. On this socket, the peer sends
  // wake-ups and the descriptor of its shared heap. The function then reads frames from the ring
  // buffer. If the peer has closed its end of the socket, the function reads all frames that remain
  // in the ring buffer before it ends the connection.
  void read_wakeups();

  // Passes `heap`, the descriptor of the peer's shared heap, to the owner of this connection, which
  // maps the heap. If the owner throws `std::bad_alloc`, this rank does not use the peer's heap.
  void receive_peer_heap(detail::descriptor heap);

  void handle_end_of_file();

  // Called when a read of the socket shows that the connection has ended. Returns whether this rank
  // should read a report from the store before it handles the end of the connection. The report may
  // contain the reason why the peer has failed. This rank may not know the reason yet, because the
  // last frames of the peer may be lost. If the function returns true, the caller does nothing, and
  // the next read shows the end of the connection again. The function returns true for at most
  // 100 ms.
  bool awaits_explanation();

  engine& engine_;
  connection_owner& owner_;
  int peer_;
  std::string address_;
  detail::descriptor socket_;
  // The half-closed socket of a connection that this rank has ended. This rank keeps the socket if
  // the peer may still have to read frames or may still access this rank's memory. The socket shows
  // when the peer has closed its end.
  detail::fork_guarded_socket half_closed_socket_;
  std::uint32_t events_ = 0;
  bool read_events_enabled_ = true;
  bool write_events_enabled_ = false;
  bool goodbye_received_ = false;
  bool ended_ = false;
  bool peer_closed_ = false;
  bool refused_ = false;                 // this rank has ended the connection because of a fault
  time_point end_seen_ = never;          // when the end was first seen, while its report is delayed
  time_point unanswered_since_ = never;  // when the peer stopped acknowledging retransmitted data

  // The communicator and the sequence number of the peer's latest frame of a collective.
  std::uint32_t latest_communicator_ = 0;
  std::uint64_t latest_sequence_ = 0;

  send_queue send_queue_;
  std::unique_ptr<shm::ring_buffer> ring_;
  payload_target target_;
  socket_frames in_;
  abort_report abort_report_;
};

inline void unexpected_frame::free(unexpected_frame* message) {
  if (!message->buffered) --message->conn->flow.rts_waiting;
  const std::size_t size = sizeof(unexpected_frame) + message->room_;
  message->~unexpected_frame();
  detail::this_thread_frames().deallocate(message, size);
}

inline void unexpected_frame::drop() {
  conn->forget(*this);
  if (buffered) {
    conn->flow.remove_buffered(size);
    conn->consumed(size);
  }
  free(this);
}

}  // namespace colls::interprocess

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/connection.ipp>
#endif
