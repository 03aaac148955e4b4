// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// match: pairs messages with receives for one rank and executor, whatever transport moves them.

#include <colls/key_table.hpp>
#include <colls/log.hpp>
#include <colls/record.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace colls {

struct posted;

/// Whoever is writing into a posted receive: asked to stop when the receive is withdrawn.
class filler {
 public:
  virtual void abandon(posted& receive) = 0;

 protected:
  ~filler() = default;
};

/// What takes a message in place of a buffer: `piece` begins `offset` bytes into it.
using folding = void (*)(void* folds, std::size_t offset, const std::byte* piece, std::size_t size);

/// A receive. Listed until a message is paired with it, then in the hands of its `filler`.
struct posted : keyed {
  static constexpr std::int32_t any_source = -1;

  std::byte* data = nullptr;
  std::size_t size = 0;
  /// If set, the message goes to `fold(folds, offset, piece, size)` in place of a copy to `data`:
  /// whole, or piece by piece in order, each a multiple of `grain` bytes.
  folding fold = nullptr;
  void* folds = nullptr;
  std::size_t grain = 1;
  operation_record* record = nullptr;
  completion* done = nullptr;
  filler* held_by = nullptr;
  std::size_t received = 0;
  std::int32_t source = -1;
  std::error_code ec;
  bool listed = false;
  bool granted = false;

  bool busy() const { return listed || held_by != nullptr; }

  /// Takes a whole message from where it lies.
  void accept(const std::byte* message, std::size_t bytes, std::int32_t from) {
    received = bytes;
    source = from;
    if (fold != nullptr) {
      fold(folds, 0, message, bytes);
    } else if (bytes != 0) {
      std::memcpy(data, message, bytes);
    }
  }

  void finish(std::error_code result = {}) {
    held_by = nullptr;
    ec = result;
    record->bytes += received;
    done->post();
  }
};

/// A message (or the announcement of one) that came before its receive. Transports derive from it
/// what they need to move the bytes later.
struct arrival : keyed {
  std::size_t size = 0;
  std::uint64_t hash = 0;
  bool buffered = false;  // for the transport: its bytes lie here, the sender has gone on
  /// Gives the node back to its transport; the message will never be received.
  virtual void drop() = 0;

 protected:
  ~arrival() = default;
};

/// What a match asks of the transports that share it.
class mover {
 public:
  /// The communicator is revoked: end with `why` every send and half-filled receive of it, and tell
  /// the peers on all live links, but `told_by`.
  virtual void revoked(communicator_state& communicator, const failure& why, int told_by) = 0;
  /// An operation has waited long for `peer`: tell it what we are in (opens the link if need be).
  virtual void announce(int peer, const operation_record& waiting) = 0;
  /// `peer` sent a message of another call than ours: give it our fingerprint to compare.
  virtual void dispute(int peer, std::uint32_t communicator, std::uint64_t sequence,
                       const fingerprint& ours) = 0;
  /// `peer` needs us in a communicator that we have left or that has failed here.
  virtual void refuse(int peer, const failure& why) = 0;
  /// A rank that `waiting` waits for otherwise than by a receive, or -1.
  virtual int awaited_by(const operation_record& waiting) {
    (void)waiting;
    return -1;
  }
  /// Announces it to the ranks that it waits for without a message to or from them.
  virtual void announce_beside(const operation_record& waiting) { (void)waiting; }

 protected:
  ~mover() = default;
};

/// The key by which an operation is announced to a rank that it waits for.
inline message_key announcement(int from, const operation_record& waiting) {
  return {from, waiting.communicator->id(), waiting.sequence,
          waiting.hash != 0 ? std::uint16_t{0} : message_key::point_to_point};
}

class match {
 public:
  explicit match(int rank) : rank_(rank) {}
  match(const match&) = delete;
  match& operator=(const match&) = delete;
  ~match() {
    for (const block& kept : spare_) std::free(kept.memory);
  }

  int rank() const { return rank_; }
  void add(mover& transport) { movers_.push_back(&transport); }
  void remove(mover& transport) { std::erase(movers_, &transport); }

  // ---- communicators

  void add(communicator_state& communicator) {
    communicators_.push_back(&communicator);
    for (const failure& why : std::exchange(early_revokes_, {})) {
      if (why.communicator == communicator.id()) {
        revoke(communicator, why);
      } else {
        early_revokes_.push_back(why);
      }
    }
  }
  void remove(communicator_state& communicator) {
    std::erase(communicators_, &communicator);
    const auto gone = left_.insert(left_from(communicator.id()),
                                   {communicator.id(), communicator.next_sequence(), nullptr});
    if (communicator.failed()) gone->why = std::make_shared<const failure>(communicator.why());
    std::vector<message_key> unmet;  // of senders that have not gone on, or wait for our part
    arrivals_.each([&](arrival& message) {
      if (message.key.communicator != communicator.id()) return;
      unmet.push_back(message.key);
      discard(message);
    });
    std::erase_if(direct_arrivals_, [&](arrival* message) {
      if (message->key.communicator != communicator.id()) return false;
      if (!message->buffered) unmet.push_back(message->key);
      message->drop();
      return true;
    });
    for (const message_key& key : unmet) inspect(key, 0);
  }
  communicator_state* find(std::uint32_t id) const {
    for (communicator_state* known : communicators_) {
      if (known->id() == id) return known;
    }
    return nullptr;
  }

  /// Holds `count` ids for a communicator that is being made; false if one was ever in use here.
  bool hold_ids(std::uint32_t first, std::uint32_t count) {
    const auto among = [&](std::uint32_t id) { return id - first < count; };
    for (const communicator_state* known : communicators_) {
      if (among(known->id())) return false;
    }
    if (const auto gone = left_from(first); gone != left_.end() && among(gone->id)) return false;
    for (const held& other : held_) {
      if (among(other.first) || first - other.first < other.count) return false;
    }
    held_.push_back({first, count});
    return true;
  }
  void free_ids(std::uint32_t first) {
    std::erase_if(held_, [&](const held& range) { return range.first == first; });
  }

  /// Ends everything on the communicator with `why`, here and, through the transports, on the
  /// others. Only the first reason counts.
  void revoke(communicator_state& communicator, failure why, int told_by = -1) {
    if (communicator.failed()) return;
    if (why.observer < 0) why.observer = rank_;
    // A death is no matter of one communicator.
    why.communicator = why.code == errc::peer_failed ? 0 : communicator.id();
    communicator.fail(why);
    const std::error_code ec = why.code;
    const auto end = [&](posted& receive) {
      if (receive.key.communicator != communicator.id()) return false;
      receive.listed = false;
      receive.finish(ec);
      return true;
    };
    receives_.each([&](posted& receive) {
      if (receive.key.communicator != communicator.id()) return;
      receives_.remove(receive);
      end(receive);
    });
    std::erase_if(direct_receives_, [&](posted* receive) { return end(*receive); });
    for (mover* transport : movers_) transport->revoked(communicator, why, told_by);
  }

  /// The same by id, as a peer says it; it may know a communicator that is still being made here.
  void revoke(std::uint32_t id, failure why, int told_by) {
    if (communicator_state* const communicator = find(id)) {
      revoke(*communicator, why, told_by);
    } else if (!has_left(id) && early_revokes_.size() < most_early_revokes) {
      why.communicator = id;
      early_revokes_.push_back(why);
    }
  }

  /// Revokes every communicator that contains the dead rank, and no other.
  void died(int peer, const failure& why, int told_by = -1) {
    for (std::size_t i = 0; i < communicators_.size(); ++i) {
      communicator_state& communicator = *communicators_[i];
      if (communicator.rank_of(peer) >= 0 && !communicator.closing) {
        revoke(communicator, why, told_by);
      }
    }
  }

  /// The communicators with `peer` that have failed: it hears of them as soon as it has a link.
  template <class Visit>
  void each_failed(int peer, Visit visit) const {
    for (const communicator_state* communicator : communicators_) {
      if (communicator->failed() && communicator->rank_of(peer) >= 0) visit(*communicator);
    }
  }

  // ---- receives

  /// A receive wants its message: the arrival that it pairs with (no longer listed), or null, and
  /// then the receive is listed. The caller has checked that the communicator is good.
  arrival* post(posted& receive) {
    if (receive.key.is_point_to_point()) return post_direct(receive);
    if (arrival* const message = arrivals_.take(receive.key)) return message;
    list(receive);
    return nullptr;
  }
  void list(posted& receive) {
    receive.listed = true;
    if (receive.key.is_point_to_point()) {
      direct_receives_.push_back(&receive);
    } else {
      receives_.push_back(receive);
    }
  }

  /// Withdraws a receive that has not ended: nothing touches its buffer afterwards.
  void withdraw(posted& receive) {
    if (receive.listed) unlist(receive);
    if (receive.held_by != nullptr) std::exchange(receive.held_by, nullptr)->abandon(receive);
  }

  // ---- messages

  /// The receive that a message belongs to (no longer listed), or null. A point-to-point message
  /// goes to the oldest receive that names its source or any.
  posted* take(const message_key& key) {
    if (key.is_point_to_point()) return take_direct(key);
    posted* const receive = receives_.take(key);
    if (receive != nullptr) receive->listed = false;
    return receive;
  }
  /// The receive that a message which is only announced belongs to, still listed: the oldest that
  /// has granted none yet.
  posted* peek(const message_key& key) const {
    if (!key.is_point_to_point()) {
      return receives_.find_if(key, [](const posted& receive) { return !receive.granted; });
    }
    for (posted* receive : direct_receives_) {
      if (fits(*receive, key) && !receive->granted) return receive;
    }
    return nullptr;
  }
  const key_table<posted>& receives() const { return receives_; }
  /// The message of a collective that came before its receive, or null.
  arrival* arrived(const message_key& key) const { return arrivals_.find(key); }
  /// Whether some message of a collective came before its receive.
  bool has_arrivals() const { return !arrivals_.empty(); }
  /// The oldest receive of that key, granted or not, still listed.
  posted* first(const message_key& key) const { return receives_.find(key); }
  /// The point-to-point receive that asked for this message, no longer listed.
  posted* take_granted(const message_key& key) {
    for (std::size_t i = 0; i < direct_receives_.size(); ++i) {
      posted* const receive = direct_receives_[i];
      if (!receive->granted || !(receive->key == key)) continue;
      direct_receives_.erase(direct_receives_.begin() + static_cast<std::ptrdiff_t>(i));
      receive->listed = false;
      return receive;
    }
    return nullptr;
  }
  /// The communicators on which a receive waits for `peer`.
  std::vector<communicator_state*> waiting_for(int peer) {
    std::vector<communicator_state*> found;
    const auto note = [&](posted& receive) {
      communicator_state* const of = receive.record->communicator;
      if (receive.key.peer != peer) return;
      for (communicator_state* known : found) {
        if (known == of) return;
      }
      found.push_back(of);
    };
    each_waiting(note);
    return found;
  }
  void unlist(posted& receive) {
    receive.listed = false;
    if (receive.key.is_point_to_point()) {
      std::erase(direct_receives_, &receive);
    } else {
      receives_.remove(receive);
    }
  }
  /// A message that nobody has asked for yet.
  void keep(arrival& message) {
    if (message.key.is_point_to_point()) {
      direct_arrivals_.push_back(&message);
    } else {
      arrivals_.push_back(message);
    }
  }
  void forget(arrival& message) {
    if (message.key.is_point_to_point()) {
      std::erase(direct_arrivals_, &message);
    } else {
      arrivals_.remove(message);
    }
  }

  /// Whether a message may go into a receive: a collective's must be of the same call and length,
  /// else the communicator is revoked; a point-to-point message must not be longer.
  std::error_code check(const posted& receive, std::size_t size, std::uint64_t hash) {
    communicator_state& communicator = *receive.record->communicator;
    if (receive.key.is_point_to_point()) {
      if (size <= receive.size) return {};
      receive.record->bytes_expected = size;
      return errc::truncated;
    }
    if (hash != receive.record->hash) {
      disagree(communicator, receive.key.sequence, receive.key.peer);
      return make_error_code(errc::mismatch);
    }
    if (size != receive.size) {
      failure why(errc::mismatch);
      why.culprit = receive.key.peer;
      why.operation = receive.record->what;
      why.sequence = receive.key.sequence;
      why.communicator = communicator.id();
      why.say("rank %d sent %zu bytes where rank %d expects %zu", receive.key.peer, size, rank_,
              receive.size);
      revoke(communicator, why);
      return make_error_code(errc::mismatch);
    }
    return {};
  }

  /// Compares what a message says with what was called here under that number, also when nobody
  /// asked for it. False, and nobody will want it: it belongs to another call (the dispute has
  /// begun), or to a communicator that has failed here or that this rank has left (its sender is
  /// told, if it needs us).
  bool inspect(const message_key& key, std::uint64_t hash) {
    communicator_state* const communicator = find(key.communicator);
    if (communicator == nullptr) {
      const auto gone = left_from(key.communicator);
      if (gone == left_.end() || gone->id != key.communicator) return true;
      if (gone->why != nullptr) {
        tell(key.peer, *gone->why);
        return false;
      }
      if (!key.is_point_to_point() && key.sequence < gone->next_sequence) return false;
      failure why(errc::closed);
      why.culprit = why.observer = rank_;
      why.communicator = key.communicator;
      why.sequence = key.is_point_to_point() ? 0 : key.sequence;
      why.say("rank %d has closed the communicator", rank_);
      tell(key.peer, why);
      return false;
    }
    if (communicator->failed()) {
      // It may have no link to those who told us.
      tell(key.peer, communicator->why());
      return false;
    }
    if (key.is_point_to_point() || communicator->agrees(key.sequence, hash)) return true;
    disagree(*communicator, key.sequence, key.peer);
    return false;
  }

  /// `peer` runs another call under our number. It gets our fingerprint; whoever knows both sides
  /// revokes with both named.
  void disagree(communicator_state& communicator, std::uint64_t sequence, int peer) {
    if (communicator.failed()) return;
    const fingerprint* const ours = communicator.recall(sequence);
    if (ours == nullptr) return;
    for (mover* transport : movers_) {
      transport->dispute(peer, communicator.id(), sequence, *ours);
    }
  }

  /// The other side's fingerprint has come.
  void compare(int peer, std::uint32_t id, std::uint64_t sequence, const fingerprint& theirs) {
    communicator_state* const communicator = find(id);
    if (communicator == nullptr || communicator->failed()) return;
    if (sequence >= communicator->next_sequence()) return;
    const fingerprint* const ours = communicator->recall(sequence);
    if (ours != nullptr && *ours == theirs) return;
    failure why(errc::mismatch);
    why.culprit = peer;
    why.communicator = id;
    why.operation = ours != nullptr ? ours->what : theirs.what;
    why.sequence = sequence;
    if (ours != nullptr) {
      detail::say_difference(why, rank_, *ours, peer, theirs);
    } else {
      detail::say_forgotten(why, rank_, peer, theirs);
    }
    revoke(*communicator, why);
  }

  /// A call begins: messages that came early for its number are compared now.
  void begin(operation_record& record) {
    record.next = nullptr;
    record.prev = last_;
    (last_ != nullptr ? last_->next : first_) = &record;
    last_ = &record;
    if (record.hash == 0 || arrivals_.empty()) return;
    // One is enough: it ends the communicator, and with it the others.
    int peer = -1;
    arrivals_.each([&](arrival& message) {
      if (message.key.communicator == record.communicator->id() &&
          message.key.sequence == record.sequence && message.hash != record.hash) {
        peer = message.key.peer;
      }
    });
    if (peer >= 0) disagree(*record.communicator, record.sequence, peer);
  }
  void end(operation_record& record) {
    (record.prev != nullptr ? record.prev->next : first_) = record.next;
    (record.next != nullptr ? record.next->prev : last_) = record.prev;
    record.next = record.prev = nullptr;
  }
  bool any_under_way() const { return first_ != nullptr; }
  /// The calls under way, of all communicators, in the order in which they began: the first, and by
  /// `next` the others.
  operation_record* first_under_way() const { return first_; }
  /// Calls `visit` for every receive that waits for its message.
  template <class Visit>
  void each_waiting(Visit visit) {
    receives_.each(visit);
    for (posted* receive : direct_receives_) visit(*receive);
  }

  // ---- time

  /// Looks at every operation under way: total and inactivity deadlines; who has waited 100 ms says
  /// so to those it waits for.
  void sweep(time_point now) {
    for (operation_record* record = first_; record != nullptr; record = record->next) {
      if (record->communicator->failed()) continue;
      if (record->started == never) record->started = now;
      if (record->bytes != record->bytes_seen || record->progressed == 0) {
        record->bytes_seen = record->bytes;
        record->progressed = now;
      }
      const bool total = now >= record->deadline;
      if (total || now - record->progressed >= record->communicator->inactivity) {
        expire(*record, now, total);
      } else if (now - record->started >= record->announce_after) {
        // Again and again: it may wait for others by then, and they may have called meanwhile.
        record->announce_after = 2 * (now - record->started);
        announce(*record);
      } else if (!record->late && now - record->started >= 30 * seconds &&
                 now - record->progressed >= 30 * seconds) {
        record->late = true;
        tell_of_late_ranks(*record);
      }
    }
  }

  /// When `sweep` next has something to do if nothing moves until then, or `never`. Of operations
  /// that a sweep has seen.
  time_point due() const {
    time_point first = never;
    const auto note = [&](time_point from, time_point span) {
      if (from < never - span && from + span < first) first = from + span;
    };
    for (const operation_record* record = first_; record != nullptr; record = record->next) {
      if (record->communicator->failed() || record->started == never) continue;
      note(record->deadline, 0);
      note(record->progressed, record->communicator->inactivity);
      note(record->started, record->announce_after);
      if (record->late || record->progressed == never) continue;
      note(record->progressed > record->started ? record->progressed : record->started,
           30 * seconds);
    }
    return first;
  }

  // ---- working memory

  /// A piece of working memory; null when there is none.
  struct block {
    void* memory = nullptr;
    std::size_t size = 0;
  };

  /// At least `size` bytes, used again when they are given back.
  block take_scratch(std::size_t size) {
    for (std::size_t i = spare_.size(); i-- > 0;) {
      if (spare_[i].size >= size && spare_[i].size / 4 <= size) {
        const block found = spare_[i];
        spare_[i] = spare_.back();
        spare_.pop_back();
        return found;
      }
    }
    return {std::malloc(size), size};
  }
  void give_scratch(const block& used) noexcept {
    constexpr std::size_t most = 16;
    if (spare_.size() == most) {
      std::free(spare_.front().memory);
      spare_.erase(spare_.begin());
    }
    if (spare_.capacity() < most) spare_.reserve(most);
    spare_.push_back(used);
  }

 private:
  struct held {
    std::uint32_t first;
    std::uint32_t count;
  };
  struct left {
    std::uint32_t id;
    std::uint64_t next_sequence;
    std::shared_ptr<const failure> why;  // if it had failed
  };

  void tell(int peer, const failure& why) {
    for (mover* transport : movers_) transport->refuse(peer, why);
  }

  /// The first of the communicators left whose id is not below.
  std::vector<left>::const_iterator left_from(std::uint32_t id) const {
    const auto is_below = [](const left& gone, std::uint32_t wanted) { return gone.id < wanted; };
    return std::lower_bound(left_.begin(), left_.end(), id, is_below);
  }
  bool has_left(std::uint32_t id) const {
    const auto gone = left_from(id);
    return gone != left_.end() && gone->id == id;
  }

  static bool fits(const posted& receive, const message_key& key) {
    return receive.key.communicator == key.communicator && receive.key.sequence == key.sequence &&
           (receive.key.peer == key.peer || receive.key.peer == posted::any_source);
  }

  arrival* post_direct(posted& receive) {
    for (std::size_t i = 0; i < direct_arrivals_.size(); ++i) {
      arrival* const message = direct_arrivals_[i];
      if (!fits(receive, message->key)) continue;
      direct_arrivals_.erase(direct_arrivals_.begin() + static_cast<std::ptrdiff_t>(i));
      return message;
    }
    list(receive);
    return nullptr;
  }
  posted* take_direct(const message_key& key) {
    for (std::size_t i = 0; i < direct_receives_.size(); ++i) {
      posted* const receive = direct_receives_[i];
      if (!fits(*receive, key) || receive->granted) continue;
      direct_receives_.erase(direct_receives_.begin() + static_cast<std::ptrdiff_t>(i));
      receive->listed = false;
      return receive;
    }
    return nullptr;
  }

  void discard(arrival& message) {
    arrivals_.remove(message);
    message.drop();
  }

  // The ranks that `record` has receives posted for, each once in most cases.
  template <class Visit>
  void each_awaited(const operation_record& record, Visit visit) {
    each_waiting([&](posted& receive) {
      if (receive.record == &record) visit(receive);
    });
  }

  void announce(const operation_record& record) {
    each_awaited(record, [&](posted& receive) {
      if (receive.key.peer < 0) return;
      for (mover* transport : movers_) transport->announce(receive.key.peer, record);
    });
    for (mover* transport : movers_) transport->announce_beside(record);
  }

  int otherwise_awaited(const operation_record& record) const {
    int found = -1;
    for (mover* transport : movers_) found = std::max(found, transport->awaited_by(record));
    return found;
  }

  // A rank that lives but does not call is late, never dead.
  void tell_of_late_ranks(const operation_record& record) {
    const auto tell = [&](int peer, const char* what) {
      log_warn("rank %d has waited 30 s in %s #%llu for rank %d, which has not %s", rank_,
               name(record.what), static_cast<unsigned long long>(record.sequence), peer, what);
    };
    each_awaited(record, [&](posted& receive) { tell(receive.key.peer, "sent"); });
    if (const int peer = otherwise_awaited(record); peer >= 0) tell(peer, "come to take part");
  }

  void expire(operation_record& record, time_point now, bool total) {
    failure why(errc::timeout);
    why.communicator = record.communicator->id();
    why.operation = record.what;
    why.sequence = record.hash == 0 ? 0 : record.sequence;
    why.bytes_done = record.bytes;
    why.bytes_expected = record.bytes_expected;
    why.elapsed_ns = now - record.started;
    each_awaited(record, [&](posted& receive) {
      if (why.waited_for < 0) why.waited_for = why.culprit = receive.key.peer;
    });
    if (why.waited_for < 0) why.waited_for = why.culprit = otherwise_awaited(record);
    if (total) {
      why.say("options.timeout is over");
    } else {
      why.say("nothing moved for %lld s",
              static_cast<long long>(record.communicator->inactivity / seconds));
    }
    if (record.expired != nullptr) {
      record.expired(record, why);
    } else {
      revoke(*record.communicator, why);
    }
  }

  int rank_;
  std::vector<held> held_;
  std::vector<mover*> movers_;
  std::vector<communicator_state*> communicators_;
  key_table<posted> receives_;
  key_table<arrival> arrivals_;
  std::vector<posted*> direct_receives_;  // point to point: one list in posting order
  std::vector<arrival*> direct_arrivals_;  // in arrival order
  static constexpr std::size_t most_early_revokes = 64;
  std::vector<failure> early_revokes_;
  // Communicators that this rank has closed, by id; ids are never used again.
  std::vector<left> left_;
  operation_record* first_ = nullptr;
  operation_record* last_ = nullptr;
  std::vector<block> spare_;
};

}  // namespace colls
