// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// exchange: two ranks of one thread wait for each other, and the second to come does the work of
// both.

#include <colls/match.hpp>

#include <vector>

namespace colls::inproc {

class exchange_operation;

/// Those of all ranks of a world that wait for their partner.
class exchanges {
 public:
  void add_rank(match& matching) { ranks_.push_back({&matching}); }

  /// Ends with `ec` those of a rank whose communicator it is.
  inline void end(int rank, const communicator_state& communicator, errc ec);
  /// Whether the rank waits in another call of the same number.
  inline bool waits_in_another_call(int rank, const operation_record& call) const;
  /// Adds the ranks of the world that an operation of the rank waits for.
  inline void add_missing(int rank, const operation_record& waiting, std::vector<int>& ranks) const;

 private:
  friend exchange_operation;
  struct list {
    match* matching;
    exchange_operation* first = nullptr;  // the oldest
    exchange_operation* last = nullptr;
  };

  list& of(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const list& of(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  inline void add(exchange_operation& waits);
  inline void remove(exchange_operation& waits);
  /// The one that waits for `other`, or null.
  inline exchange_operation* find(const exchange_operation& other) const;

  std::vector<list> ranks_;
};

/// One rank's exchanges, in one lane of one operation: with one partner after the other, each of
/// which says so too. The second of the two to come works for both, and both go on to their next
/// partner at once: the last rank to come does what is left, and nobody is resumed in between.
class exchange_operation {
 public:
  exchange_operation(exchanges& all, int rank, std::uint16_t lane, int rounds, mutable_bytes place,
                     operation_record& record)
      : all_(all),
        record_(record),
        sequence_(record.sequence),
        communicator_(record.communicator->id()),
        rank_(rank),
        lane_(lane),
        rounds_(rounds),
        place_(place.data),
        size_(place.size) {}
  exchange_operation(const exchange_operation&) = delete;

  inline bool start(completion& done);
  void result() const {
    if (ec_ != errc()) throw error(ec_);
  }

 protected:
  ~exchange_operation() {
    if (waiting_) all_.remove(*this);
  }

 private:
  friend exchanges;

  /// The rank of the world that is met in that round.
  virtual int partner(int round) const = 0;
  /// In that round, makes of what is in `place` and in the partner's place what both get. False: it
  /// could not, and has revoked the communicator.
  virtual bool join(int round, std::byte* theirs) noexcept = 0;

  message_key key(int from) const { return {from, communicator_, sequence_, lane_}; }
  errc why_not() const {
    const communicator_state& of = *record_.communicator;
    return of.failed() ? of.why().code : errc::mismatch;
  }
  void end(errc ec) {
    ec_ = ec;
    over_ = true;
    if (done_ != nullptr) done_->post();
  }
  inline exchange_operation* exchange();

  exchanges& all_;
  operation_record& record_;
  exchange_operation* next_ = nullptr;
  exchange_operation* prev_ = nullptr;
  std::uint64_t sequence_;
  std::uint32_t communicator_;
  int rank_;
  int partner_ = -1;
  std::uint16_t lane_;
  bool waiting_ = false;
  bool over_ = false;
  int round_ = 0;
  int rounds_;
  std::byte* place_;
  std::size_t size_;
  completion* done_ = nullptr;  // null while it is started: that says itself that it is over
  errc ec_ = {};
};

inline bool exchange_operation::start(completion& done) {
  // Those that can go on, by `next_`: they are on no list of those that wait.
  for (exchange_operation* next = this; next != nullptr;) {
    exchange_operation& one = *next;
    next = one.next_;
    while (exchange_operation* const other = one.exchange()) {
      other->next_ = next;
      next = other;
    }
  }
  if (!over_) done_ = &done;
  return over_;
}

/// The partner with whom it has exchanged, which can go on too; null: it waits, or is over.
[[gnu::always_inline]] inline exchange_operation* exchange_operation::exchange() {
  if (record_.communicator->failed()) {
    end(why_not());
    return nullptr;
  }
  if (round_ == rounds_) {
    end({});
    return nullptr;
  }
  partner_ = partner(round_);
  exchange_operation* const other = all_.find(*this);
  if (other == nullptr) {
    if (all_.of(partner_).matching->inspect(key(rank_), record_.hash)) {
      all_.add(*this);
    } else {
      end(why_not());  // that has revoked the communicator, here too: it is all one thread
    }
    return nullptr;
  }
  // Off its list first: the check and a reduction may revoke, which ends what is listed.
  all_.remove(*other);
  errc ec{};
  if (all_.of(rank_).matching->check(key(partner_), size_, record_, other->size_,
                                     other->record_.hash)) {
    ec = why_not();
  } else if (!join(round_, other->place_)) {
    ec = errc::user_op_failed;
  }
  if (ec != errc()) {
    end(ec);
    other->end(ec);
    return nullptr;
  }
  record_.bytes += 2 * size_;
  other->record_.bytes += 2 * size_;
  ++round_;
  ++other->round_;
  return other;
}

inline void exchanges::add(exchange_operation& waits) {
  list& mine = of(waits.rank_);
  waits.waiting_ = true;
  waits.next_ = nullptr;
  waits.prev_ = mine.last;
  (mine.last != nullptr ? mine.last->next_ : mine.first) = &waits;
  mine.last = &waits;
}
inline void exchanges::remove(exchange_operation& waits) {
  list& mine = of(waits.rank_);
  waits.waiting_ = false;
  (waits.prev_ != nullptr ? waits.prev_->next_ : mine.first) = waits.next_;
  (waits.next_ != nullptr ? waits.next_->prev_ : mine.last) = waits.prev_;
}
inline exchange_operation* exchanges::find(const exchange_operation& other) const {
  for (exchange_operation* one = of(other.partner_).first; one != nullptr; one = one->next_) {
    if (one->partner_ == other.rank_ && one->sequence_ == other.sequence_ &&
        one->lane_ == other.lane_ && one->communicator_ == other.communicator_) {
      return one;
    }
  }
  return nullptr;
}
inline void exchanges::end(int rank, const communicator_state& communicator, errc ec) {
  for (exchange_operation* one = of(rank).first; one != nullptr;) {
    exchange_operation* const following = one->next_;
    if (one->record_.communicator == &communicator) {
      remove(*one);
      one->end(ec);
    }
    one = following;
  }
}
inline bool exchanges::waits_in_another_call(int rank, const operation_record& call) const {
  for (const exchange_operation* one = of(rank).first; one != nullptr; one = one->next_) {
    if (one->sequence_ == call.sequence && one->record_.hash != call.hash &&
        one->communicator_ == call.communicator->id()) {
      return true;
    }
  }
  return false;
}
inline void exchanges::add_missing(int rank, const operation_record& waiting,
                                   std::vector<int>& ranks) const {
  for (const exchange_operation* one = of(rank).first; one != nullptr; one = one->next_) {
    if (&one->record_ == &waiting) ranks.push_back(one->partner_);
  }
}

}  // namespace colls::inproc
