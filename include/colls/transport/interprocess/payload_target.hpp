// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// landing: where the payload of the frame that a link reads goes.

#include <colls/coroutine/frame_cache.hpp>
#include <colls/matching/tag_matcher.hpp>
#include <colls/os/crc32c.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

namespace colls::tcp {

class link;

/// A message that came before its receive, in memory of its own (at most `eager_limit`), or the
/// header of one that waits for a grant.
struct early final : arrival {
  link* from = nullptr;
  posted* wanted = nullptr;  // the receive that took it before all of it had come
  std::size_t filled = 0;
  std::uint64_t number = 0;  // point to point, not buffered: among those that its link announced
  std::byte* bytes() { return reinterpret_cast<std::byte*>(this + 1); }
  void drop() override;

  static early* make(std::size_t size) {
    early* const made = new (detail::this_threads_frames().take(sizeof(early) + size)) early;
    made->room_ = size;
    return made;
  }
  static void free(early* message);

 private:
  std::size_t room_ = 0;
};

/// A receive, its reduction, an early message, or nowhere. Whoever it goes to may leave at any
/// time; the rest of the payload is then thrown away.
class landing final : public filler {
 public:
  explicit landing(match& of) : match_(of) {}
  landing(const landing&) = delete;
  landing& operator=(const landing&) = delete;
  ~landing() { give_gathered(); }

  /// A frame begins: so much payload comes, to nowhere unless `deliver_to` follows.
  void begin(std::size_t size) {
    left_ = size;
    taken_ = 0;
    checked_ = false;
    into_ = nullptr;
    target_ = nullptr;
    early_ = nullptr;
  }
  /// Its payload has to have this checksum, or it never ends.
  void expect(std::uint32_t sum) {
    checked_ = true;
    expected_ = sum;
    sum_ = 0;
  }
  /// All of the payload has come, and it is another.
  bool is_damaged() const { return damaged_; }
  /// `in_place`: a reduction gets the pieces as they come, else all at once.
  void deliver_to(posted& receive, bool in_place) {
    into_ = receive.data;
    if (receive.fold != nullptr && (!in_place || receive.grain > longest_grain)) {
      gathered_ = match_.take_scratch(receive.received);
      if (gathered_.memory == nullptr) return refuse_for_memory(receive);
      into_ = static_cast<std::byte*>(gathered_.memory);
    }
    target_ = &receive;
    receive.held_by = this;
  }
  void deliver_to(early& message) {
    early_ = &message;
    into_ = message.bytes();
  }
  /// A receive took an early message that has not come whole: it is finished when it has.
  void complete_later(early& message, posted& receive) {
    message.wanted = &receive;
    receive.held_by = this;
  }

  /// Payload that has not come.
  std::size_t left() const { return left_; }
  /// Where the next bytes may be put before `filled` tells of them; null: only `take` takes them.
  std::byte* room() const { return into_; }
  /// They lie there, or, if there was no room, at `from`.
  void filled(const std::byte* from, std::size_t size) {
    if (into_ != nullptr) into_ += size;
    note(from, size);
  }
  /// How many of the next `size` bytes it takes now: a reduction takes whole elements, the rest has
  /// to wait until more has come.
  std::size_t takes(std::size_t size) const {
    const std::size_t next = std::min(size, left_);
    const bool in_place = into_ == nullptr && target_ != nullptr;
    return in_place && next < left_ ? next - (taken_ + next) % target_->grain : next;
  }
  void take(const std::byte* from, std::size_t size) {
    if (into_ != nullptr) {
      std::memcpy(into_, from, size);
    } else if (target_ != nullptr) {
      target_->fold(target_->folds, taken_, from, size);
    }
    filled(from, size);
  }
  /// All of the payload has come.
  void end() {
    if (posted* const receive = std::exchange(target_, nullptr)) {
      receive->held_by = nullptr;
      if (gathered_.memory != nullptr) {
        receive->fold(receive->folds, 0, static_cast<std::byte*>(gathered_.memory),
                      receive->received);
        give_gathered();
      }
      receive->done->post();
    }
    if (early* const message = std::exchange(early_, nullptr)) {
      if (posted* const receive = message->wanted) {
        receive->accept(message->bytes(), message->size, message->key.peer);
        message->drop();
        receive->finish();
      }
    }
    into_ = nullptr;
  }

  void abandon(posted& receive) override {
    if (target_ == &receive) {
      target_ = nullptr;
      into_ = nullptr;
      give_gathered();
    }
    // That message is in no list any more: nobody else would free it.
    if (early_ != nullptr && early_->wanted == &receive) {
      into_ = nullptr;
      std::exchange(early_, nullptr)->drop();
    }
  }
  void forget(early& message) {
    if (early_ == &message) early_ = nullptr, into_ = nullptr;
  }
  /// Whether the payload goes to a receive of that operation.
  bool is_for(const operation_record& record) const {
    const posted* const receive = early_ != nullptr ? early_->wanted : target_;
    return receive != nullptr && receive->record == &record;
  }
  /// Ends the half-filled receive if `which` picks it.
  template <class Which>
  void fail(std::error_code ec, Which which) {
    posted* const receive = early_ != nullptr ? early_->wanted : target_;
    if (receive == nullptr || !which(*receive)) return;
    abandon(*receive);
    receive->finish(ec);
  }

 private:
  // Elements longer than this are put together before they are reduced.
  static constexpr std::size_t longest_grain = 4096;

  void note(const std::byte* bytes, std::size_t size) {
    if (size == 0) return;
    if (checked_) {
      sum_ = detail::crc32c(sum_, bytes, size);
      damaged_ = size == left_ && sum_ != expected_;
      if (damaged_) return;
    }
    if (early_ != nullptr) early_->filled += size;
    if (target_ != nullptr) target_->record->bytes += size;
    taken_ += size;
    left_ -= size;
    if (left_ == 0) end();
  }
  void give_gathered() {
    if (gathered_.memory != nullptr) match_.give_scratch(std::exchange(gathered_, {}));
  }
  void refuse_for_memory(posted& receive) {
    match_.revoke(*receive.record->communicator, failure(errc::not_enough_memory));
    into_ = nullptr;
    receive.received = 0;
    receive.finish(make_error_code(errc::not_enough_memory));
  }

  match& match_;
  std::size_t left_ = 0;
  std::size_t taken_ = 0;
  std::byte* into_ = nullptr;
  match::block gathered_;  // for a payload that is reduced when it is whole
  posted* target_ = nullptr;
  early* early_ = nullptr;
  bool checked_ = false;
  bool damaged_ = false;
  std::uint32_t expected_ = 0;
  std::uint32_t sum_ = 0;  // of what has come
};

}  // namespace colls::tcp
