// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// exchange: two ranks of one thread wait for each other, and the second to come does the work of
// both.

#include <colls/match.hpp>

namespace colls::inproc {

class exchange_operation;

/// Of one rank: those that wait for the other rank.
class exchanges {
 public:
  explicit exchanges(match& matching) : matching_(matching) {}

  /// Ends with `ec` those of a communicator of the rank.
  inline void end(const communicator_state& of, errc ec);
  /// Whether one waits in another call of the same number.
  inline bool waits_in_another_call(const operation_record& call) const;
  /// Adds the ranks of the world that an operation waits for.
  inline void add_missing(const operation_record& waiting, std::vector<int>& ranks) const;

 private:
  friend exchange_operation;

  inline void add(exchange_operation& waits);
  inline void remove(exchange_operation& waits);
  /// The one that waits for `other`, or null.
  inline exchange_operation* find(const exchange_operation& other) const;

  match& matching_;
  exchange_operation* first_ = nullptr;  // the oldest
  exchange_operation* last_ = nullptr;
};

/// One rank's half of an exchange with another one, in one lane of one operation: what it gives,
/// and a place of as many bytes.
class exchange_operation {
 public:
  exchange_operation(exchanges& mine, exchanges& others, std::uint16_t lane, const_bytes gives,
                     std::byte* place, operation_record& record)
      : mine_(mine),
        others_(others),
        record_(record),
        gives_(gives.data),
        place_(place),
        size_(gives.size),
        lane_(lane) {}
  exchange_operation(const exchange_operation&) = delete;
  ~exchange_operation() {
    if (waiting_) mine_.remove(*this);
  }

  /// See `exchanging_transport`.
  inline bool start(completion& done);
  bool is_second() const { return other_ != nullptr; }
  const std::byte* theirs() const { return other_->gives_; }
  std::byte* their_place() const { return other_->place_; }
  void let_go(errc result) {
    ec_ = result;
    record_.bytes += 2 * size_;
    other_->record_.bytes += 2 * size_;
    other_->end(result);
  }
  void result() const {
    if (ec_ != errc()) throw error(ec_);
  }

 private:
  friend exchanges;

  int rank() const { return mine_.matching_.rank(); }
  int peer() const { return others_.matching_.rank(); }
  message_key key(int from) const {
    return {from, record_.communicator->id(), record_.sequence, lane_};
  }
  void end(errc ec) {
    ec_ = ec;
    done_->post();
  }

  exchanges& mine_;
  exchanges& others_;
  operation_record& record_;
  const std::byte* gives_;
  std::byte* place_;
  std::size_t size_;
  completion* done_ = nullptr;
  exchange_operation* other_ = nullptr;
  exchange_operation* next_ = nullptr;
  exchange_operation* prev_ = nullptr;
  errc ec_ = {};
  std::uint16_t lane_;
  bool waiting_ = false;
};

inline bool exchange_operation::start(completion& done) {
  const communicator_state& of = *record_.communicator;
  match& matching = mine_.matching_;
  if (of.failed()) {
    ec_ = of.why().code;
  } else if (exchange_operation* const other = others_.find(*this)) {
    // Off its list first: the check and a reduction may revoke, which ends what is listed.
    others_.remove(*other);
    if (matching.check(key(peer()), size_, record_, other->size_, other->record_.hash)) {
      ec_ = of.failed() ? of.why().code : errc::mismatch;
      other->end(ec_);
    } else {
      other_ = other;
    }
  } else if (!others_.matching_.inspect(key(rank()), record_.hash)) {
    // That has revoked the communicator, here too: it is all one thread.
    ec_ = of.failed() ? of.why().code : errc::mismatch;
  } else {
    done_ = &done;
    mine_.add(*this);
    return false;
  }
  return true;
}

inline void exchanges::add(exchange_operation& waits) {
  waits.waiting_ = true;
  waits.prev_ = last_;
  (last_ != nullptr ? last_->next_ : first_) = &waits;
  last_ = &waits;
}
inline void exchanges::remove(exchange_operation& waits) {
  waits.waiting_ = false;
  (waits.prev_ != nullptr ? waits.prev_->next_ : first_) = waits.next_;
  (waits.next_ != nullptr ? waits.next_->prev_ : last_) = waits.prev_;
}
inline exchange_operation* exchanges::find(const exchange_operation& other) const {
  for (exchange_operation* one = first_; one != nullptr; one = one->next_) {
    if (&one->others_ == &other.mine_ && one->record_.sequence == other.record_.sequence &&
        one->lane_ == other.lane_ &&
        one->record_.communicator->id() == other.record_.communicator->id()) {
      return one;
    }
  }
  return nullptr;
}
inline void exchanges::end(const communicator_state& of, errc ec) {
  for (exchange_operation* one = first_; one != nullptr;) {
    exchange_operation* const following = one->next_;
    if (one->record_.communicator == &of) {
      remove(*one);
      one->end(ec);
    }
    one = following;
  }
}
inline bool exchanges::waits_in_another_call(const operation_record& call) const {
  for (const exchange_operation* one = first_; one != nullptr; one = one->next_) {
    if (one->record_.sequence == call.sequence && one->record_.hash != call.hash &&
        one->record_.communicator->id() == call.communicator->id()) {
      return true;
    }
  }
  return false;
}
inline void exchanges::add_missing(const operation_record& waiting, std::vector<int>& ranks) const {
  for (const exchange_operation* one = first_; one != nullptr; one = one->next_) {
    if (&one->record_ == &waiting) ranks.push_back(one->peer());
  }
}

}  // namespace colls::inproc
