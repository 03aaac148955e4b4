// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// pipe: the seam between the protocol and what moves its frames. A pipe is one open connection of a
// carrier (see carrier.hpp). It writes the frames of a `send_queue`, and reads frames whose
// payloads it passes to a `payload_target`.

#include <colls/base/function_ref.hpp>
#include <colls/os/descriptor.hpp>
#include <colls/transport/interprocess/payload_target.hpp>
#include <colls/transport/interprocess/send_queue.hpp>

#include <sys/types.h>

namespace colls::interprocess {

/// The interface through which a pipe reports what arrives. A function may close the pipe, but must
/// not destroy it.
class pipe_handler {
 public:
  /// Called before the pipe processes an arriving frame. The handler may receive the frame by
  /// `pipe::try_receive`, and must then return true.
  virtual bool take_next() = 0;
  /// Called when the pipe has read the header of a frame. If the frame is a control frame,
  /// `payload` points to its payload, which is complete. If the frame is a message, the pipe reads
  /// the payload after this call. Returns false if the connection has ended.
  virtual bool begin(const header& frame, const std::byte* payload) = 0;
  /// Called when the peer has sent an invalid frame. `fault` says what is wrong with the frame.
  virtual void refuse(const char* fault) = 0;
  /// Called when the peer has closed its end of the pipe, or when the pipe has failed with the
  /// error number `system_error`, which is 0 in the former case. If the handler does not close the
  /// pipe, the next poll calls this function again.
  virtual void ended(int system_error) = 0;
  /// Called when the pipe cannot go on: there is no memory for the rest of a frame that it has
  /// begun to write, or, if `fault` is not null, for that reason, which is the peer's.
  virtual void abort(const char* fault = nullptr) = 0;
  /// Called when the peer has passed the descriptor of its shared heap. `heap` is empty if this
  /// process could not receive the descriptor.
  virtual void heap_received(detail::descriptor heap) = 0;

 protected:
  ~pipe_handler() = default;
};

/// What a pipe can do. These properties do not change.
struct pipe_properties {
  /// The scheduler does not report frames that arrive. Polls find them, and cost no system call.
  bool is_polled = false;
  /// Payloads lie in memory from which a reduction can read them piece by piece.
  bool reads_in_place = false;
  /// The peer runs on this host and can map memory of this rank.
  bool shares_memory = false;
  /// The length of the longest message that `try_receive` can receive.
  std::size_t max_try_receive = 0;
};

/// An open connection of a carrier, which moves frames between two processes. No function waits for
/// the peer.
class pipe {
 public:
  explicit pipe(const pipe_properties& properties) : properties_(properties) {}
  pipe(const pipe&) = delete;
  pipe& operator=(const pipe&) = delete;
  virtual ~pipe() = default;

  const pipe_properties& properties() const { return properties_; }

  /// Starts to move frames: writes those of `queue`, reports those that arrive to `handler`, and
  /// passes their payloads to `target`. Throws if this process lacks a resource.
  void attach(pipe_handler& handler, send_queue& queue, payload_target& target) {
    handler_ = &handler;
    queue_ = &queue;
    target_ = &target;
    start();
  }
  /// Ends the pipe. Afterwards it neither reads nor writes. If `observes_peer` is true, the peer
  /// can still read what was written, and `has_peer_exited` still finds out whether the peer's
  /// process has ended.
  virtual void close(bool observes_peer) = 0;
  /// Tells the peer that this rank will write no more frames.
  virtual void shut_writing() = 0;

  /// Writes as many queued frames as possible. Returns whether anything was written.
  virtual bool flush() = 0;
  /// Writes a message although it is not queued. The queue must be empty. Returns false and writes
  /// nothing if there is no room.
  virtual bool try_send(const header& frame, const_bytes message) = 0;

  /// Reads the frames that have arrived. A polled pipe also writes queued frames. Returns whether
  /// there was any progress.
  virtual bool poll() = 0;
  /// Receives the message with the header `expected` into `out` if this message is the next frame
  /// and has arrived completely. No payload may be incomplete. Returns whether the message was
  /// received.
  virtual bool try_receive(const header& expected, std::byte* out) = 0;

  /// Sets whether the scheduler reports frames that arrive on a pipe that is not polled. If
  /// `enabled` is false, the caller must poll.
  virtual void report_arrivals(bool enabled) { (void)enabled; }
  /// Called before this thread sleeps. Makes sure that an event wakes the thread when a frame
  /// arrives. Returns false if a frame has arrived or was written. The thread must then not sleep.
  virtual bool arm() { return true; }
  virtual void disarm() {}
  /// Wakes the peer if it sleeps and has something to read or can write again.
  virtual void wake_peer() {}

  // A pipe may move long payloads by itself: it takes sends with a CTS from the queue
  // (`send_queue::take_first`) and receives from the target (`payload_target::hand_over`), uses
  // their memory, and completes them in any order.

  /// Calls `visit(send)` for every send that the pipe has taken.
  virtual void for_each_send(function_ref<void(posted_send&)> visit) { (void)visit; }
  /// Returns whether anything that the pipe has taken from the queue is still in motion.
  virtual bool is_sending() const { return false; }
  /// Called when a send that the pipe has taken is withdrawn. Afterwards nothing reads its memory.
  /// Waits up to 200 ms for what is in motion, and then ends the pipe.
  virtual void withdraw(posted_send& send) { (void)send; }
  /// Returns whether the pipe receives a payload for the operation `record`.
  virtual bool is_receiving(const operation_record& record) const {
    (void)record;
    return false;
  }
  /// Fails, with the error `ec`, the receives that the pipe has taken and for which `matches`
  /// returns true.
  virtual void fail_receives(std::error_code ec,
                             function_ref<bool(const posted_receive&)> matches) {
    (void)ec, (void)matches;
  }

  /// Returns whether this rank has data in flight and the peer's host has acknowledged nothing for
  /// 5 s. The caller must call this function at least once per second.
  virtual bool is_silent(time_point now) {
    (void)now;
    return false;
  }
  /// Returns whether the peer's process has ended, if the pipe can tell.
  virtual bool has_peer_exited() const { return false; }
  /// Returns whether a signal or a debugger has stopped the peer's process, if the pipe can tell.
  virtual bool is_peer_stopped() const { return false; }
  /// Passes a descriptor to the peer, if memory can be shared.
  virtual std::error_code pass_descriptor(int fd) {
    (void)fd;
    return std::make_error_code(std::errc::not_supported);
  }
  /// Returns the process id of the peer, or 0 if it is unknown.
  virtual pid_t peer_process() const { return 0; }

 protected:
  virtual void start() = 0;

  pipe_handler& handler() { return *handler_; }
  send_queue& queue() { return *queue_; }
  payload_target& target() { return *target_; }

 private:
  pipe_properties properties_;
  pipe_handler* handler_ = nullptr;
  send_queue* queue_ = nullptr;
  payload_target* target_ = nullptr;
};

}  // namespace colls::interprocess
