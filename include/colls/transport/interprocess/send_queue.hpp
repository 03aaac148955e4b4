// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// send_queue: the frames that a connection has still to write, their order, and how much of them is
// written. Frames, RTS (request to send), CTS (clear to send) and control frames are explained in
// frame.hpp.

#include <colls/base/buffer.hpp>
#include <colls/matching/operation_record.hpp>
#include <colls/transport/interprocess/frame.hpp>

#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <span>
#include <utility>
#include <vector>

namespace colls::interprocess {

class connection;

/// A send that has started and has not completed.
struct posted_send : key_table_node {
  checked_header frame;
  const std::byte* data = nullptr;
  std::size_t size = 0;
  operation_record* record = nullptr;
  completion* done = nullptr;
  connection* conn = nullptr;
  std::error_code ec;
  std::size_t written = 0;  // the number of written bytes of header and payload
  bool awaits_cts = false;
  bool is_blocked = false;   // waits behind other sends of its key; its RTS may not be sent yet
  bool is_deferred = false;  // blocked because too many RTS are pending
  bool queued = false;
  bool is_rts_only = false;  // only its RTS is queued
  bool rts_sent = false;
  bool is_tombstone = false;           // stands for a cancelled send and absorbs the CTS on its way
  std::uint64_t number = 0;            // the number of its RTS, counted per connection from 1
  posted_send* next_queued = nullptr;  // the next send in the queue

  bool is_pending() const { return awaits_cts || queued; }
  /// Returns whether no part of the message has left this rank and no CTS has come for the message.
  bool is_untouched() const {
    return awaits_cts || (queued && written == 0 && (frame.flags & flag::cleared) == 0);
  }
  std::size_t body() const { return is_rts_only ? 0 : size; }
  void finish(std::error_code result = {}) {
    conn = nullptr;
    ec = result;
    if (!result) record->bytes += size;
    done->post();
  }
};

/// A queue of bytes. Removing bytes from the front does not move the remaining bytes each time.
class byte_queue {
 public:
  bool empty() const { return begin_ == bytes_.size(); }
  std::size_t size() const { return bytes_.size() - begin_; }
  const std::byte* data() const { return bytes_.data() + begin_; }

  void reserve(std::size_t more) { bytes_.reserve(bytes_.size() + more); }
  void append(const void* source, std::size_t more) {
    if (begin_ > size()) {
      const auto removed = static_cast<std::ptrdiff_t>(std::exchange(begin_, 0));
      bytes_.erase(bytes_.begin(), bytes_.begin() + removed);
    }
    const auto* const bytes = static_cast<const std::byte*>(source);
    bytes_.insert(bytes_.end(), bytes, bytes + more);
  }
  void remove(std::size_t count) {
    begin_ += count;
    if (!empty()) return;
    begin_ = 0;
    bytes_.clear();
    if (bytes_.capacity() > max_kept_capacity) bytes_ = std::vector<std::byte>();
  }
  void clear() { remove(size()); }

 private:
  static constexpr std::size_t max_kept_capacity = 64 * 1024;

  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;
};

/// The limits on queued control frames, in bytes, for a peer that does not read. Above
/// `max_unread_repeated` frames that are repeated anyway (announcements and reports) are dropped.
/// Above `max_unread` the connection ends. Only answers to a peer that sends and does not read can
/// reach `max_unread`, because the frames that a rank sends on its own initiative, such as CTS,
/// stay far below.
inline constexpr std::size_t max_unread_repeated = std::size_t{1} << 20;
inline constexpr std::size_t max_unread = std::size_t{64} << 20;

/// The frames that a connection has to write. They are written in this order: the rest of a
/// withdrawn frame, the rest of the first send if a part of it is written, control frames, the
/// other sends. A frame of which a part is written is always written completely.
class send_queue {
 public:
  send_queue() = default;
  send_queue(const send_queue&) = delete;
  send_queue& operator=(const send_queue&) = delete;

  /// Enables checksums for all frames, including the queued ones.
  void add_checksums() {
    header_bytes_ = sizeof(checked_header);
    for_each([](posted_send& send) { send.frame.set_checksums(send.data, send.body()); });
    byte_queue unchecked;
    std::swap(unchecked, control_);
    while (!unchecked.empty()) {
      header frame;
      std::memcpy(&frame, unchecked.data(), sizeof frame);
      const std::size_t size = control_size(frame);
      add_control(frame, unchecked.data() + sizeof frame, size);
      unchecked.remove(sizeof frame + size);
    }
  }

  bool has_control() const { return !control_.empty(); }
  bool empty() const { return first_ == nullptr && control_.empty() && tail_.empty(); }

  /// Returns whether `control` failed because the peer has left too much unread, and not because of
  /// a lack of memory.
  bool is_too_much_unread() const { return too_much_unread_; }
  /// Discards all queued frames except sends. Nothing is written any more.
  void end() {
    ended_ = true;
    tail_.clear();
    control_.clear();
  }

  /// Queues a control frame. Returns false if there is no memory for the frame or the peer has left
  /// too much unread. Nothing can be written after that.
  [[nodiscard]] bool control(const header& frame, const void* payload) {
    if (ended_) return true;
    const bool is_repeated = frame.kind == kind::announce || frame.kind == kind::report;
    if (is_repeated && control_.size() > max_unread_repeated) return true;
    if (is_queued_already(frame, payload)) return true;
    if (control_.size() > max_unread) {
      too_much_unread_ = true;
      end();
      return false;
    }
    try {
      add_control(frame, payload, payload == nullptr ? 0 : control_size(frame));
    } catch (const std::bad_alloc&) {
      end();
      return false;
    }
    return true;
  }

  /// Queues a send, or, if `rts_only` is true, only its RTS. Returns false if another send is
  /// before it in the queue.
  bool push(posted_send& send, bool rts_only = false) {
    send.queued = true;
    send.is_rts_only = rts_only;
    send.written = 0;
    send.next_queued = nullptr;
    if (has_checksums()) send.frame.set_checksums(send.data, send.body());
    (last_ != nullptr ? last_->next_queued : first_) = &send;
    last_ = &send;
    return first_ == &send;
  }
  /// Calls `write()` and returns whether all of `send` was written. If so, the function that starts
  /// the send reports the completion, and no completion is posted.
  template <class Write>
  bool ends_at_once(posted_send& send, Write write) {
    starting_ = &send;
    write();
    return std::exchange(starting_, nullptr) == nullptr;
  }

  /// Removes a queued send. If a part of the frame is written, copies the rest, which is still sent
  /// because the peer knows the length of the frame. Returns false if there is no memory for the
  /// copy. Nothing can be written after that.
  [[nodiscard]] bool withdraw(posted_send& send) {
    if (!std::exchange(send.queued, false)) return true;
    posted_send* before = nullptr;
    for (posted_send* s = first_; s != &send; s = s->next_queued) before = s;
    (before != nullptr ? before->next_queued : first_) = send.next_queued;
    if (last_ == &send) last_ = before;
    if (send.written == 0 || ended_) return true;
    try {
      tail_.reserve(frame_bytes(send) - send.written);
    } catch (const std::bad_alloc&) {
      return false;
    }
    append_rest(send,
                [this](const std::byte* data, std::size_t size) { tail_.append(data, size); });
    return true;
  }

  /// Queues all but the first `done` bytes of a frame whose beginning was written directly. Returns
  /// false if there is no memory for these bytes. Nothing can be written after that.
  [[nodiscard]] bool append_rest(const header& frame, const_bytes message, std::size_t done) {
    try {
      tail_.reserve(header_bytes_ + message.size - done);
    } catch (const std::bad_alloc&) {
      return false;
    }
    checked_header checked;
    checked = frame;
    if (has_checksums()) checked.set_checksums(message.data, message.size);
    append_rest(checked, message.data, message.size, done,
                [this](const std::byte* data, std::size_t size) { tail_.append(data, size); });
    return true;
  }

  template <class Visit>
  void for_each(Visit visit) const {
    for (posted_send* send = first_; send != nullptr; send = send->next_queued) visit(*send);
  }
  /// Fails the sends for which `matches(send)` returns true. Returns false if `withdraw` has
  /// returned false for one of them.
  template <class Predicate>
  [[nodiscard]] bool fail(std::error_code ec, Predicate matches) {
    bool is_writable = true;
    for (posted_send* send = first_; send != nullptr;) {
      posted_send* const following = send->next_queued;
      if (matches(*send)) {
        is_writable &= withdraw(*send);
        if (starting_ == send) starting_ = nullptr;
        if (!send->is_rts_only) send->finish(ec);  // otherwise the flow control finishes it
      }
      send = following;
    }
    return is_writable;
  }

  // ---- writing

  /// Fills `parts` with the bytes that a socket may be given next. Returns how many parts are
  /// filled.
  int gather(std::span<iovec> parts) const {
    std::size_t count = 0;
    const auto add = [&](const std::byte* data, std::size_t size) {
      if (size != 0) parts[count++] = {const_cast<std::byte*>(data), size};
    };
    add(tail_.data(), tail_.size());
    const posted_send* send = first_;
    if (send != nullptr && send->written > 0) {
      append_rest(*send, add);
      send = send->next_queued;
    }
    add(control_.data(), control_.size());
    for (; send != nullptr && count + 2 <= parts.size(); send = send->next_queued) {
      append_rest(*send, add);
    }
    return static_cast<int>(count);
  }

  /// What to write next, which is a frame, or, if the kind of `frame` is 0, more payload of the
  /// previous frame.
  struct piece {
    header frame;
    const std::byte* data = nullptr;
    std::size_t size = 0;  // the number of payload bytes
  };
  piece front() const {
    if (!tail_.empty()) return {{}, tail_.data(), tail_.size()};
    if (is_send_at_front()) {
      if (first_->written == 0) return {first_->frame, first_->data, first_->body()};
      const std::size_t done = first_->written - header_bytes_;
      return {{}, first_->data + done, first_->body() - done};
    }
    piece next;
    std::memcpy(&next.frame, control_.data(), sizeof next.frame);
    next.data = control_.data() + sizeof next.frame;
    next.size = control_size(next.frame);
    return next;
  }

  /// Records that the header of `front()`, if there is one, and `size` bytes of the payload were
  /// written.
  void advance_front(std::size_t size) {
    if (!tail_.empty()) {
      tail_.remove(size);
    } else if (is_send_at_front()) {
      count(*first_, first_->written == 0 ? header_bytes_ + size : size);
      if (first_->written == frame_bytes(*first_)) finish_first(*first_);
    } else {
      control_.remove(header_bytes_ + size);
    }
  }

  /// Records that `sent` bytes were written, headers included.
  void advance(std::size_t sent) {
    const auto take = [&](std::size_t size) {
      const std::size_t part = std::min(sent, size);
      sent -= part;
      return part;
    };
    const auto pop = [&](posted_send& send) {
      count(send, take(frame_bytes(send) - send.written));
      if (send.written < frame_bytes(send)) return false;
      finish_first(send);
      return true;
    };
    tail_.remove(take(tail_.size()));
    if (first_ != nullptr && first_->written > 0 && !pop(*first_)) return;
    control_.remove(take(control_.size()));
    while (sent > 0 && first_ != nullptr) pop(*first_);
  }

 private:
  bool has_checksums() const { return header_bytes_ != sizeof(header); }
  std::size_t frame_bytes(const posted_send& send) const { return header_bytes_ + send.body(); }

  // Returns whether the frame is a revoke and equals the last revoke, which is still queued. The
  // check avoids a queue of many equal revokes, because a rank answers each message on a failed
  // communicator by a revoke.
  bool is_queued_already(const header& frame, const void* payload) const {
    const std::uint64_t written = control_total_ - control_.size();
    if (frame.kind != kind::revoke || last_revoke_ == 0 || last_revoke_ - 1 < written) return false;
    const std::byte* const last = control_.data() + (last_revoke_ - 1 - written);
    return std::memcmp(last, &frame, sizeof frame) == 0 &&
           std::memcmp(last + header_bytes_, payload, control_size(frame)) == 0;
  }

  void add_control(const header& frame, const void* payload, std::size_t size) {
    checked_header checked;
    checked = frame;
    if (has_checksums()) checked.set_checksums(static_cast<const std::byte*>(payload), size);
    control_.append(&checked, header_bytes_);
    if (size != 0) control_.append(payload, size);
    if (frame.kind == kind::revoke) last_revoke_ = control_total_ + 1;
    control_total_ += header_bytes_ + size;
  }
  template <class Add>
  void append_rest(const posted_send& send, const Add& add) const {
    append_rest(send.frame, send.data, send.body(), send.written, add);
  }
  template <class Add>
  void append_rest(const checked_header& frame, const std::byte* data, std::size_t size,
                   std::size_t done, const Add& add) const {
    if (done < header_bytes_) {
      add(reinterpret_cast<const std::byte*>(&frame) + done, header_bytes_ - done);
      add(data, size);
    } else {
      add(data + (done - header_bytes_), size - (done - header_bytes_));
    }
  }

  // Returns whether `front()` is a piece of the first send, given that the tail is empty.
  bool is_send_at_front() const {
    return first_ != nullptr && (first_->written > 0 || control_.empty());
  }

  // Counts `size` more written bytes of a send. An RTS gets its number when its first byte is
  // written.
  void count(posted_send& send, std::size_t size) {
    if (send.is_rts_only && send.written == 0 && size > 0) send.number = ++rts_count_;
    send.written += size;
  }
  // Removes the first send, all of which is written, and completes it unless only its RTS was
  // queued.
  void finish_first(posted_send& send) {
    first_ = send.next_queued;
    if (first_ == nullptr) last_ = nullptr;
    send.queued = false;
    if (std::exchange(send.is_rts_only, false)) return;
    if (starting_ == &send) {
      starting_ = nullptr;
      send.conn = nullptr;
      send.record->bytes += send.size;
    } else {
      send.finish();
    }
  }

  std::size_t header_bytes_ = sizeof(header);  // includes the checksums if they are enabled
  byte_queue tail_;
  byte_queue control_;
  std::uint64_t control_total_ = 0;  // bytes of all control frames queued so far
  std::uint64_t last_revoke_ = 0;    // 1 + offset of the last revoke in these bytes, or 0 if none
  posted_send* first_ = nullptr;
  posted_send* last_ = nullptr;
  posted_send* starting_ = nullptr;  // the send whose start() is on the stack
  std::uint64_t rts_count_ = 0;
  bool ended_ = false;
  bool too_much_unread_ = false;
};

}  // namespace colls::interprocess
