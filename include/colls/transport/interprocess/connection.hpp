// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// connection: the connection to one peer. Frames go through a socket or through ring buffers in
// shared memory. With shared memory the socket only wakes the peer and reports its end.

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

/// What a connection reports to its transport.
class connection_owner {
 public:
  /// A frame has arrived; `payload` is that of a control frame.
  virtual void received(connection& conn, const header& frame, const std::byte* payload) = 0;
  /// May receive the next frame itself, by `connection::try_receive`. True: it has.
  virtual bool take_next(connection& conn) = 0;
  /// The connection has ended; `errc::closed`: after the peer's goodbye.
  virtual void lost(connection& conn, const failure& reason) = 0;
  /// The peer has passed the descriptor of its shared heap.
  virtual void heap_received(connection& conn, detail::descriptor heap) = 0;
  virtual tag_matcher& matching() = 0;
  /// Whether a failure was reported by the store and has not been read yet.
  virtual bool has_unread_failures() const { return false; }

 protected:
  ~connection_owner() = default;
};

/// The connection to one peer. It exists before it opens: frames that are queued until then are
/// written when it does.
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
  /// Whether a message is being read or written, or sends wait for a CTS.
  bool is_busy() const { return target_.left() > 0 || !is_idle() || flow.any_pending(); }
  std::string address() const { return address_; }
  void set_address(std::string text) { address_ = std::move(text); }

  // State of the connector.
  bool is_dialing = false;
  bool is_accepted = false;   // the peer's dial was accepted, and the connection is about to open
  bool is_half_open = false;  // the peer may have opened its end
  bool is_probing = false;    // the peer's host is being asked whether it is still there
  time_point next_probe = 0;
  int local_refusals = 0;              // by the peer's local socket
  time_point congested_since = never;  // since then that socket takes no connection

  // State of the window manager.
  bool peer_maps_heap = false;     // the peer has mapped this rank's shared heap
  bool peer_reads_memory = false;  // and reads private memory that is exposed to it, by CMA
  bool reads_peer_memory = false;  // this rank may do the same with the peer's
  std::unique_ptr<shm::shared_heap_view> peer_heap;
  flow_control flow;

  /// Takes over an authenticated socket and writes what is queued. With `ring` the frames go
  /// through it. `checks` enables checksums of frames on the socket; a ring buffer has its own.
  void open(detail::descriptor socket, std::unique_ptr<shm::ring_buffer> ring = nullptr,
            bool checks = false);

  /// Queues a send and writes what it can. True: all of it was written; no completion is posted.
  bool enqueue(posted_send& send) {
    send.conn = this;
    if (!send_queue_.push(send) || !is_open()) return false;
    return send_queue_.ends_at_once(send, [this] { flush(); });
  }

  /// Queues a send, or only its RTS, behind all queued sends, since one of them may be of its key.
  /// It is written by the next flush.
  void queue(posted_send& send, bool rts_only) {
    send.conn = this;
    send_queue_.push(send, rts_only);
  }

  /// Whether messages may still arrive.
  bool is_readable() const { return is_open() && !ended_ && !goodbye_received_; }

  /// Whether `try_receive` can find a message of that length.
  bool supports_try_receive(std::size_t size) const {
    return is_readable() && (ring_ != nullptr || size <= socket_frames::max_try_receive);
  }
  /// Writes a message at once, or does nothing and returns false.
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
  /// Receives the message `expected` if it is the next frame and has arrived completely.
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

  /// The sequence of the last frame of a collective that the peer sent, if it was of that
  /// communicator; else 0.
  std::uint64_t newest_sequence_in(std::uint32_t communicator) const {
    return latest_communicator_ == communicator ? latest_sequence_ : 0;
  }

  /// Queues a control frame.
  void control(const header& frame, const void* payload = nullptr) {
    if (!send_queue_.control(frame, payload)) abort();
  }
  void withdraw(posted_send& send) {
    return_credit(send);
    if (!send_queue_.withdraw(send)) abort();
  }

  /// An eager message of `size` bytes was consumed. Returns credit to the peer now and then.
  void consumed(std::size_t size) {
    if (const std::size_t bytes = flow.consumed(size)) {
      header frame;
      frame.kind = kind::cts;
      frame.flags = flag::credit;
      frame.length = bytes;
      control(frame);
    }
  }

  /// Calls `visit` for every queued or waiting send.
  template <class Visit>
  void each_send(Visit visit) {
    flow.for_each(visit);
    send_queue_.for_each(visit);
  }
  /// Ends every queued or waiting send for which `matches(send)`.
  template <class Predicate>
  void fail_sends(std::error_code ec, Predicate matches) {
    flow.fail(ec, matches);
    send_queue_.for_each([&](const posted_send& send) {
      if (matches(send)) return_credit(send);
    });
    if (!send_queue_.fail(ec, matches)) abort();
  }
  /// Whether a message for that operation is being read.
  bool is_receiving(const operation_record& record) const { return target_.is_for(record); }
  /// Fails the receive in progress if `matches(receive)`.
  template <class Predicate>
  void fail_receive(std::error_code ec, Predicate matches) {
    target_.fail(ec, matches);
  }

  /// Sets the destination of the payload of the frame being read; without one it is discarded.
  void deliver_to(posted_receive& receive) { target_.deliver_to(receive, uses_shared_memory()); }
  void deliver_to(unexpected_frame& message) { target_.deliver_to(message); }
  /// Completes `receive`, paired with the incomplete `message`, when all of it has arrived.
  void complete_later(unexpected_frame& message, posted_receive& receive) {
    target_.complete_later(message, receive);
  }
  void forget(unexpected_frame& message) { target_.forget(message); }

  /// Whether epoll reports arriving bytes; if not, the caller calls `pump` at each poll.
  void set_read_events(bool enabled) {
    read_events_enabled_ = enabled;
    update_events();
  }

  /// Writes what it can.
  bool flush() {
    if (!is_open()) return false;
    if (ring_) return write_frames(*ring_, send_queue_);
    const auto [moved, is_full] = socket_frames::write(socket_.get(), send_queue_);
    set_write_events(is_full);
    return moved;
  }

  /// Reads what it can. False: there was nothing.
  bool pump() {
    if (ring_) return pump_ring();
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

  /// Whether frames go through shared memory. Then no descriptor reports arriving frames.
  bool uses_shared_memory() const { return ring_ != nullptr; }
  /// Wakes the peer if it sleeps and something was written. Called before the thread turns to other
  /// work, not at each write, since the check waits until the write has reached memory.
  void wake_peer() {
    if (is_open() && ring_->take_wake_request()) {
      // An error means that the peer is gone; what fills a full socket wakes it as well.
      (void)::send(socket_.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
  }
  /// Asks the peer to wake this thread, which is about to sleep. False: there is work already.
  bool arm() {
    if (!is_open()) return true;
    const bool nothing_arrived = ring_->request_wake();
    const bool nothing_written = is_idle() || !write_frames(*ring_, send_queue_);
    wake_peer();
    return nothing_arrived && nothing_written;
  }
  void disarm() { ring_->cancel_wake(); }

  /// Passes this rank's shared heap to the peer.
  std::error_code pass_heap(const shm::shared_heap& heap) {
    if (shm::send_descriptor(socket_.get(), heap.memory().descriptor())) return {};
    return {errno, std::system_category()};
  }
  /// The peer's process, according to the kernel.
  pid_t peer_process() const { return shm::peer_process(socket_.get()); }
  /// Whether the peer's process has ended, so that it no longer accesses shared memory.
  bool has_peer_exited() const;

  /// Ends the connection because this rank has no memory, or because the peer has left too much
  /// unread: a frame that has begun cannot be completed. The owner is told later, since the caller
  /// may be a destructor or in the middle of a list.
  void abort();
  /// Reports at once what `abort` has left for later, because the connection is asked for.
  void report_if_aborted();
  /// Whether data is in flight and the peer's system has not acknowledged it for 5 s. Keep-alive
  /// does not probe a connection with data in flight. To be called at least once a second.
  bool is_silent(time_point now);

  void shut_writing() { (void)::shutdown(socket_.get(), SHUT_WR); }  // fails if the peer is gone

  void shut();

  /// Ends the connection because of a system error, or, with `fault`, because of a wrong frame; the
  /// peer is then told.
  void fail(int system_error, const char* fault = nullptr);

 private:
  /// Reports later that the connection was aborted.
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

  // An eager send that is withdrawn before it begins gives its credit back.
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

  // What the system does not accept at once is copied and queued.
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
  bool pump_ring() {
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

  // Ends the connection because of a wrong frame, and tells the peer why.
  void refuse(const char* fault);

  // With shared memory: reads wake-ups, a passed heap or the end of file from the socket. Frames
  // that the peer wrote before its end are read first.
  void read_wakeups();

  // Without memory for the view the heap is not used.
  void receive_peer_heap(detail::descriptor heap);

  void handle_end_of_file();

  // Whether the end of the connection is reported later. A peer that fails may have told the store
  // why, while its last frames were lost with the connection; the store's report is read first. The
  // end of the connection is then seen again.
  bool awaits_explanation();

  engine& engine_;
  connection_owner& owner_;
  int peer_;
  std::string address_;
  detail::descriptor socket_;
  // The socket after this side has ended the connection. It stays half closed while the peer has
  // frames to read or may still access this rank's memory; the peer's own end is seen here.
  detail::fork_guarded_socket half_closed_socket_;
  std::uint32_t events_ = 0;
  bool read_events_enabled_ = true;
  bool write_events_enabled_ = false;
  bool goodbye_received_ = false;
  bool ended_ = false;
  bool peer_closed_ = false;
  bool refused_ = false;                 // because of a wrong frame
  time_point end_seen_ = never;          // when the end was seen, if it is not reported yet
  time_point unanswered_since_ = never;  // data in flight, although it was retransmitted

  std::uint32_t latest_communicator_ = 0;  // of the last frame of a collective
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
