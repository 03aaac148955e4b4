// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// connection: the connection of a rank to one peer. A pipe moves its frames (see carrier/pipe.hpp).
//
// Eager messages, credit, RTS and CTS are explained in frame.hpp. A goodbye is the last frame of a
// peer that leaves the world. The shared heap of a rank is memory that its peers map. CMA
// (cross-memory attach) is the reading of another process's memory through the kernel.

#include <colls/coroutine/scheduler.hpp>
#include <colls/transport/interprocess/carrier/pipe_pointer.hpp>
#include <colls/transport/interprocess/flow_control.hpp>
#include <colls/transport/interprocess/window/shared_heap.hpp>

#include <memory>
#include <new>
#include <string>
#include <utility>

namespace colls::interprocess {

/// An operation or a set of operations that receives frames past the matcher.
class direct_receiver {
 public:
  /// Called before a connection processes an arriving frame. The receiver may receive the frame by
  /// `connection::try_receive`, and must then return true. If it returns false, the connection
  /// processes the frame and calls `connection_owner::received`.
  virtual bool take_next(connection& conn) = 0;

 protected:
  ~direct_receiver() = default;
};

/// The interface through which a connection reports events.
class connection_owner {
 public:
  direct_receiver* direct = nullptr;

  /// Called when the connection has read the header of a frame. If the frame is a control frame,
  /// `payload` points to its payload, which is complete. If the frame is a message, the connection
  /// reads the payload after this call. The owner may set the destination of the payload with
  /// `connection::deliver_to`.
  virtual void received(connection& conn, const header& frame, const std::byte* payload) = 0;
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
class connection final : pipe_handler {
 public:
  connection(scheduler& runner, connection_owner& owner, int peer)
      : scheduler_(runner),
        owner_(owner),
        peer_(peer),
        target_(owner.matching()),
        abort_report_(*this) {}
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;
  ~connection() { shut(); }

  int peer() const { return peer_; }
  bool is_open() const { return is_open_; }
  bool received_goodbye() const { return goodbye_received_; }
  void note_goodbye() { goodbye_received_ = true; }
  bool has_ended() const { return ended_; }
  bool is_idle() const { return send_queue_.empty(); }
  /// Returns whether something that was queued has not left this rank.
  bool is_sending() const { return !is_idle() || (pipe_ && pipe_->is_sending()); }
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

  bool is_fenced = false;  // this rank goes on without the peer, and does not wait for it

  /// The number of this connection among those of its table that events report, or -1.
  int reported_index = -1;

  // The next four members describe which memory of one rank the other rank can access directly.
  bool peer_maps_heap = false;     // the peer has mapped this rank's shared heap
  bool peer_reads_memory = false;  // the peer reads exposed private memory of this rank by CMA
  bool reads_peer_memory = false;  // this rank may read private memory of the peer by CMA
  std::unique_ptr<shm::shared_heap_view> peer_heap;
  flow_control flow;

  /// Opens the connection, whose peer must be authenticated. Writes the queued frames. Throws if
  /// this process lacks a resource.
  void open(std::unique_ptr<pipe> opened);

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
    return is_readable() && size <= pipe_.properties().max_try_receive;
  }
  /// Tries to send an eager message at once. Returns false and sends nothing if the connection is
  /// not open or the peer has said goodbye, if other frames or sends must go first, if the message
  /// is too long, or if there is not enough credit or space.
  bool try_send(const header& frame, const_bytes message) {
    if (!is_readable() || !is_idle() || flow.any_pending()) return false;
    if (!flow.spend(message.size)) return false;
    if (pipe_.try_send(frame, message)) return true;
    flow.refill(credit_cost(message.size));
    return false;
  }
  /// Receives the message with the header `expected` into `out` if this message is the next frame
  /// and has arrived completely. Returns whether the message was received.
  bool try_receive(const header& expected, std::byte* out) {
    if (!is_open() || target_.left() > 0 || !pipe_.try_receive(expected, out)) return false;
    note_sequence(expected);
    consumed(static_cast<std::size_t>(expected.length));
    if (send_queue_.has_control()) flush();
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
    if (send.is_moved_by_pipe) return pipe_->withdraw(send);
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
    if (pipe_) pipe_->for_each_send(visit);
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
    if (!pipe_) return;
    for (;;) {
      posted_send* next = nullptr;
      pipe_->for_each_send([&](posted_send& send) {
        if (next == nullptr && matches(send)) next = &send;
      });
      if (next == nullptr) return;
      pipe_->withdraw(*next);
      next->finish(ec);
    }
  }
  /// Returns whether this connection is reading a payload for a receive of the operation `record`.
  bool is_receiving(const operation_record& record) const {
    return target_.is_for(record) || (pipe_ && pipe_->is_receiving(record));
  }
  /// Fails the receive for which this connection is reading a payload, with the error `ec`. Does
  /// nothing if there is no such receive, or if `matches(receive)` returns false.
  template <class Predicate>
  void fail_receive(std::error_code ec, Predicate matches) {
    target_.fail(ec, matches);
    if (pipe_) pipe_->fail_receives(ec, matches);
  }

  /// Sets the destination for the payload of the frame that is being read. A payload without a
  /// destination is discarded.
  void deliver_to(posted_receive& receive) {
    target_.deliver_to(receive, pipe_.properties().reads_in_place);
  }
  void deliver_to(unexpected_frame& message) { target_.deliver_to(message); }
  /// Pairs `receive` with `message`, which has only partly arrived. When the rest of `message`
  /// arrives, the connection completes `receive`.
  void complete_later(unexpected_frame& message, posted_receive& receive) {
    target_.complete_later(message, receive);
  }
  void forget(unexpected_frame& message) { target_.forget(message); }

  /// Writes as many queued frames as there is room for. Returns whether anything was written.
  bool flush() { return is_open() && pipe_.flush(); }
  /// Reads frames that have arrived. Returns whether there was any progress.
  bool poll() { return is_open() && pipe_.poll(); }

  /// Returns whether polls must find the frames that arrive, because no event reports them.
  bool is_polled() const { return is_open() && pipe_.properties().is_polled; }
  /// Returns whether the peer runs on this host and can map memory of this rank.
  bool shares_memory() const { return is_open() && pipe_.properties().shares_memory; }
  /// Sets whether events report the frames that arrive. If `enabled` is false, the caller must
  /// regularly call `poll`.
  void report_arrivals(bool enabled) {
    if (is_open()) pipe_->report_arrivals(enabled);
  }
  void wake_peer() { pipe_.wake_peer(); }
  bool arm() { return !is_open() || pipe_->arm(); }
  void disarm() { pipe_->disarm(); }

  /// Passes the descriptor of this rank's shared heap to the peer.
  std::error_code pass_heap(const shm::shared_heap& heap) {
    return pipe_->pass_descriptor(heap.memory().descriptor());
  }
  /// Returns the process id of the peer, as the kernel reports it.
  pid_t peer_process() const { return pipe_->peer_process(); }
  bool is_peer_stopped() const { return is_open() && pipe_->is_peer_stopped(); }
  /// Returns whether the peer's process has ended, which means that it no longer accesses shared
  /// memory.
  bool has_peer_exited() const { return peer_closed_ || (pipe_ && pipe_->has_peer_exited()); }

  /// Ends the connection. Called when this rank has no more memory, when the peer has left too many
  /// frames unread, or because of a fault of the peer (see `pipe_handler::abort`). In all cases,
  /// this rank may be unable to complete a frame that it has partly written. The caller may be a
  /// destructor or be iterating over a list, so `abort` does not call `connection_owner::lost`
  /// itself. Instead, it posts a completion, which calls `lost` after `abort` has returned.
  COLLS_ONCE void abort(const char* fault = nullptr) override;
  /// Calls `connection_owner::lost` now if `abort` has posted a completion that has not run yet.
  /// Called before the transport looks up why an operation on this connection must fail.
  void report_if_aborted();
  /// Returns whether the peer's host has stopped acknowledging data (see `pipe::is_silent`).
  bool is_silent(time_point now) { return is_open() && pipe_->is_silent(now); }

  void shut_writing() { pipe_->shut_writing(); }

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
              &aborted.scheduler_.queue()),
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
  void report_lost(errc code, const char* message, bool proved = false);
  void report_abort();

  void note_sequence(const header& frame) {
    latest_communicator_ = frame.communicator;
    latest_sequence_ = frame.sequence;
  }

  // ---- called by the pipe

  bool take_next() override { return owner_.direct != nullptr && owner_.direct->take_next(*this); }
  bool begin(const header& frame, const std::byte* payload) override {
    const bool has_payload = frame.kind == kind::data && (frame.flags & flag::rts) == 0;
    if (frame.hash != 0 && frame.kind <= kind::announce) note_sequence(frame);
    target_.begin(has_payload ? frame.length : 0);
    try {
      owner_.received(*this, frame, payload);
    } catch (const std::bad_alloc&) {
      abort();
    }
    if (has_payload && frame.length == 0) target_.end();
    return is_open() && !ended_;
  }
  // Ends the connection because of an invalid frame, and tells the peer why.
  COLLS_ONCE void refuse(const char* fault) override;
  COLLS_ONCE void ended(int system_error) override;
  // If the owner throws `std::bad_alloc`, this rank does not use the peer's heap.
  COLLS_ONCE void heap_received(detail::descriptor heap) override;

  // Called when the pipe shows that the connection has ended. Returns whether this rank
  // should read a report from the store before it handles the end of the connection. The report may
  // contain the reason why the peer has failed. This rank may not know the reason yet, because the
  // last frames of the peer may be lost. If the function returns true, the caller does nothing, and
  // the next read shows the end of the connection again. The function returns true for at most
  // 100 ms.
  bool awaits_explanation();

  scheduler& scheduler_;
  connection_owner& owner_;
  int peer_;
  std::string address_;
  bool is_open_ = false;
  bool goodbye_received_ = false;
  bool ended_ = false;
  bool peer_closed_ = false;
  const char* fault_ = nullptr;  // of the peer, for which this rank has aborted the connection
  bool refused_ = false;         // this rank has ended the connection because of a fault
  time_point end_seen_ = never;  // when the end was first seen, while its report is delayed

  // The communicator and the sequence number of the peer's latest frame of a collective.
  std::uint32_t latest_communicator_ = 0;
  std::uint64_t latest_sequence_ = 0;

  send_queue send_queue_;
  payload_target target_;
  abort_report abort_report_;
  pipe_pointer pipe_;  // kept after the connection has ended, because its functions may be running
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

inline void unexpected_frame::discard() noexcept {
  connection& from = *conn;
  try {
    if (!buffered)
      from.control(make_header(interprocess::kind::cts, key, number, hash, flag::discarded));
  } catch (const std::bad_alloc&) {
    from.abort();
  }
  try {
    drop();
    from.flush();
  } catch (const std::bad_alloc&) {
    from.abort();
  }
}

}  // namespace colls::interprocess

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/connection.ipp>
#endif
