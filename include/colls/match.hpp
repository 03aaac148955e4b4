// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// match: pairs messages with receives for one rank and executor, whatever transport moves them.

#include <colls/log.hpp>
#include <colls/match/pairing.hpp>
#include <colls/match/roster.hpp>
#include <colls/match/spare_memory.hpp>
#include <colls/match/under_way.hpp>

#include <algorithm>
#include <vector>

namespace colls {

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

/// Why operations end that wait for a rank which has closed its world.
inline failure has_left(int peer) {
  failure why(errc::closed);
  why.culprit = peer;
  why.say("rank %d has left", peer);
  return why;
}

/// Pairs, and sees to it that what is paired belongs together: messages to the same call, of the
/// same length, on a communicator that is good. What ends one on this rank ends it everywhere.
class match : public pairing {
 public:
  explicit match(int rank) : rank_(rank) {}

  int rank() const { return rank_; }
  void add(mover& transport) { movers_.push_back(&transport); }
  void remove(mover& transport) { std::erase(movers_, &transport); }

  // ---- communicators

  void add(communicator_state& communicator) {
    const std::vector<failure> failures = communicators_.take_failures(communicator.id());
    communicators_.add(communicator);
    for (const failure& why : failures) revoke(communicator, why);
  }
  void remove(communicator_state& communicator) {
    communicators_.remove(communicator);
    // Their senders have not gone on, or wait for our part.
    while (const auto key = drop_arrival(communicator.id())) inspect(*key, 0);
  }
  communicator_state* find(std::uint32_t id) const { return communicators_.find(id); }
  /// See `roster`.
  bool hold_ids(std::uint32_t first, std::uint32_t count) {
    return communicators_.hold_ids(first, count);
  }
  void free_ids(std::uint32_t first) { communicators_.free_ids(first); }
  void abandon_ids(std::uint32_t first, const std::shared_ptr<const failure>& why) {
    const std::uint32_t count = communicators_.abandon_ids(first, why);
    while (const auto key = drop_arrival(first, count)) inspect(*key, 0);
  }

  /// Ends everything on the communicator with `why`, here and, through the transports, on the
  /// others. Only the first reason counts.
  void revoke(communicator_state& communicator, failure why, int told_by = -1) {
    if (communicator.failed()) return;
    if (why.observer < 0) why.observer = rank_;
    // A death is no matter of one communicator.
    why.communicator = why.code == errc::peer_failed ? 0 : communicator.id();
    communicator.fail(why);
    fail_receives(communicator.id(), why.code);
    for (mover* transport : movers_) transport->revoked(communicator, why, told_by);
  }

  /// The same by id, as a peer says it; it may know a communicator that is still being made here.
  void revoke(std::uint32_t id, failure why, int told_by) {
    if (communicator_state* const communicator = find(id)) {
      revoke(*communicator, why, told_by);
    } else if (communicators_.find_left(id) == nullptr) {
      why.communicator = id;
      communicators_.expect_failure(why);
    }
  }

  /// Revokes every communicator that contains the dead rank, and no other.
  void died(int peer, const failure& why, int told_by = -1) {
    for (std::size_t i = 0; i < communicators_.all().size(); ++i) {
      communicator_state& communicator = *communicators_.all()[i];
      if (communicator.rank_of(peer) >= 0 && !communicator.closing) {
        revoke(communicator, why, told_by);
      }
    }
  }

  /// An operation needs a rank that has left: ends its communicator, and says how the operation
  /// ends.
  std::error_code left(int peer, const operation_record& record) {
    failure why = has_left(peer);
    why.operation = record.what;
    why.sequence = record.hash != 0 ? record.sequence : 0;
    why.communicator = record.communicator->id();
    revoke(*record.communicator, why);
    return record.communicator->why().code;
  }

  /// The communicators with `peer` that have failed: it hears of them as soon as it has a link.
  template <class Visit>
  void each_failed(int peer, Visit visit) const {
    for (const communicator_state* communicator : communicators_.all()) {
      if (communicator->failed() && communicator->rank_of(peer) >= 0) visit(*communicator);
    }
  }

  // ---- messages

  /// Whether a message of `from` may go into a receive: a collective's must be of the same call and
  /// length, else the communicator is revoked; a point-to-point message must not be longer.
  std::error_code check(posted& receive, int from, std::size_t size, std::uint64_t hash) {
    if (receive.key.is_point_to_point()) {
      if (size <= receive.size) return {};
      receive.source = from;
      receive.record->bytes_expected = size;
      return errc::truncated;
    }
    return check(receive.key, receive.size, *receive.record, size, hash);
  }
  /// The same of a collective's message with that key, of an operation that expects so many bytes.
  std::error_code check(const message_key& key, std::size_t expected,
                        const operation_record& record, std::size_t size, std::uint64_t hash) {
    if (hash == record.hash && size == expected) return {};
    return unfit(key, expected, record, size, hash);
  }

  /// Compares what a message says with what was called here under that number, also when nobody
  /// asked for it. False, and nobody will want it: it belongs to another call (the dispute has
  /// begun), or to a communicator that has failed here or that this rank has left (its sender is
  /// told, if it needs us).
  bool inspect(const message_key& key, std::uint64_t hash) {
    const communicator_state* const communicator = find(key.communicator);
    const bool fits = communicator != nullptr && !communicator->failed() &&
                      (key.is_point_to_point() || communicator->agrees(key.sequence, hash));
    return fits || is_wanted(key);
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

  // ---- calls

  /// A call begins: messages that came early for its number are compared now.
  [[gnu::always_inline]] void begin(operation_record& record) {
    calls_.add(record);
    if (record.hash != 0 && has_arrivals()) compare_with_arrivals(record);
  }
  void end(operation_record& record) { calls_.remove(record); }
  bool any_under_way() const { return !calls_.empty(); }
  /// The calls under way, of all communicators, in the order in which they began: the first, and by
  /// `next` the others.
  operation_record* first_under_way() const { return calls_.first(); }

  /// Looks at every operation under way: total and inactivity deadlines; who has waited 100 ms says
  /// so to those it waits for.
  void sweep(time_point now) {
    calls_.sweep(now, [&](operation_record& record, under_way::waited what) {
      switch (what) {
        case under_way::waited::in_all: expire(record, now, true); break;
        case under_way::waited::idle: expire(record, now, false); break;
        case under_way::waited::unheard_of: announce(record); break;
        case under_way::waited::late: tell_of_late_ranks(record); break;
      }
    });
  }
  time_point due() const { return calls_.due(); }

  // ---- working memory

  using block = spare_memory::block;
  block take_scratch(std::size_t size) { return spare_.take(size); }
  void give_scratch(const block& used) noexcept { spare_.give(used); }

 private:
  [[gnu::noinline]] void compare_with_arrivals(const operation_record& record) {
    // One is enough: it ends the communicator, and with it the others.
    int peer = -1;
    each_arrival([&](const arrival& message) {
      if (message.key.communicator == record.communicator->id() &&
          message.key.sequence == record.sequence && message.hash != record.hash) {
        peer = message.key.peer;
      }
    });
    if (peer >= 0) disagree(*record.communicator, record.sequence, peer);
  }
  [[gnu::noinline, gnu::cold]] std::error_code unfit(const message_key& key, std::size_t expected,
                                                     const operation_record& record,
                                                     std::size_t size, std::uint64_t hash) {
    if (hash != record.hash) {
      disagree(*record.communicator, key.sequence, key.peer);
    } else {
      failure why(errc::mismatch);
      why.culprit = key.peer;
      why.operation = record.what;
      why.sequence = key.sequence;
      why.communicator = key.communicator;
      why.say("rank %d sent %zu bytes where rank %d expects %zu", key.peer, size, rank_, expected);
      revoke(*record.communicator, why);
    }
    return errc::mismatch;
  }
  // Of what does not belong to a good communicator and its call.
  [[gnu::noinline, gnu::cold]] bool is_wanted(const message_key& key) {
    communicator_state* const communicator = find(key.communicator);
    if (communicator == nullptr) {
      if (const failure* const unmade = communicators_.find_abandoned(key.communicator)) {
        failure why = *unmade;
        why.communicator = key.communicator;
        tell(key.peer, why);
        return false;
      }
      const roster::left* const gone = communicators_.find_left(key.communicator);
      if (gone == nullptr) return true;
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
    disagree(*communicator, key.sequence, key.peer);
    return false;
  }
  void tell(int peer, const failure& why) {
    for (mover* transport : movers_) transport->refuse(peer, why);
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
      log_warn("rank %d has waited 30 s in %s %s%llu for rank %d, which has not %s", rank_,
               name(record.what), record.hash != 0 ? "#" : "with tag ",
               static_cast<unsigned long long>(record.sequence), peer, what);
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
    detail::line told;
    if (record.hash == 0) told.add("tag %llu: ", static_cast<unsigned long long>(record.sequence));
    if (total) {
      told.add("options.timeout is over");
    } else {
      told.add("nothing moved for %lld s",
               static_cast<long long>(record.communicator->inactivity / seconds));
    }
    why.say("%s", told.text());
    if (record.expired != nullptr) {
      record.expired(record, why);
    } else {
      revoke(*record.communicator, why);
    }
  }

  int rank_;
  std::vector<mover*> movers_;
  roster communicators_;
  under_way calls_;
  spare_memory spare_;
};

}  // namespace colls
