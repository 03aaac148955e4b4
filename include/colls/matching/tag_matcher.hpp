// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// match: pairs messages with receives for one rank and executor, whatever transport moves them.

#include <colls/base/log.hpp>
#include <colls/matching/communicator_table.hpp>
#include <colls/matching/in_flight.hpp>
#include <colls/matching/match_queues.hpp>
#include <colls/matching/scratch_pool.hpp>
#include <colls/matching/stragglers.hpp>

#include <algorithm>
#include <utility>
#include <vector>

namespace colls {

/// What a match asks of the transports that share it.
class mover {
 public:
  /// The communicator is revoked: end with `why` every send and half-filled receive of it, and tell
  /// the peers on all live links, but `told_by`.
  virtual void revoked(communicator_state& communicator, const failure& why, int told_by) = 0;
  /// An operation has waited long for `peer`: tell it what we are in (opens the link if need be),
  /// and what we know; it answers with what it knows.
  virtual void announce(int peer, const operation_record& waiting, const state_report& known) = 0;
  /// Tell `peer`, which is linked, what we know by now; nothing comes back.
  virtual void report(int peer, std::uint32_t communicator, const state_report& known) = 0;
  /// `peer` sent a message of another call than ours: give it our fingerprint to compare.
  virtual void dispute(int peer, std::uint32_t communicator, std::uint64_t sequence,
                       const fingerprint& ours) = 0;
  /// `peer` needs us in a communicator that we have left or that has failed here.
  virtual void refuse(int peer, const failure& why) = 0;
  /// The ranks that `waiting` waits for otherwise than by a receive, added to `to`.
  virtual void add_awaited(const operation_record& waiting, std::vector<int>& to) {
    (void)waiting, (void)to;
  }
  /// The ranks whose messages a receive of `waiting` has begun to take, added to `to`.
  virtual void add_senders(const operation_record& waiting, std::vector<int>& to) {
    (void)waiting, (void)to;
  }
  /// Whether words reach `peer` without opening a link.
  virtual bool is_linked(int peer) {
    (void)peer;
    return true;
  }
  /// Opens a link for words alone: if that cannot be, nothing fails.
  virtual void open_link(int peer) { (void)peer; }
  /// The newest collective of a communicator that a message of `peer` was of; 0: none is known.
  virtual std::uint64_t heard_in(int peer, std::uint32_t communicator) {
    (void)peer, (void)communicator;
    return 0;
  }
  /// Whether the system says that the process of `peer` is stopped.
  virtual bool is_stopped(int peer) {
    (void)peer;
    return false;
  }

 protected:
  ~mover() = default;
};

/// The key by which an operation is announced to a rank that it waits for.
inline message_key announcement(int from, const operation_record& waiting) {
  return {from, waiting.communicator->id(), waiting.sequence,
          waiting.hash != 0 ? std::uint16_t{0} : message_key::point_to_point};
}

/// Why operations end that wait for a rank which has closed its world.
failure has_left(int peer);

/// Pairs, and sees to it that what is paired belongs together: messages to the same call, of the
/// same length, on a communicator that is good. What ends one on this rank ends it everywhere.
class match : public pairing {
 public:
  explicit match(int rank);

  int rank() const { return rank_; }
  void add(mover& transport);
  void remove(mover& transport);

  // ---- communicators

  void add(communicator_state& communicator);
  void remove(communicator_state& communicator);
  communicator_state* find(std::uint32_t id) const { return communicators_.find(id); }
  /// See `roster`.
  bool hold_ids(std::uint32_t first, std::uint32_t count) {
    return communicators_.hold_ids(first, count);
  }
  void free_ids(std::uint32_t first) { communicators_.free_ids(first); }
  void abandon_ids(std::uint32_t first, const std::shared_ptr<const failure>& why);

  /// Ends everything on the communicator with `why`, here and, through the transports, on the
  /// others. Only the first reason counts.
  void revoke(communicator_state& communicator, failure why, int told_by = -1);

  /// The same by id, as a peer says it; it may know a communicator that is still being made here.
  void revoke(std::uint32_t id, const reported_failure& report, int told_by);

  /// Revokes every communicator that contains the dead rank, now or when it is made, and no other.
  void died(int peer, const failure& why, int told_by = -1);

  /// An operation needs a rank that has left: ends its communicator, and says how the operation
  /// ends.
  std::error_code left(int peer, const operation_record& record);

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
  void disagree(communicator_state& communicator, std::uint64_t sequence, int peer);

  /// The other side's fingerprint has come.
  void compare(int peer, std::uint32_t id, std::uint64_t sequence, const fingerprint& theirs);

  // ---- calls

  /// A call begins: messages that came early for its number are compared now.
  [[gnu::always_inline]] void begin(operation_record& record) {
    calls_.add(record);
    if (record.hash != 0 && has_arrivals()) compare_with_arrivals(record);
  }
  void end(operation_record& record) {
    calls_.remove(record);
    if (!inquiries_.empty()) tell_of_the_end(record);
  }
  bool any_under_way() const { return !calls_.empty(); }
  /// The calls under way, of all communicators, in the order in which they began: the first, and by
  /// `next` the others.
  operation_record* first_under_way() const { return calls_.first(); }

  /// Looks at operations under way: total and inactivity deadlines; one that has waited 100 ms
  /// is announced to the ranks that it waits for and to some others.
  void sweep(time_point now);
  time_point due() const;
  /// A call that had to wait for others of its communicator may move now.
  void turn_has_come(operation_record& record) { calls_.look_soon(record); }
  /// How many operations `sweep` has looked at so far, one after the other.
  std::uint64_t looks() const { return calls_.looks(); }

  // ---- late ranks

  /// Where this rank is, for a peer that waits on that communicator, and what it knows of others.
  state_report report_on(std::uint32_t communicator, time_point now);
  /// What `peer` reports; false: no rank of colls would say so.
  bool hear(int peer, std::uint32_t communicator, const state_report& said, time_point now);
  /// A link to `peer` has opened: what waits is announced there as well.
  void linked(int peer, time_point now);

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
  void tell(int peer, const failure& why);

  // The ranks that an operation has receives posted for, each once.
  std::vector<int> senders_to(const operation_record& record);
  // The others that it waits for.
  std::vector<int> takers_of(const operation_record& record) const;
  // Both.
  std::vector<int> peers_of(const operation_record& record);
  inquiry* inquiry_on(std::uint32_t communicator);
  state_report own_state(std::uint32_t communicator) const;
  inquiry& inquire(const operation_record& record, time_point now);
  void refresh(inquiry& asks, time_point now);

  void announce(const operation_record& record, time_point now);
  void spread_news(time_point now);
  // To each rank that this one has asked itself and is linked to.
  void report_to_asked(inquiry& asks, const state_report& known);
  // Those that know that this rank waited: it may compute from now on, and not answer.
  void tell_of_the_end(const operation_record& record);

  /// Which rank is late, or -1, and that in a sentence.
  struct blame {
    int culprit = -1;
    int waited_for = -1;
    detail::line sentence;
  };
  // Of sends and receives that wait for one peer there may be very many.
  bool was_just_announced(const operation_record& record, time_point now);
  blame who_is_late(const operation_record& record, time_point now);
  void blame_peer(blame& to, const operation_record& record, time_point now);
  void blame_member(blame& to, const operation_record& record, time_point now);

  // Ranks that may be elsewhere by now are asked before anything is said of them. True: the record
  // is looked at again when they can have answered.
  bool asks_again(operation_record& record, time_point now);
  // A rank that lives but does not call is late, never dead.
  void tell_of_late_ranks(operation_record& record, time_point now);
  void note_logged(const communicator_state& of, int peer, time_point now);

  void expire(operation_record& record, time_point now, bool total);

  int rank_;
  std::vector<mover*> movers_;
  roster communicators_;
  under_way calls_;
  std::vector<inquiry> inquiries_;  // of the communicators on which an operation has waited long
  time_point news_spread_ = -seconds;
  spare_memory spare_;
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/matching/tag_matcher.ipp>
#endif
