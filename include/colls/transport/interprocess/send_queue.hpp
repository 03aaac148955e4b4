// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// send_queue: holds the frames that a connection still has to write, and tracks how much of each
// frame has been written. RTS (request to send), CTS (clear to send) and control frames are
// explained in frame.hpp.

#include <colls/base/buffer.hpp>
#include <colls/matching/operation_record.hpp>
#include <colls/matching/payload_source.hpp>
#include <colls/os/crc32c.hpp>
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
  payload_source* source = nullptr;  // if not null, in place of `data`
  std::size_t size = 0;
  operation_record* record = nullptr;
  completion* done = nullptr;
  connection* conn = nullptr;
  std::error_code ec;
  std::size_t written = 0;  // the bytes of the header and the payload written so far
  bool awaits_cts = false;
  bool is_blocked = false;   // waits behind other sends of its key; its RTS may not be sent yet
  bool is_deferred = false;  // blocked because too many RTS are pending
  bool queued = false;
  bool is_rts_only = false;  // its RTS is queued, without the payload
  bool rts_sent = false;
  bool is_moved_by_pipe = false;  // no longer queued: the pipe moves the payload and completes it
  bool is_tombstone = false;      // stands for a cancelled send; absorbs the CTS that may come
  std::uint64_t number = 0;       // the number of its RTS, counted per connection from 1
  posted_send* next_queued = nullptr;  // the next send in the queue

  bool is_pending() const { return awaits_cts || queued || is_moved_by_pipe; }
  /// Returns true if no byte of the message has been written and no CTS for the message has
  /// arrived. An RTS does not count as a part of the message.
  bool is_untouched() const {
    return awaits_cts || (queued && written == 0 && (frame.flags & flag::cleared) == 0);
  }
  std::size_t body() const { return is_rts_only ? 0 : size; }
  /// Returns the bytes of the payload from `offset` on that are contiguous in memory.
  const_bytes payload(std::size_t offset) const {
    if (source == nullptr) return {data + offset, body() - offset};
    return offset < body() ? source->at(offset) : const_bytes();
  }
  void set_checksums() {
    if (source == nullptr || is_rts_only) return frame.set_checksums(data, body());
    std::uint32_t sum = 0;
    source->for_each_piece([&sum](std::size_t, const_bytes piece) {
      sum = detail::crc32c(sum, piece.data, piece.size);
    });
    frame.set_checksums(sum);
  }
  void finish(std::error_code result = {}) {
    if (!result) record->bytes += size;
    complete(result);
  }
  /// Completes a send whose bytes have been counted, or that has failed.
  void complete(std::error_code result = {}) {
    conn = nullptr;
    is_moved_by_pipe = false;
    ec = result;
    done->post();
  }
};

/// A queue of bytes. Removing bytes from its front does not move the remaining bytes.
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

/// Limits, in bytes, on the control frames that are queued for a peer that does not read them. If
/// more than `max_unread_repeated` bytes are queued, the queue drops each new frame of the kind
/// `announce` or `report`, because this rank sends such frames repeatedly. If more than
/// `max_unread` bytes are queued, this rank aborts the connection. The queue can reach `max_unread`
/// only if the peer keeps sending frames that this rank must answer and does not read the answers.
/// The other control frames of this rank, such as CTS, add up to far less than this limit.
inline constexpr std::size_t max_unread_repeated = std::size_t{1} << 20;
inline constexpr std::size_t max_unread = std::size_t{64} << 20;

/// The frames that a connection has to write, in this order: the rest of a partly written frame
/// that belongs to no queued send, the rest of the first send if it is partly written, the control
/// frames, and the other sends. If a send is withdrawn after a part of its frame was written, the
/// rest of that frame stays in the queue.
class send_queue {
 public:
  send_queue() = default;
  send_queue(const send_queue&) = delete;
  send_queue& operator=(const send_queue&) = delete;

  /// Enables checksums for all frames, including the queued ones.
  void add_checksums() {
    header_bytes_ = sizeof(checked_header);
    for_each([](posted_send& send) { send.set_checksums(); });
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

  /// Returns true if `control` has failed because the peer has left too many bytes unread. If
  /// `control` has failed and this function returns false, the cause was a lack of memory.
  bool is_too_much_unread() const { return too_much_unread_; }
  /// Discards all queued frames that do not belong to a queued send. After this call, `control`
  /// does nothing and returns true.
  void end() {
    ended_ = true;
    tail_.clear();
    control_.clear();
  }

  /// Queues a control frame and returns true. If an equal revoke is already queued, or if the limit
  /// `max_unread_repeated` applies to the frame and has been exceeded, drops the frame and also
  /// returns true. Returns false if there is no memory for the frame, or if the peer has left more
  /// than `max_unread` bytes unread. The caller must then end the connection.
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

  /// Queues a send, or only its RTS if `rts_only` is true. Returns whether the send is the first
  /// one in the queue.
  bool push(posted_send& send, bool rts_only = false) {
    send.queued = true;
    send.is_rts_only = rts_only;
    send.written = 0;
    send.next_queued = nullptr;
    if (has_checksums()) send.set_checksums();
    (last_ != nullptr ? last_->next_queued : first_) = &send;
    last_ = &send;
    return first_ == &send;
  }
  /// Calls `write()`, which writes queued frames. Returns true if `send` has completed during this
  /// call. If all of `send` was written, the queue does not post the completion of `send`, because
  /// the return value already tells the caller that the send has completed.
  template <class Write>
  bool ends_at_once(posted_send& send, Write write) {
    starting_ = &send;
    write();
    return std::exchange(starting_, nullptr) == nullptr;
  }

  /// Removes a queued send. If a part of its frame has been written, queues a copy of the rest,
  /// because the peer expects the whole frame. Returns false if there is no memory for the copy.
  /// The caller must then end the connection.
  [[nodiscard]] bool withdraw(posted_send& send) {
    if (!std::exchange(send.queued, false)) return true;
    posted_send* before = nullptr;
    for (posted_send* s = first_; s != &send; s = s->next_queued) before = s;
    (before != nullptr ? before->next_queued : first_) = send.next_queued;
    if (last_ == &send) last_ = before;
    return send.written == 0 || ended_ || copy_rest(send, send.written);
  }

  /// Queues all but the first `done` bytes of a frame whose beginning was written past this queue.
  /// Returns false if there is no memory for these bytes. The caller must then end the
  /// connection.
  [[nodiscard]] bool append_rest(const header& frame, const_bytes message, std::size_t done) {
    posted_send begun;
    begun.frame = frame;
    begun.data = message.data;
    begun.size = message.size;
    if (has_checksums()) begun.set_checksums();
    return copy_rest(begun, done);
  }

  template <class Visit>
  void for_each(Visit visit) const {
    for (posted_send* send = first_; send != nullptr; send = send->next_queued) visit(*send);
  }
  /// Withdraws the queued sends for which `matches(send)` returns true, and fails them with the
  /// error `ec`. Returns false if there is no memory for the rest of a partly written frame. The
  /// caller must then end the connection.
  template <class Predicate>
  [[nodiscard]] bool fail(std::error_code ec, Predicate matches) {
    bool is_writable = true;
    for (posted_send* send = first_; send != nullptr;) {
      posted_send* const following = send->next_queued;
      if (matches(*send)) {
        is_writable &= withdraw(*send);
        if (starting_ == send) starting_ = nullptr;
        if (!send->is_rts_only) send->finish(ec);  // otherwise `flow_control` finishes it
      }
      send = following;
    }
    return is_writable;
  }

  // ---- writing

  /// Fills the first elements of `parts` with the addresses and sizes of the bytes that must be
  /// written next. Returns the number of these elements.
  int gather(std::span<iovec> parts) const {
    std::size_t count = 0;
    const auto add = [&](const std::byte* data, std::size_t size) {
      if (size != 0) parts[count++] = {const_cast<std::byte*>(data), size};
    };
    // Adds the rest of a send. Returns false if the send has more bytes, which must go first.
    const auto add_send = [&](const posted_send& send) {
      return send.written + append_part(send, send.written, add) == frame_bytes(send);
    };
    add(tail_.data(), tail_.size());
    const posted_send* send = first_;
    bool is_complete = true;
    if (send != nullptr && send->written > 0) {
      is_complete = add_send(*send);
      send = send->next_queued;
    }
    if (is_complete) add(control_.data(), control_.size());
    for (; send != nullptr && is_complete && count + 2 <= parts.size(); send = send->next_queued) {
      is_complete = add_send(*send);
    }
    return static_cast<int>(count);
  }

  /// The bytes that must be written next. These are the header `frame` and the payload of the
  /// frame. If the kind of `frame` is 0, there is no header, and the bytes are the rest of the
  /// payload of a frame whose header has already been written.
  struct piece {
    header frame;
    const std::byte* data = nullptr;
    std::size_t size = 0;  // the number of payload bytes that are contiguous in memory
  };
  piece front() const {
    if (!tail_.empty()) return {{}, tail_.data(), tail_.size()};
    if (is_send_at_front()) {
      const bool begins = first_->written == 0;
      const const_bytes rest = first_->payload(begins ? 0 : first_->written - header_bytes_);
      return {begins ? first_->frame : header(), rest.data, rest.size};
    }
    piece next;
    std::memcpy(&next.frame, control_.data(), sizeof next.frame);
    next.data = control_.data() + sizeof next.frame;
    next.size = control_size(next.frame);
    return next;
  }

  /// Returns whether the bytes to write next are those of a send with a CTS and more than `limit`
  /// bytes.
  bool is_next_longer_than(std::size_t limit) const {
    return tail_.empty() && is_send_at_front() && first_->written == 0 && first_->size > limit &&
           (first_->frame.flags & flag::cleared) != 0;
  }
  /// Removes the first send from the queue and returns it. The caller moves the payload by itself,
  /// and then calls `posted_send::finish`.
  posted_send& take_first() {
    posted_send& send = *first_;
    first_ = send.next_queued;
    if (first_ == nullptr) last_ = nullptr;
    send.queued = false;
    send.is_moved_by_pipe = true;
    return send;
  }

  /// Records that the first `size` payload bytes of `front()` were written. If `front()` has a
  /// header, records that the header was written as well.
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

  /// Records that the next `sent` bytes of the queue, headers included, were written.
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

  // Returns whether the frame is a revoke that is equal to the last queued revoke. Returns false if
  // a part of that queued revoke has already been written. Without this check, many equal revokes
  // could be queued, because a rank answers each message on a failed communicator with a revoke.
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
  // Queues a copy of all but the first `done` bytes of the frame of `send`. Returns false if there
  // is no memory for these bytes.
  bool copy_rest(const posted_send& send, std::size_t done) {
    const std::size_t size = frame_bytes(send);
    try {
      tail_.reserve(size - done);
    } catch (const std::bad_alloc&) {
      return false;
    }
    const auto add = [this](const std::byte* data, std::size_t n) { tail_.append(data, n); };
    while (done < size) done += append_part(send, done, add);
    return true;
  }
  // Calls `add(data, size)` for the next bytes of the frame of `send`, of which `done` bytes have
  // been written: the rest of the header, and the payload bytes that are contiguous in memory.
  // Returns the number of these bytes.
  template <class Add>
  std::size_t append_part(const posted_send& send, std::size_t done, const Add& add) const {
    const std::size_t head = done < header_bytes_ ? header_bytes_ - done : 0;
    if (head != 0) add(reinterpret_cast<const std::byte*>(&send.frame) + done, head);
    const const_bytes payload = send.payload(done + head - header_bytes_);
    add(payload.data, payload.size);
    return head + payload.size;
  }

  // Returns whether `front()` returns a piece of the first queued send, not of a control frame.
  // `tail_` must be empty.
  bool is_send_at_front() const {
    return first_ != nullptr && (first_->written > 0 || control_.empty());
  }

  // Records that `size` more bytes of the frame of `send` were written. If the frame is an RTS and
  // these are its first bytes, assigns the next RTS number of this connection to the RTS.
  void count(posted_send& send, std::size_t size) {
    if (send.is_rts_only && send.written == 0 && size > 0) send.number = ++rts_count_;
    send.written += size;
  }
  // Removes `send` from the queue. Completes `send` unless only its RTS was queued. `send` must be
  // the first send of the queue, and its frame must have been written completely.
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
  byte_queue tail_;  // the rest of a partly written frame that belongs to no queued send
  byte_queue control_;
  std::uint64_t control_total_ = 0;  // the bytes of all control frames ever queued
  std::uint64_t last_revoke_ = 0;    // 1 + the offset of the last revoke in these bytes, or 0
  posted_send* first_ = nullptr;
  posted_send* last_ = nullptr;
  posted_send* starting_ = nullptr;  // the send that `ends_at_once` is writing
  std::uint64_t rts_count_ = 0;
  bool ended_ = false;
  bool too_much_unread_ = false;
};

}  // namespace colls::interprocess
