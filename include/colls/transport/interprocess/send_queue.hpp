// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// outbox: what a link has still to write, in which order, and how far it has come.

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

namespace colls::tcp {

class link;

/// A send; its header is made when it starts.
struct outgoing : keyed {
  checked_header frame;
  const std::byte* data = nullptr;
  std::size_t size = 0;
  operation_record* record = nullptr;
  completion* done = nullptr;
  link* on = nullptr;
  std::error_code ec;
  std::size_t written = 0;  // of header and payload
  bool waits = false;       // for a grant
  bool behind = false;      // and its header may not go ahead yet
  bool held = false;        // because too many have gone ahead
  bool queued = false;
  bool alone = false;         // queued is only its header, which goes ahead
  bool reminded = false;      // its header has gone ahead
  bool gone = false;          // withdrawn since: it only takes the grant that may be on its way
  std::uint64_t number = 0;   // of its header that went ahead, among those of the link
  outgoing* after = nullptr;  // in the link's queue

  bool is_pending() const { return waits || queued; }
  /// Nothing of it has left.
  bool is_untouched() const {
    return waits || (queued && written == 0 && (frame.flags & flag::granted) == 0);
  }
  std::size_t body() const { return alone ? 0 : size; }
  void finish(std::error_code result = {}) {
    on = nullptr;
    ec = result;
    if (!result) record->bytes += size;
    done->post();
  }
};

/// Bytes in the order in which they are written; what is left of them is not moved each time.
class unwritten {
 public:
  bool empty() const { return done_ == all_.size(); }
  std::size_t size() const { return all_.size() - done_; }
  const std::byte* data() const { return all_.data() + done_; }

  void reserve(std::size_t more) { all_.reserve(all_.size() + more); }
  void add(const void* from, std::size_t more) {
    if (done_ > size()) {
      all_.erase(all_.begin(), all_.begin() + static_cast<std::ptrdiff_t>(std::exchange(done_, 0)));
    }
    const auto* const bytes = static_cast<const std::byte*>(from);
    all_.insert(all_.end(), bytes, bytes + more);
  }
  void take(std::size_t some) {
    done_ += some;
    if (!empty()) return;
    done_ = 0;
    all_.clear();
    if (all_.capacity() > most_kept) all_ = std::vector<std::byte>();
  }
  void clear() { take(size()); }

 private:
  static constexpr std::size_t most_kept = 64 * 1024;

  std::vector<std::byte> all_;
  std::size_t done_ = 0;
};

/// Bytes of control frames that may wait until a peer reads. Beyond the first it gets no more words
/// that are said again (announcements and reports). Beyond the second it gets nothing any more: what
/// a peer is answered that sends and does not read takes no more memory than that, and what a rank
/// has to say of its own will, as grants, never comes near.
inline constexpr std::size_t most_words_unread = std::size_t{1} << 20;
inline constexpr std::size_t most_unread = std::size_t{64} << 20;

/// Written in this order: the rest of a withdrawn frame, the rest of the first send if it has
/// begun, control frames, the other sends. What was begun is always written to its end.
class outbox {
 public:
  outbox() = default;
  outbox(const outbox&) = delete;
  outbox& operator=(const outbox&) = delete;

  /// Each header is followed by its checksums from now on, those of what is queued too.
  void add_checksums() {
    head_ = sizeof(checked_header);
    each([](outgoing& send) { send.frame.seal(send.data, send.body()); });
    unwritten unchecked;
    std::swap(unchecked, control_);
    while (!unchecked.empty()) {
      header frame;
      std::memcpy(&frame, unchecked.data(), sizeof frame);
      const std::size_t size = control_size(frame);
      add_control(frame, unchecked.data() + sizeof frame, size);
      unchecked.take(sizeof frame + size);
    }
  }

  bool has_control() const { return !control_.empty(); }
  bool empty() const { return first_ == nullptr && control_.empty() && tail_.empty(); }

  /// Why `control` has refused a frame: not for want of memory.
  bool is_too_much_unread() const { return too_much_unread_; }
  /// Nothing is written any more.
  void end() {
    ended_ = true;
    tail_.clear();
    control_.clear();
  }

  /// False: there is no memory for it, or too much of what was written before is unread; nothing
  /// can be written any more.
  [[nodiscard]] bool control(const header& frame, const void* payload) {
    if (ended_) return true;
    const bool is_said_again = frame.kind == kind::announce || frame.kind == kind::report;
    if (is_said_again && control_.size() > most_words_unread) return true;
    if (is_unread(frame, payload)) return true;
    if (control_.size() > most_unread) {
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

  /// False: another send is before it. `alone`: its header goes ahead of it, and it waits.
  bool push(outgoing& send, bool alone = false) {
    send.queued = true;
    send.alone = alone;
    send.written = 0;
    send.after = nullptr;
    if (has_checksums()) send.frame.seal(send.data, send.body());
    (last_ != nullptr ? last_->after : first_) = &send;
    last_ = &send;
    return first_ == &send;
  }
  /// Whether `write` writes it whole: then its start tells of its end, not its completion.
  template <class Write>
  bool ends_at_once(outgoing& send, Write write) {
    starting_ = &send;
    write();
    return std::exchange(starting_, nullptr) == nullptr;
  }

  /// Takes a queued send back. If it is half written the rest goes out from a copy, since the peer
  /// has been promised its length. False: there is no memory for that, so nothing can be written
  /// after what was.
  [[nodiscard]] bool withdraw(outgoing& send) {
    if (!std::exchange(send.queued, false)) return true;
    outgoing* before = nullptr;
    for (outgoing* at = first_; at != &send; at = at->after) before = at;
    (before != nullptr ? before->after : first_) = send.after;
    if (last_ == &send) last_ = before;
    if (send.written == 0 || ended_) return true;
    try {
      tail_.reserve(whole(send) - send.written);
    } catch (const std::bad_alloc&) {
      return false;
    }
    add_rest(send, [this](const std::byte* from, std::size_t size) { tail_.add(from, size); });
    return true;
  }

  /// Of a message that begins to go while nothing else does, all but the first `done` bytes. False:
  /// as `withdraw`.
  [[nodiscard]] bool add_rest(const header& frame, const_bytes message, std::size_t done) {
    try {
      tail_.reserve(head_ + message.size - done);
    } catch (const std::bad_alloc&) {
      return false;
    }
    checked_header checked;
    checked = frame;
    if (has_checksums()) checked.seal(message.data, message.size);
    add_rest(checked, message.data, message.size, done,
             [this](const std::byte* from, std::size_t size) { tail_.add(from, size); });
    return true;
  }

  template <class Visit>
  void each(Visit visit) const {
    for (outgoing* send = first_; send != nullptr; send = send->after) visit(*send);
  }
  /// Ends those that `which` picks. False: as `withdraw`.
  template <class Which>
  [[nodiscard]] bool fail(std::error_code ec, Which which) {
    bool goes_on = true;
    for (outgoing* send = first_; send != nullptr;) {
      outgoing* const following = send->after;
      if (which(*send)) {
        goes_on &= withdraw(*send);
        if (starting_ == send) starting_ = nullptr;
        if (!send->alone) send->finish(ec);  // else it waits, too
      }
      send = following;
    }
    return goes_on;
  }

  // ---- writing

  /// What a socket may take at once, in so many parts.
  int gather(std::span<iovec> parts) const {
    std::size_t count = 0;
    const auto add = [&](const std::byte* from, std::size_t size) {
      if (size != 0) parts[count++] = {const_cast<std::byte*>(from), size};
    };
    add(tail_.data(), tail_.size());
    const outgoing* send = first_;
    if (send != nullptr && send->written > 0) {
      add_rest(*send, add);
      send = send->after;
    }
    add(control_.data(), control_.size());
    for (; send != nullptr && count + 2 <= parts.size(); send = send->after) add_rest(*send, add);
    return static_cast<int>(count);
  }

  /// The next frame, or, with a header of no kind, more payload of the one before.
  struct piece {
    header frame;
    const std::byte* data = nullptr;
    std::size_t size = 0;  // of payload
  };
  piece front() const {
    if (!tail_.empty()) return {{}, tail_.data(), tail_.size()};
    if (is_turn_of_first()) {
      if (first_->written == 0) return {first_->frame, first_->data, first_->body()};
      const std::size_t done = first_->written - head_;
      return {{}, first_->data + done, first_->body() - done};
    }
    piece next;
    std::memcpy(&next.frame, control_.data(), sizeof next.frame);
    next.data = control_.data() + sizeof next.frame;
    next.size = control_size(next.frame);
    return next;
  }

  /// So much of the payload of `front()` was written, and with it its header.
  void advance_front(std::size_t size) {
    if (!tail_.empty()) {
      tail_.take(size);
    } else if (is_turn_of_first()) {
      count(*first_, first_->written == 0 ? head_ + size : size);
      if (first_->written == whole(*first_)) written(*first_);
    } else {
      control_.take(head_ + size);
    }
  }

  /// So many bytes were written, headers among them.
  void advance(std::size_t sent) {
    const auto take = [&](std::size_t size) {
      const std::size_t part = std::min(sent, size);
      sent -= part;
      return part;
    };
    const auto pop = [&](outgoing& send) {
      count(send, take(whole(send) - send.written));
      if (send.written < whole(send)) return false;
      written(send);
      return true;
    };
    tail_.take(take(tail_.size()));
    if (first_ != nullptr && first_->written > 0 && !pop(*first_)) return;
    control_.take(take(control_.size()));
    while (sent > 0 && first_ != nullptr) pop(*first_);
  }

 private:
  bool has_checksums() const { return head_ != sizeof(header); }
  std::size_t whole(const outgoing& send) const { return head_ + send.body(); }

  // A peer that sends on a communicator which has failed is answered each time: not while it has
  // the same answer still to read.
  bool is_unread(const header& frame, const void* payload) const {
    const std::uint64_t gone = controlled_ - control_.size();
    if (frame.kind != kind::revoke || revoked_at_ == 0 || revoked_at_ - 1 < gone) return false;
    const std::byte* const last = control_.data() + (revoked_at_ - 1 - gone);
    return std::memcmp(last, &frame, sizeof frame) == 0 &&
           std::memcmp(last + head_, payload, control_size(frame)) == 0;
  }

  void add_control(const header& frame, const void* payload, std::size_t size) {
    checked_header checked;
    checked = frame;
    if (has_checksums()) checked.seal(static_cast<const std::byte*>(payload), size);
    control_.add(&checked, head_);
    if (size != 0) control_.add(payload, size);
    if (frame.kind == kind::revoke) revoked_at_ = controlled_ + 1;
    controlled_ += head_ + size;
  }
  template <class Add>
  void add_rest(const outgoing& send, const Add& add) const {
    add_rest(send.frame, send.data, send.body(), send.written, add);
  }
  template <class Add>
  void add_rest(const checked_header& frame, const std::byte* data, std::size_t size,
                std::size_t done, const Add& add) const {
    if (done < head_) {
      add(reinterpret_cast<const std::byte*>(&frame) + done, head_ - done);
      add(data, size);
    } else {
      add(data + (done - head_), size - (done - head_));
    }
  }

  // Of a front that is no tail.
  bool is_turn_of_first() const {
    return first_ != nullptr && (first_->written > 0 || control_.empty());
  }

  // A header that goes ahead has its number from when it begins to go.
  void count(outgoing& send, std::size_t size) {
    if (send.alone && send.written == 0 && size > 0) send.number = ++announced_;
    send.written += size;
  }
  // The first send is written whole.
  void written(outgoing& send) {
    first_ = send.after;
    if (first_ == nullptr) last_ = nullptr;
    send.queued = false;
    if (std::exchange(send.alone, false)) return;
    if (starting_ == &send) {
      starting_ = nullptr;
      send.on = nullptr;
      send.record->bytes += send.size;
    } else {
      send.finish();
    }
  }

  std::size_t head_ = sizeof(header);  // of a frame, with its checksums
  unwritten tail_;
  unwritten control_;
  std::uint64_t controlled_ = 0;  // bytes that ever came to it
  std::uint64_t revoked_at_ = 0;  // where the last revocation begins among them, from 1; 0: nowhere
  outgoing* first_ = nullptr;
  outgoing* last_ = nullptr;
  outgoing* starting_ = nullptr;  // its start() is on the stack
  std::uint64_t announced_ = 0;
  bool ended_ = false;
  bool too_much_unread_ = false;
};

}  // namespace colls::tcp
