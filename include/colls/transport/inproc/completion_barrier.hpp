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
  /// Prepares an arrival. The rank arrives when `start` is called. The last arriver can access
  /// `data` by `for_each_other`.
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
  /// Calls `callback(rank, data)` for each other rank, with the `data` of that rank. May be called
  /// only by the last arriver.
  template <class Callback>
  void for_each_other(const Callback& callback) const {
    for (const completion_barrier* other = previous_; other != nullptr; other = other->previous_) {
      callback(other->rank_, other->data_);
    }
  }
  /// Releases the other ranks. Without this call, they wait until the communicator is revoked. May
  /// be called only by the last arriver.
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
  // The next four members are copies from the record, so that ranks that arrive later need not
  // access the record of this rank.
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
  /// Adds the matcher of the next rank. Must be called once for each rank of the world, in order.
  void add_rank(tag_matcher& matcher) { ranks_.push_back(&matcher); }

  /// Completes, with the error `ec`, the operations of one rank that wait at barriers of a
  /// communicator. `comm` is that rank's own object for the communicator.
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
  /// Returns the world rank of a rank that waits at a barrier and whose call has the communicator
  /// and sequence number of `call`, but is a different call. Returns -1 if there is no such rank.
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
  /// Returns the world ranks of the ranks that have not arrived at the barriers at which the
  /// operation `waiting` waits.
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

  /// Adds an arriver to its barrier. Returns true if the arriver need not wait, because it is the
  /// last one or because its operation has failed. When the last rank arrives, the other arrivers
  /// stay in `last_arrivers_`, so that a revocation of the communicator can still end their
  /// operations.
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

  /// Checks that the rank below `arriver` can still arrive at this barrier. The rank below is the
  /// previous rank of the communicator, or the last rank if `arriver` is rank 0. Called before
  /// `arriver` waits. Returns false if the rank below has left the communicator, or is in a
  /// different call with the same sequence number. In these cases the communicator is revoked. If
  /// the rank below has not begun its call yet, returns true. That rank itself looks for a mismatch
  /// if its call waits for a message (see `find_mismatched_rank`). Every arriver checks the rank
  /// below it, so together they check all ranks. The check is skipped if the rank below is
  /// `last_arriver`, the latest arriver before `arriver`. This is the usual case, because ranks
  /// mostly arrive in rank order.
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
