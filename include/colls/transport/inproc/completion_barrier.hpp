// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The completion barrier of the inproc transport: a barrier between ranks that run on one thread.
// The rank that arrives last (the last arriver) does the work of all ranks, like the completion
// function of a std::barrier, and then releases the other ranks.

#include <colls/matching/tag_matcher.hpp>

namespace colls::inproc {

class completion_barriers;

/// The arrival of one rank at a barrier of all ranks of a communicator. Each lane (concurrent part)
/// of an operation has its own barrier. Every rank except the last arriver waits until the last
/// arriver releases it.
class completion_barrier {
 public:
  /// Prepares the arrival of a rank at a barrier. The rank arrives when `start` is called. The last
  /// arriver can then get the pointer `data` of this rank through `for_each_other`.
  completion_barrier(completion_barriers& barriers, tag_matcher& matcher, std::uint16_t lane,
                     void* data, operation_record& record)
      : barriers_(barriers),
        matcher_(matcher),
        record_(record),
        data_(data),
        sequence_(record.sequence),
        hash_(record.hash),
        communicator_(record.communicator->id()),
        rank_(record.communicator->rank()),
        lane_(lane) {}
  completion_barrier(const completion_barrier&) = delete;
  inline ~completion_barrier();

  inline bool start(completion& done);
  void result() const {
    if (ec_ != errc()) throw error(ec_);
  }

  /// Returns whether this rank is the last arriver.
  bool is_last() const { return arrivals_ == record_.communicator->size(); }
  /// Calls `callback(rank, data)` for each other rank. `data` is the pointer that the other rank
  /// has passed to the constructor. Only the last arriver may call this function.
  template <class Callback>
  void for_each_other(const Callback& callback) const {
    for (const completion_barrier* other = previous_; other != nullptr; other = other->previous_) {
      callback(other->rank_, other->data_);
    }
  }
  /// Releases the other ranks. Without this call, they wait until the communicator is revoked. Only
  /// the last arriver may call this function.
  inline void release();

 private:
  friend completion_barriers;

  bool is_same_barrier(const completion_barrier& other) const {
    return sequence_ == other.sequence_ && lane_ == other.lane_ &&
           communicator_ == other.communicator_;
  }
  int world_rank() const { return record_.communicator->world_rank(rank_); }
  errc failure_code() const {
    const communicator_state& comm = *record_.communicator;
    return comm.failed() ? comm.reason().code : errc::mismatch;
  }
  void finish(errc ec) {
    waiting_ = false;
    ec_ = ec;
    done_->post();
  }

  completion_barriers& barriers_;
  tag_matcher& matcher_;
  operation_record& record_;
  void* data_;
  // `sequence_`, `hash_`, `communicator_` and `rank_` are copies of values in `record_`. The ranks
  // that arrive later read these copies, so they need not access the record of this rank.
  std::uint64_t sequence_;
  std::uint64_t hash_;
  std::uint32_t communicator_;
  int rank_;
  completion* done_ = nullptr;
  completion_barrier* previous_ = nullptr;  // the previous arriver
  int arrivals_ = 1;                        // the number of arrivers up to and including this one
  errc ec_ = {};
  std::uint16_t lane_;
  bool waiting_ = false;
};

/// All barriers of a world at which ranks are waiting.
class completion_barriers {
 public:
  /// Adds `matcher`, the tag matcher of the next rank. Must be called once for each rank of the
  /// world, in rank order.
  void add_rank(tag_matcher& matcher) { ranks_.push_back(&matcher); }

  /// Stops one rank from waiting at the barriers of a communicator. Its operations that wait at
  /// these barriers complete with the error `ec`. `comm` is the communicator's state on that rank.
  void fail(const communicator_state& comm, errc ec) {
    for (std::size_t i = last_arrivers_.size(); i-- > 0;) {
      const auto is_of_comm = [&](const completion_barrier& arrival) {
        return arrival.record_.communicator == &comm;
      };
      completion_barrier* const waiting = find(last_arrivers_[i], is_of_comm);
      if (waiting == nullptr) continue;
      remove(*waiting);
      waiting->finish(ec);
    }
  }
  /// Returns the world rank of a rank that waits at a barrier in a call that does not match `call`.
  /// Such a call has the communicator and the sequence number of `call`, but another fingerprint.
  /// Returns -1 if no rank waits in such a call.
  int find_mismatched_rank(const operation_record& call) const {
    for (const completion_barrier* const arrival : last_arrivers_) {
      const operation_record& other = arrival->record_;
      if (other.sequence == call.sequence && other.hash != call.hash &&
          other.communicator->id() == call.communicator->id()) {
        return arrival->world_rank();
      }
    }
    return -1;
  }
  /// Returns the world ranks of the ranks for which the operation `waiting` waits. `waiting` may
  /// wait at several barriers. A rank is listed once for each of these barriers at which it has not
  /// arrived.
  std::vector<int> missing_ranks(const operation_record& waiting) const {
    const communicator_state& comm = *waiting.communicator;
    std::vector<int> ranks;
    for (completion_barrier* const last_arriver : last_arrivers_) {
      const auto is_of_operation = [&](const completion_barrier& arrival) {
        return &arrival.record_ == &waiting;
      };
      if (find(last_arriver, is_of_operation) == nullptr) continue;
      for (int rank = 0; rank < comm.size(); ++rank) {
        const auto is_of_rank = [&](const completion_barrier& arrival) {
          return arrival.rank_ == rank;
        };
        if (find(last_arriver, is_of_rank) == nullptr) ranks.push_back(comm.world_rank(rank));
      }
    }
    return ranks;
  }

 private:
  friend completion_barrier;

  /// Records that the rank `arriver` has arrived at its barrier. Returns true if the rank need not
  /// wait. In this case, either it is the last arriver or its operation has failed. When the last
  /// rank arrives, the waiting ranks stay in `last_arrivers_`. A revocation of the communicator can
  /// therefore still end their operations before the last arriver releases them.
  bool add(completion_barrier& arriver) {
    const auto barrier = find_barrier(arriver);
    if (barrier != last_arrivers_.end()) {
      const completion_barrier& previous = **barrier;
      if (previous.hash_ != arriver.hash_) {
        arriver.matcher_.begin_dispute(*arriver.record_.communicator, arriver.sequence_,
                                       previous.world_rank());
        arriver.ec_ = arriver.failure_code();
        return true;
      }
      arriver.previous_ = *barrier;
      arriver.arrivals_ = previous.arrivals_ + 1;
    }
    if (arriver.is_last()) return true;
    if (!check_rank_below(arriver, arriver.previous_)) {
      arriver.ec_ = arriver.failure_code();
      return true;
    }
    if (barrier == last_arrivers_.end()) {
      last_arrivers_.push_back(&arriver);
    } else {
      *barrier = &arriver;
    }
    arriver.waiting_ = true;
    return false;
  }
  void remove(completion_barrier& arriver) {
    const auto barrier = find_barrier(arriver);
    completion_barrier** link = &*barrier;
    for (; *link != &arriver; link = &(*link)->previous_) --(*link)->arrivals_;
    *link = arriver.previous_;
    if (*barrier == nullptr) last_arrivers_.erase(barrier);
  }
  void release(const completion_barrier& last) {
    const auto barrier = find_barrier(last);
    if (barrier == last_arrivers_.end()) return;
    completion_barrier* arriver = *barrier;
    last_arrivers_.erase(barrier);
    for (; arriver != nullptr; arriver = arriver->previous_) arriver->finish({});
  }

  /// Returns whether the rank below `arriver` can still arrive at this barrier. The rank below is
  /// the previous rank of the communicator, or the last rank if `arriver` is rank 0. Called before
  /// `arriver` waits. Each waiting rank has checked the rank below it, so together the ranks check
  /// all ranks.
  ///
  /// Returns false if, for example, the rank below has left the communicator or has made a
  /// different call with the same sequence number. In these two cases, `tag_matcher::inspect`
  /// normally revokes the communicator. Returns true if the rank below has not made its call yet.
  /// If that rank makes a different call later, it detects the mismatch itself (see `add` and
  /// `find_mismatched_rank`).
  ///
  /// `last_arriver` is the rank that arrived at this barrier just before `arriver`, or null. If it
  /// is the rank below, no check is needed. This is the usual case, because ranks mostly arrive in
  /// rank order.
  bool check_rank_below(const completion_barrier& arriver,
                        const completion_barrier* last_arriver) const {
    const communicator_state& comm = *arriver.record_.communicator;
    const int below = (arriver.rank_ != 0 ? arriver.rank_ : comm.size()) - 1;
    if (last_arriver != nullptr && last_arriver->rank_ == below) return true;
    tag_matcher& peer = *ranks_[static_cast<std::size_t>(comm.world_rank(below))];
    return peer.inspect(
        {arriver.matcher_.rank(), arriver.communicator_, arriver.sequence_, arriver.lane_},
        arriver.hash_);
  }

  /// Returns an iterator to the latest arriver at the barrier to which `arriver` belongs, or the
  /// end iterator if no rank waits at this barrier.
  std::vector<completion_barrier*>::iterator find_barrier(const completion_barrier& arriver) {
    auto barrier = last_arrivers_.begin();
    while (barrier != last_arrivers_.end() && !(*barrier)->is_same_barrier(arriver)) ++barrier;
    return barrier;
  }
  template <class Predicate>
  static completion_barrier* find(completion_barrier* last_arriver, const Predicate& matches) {
    while (last_arriver != nullptr && !matches(*last_arriver)) {
      last_arriver = last_arriver->previous_;
    }
    return last_arriver;
  }

  std::vector<tag_matcher*> ranks_;  // indexed by the rank in the world
  // The latest arriver at each barrier. The `previous_` links lead from it to the earlier arrivers.
  std::vector<completion_barrier*> last_arrivers_;
};

inline completion_barrier::~completion_barrier() {
  if (waiting_) barriers_.remove(*this);
}
inline bool completion_barrier::start(completion& done) {
  if (record_.communicator->failed()) {
    ec_ = record_.communicator->reason().code;
    return true;
  }
  done_ = &done;
  return barriers_.add(*this);
}
inline void completion_barrier::release() { barriers_.release(*this); }

}  // namespace colls::inproc
