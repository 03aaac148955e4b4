// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// payload_target: the destination to which a connection delivers the payload that it is reading.

#include <colls/coroutine/frame_cache.hpp>
#include <colls/matching/tag_matcher.hpp>
#include <colls/os/crc32c.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

namespace colls::interprocess {

class connection;

/// A message that arrived before its receive was posted. It is either an eager message, whose
/// payload of at most `eager_limit` bytes is stored directly after this object, or the RTS (request
/// to send) of a message that waits for a CTS (clear to send).
struct unexpected_frame final : unexpected_message {
  connection* conn = nullptr;
  posted_receive* receive = nullptr;  // the receive, if posted before all of the payload arrived
  std::size_t filled = 0;
  std::uint64_t number = 0;  // the number of a point-to-point RTS, counted per connection from 1
  std::byte* bytes() { return reinterpret_cast<std::byte*>(this + 1); }
  void drop() override;
  void discard() noexcept override;

  static unexpected_frame* make(std::size_t size) {
    void* const memory = detail::this_thread_frames().allocate(sizeof(unexpected_frame) + size);
    auto* const result = new (memory) unexpected_frame;
    result->room_ = size;
    return result;
  }
  static void free(unexpected_frame* message);

 private:
  std::size_t room_ = 0;
};

/// The destination to which a connection delivers the payload that it is reading. The payload goes
/// to the buffer of a receive, to the reduction of a receive, or to an unexpected message, or it is
/// discarded. If the receive or the unexpected message is withdrawn while the payload arrives, the
/// rest of the payload is discarded.
class payload_target final : public payload_writer {
 public:
  explicit payload_target(tag_matcher& matcher) : matcher_(matcher) {}
  payload_target(const payload_target&) = delete;
  payload_target& operator=(const payload_target&) = delete;
  ~payload_target() { release_gathered(); }

  /// The largest size, in bytes, of an element that is folded in place. Larger elements are
  /// gathered in scratch memory before they are folded.
  static constexpr std::size_t max_in_place_granularity = 4096;

  /// Prepares this object for the payload of the next frame, which has `size` bytes. If the caller
  /// does not call `deliver_to` before the payload arrives, the payload is discarded.
  void begin(std::size_t size) {
    left_ = size;
    delivered_ = 0;
    checked_ = false;
    next_ = nullptr;
    receive_ = nullptr;
    unexpected_ = nullptr;
  }
  /// Sets the checksum that the payload must have. If the payload turns out to have a different
  /// checksum, this object does not complete the receive, and `is_damaged` returns true.
  void expect(std::uint32_t sum) {
    checked_ = true;
    expected_ = sum;
    sum_ = 0;
  }
  /// Returns whether the payload is complete and its checksum is wrong.
  bool is_damaged() const { return is_damaged_; }
  /// Makes `receive` the destination of the payload. If `receive` has a fold function, that is, if
  /// the payload is reduced or copied to elements that are not contiguous, each piece of the
  /// payload is normally folded as soon as it arrives. However, if `in_place` is false, or if an
  /// element is longer than `max_in_place_granularity` bytes, pieces of the payload are first
  /// gathered in scratch memory. Fails `receive` if there is no scratch memory.
  void deliver_to(posted_receive& receive, bool in_place) {
    next_ = receive.data;
    if (receive.fold != nullptr && (!in_place || receive.granularity > max_in_place_granularity)) {
      gathered_bytes_ = std::min(receive.received, gathered_piece_bytes(receive.granularity));
      gathered_ = matcher_.acquire_scratch(gathered_bytes_);
      if (gathered_.memory == nullptr) return fail_for_memory(receive);
      next_ = static_cast<std::byte*>(gathered_.memory);
    }
    receive_ = &receive;
    receive.writer = this;
  }
  void deliver_to(unexpected_frame& message) {
    unexpected_ = &message;
    next_ = message.bytes();
  }
  /// Pairs `receive` with `message`, of which only a part has arrived. `receive` completes when the
  /// rest of `message` has arrived.
  void complete_later(unexpected_frame& message, posted_receive& receive) {
    message.receive = &receive;
    receive.writer = this;
  }

  /// If all of the current payload goes to contiguous memory of a receive, passes that receive to
  /// `writer`, which then writes the payload and completes the receive. Afterwards this object has
  /// no payload. Otherwise returns null.
  posted_receive* hand_over(payload_writer& writer) {
    if (receive_ == nullptr || next_ == nullptr || gathered_.memory != nullptr) return nullptr;
    posted_receive* const receive = std::exchange(receive_, nullptr);
    receive->writer = &writer;
    begin(0);
    return receive;
  }

  /// Returns false if the current payload is discarded.
  bool has_destination() const { return receive_ != nullptr || unexpected_ != nullptr; }
  /// Returns the number of payload bytes that have not arrived.
  std::size_t left() const { return left_; }
  /// Returns the address to which the caller may write the next bytes of the payload. The caller
  /// must call `filled` after it has written bytes there. Returns null if the payload is folded in
  /// place or discarded. The caller must then pass bytes that are folded to `take`, and may pass
  /// bytes that are discarded to `filled`.
  std::byte* room() const { return next_; }
  /// Returns how many bytes may be written to the address that `room()` returns.
  std::size_t room_size() const {
    if (gathered_.memory == nullptr) return left_;
    return std::min(left_, static_cast<std::size_t>(gathered_begin() + gathered_bytes_ - next_));
  }
  /// Records that the next `size` payload bytes have arrived. `source` is their address. If
  /// `room()` is not null, the caller must already have written the bytes to the address that
  /// `room()` returns. If `room()` is null, the bytes are discarded.
  void filled(const std::byte* source, std::size_t size) {
    if (next_ != nullptr) next_ += size;
    note(source, size);
  }
  /// Returns how many of the next `size` payload bytes the caller may pass to `take` now. A
  /// reduction in place accepts only whole elements, so the bytes of an incomplete element must
  /// wait until the rest of the element has arrived.
  std::size_t acceptable(std::size_t size) const {
    const std::size_t next = std::min(size, left_);
    const bool in_place = next_ == nullptr && receive_ != nullptr;
    return in_place && next < left_ ? next - (delivered_ + next) % receive_->granularity : next;
  }
  void take(const std::byte* source, std::size_t size) {
    while (size > 0) {
      std::size_t part = size;
      if (next_ != nullptr) {
        part = std::min(size, room_size());
        std::memcpy(next_, source, part);
      } else if (receive_ != nullptr) {
        receive_->fold(receive_->fold_context, delivered_, source, size);
      }
      filled(source, part);
      source += part;
      size -= part;
    }
  }
  /// Completes the receive that the payload belongs to, if there is such a receive. Called when all
  /// of the payload has arrived.
  void end() {
    if (posted_receive* const receive = std::exchange(receive_, nullptr)) {
      receive->writer = nullptr;
      release_gathered();
      receive->done->post();
    }
    if (unexpected_frame* const message = std::exchange(unexpected_, nullptr)) {
      if (posted_receive* const receive = message->receive) {
        receive->accept(message->bytes(), message->size, message->key.peer);
        message->drop();
        receive->finish();
      }
    }
    next_ = nullptr;
  }

  void abandon(posted_receive& receive) override {
    if (receive_ == &receive) {
      receive_ = nullptr;
      next_ = nullptr;
      release_gathered();
    }
    // The matcher removes an unexpected message from its queue when it pairs the message with a
    // receive. No queue refers to the message after that, so the message is freed here.
    if (unexpected_ != nullptr && unexpected_->receive == &receive) {
      next_ = nullptr;
      std::exchange(unexpected_, nullptr)->drop();
    }
  }
  void forget(unexpected_frame& message) {
    if (unexpected_ == &message) unexpected_ = nullptr, next_ = nullptr;
  }
  /// Returns whether the current payload belongs to a receive of the operation that `record`
  /// describes.
  bool is_for(const operation_record& record) const {
    const posted_receive* const receive = unexpected_ != nullptr ? unexpected_->receive : receive_;
    return receive != nullptr && receive->record == &record;
  }
  /// Fails, with the error `ec`, the receive that the current payload belongs to. Does nothing if
  /// there is no such receive or if `matches(receive)` returns false.
  template <class Predicate>
  void fail(std::error_code ec, Predicate matches) {
    posted_receive* const receive = unexpected_ != nullptr ? unexpected_->receive : receive_;
    if (receive == nullptr || !matches(*receive)) return;
    abandon(*receive);
    receive->finish(ec);
  }

 private:
  // Returns how many bytes are gathered before they are folded. A piece of this size is still in
  // the second cache when it is folded.
  static std::size_t gathered_piece_bytes(std::size_t granularity) {
    constexpr std::size_t piece = 256 * 1024;
    return granularity < piece ? piece - piece % granularity : granularity;
  }

  void note(const std::byte* bytes, std::size_t size) {
    if (size == 0) return;
    if (checked_) {
      sum_ = detail::crc32c(sum_, bytes, size);
      is_damaged_ = size == left_ && sum_ != expected_;
      if (is_damaged_) return;
    }
    if (unexpected_ != nullptr) unexpected_->filled += size;
    if (receive_ != nullptr) receive_->record->bytes += size;
    delivered_ += size;
    left_ -= size;
    if (gathered_.memory != nullptr && (left_ == 0 || room_size() == 0)) fold_gathered();
    if (left_ == 0) end();
  }
  std::byte* gathered_begin() const { return static_cast<std::byte*>(gathered_.memory); }
  // Folds the gathered bytes, which end with byte `delivered_ - 1` of the payload. The reduction
  // may revoke the communicator, and so abandon the receive, while it reads these bytes.
  void fold_gathered() {
    const auto size = static_cast<std::size_t>(next_ - gathered_begin());
    next_ = gathered_begin();
    const tag_matcher::block read = std::exchange(gathered_, {});
    receive_->fold(receive_->fold_context, delivered_ - size, next_, size);
    if (receive_ != nullptr) {
      gathered_ = read;
    } else {
      matcher_.release_scratch(read);
    }
  }
  void release_gathered() {
    if (gathered_.memory != nullptr) matcher_.release_scratch(std::exchange(gathered_, {}));
  }
  void fail_for_memory(posted_receive& receive) {
    matcher_.revoke(*receive.record->communicator, failure(errc::not_enough_memory));
    next_ = nullptr;
    receive.received = 0;
    receive.finish(make_error_code(errc::not_enough_memory));
  }

  tag_matcher& matcher_;
  std::size_t left_ = 0;
  std::size_t delivered_ = 0;
  std::byte* next_ = nullptr;
  tag_matcher::block gathered_;  // scratch memory for bytes that are folded later
  std::size_t gathered_bytes_ = 0;
  posted_receive* receive_ = nullptr;
  unexpected_frame* unexpected_ = nullptr;
  bool checked_ = false;
  bool is_damaged_ = false;
  std::uint32_t expected_ = 0;
  std::uint32_t sum_ = 0;  // the checksum of the bytes that have arrived
};

}  // namespace colls::interprocess
