// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// meeting: ranks of one thread wait for each other, and the last to come does the work of all.

#include <colls/matching/tag_matcher.hpp>

namespace colls::inproc {

class meetings;

/// One rank's part in the meeting of all ranks of a communicator in one lane of one operation. For
/// the last to come it ends at once, for the others when that one lets them go.
class meet_operation {
 public:
  meet_operation(meetings& all, match& matching, std::uint16_t lane, void* mine,
                 operation_record& record)
      : all_(all),
        matching_(matching),
        record_(record),
        mine_(mine),
        sequence_(record.sequence),
        hash_(record.hash),
        communicator_(record.communicator->id()),
        rank_(record.communicator->rank()),
        lane_(lane) {}
  meet_operation(const meet_operation&) = delete;
  inline ~meet_operation();

  inline bool start(completion& done);
  void result() const {
    if (ec_ != errc()) throw error(ec_);
  }

  bool is_last() const { return here_ == record_.communicator->size(); }
  /// Calls `use(rank, what it gave)` for each of the other ranks. Of the last to come.
  template <class Use>
  void each_other(const Use& use) const {
    for (const meet_operation* one = before_; one != nullptr; one = one->before_) {
      use(one->rank_, one->mine_);
    }
  }
  /// Of the last to come: lets the others go. Else they wait until the communicator is revoked.
  inline void release();

 private:
  friend meetings;

  bool is_beside(const meet_operation& other) const {
    return sequence_ == other.sequence_ && lane_ == other.lane_ &&
           communicator_ == other.communicator_;
  }
  int world_rank() const { return record_.communicator->world_rank(rank_); }
  errc why_not() const {
    const communicator_state& of = *record_.communicator;
    return of.failed() ? of.why().code : errc::mismatch;
  }
  void end(errc ec) {
    waiting_ = false;
    ec_ = ec;
    done_->post();
  }

  meetings& all_;
  match& matching_;
  operation_record& record_;
  void* mine_;
  // Of the record, at hand for whoever comes next.
  std::uint64_t sequence_;
  std::uint64_t hash_;
  std::uint32_t communicator_;
  int rank_;
  completion* done_ = nullptr;
  meet_operation* before_ = nullptr;  // who came before
  int here_ = 1;                      // how many have come, up to this one
  errc ec_ = {};
  std::uint16_t lane_;
  bool waiting_ = false;
};

/// Those of a world for which some rank waits.
class meetings {
 public:
  void add_rank(match& matching) { ranks_.push_back(&matching); }

  /// Ends with `ec` the part of that rank, whose communicator it is, in all of them.
  void end(const communicator_state& of, errc ec) {
    for (std::size_t i = newest_.size(); i-- > 0;) {
      const auto is_of = [&](const meet_operation& one) { return one.record_.communicator == &of; };
      meet_operation* const found = find(newest_[i], is_of);
      if (found == nullptr) continue;
      remove(*found);
      found->end(ec);
    }
  }
  /// A rank of the world that meets with others in another call of the same number, or -1.
  int rank_in_another_call(const operation_record& call) const {
    for (const meet_operation* const one : newest_) {
      const operation_record& theirs = one->record_;
      if (theirs.sequence == call.sequence && theirs.hash != call.hash &&
          theirs.communicator->id() == call.communicator->id()) {
        return one->world_rank();
      }
    }
    return -1;
  }
  /// The ranks of the world that have not come where an operation waits.
  std::vector<int> missing(const operation_record& waiting) const {
    const communicator_state& of = *waiting.communicator;
    std::vector<int> ranks;
    for (meet_operation* const newest : newest_) {
      const auto waits = [&](const meet_operation& one) { return &one.record_ == &waiting; };
      if (find(newest, waits) == nullptr) continue;
      for (int rank = 0; rank < of.size(); ++rank) {
        const auto is_it = [&](const meet_operation& one) { return one.rank_ == rank; };
        if (find(newest, is_it) == nullptr) ranks.push_back(of.world_rank(rank));
      }
    }
    return ranks;
  }

 private:
  friend meet_operation;

  /// True: it is the last, and the others stay listed, so that they end if the communicator does.
  bool come(meet_operation& comes) {
    const auto place = place_of(comes);
    if (place != newest_.end()) {
      const meet_operation& before = **place;
      if (before.hash_ != comes.hash_) {
        comes.matching_.disagree(*comes.record_.communicator, comes.sequence_, before.world_rank());
        comes.ec_ = comes.why_not();
        return true;
      }
      comes.before_ = *place;
      comes.here_ = before.here_ + 1;
    }
    if (comes.is_last()) return true;
    if (!may_meet_the_one_below(comes, comes.before_)) {
      comes.ec_ = comes.why_not();
      return true;
    }
    if (place == newest_.end()) {
      newest_.push_back(&comes);
    } else {
      *place = &comes;
    }
    comes.waiting_ = true;
    return false;
  }
  void remove(meet_operation& waits) {
    const auto place = place_of(waits);
    meet_operation** link = &*place;
    for (; *link != &waits; link = &(*link)->before_) --(*link)->here_;
    *link = waits.before_;
    if (*place == nullptr) newest_.erase(place);
  }
  void release(const meet_operation& last) {
    const auto place = place_of(last);
    if (place == newest_.end()) return;
    meet_operation* one = *place;
    newest_.erase(place);
    for (; one != nullptr; one = one->before_) one->end({});
  }

  /// False: the rank before this one has left, or is in another call of that number, and that has
  /// revoked the communicator. So of those who do not come some are found, unless all stay away; if
  /// it is too early for an answer, that rank looks here when it waits for a message. Ranks mostly
  /// come in their order: then that one came last, and nothing is asked.
  bool may_meet_the_one_below(const meet_operation& comes, const meet_operation* newest) const {
    const communicator_state& of = *comes.record_.communicator;
    const int below = (comes.rank_ != 0 ? comes.rank_ : of.size()) - 1;
    if (newest != nullptr && newest->rank_ == below) return true;
    match& theirs = *ranks_[static_cast<std::size_t>(of.world_rank(below))];
    return theirs.inspect(
        {comes.matching_.rank(), comes.communicator_, comes.sequence_, comes.lane_}, comes.hash_);
  }

  /// Where the list has those who wait for the same; its end: nobody does.
  std::vector<meet_operation*>::iterator place_of(const meet_operation& one) {
    auto place = newest_.begin();
    while (place != newest_.end() && !(*place)->is_beside(one)) ++place;
    return place;
  }
  template <class Is>
  static meet_operation* find(meet_operation* newest, const Is& is) {
    while (newest != nullptr && !is(*newest)) newest = newest->before_;
    return newest;
  }

  std::vector<match*> ranks_;            // of the world
  std::vector<meet_operation*> newest_;  // of each meeting, who came last; the others hang on it
};

inline meet_operation::~meet_operation() {
  if (waiting_) all_.remove(*this);
}
inline bool meet_operation::start(completion& done) {
  if (record_.communicator->failed()) {
    ec_ = record_.communicator->why().code;
    return true;
  }
  done_ = &done;
  return all_.come(*this);
}
inline void meet_operation::release() { all_.release(*this); }

}  // namespace colls::inproc
