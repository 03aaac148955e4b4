// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// stragglers: finds the ranks that are late for an operation.
//
// A rank that waits in an operation sends queries to other ranks. A queried rank answers with a
// report, which contains its own state and the states of other ranks that it knows to be late. From
// these reports, the waiting rank finds out which ranks are late. A late rank is called missing if
// it has not entered the operation. It is called silent if it has entered the operation but does
// not answer queries. It is called quiet if it does not answer queries and it is unknown whether it
// has entered the operation.

#include <colls/matching/operation_record.hpp>
#include <colls/matching/state_report.hpp>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace colls {

/// The table of the states of the other ranks of a communicator, as far as this rank knows them.
/// This rank has such a table while an operation of the communicator waits.
class stragglers {
 public:
  /// A rank that has not answered a query for this long counts as silent.
  static constexpr time_point patience = 50 * milliseconds;

  /// A claim that one rank, the waiter, waits for messages from another rank.
  struct wait_claim {
    std::uint64_t sequence = 0;  // the collective in which the waiter waits, or 0 if in none
    time_point as_of = 0;
    bool first_hand = false;  // the waiter itself has reported the claim
  };
  /// What this rank knows about one other rank, the peer.
  struct peer_entry {
    rank_state known;
    std::map<int, wait_claim> waiters;   // the ranks that wait for the peer, by world rank
    time_point as_of = 0;                // the time at which `known` was up to date
    time_point query_time = 0;           // the time of the first unanswered query, or 0
    time_point last_heard = 0;           // when some rank last heard from the peer, or 0
    time_point last_named = 0;           // when another rank last reported on the peer, or 0
    time_point last_stop_check = never;  // when this rank last checked `known.stopped`
    time_point last_announced = never;   // when the peer last got an announcement
    time_point dial_start = never;       // when this rank began to connect to the peer
    time_point last_logged = never;      // when the log last said that a message waits for the peer
    bool awaited = false;                // this rank waits for messages of the peer
    bool queried = false;                // this rank queries the peer directly
    /// If true, this rank has reported the state of the peer to other ranks. When the peer has
    /// entered the operation, this rank must report that, too.
    bool reported = false;
  };
  /// What this rank knows about the participation of a peer in an operation. A `missing` peer has
  /// not entered the operation. A `silent` peer has entered the operation but does not answer
  /// queries, and some rank waits for its messages. A `quiet` peer does not answer queries either,
  /// and it is unknown whether it has entered the operation. No rank is known to wait for messages
  /// from a `quiet` peer, so this peer may even have completed the operation.
  enum class standing : std::uint8_t { unknown, entered, missing, quiet, silent };
  /// The result of `judge`: a collective in which ranks wait, and the ranks that are late for it.
  struct verdict {
    std::uint64_t sequence = 0;  // the number of the operation that waits, or 0 if none
    int culprit = -1;
    bool has_entered = false;  // the culprit has entered the operation but is silent
    bool is_quiet = false;     // the culprit is quiet, so it may have entered
    std::vector<int> others;   // further late ranks
    std::vector<int> quiet;    // further quiet ranks
  };

  /// Constructs an empty table for `comm`, a communicator in which this rank waits. `sequence` is
  /// the sequence number of the oldest collective that this rank has in flight in `comm`, or 0 if
  /// there is none.
  stragglers(communicator_state& comm, std::uint64_t sequence, time_point now)
      : communicator_(&comm), sequence_(sequence), start_(now) {}

  communicator_state& communicator() const { return *communicator_; }
  std::uint64_t sequence() const { return sequence_; }
  const peer_entry* find(int rank) const {
    const auto result = entries_.find(rank);
    return result != entries_.end() ? &result->second : nullptr;
  }
  template <class Visitor>
  void for_each(Visitor visitor) {
    for (auto& [rank, entry] : entries_) visitor(rank, entry);
  }

  /// Records that this rank queries `rank`. `awaited` tells whether this rank waits for messages
  /// from `rank`.
  void query(int rank, bool awaited, time_point now) {
    peer_entry& entry = entries_[rank];
    entry.queried = true;
    entry.known.rank = rank;
    entry.awaited |= awaited;
    wait_for_answer(entry, now);
    entry.last_announced = now;
  }
  /// Records that this rank is opening a connection to `rank`. The caller repeats the call until
  /// the connection is open. A call 500 ms or more after the first one also records an unanswered
  /// query, so that `rank` soon counts as silent.
  void note_dial(int rank, time_point now) {
    peer_entry& entry = entries_[rank];
    entry.known.rank = rank;
    if (entry.dial_start == never) entry.dial_start = now;
    if (now - entry.dial_start < 500 * milliseconds) return;
    entry.queried = true;
    wait_for_answer(entry, now);
  }
  /// Records that the connection to `rank` is open.
  void record_connected(int rank) {
    const auto result = entries_.find(rank);
    if (result == entries_.end() || result->second.dial_start == never) return;
    result->second.dial_start = never;
    result->second.query_time = 0;
  }
  /// Begins a round of queries to the ranks whose last answers may be outdated. Returns the ranks
  /// to which the caller must send the queries. Returns no ranks if the previous round of queries
  /// began less than a second ago.
  std::vector<int> requery(time_point now) {
    std::vector<int> result;
    if (round_start_ != never && now - round_start_ < seconds) return result;
    for (const auto& [rank, entry] : entries_) {
      if (entry.queried && entry.query_time == 0 && now - entry.as_of > 2 * patience)
        result.push_back(rank);
    }
    for (const int rank : result) query(rank, false, now);
    // A rank on a busy machine may need more time than `patience` to answer, so this round of
    // queries lasts five times as long.
    if (!result.empty()) begin_query_round(now, 5 * patience);
    return result;
  }
  /// Begins a round of queries, in which this rank waits up to `span` for the answers before it
  /// decides which ranks are late.
  void begin_query_round(time_point now, time_point span) {
    round_start_ = now;
    round_end_ = now + span;
  }
  /// Returns true if this rank should wait for more answers, that is, if the round of queries has
  /// not ended and some rank has not answered its query.
  bool awaits_answers(time_point now) const {
    if (now >= round_end_) return false;
    return std::any_of(entries_.begin(), entries_.end(), [&](const auto& each) {
      return each.second.queried && each.second.query_time >= round_start_;
    });
  }
  /// Returns true if, within the last 30 s, this rank has written a log entry that says that one of
  /// its point-to-point operations waits for `rank`.
  bool is_logged(int rank, time_point now) const {
    const peer_entry* const entry = find(rank);
    return entry != nullptr && entry->last_logged != never &&
           now - entry->last_logged < 30 * seconds;
  }
  void note_logged(int rank, time_point now) { entries_[rank].last_logged = now; }
  /// Stores the state that a rank has reported about itself.
  void record_report(const rank_state& state, time_point now) {
    for (auto& [rank, other] : entries_) {
      const auto claim = other.waiters.find(state.rank);
      if (claim != other.waiters.end() && claim->second.sequence != state.waits_in) {
        claim->second = {0, now, true};
      }
    }
    peer_entry& entry = entries_[state.rank];
    entry.known = state;
    entry.known.answers = 1;
    entry.as_of = entry.last_heard = now;
    entry.query_time = 0;
    changed_ = true;
  }
  /// Stores `state`, which is the state of a third rank as reported by `peer`. `waits_in` is the
  /// sequence number of the collective in which `peer` waits, or 0 if there is no such collective.
  void record_third_party_report(int peer, std::uint64_t waits_in, const rank_state& state,
                                 time_point now) {
    peer_entry& entry = entries_[state.rank];
    entry.waiters[peer] = {state.awaited != 0 ? waits_in : 0, now, true};
    if (state.waiter >= 0 && state.waiter != communicator_->world_rank(communicator_->rank())) {
      const time_point time = now - state.waiter_ms * milliseconds;
      wait_claim& known = entry.waiters[state.waiter];
      if (!known.first_hand && time > known.as_of) known = {state.waiter_in, time, false};
    }
    const time_point as_of = now - state.age_ms * milliseconds;
    const std::uint64_t entered = std::max(entry.known.entered, state.entered);
    if (as_of > std::max(entry.as_of, entry.query_time)) {
      entry.known = state;
      entry.as_of = as_of;
      if (state.answers != 0) entry.query_time = 0;
    }
    entry.known.rank = state.rank;
    entry.known.entered = entered;
    entry.last_heard = std::max(entry.last_heard, now - state.silent_ms * milliseconds);
    entry.last_named = now;
    changed_ = true;
  }

  /// Returns the sequence number of the oldest collective in which any rank is known to wait.
  /// Returns 0 if this rank itself waits in no collective.
  std::uint64_t oldest_sequence(time_point now) const {
    std::uint64_t result = sequence_;
    for (const auto& [rank, entry] : entries_) {
      const bool waits =
          entry.known.waits_in != 0 && !is_silent(entry, now) && is_fresh(entry, now);
      if (waits && entry.known.waits_in < result) result = entry.known.waits_in;
    }
    return result;
  }
  standing standing_of(const peer_entry& entry, std::uint64_t sequence, time_point now) const {
    if (!entry.queried && !is_fresh(entry, now)) return standing::unknown;
    const bool silent = is_silent(entry, now);
    const bool awaited = is_awaited(entry, sequence, now);
    if (entry.known.entered >= sequence) {
      return silent && awaited ? standing::silent : standing::entered;
    }
    if (silent) return awaited ? standing::missing : standing::quiet;
    return entry.known.answers != 0 ? standing::missing : standing::unknown;
  }
  /// Returns the ranks that are late for the oldest collective in which any rank is known to wait.
  /// Which ranks are late depends on the `standing` of each rank in this collective. If any rank is
  /// `missing`, all `missing` ranks are late, and so are all `quiet` ranks if it is certain that
  /// they have not completed the collective. If no rank is `missing`, all `silent` ranks are late.
  /// `verdict::culprit` is the lowest late rank, or -1 if no rank is known to be late.
  verdict judge(time_point now) const {
    verdict result;
    result.sequence = oldest_sequence(now);
    if (result.sequence == 0) return result;
    std::vector<int> missing, quiet, silent;
    for (const auto& [rank, entry] : entries_) {
      const standing position = standing_of(entry, result.sequence, now);
      if (position == standing::missing) missing.push_back(rank);
      if (position == standing::quiet) quiet.push_back(rank);
      if (position == standing::silent) silent.push_back(rank);
    }
    result.has_entered = missing.empty();
    std::vector<int>& late = result.has_entered ? silent : missing;
    if (late.empty()) return result;
    // A quiet rank counts as late only if it cannot have completed the operation. This is certain
    // only if a rank is missing and the operation is one that no rank completes before all ranks
    // have entered it.
    if (result.has_entered || !communicator_->ends_after_all(result.sequence)) quiet.clear();
    result.is_quiet = !quiet.empty() && quiet.front() < late.front();
    std::vector<int>& first = result.is_quiet ? quiet : late;
    result.culprit = first.front();
    first.erase(first.begin());
    late.resize(std::min<std::size_t>(late.size(), state_report::max_others - 1));
    quiet.resize(std::min<std::size_t>(quiet.size(), state_report::max_others - 1 - late.size()));
    result.others = std::move(late);
    result.quiet = std::move(quiet);
    return result;
  }

  /// Adds the states of the late ranks to `out`, in rank order. Then adds the states of the ranks
  /// that an earlier report has named as late and that have since entered the operation. Stops when
  /// `out` is full.
  void fill(state_report& out, time_point now) {
    const std::uint64_t sequence = oldest_sequence(now);
    if (sequence == 0) return;
    for (const bool wants_late : {true, false}) {
      for (auto& [rank, entry] : entries_) {
        if (out.count == state_report::max_others) return;
        const standing position = standing_of(entry, sequence, now);
        const bool is_known_to_others = entry.reported || entry.last_named != 0;
        if (position == standing::unknown || wants_late != (position != standing::entered))
          continue;
        if (position == standing::entered && !is_known_to_others) continue;
        entry.reported = true;
        write_state(out.others[out.count++], entry, sequence, now);
      }
    }
  }
  /// Returns true if it is time to make a new report and to check with `is_news` whether it must be
  /// sent to other ranks.
  bool is_due(time_point now) const { return now >= due(); }
  /// Returns true if the report `known` contains news, that is, if its states of other ranks differ
  /// from those in the report passed to the previous call. Ages, `waits_in`, `stopped` and
  /// `waiter` do not matter.
  bool is_news(const state_report& known, time_point now) {
    changed_ = false;
    last_check_ = now;
    std::uint64_t digest = 0;
    for (std::uint32_t i = 0; i < known.count; ++i) {
      const rank_state& state = known.others[i];
      for (const std::uint64_t value :
           {static_cast<std::uint64_t>(state.rank), state.entered, state.sequence,
            std::uint64_t{state.communicator}, static_cast<std::uint64_t>(state.operation),
            std::uint64_t{state.answers}, std::uint64_t{state.awaited}, state.waiter_in}) {
        digest = mix(digest, value);
      }
    }
    return std::exchange(last_digest_, digest) != digest;
  }
  time_point due() const {
    time_point first = changed_ ? last_check_ + min_report_interval : never;
    for (const auto& [rank, entry] : entries_) {
      const time_point time = entry.query_time + patience;
      if (entry.query_time != 0 && time > last_check_) first = std::min(first, time);
    }
    return first;
  }

  static bool is_silent(const peer_entry& entry, time_point now) {
    if (entry.query_time == 0) return entry.known.answers == 0 && entry.as_of != 0;
    return entry.query_time >= entry.as_of ? now - entry.query_time >= patience
                                           : entry.known.answers == 0;
  }
  static time_point silence_of(const peer_entry& entry, time_point now) {
    return now - (entry.last_heard != 0   ? entry.last_heard
                  : entry.query_time != 0 ? entry.query_time
                                          : now);
  }

 private:
  // Records `now` as the time of the first unanswered query to the peer. Does nothing if an earlier
  // query is unanswered. If other ranks have already reported that the peer is silent, records the
  // time `as_of` of that report instead of `now`. The peer then counts as silent until it answers.
  static void wait_for_answer(peer_entry& entry, time_point now) {
    if (entry.query_time == 0) entry.query_time = is_silent(entry, now) ? entry.as_of : now;
  }
  static std::uint32_t in_milliseconds(time_point span) {
    return static_cast<std::uint32_t>(std::clamp<time_point>(span / milliseconds, 0, UINT32_MAX));
  }
  // Returns true if information that dates from the time `last` is recent enough to be used. A
  // waiting rank repeats its reports every 500 ms at first and less often after a long wait.
  // Therefore the maximum age increases with the time that this rank has waited.
  bool is_fresh(time_point last, time_point now) const {
    return now - last < 2 * seconds + (now - start_) / 4;
  }
  bool is_fresh(const peer_entry& entry, time_point now) const {
    return is_fresh(std::max({entry.last_named, entry.last_heard, entry.as_of}), now);
  }

  // Returns true if `claim` is still valid and says that `rank` waits in the collective `sequence`.
  // An old claim is not valid. If `rank` has become silent, the claim is not valid either: after
  // its last report, `rank` may have received the messages that it waited for.
  bool still_waits(int rank, const wait_claim& claim, std::uint64_t sequence,
                   time_point now) const {
    const peer_entry* const known_entry = find(rank);
    const bool silent =
        known_entry != nullptr && known_entry->queried && is_silent(*known_entry, now);
    return claim.sequence == sequence && !silent && is_fresh(claim.as_of, now);
  }
  bool is_awaited(const peer_entry& entry, std::uint64_t sequence, time_point now) const {
    if (communicator_->size() == 2 || (entry.awaited && sequence == sequence_)) return true;
    return std::any_of(entry.waiters.begin(), entry.waiters.end(), [&](const auto& each) {
      return still_waits(each.first, each.second, sequence, now);
    });
  }
  void write_state(rank_state& out, const peer_entry& entry, std::uint64_t sequence,
                   time_point now) const {
    out = entry.known;
    const bool silent = is_silent(entry, now);
    const time_point since = silent && entry.query_time != 0 ? entry.query_time : entry.as_of;
    out.answers = silent ? 0 : 1;
    out.age_ms = in_milliseconds(now - since);
    out.silent_ms = in_milliseconds(silence_of(entry, now));
    out.awaited = entry.awaited ? 1 : 0;
    out.waiter = -1;
    out.waiter_in = 0;
    time_point latest = -1;
    for (const auto& [rank, claim] : entry.waiters) {
      if (claim.as_of <= latest || !still_waits(rank, claim, sequence, now)) continue;
      latest = claim.as_of;
      out.waiter = rank;
      out.waiter_in = sequence;
      out.waiter_ms = in_milliseconds(now - latest);
    }
  }

  static constexpr time_point min_report_interval = 20 * milliseconds;

  communicator_state* communicator_;
  std::uint64_t sequence_;
  time_point start_;
  time_point round_start_ = never;
  time_point round_end_ = -seconds;
  std::map<int, peer_entry> entries_;  // by rank in the world
  time_point last_check_ = 0;
  bool changed_ = false;
  std::uint64_t last_digest_ = 0;
};

/// Calls `visitor(other)` for each rank that the rank `rank` queries in addition to the ranks that
/// it waits for. In a communicator of at most 16 ranks, these are all other ranks. In a larger
/// communicator, these are the ranks whose distance from `rank` is a power of two, so that reports
/// reach all ranks quickly.
template <class Visitor>
void for_each_neighbour(int rank, int size, Visitor visitor) {
  constexpr int few = 16;
  if (size <= few) {
    for (int other = 0; other < size; ++other) {
      if (other != rank) visitor(other);
    }
    return;
  }
  for (int stride = 1; stride < size; stride *= 2) {
    visitor((rank + stride) % size);
    if (2 * stride != size) visitor((rank + size - stride) % size);
  }
}

}  // namespace colls
