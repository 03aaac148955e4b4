// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// send_queue: what a connection has still to write, in which order, and how much is written.

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

/// A send that has started and not ended.
struct posted_send : key_table_node {
  checked_header frame;
  const std::byte* data = nullptr;
  std::size_t size = 0;
  operation_record* record = nullptr;
  completion* done = nullptr;
  connection* conn = nullptr;
  std::error_code ec;
  std::size_t written = 0;  // of header and payload
  bool awaits_cts = false;
  bool is_blocked = false;   // behind other sends of its key: its RTS may not go yet
  bool is_deferred = false;  // blocked because too many RTS are pending
  bool queued = false;
  bool is_rts_only = false;  // only its RTS is queued
  bool rts_sent = false;
  bool is_tombstone = false;  // of a cancelled send: absorbs the CTS that may be on its way
  std::uint64_t number = 0;   // of its RTS, counted per connection from 1
  posted_send* next_queued = nullptr;  // in the send queue

  bool is_pending() const { return awaits_cts || queued; }
  /// Nothing of it has left.
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

/// A queue of bytes. Removing some does not move the rest each time.
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

/// Limits on queued control frames, in bytes, for a peer that does not read. Beyond the first limit
/// frames that are repeated anyway (announcements and reports) are dropped. Beyond the second the
/// connection ends. Only answers to a peer that sends and does not read reach it: the frames that a
/// rank sends of its own accord, such as CTS, stay far below.
inline constexpr std::size_t max_unread_repeated = std::size_t{1} << 20;
inline constexpr std::size_t max_unread = std::size_t{64} << 20;

/// The frames that a connection has to write. Order: the rest of a withdrawn frame, the rest of the
/// first send if it has begun, control frames, the other sends. A frame that has begun is always
/// written completely.
class send_queue {
 public:
  send_queue() = default;
  send_queue(const send_queue&) = delete;
  send_queue& operator=(const send_queue&) = delete;

  /// Enables checksums for all frames, the queued ones included.
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

  /// Whether `control` failed because too much is unread, rather than for lack of memory.
  bool is_too_much_unread() const { return too_much_unread_; }
  /// Discards what is queued, apart from sends; nothing is written any more.
  void end() {
    ended_ = true;
    tail_.clear();
    control_.clear();
  }

  /// Queues a control frame. False: there is no memory for it, or too much is unread; nothing can
  /// be written any more.
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

  /// Queues a send, or, with `rts_only`, only its RTS. False: another send is before it.
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
  /// Whether `write()` writes all of `send`. Then its start reports the end, and no completion is
  /// posted.
  template <class Write>
  bool ends_at_once(posted_send& send, Write write) {
    starting_ = &send;
    write();
    return std::exchange(starting_, nullptr) == nullptr;
  }

  /// Removes a queued send. The rest of a partly written frame is copied and still goes out, since
  /// the peer has its length. False: there is no memory for the copy, so nothing can be written any
  /// more.
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

  /// Queues all but the first `done` bytes of a frame whose beginning was written directly. False:
  /// as for `withdraw`.
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
  /// Ends the sends for which `matches(send)`. False: as for `withdraw`.
  template <class Predicate>
  [[nodiscard]] bool fail(std::error_code ec, Predicate matches) {
    bool is_writable = true;
    for (posted_send* send = first_; send != nullptr;) {
      posted_send* const following = send->next_queued;
      if (matches(*send)) {
        is_writable &= withdraw(*send);
        if (starting_ == send) starting_ = nullptr;
        if (!send->is_rts_only) send->finish(ec);  // else flow control ends it
      }
      send = following;
    }
    return is_writable;
  }

  // ---- writing

  /// Fills `parts` with what a socket may be given next; returns how many are filled.
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

  /// A frame to be written, or, with a header of kind 0, more payload of the previous frame.
  struct piece {
    header frame;
    const std::byte* data = nullptr;
    std::size_t size = 0;  // of payload
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

  /// `size` bytes of the payload of `front()` were written, and its header.
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

  /// `sent` bytes were written, headers included.
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

  // Each message on a failed communicator is answered by a revoke. A revoke equal to the last one
  // is dropped while the last one is still queued.
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

  // Whether `front()` is of the first send, if there is no tail.
  bool is_send_at_front() const {
    return first_ != nullptr && (first_->written > 0 || control_.empty());
  }

  // An RTS gets its number when its first byte is written.
  void count(posted_send& send, std::size_t size) {
    if (send.is_rts_only && send.written == 0 && size > 0) send.number = ++rts_count_;
    send.written += size;
  }
  // All of the first send is written.
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

  std::size_t header_bytes_ = sizeof(header);  // with the checksums behind it
  byte_queue tail_;
  byte_queue control_;
  std::uint64_t control_total_ = 0;  // bytes of control frames ever queued
  std::uint64_t last_revoke_ = 0;    // 1 + offset of the last revoke among them; 0: none
  posted_send* first_ = nullptr;
  posted_send* last_ = nullptr;
  posted_send* starting_ = nullptr;  // its start() is on the stack
  std::uint64_t rts_count_ = 0;
  bool ended_ = false;
  bool too_much_unread_ = false;
};

}  // namespace colls::interprocess
