// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// stragglers: finds the ranks that have not entered an operation in which others wait, from the
// reports that the waiting ranks exchange.

#include <colls/matching/operation_record.hpp>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace colls {

/// The state of a rank, as the rank reports it or as another rank knows it. Sent in this layout.
struct rank_state {
  std::uint64_t entered = 0;       // the newest collective of the communicator that it has called
  std::uint64_t waits_in = 0;      // the oldest one there that it has not finished; 0: none
  std::uint64_t sequence = 0;      // of its current operation; the tag, if point to point
  std::uint64_t waiter_in = 0;     // the collective in which rank `waiter` waits for its messages
  std::uint32_t communicator = 0;  // of its current operation
  std::int32_t rank = -1;          // in the world
  std::uint32_t age_ms = 0;        // the age of this state
  std::uint32_t silent_ms = 0;     // the time since a message of the rank came
  collective operation = collective::none;  // its current one; none: nothing is in flight
  std::uint8_t answers = 0;                 // it answered the last query
  std::uint8_t awaited = 0;                 // the reporting rank waits for its messages
  std::uint8_t stopped = 0;                 // the system says that its process is stopped
  std::int32_t waiter = -1;                 // a third rank that reported to wait for its messages
  std::uint32_t waiter_ms = 0;              // the age of that report
  std::uint32_t reserved = 0;
};

/// The report of a waiting rank: its own state and the states of the ranks that it knows to be
/// late.
struct state_report {
  static constexpr std::uint32_t max_others = 8;

  rank_state self;
  std::uint32_t count = 0;
  std::uint32_t reserved = 0;
  rank_state others[max_others];

  /// Whether the values are in range.
  bool is_plausible() const {
    const auto in_range = [](const rank_state& state) {
      return state.operation <= collective::attach;
    };
    return count <= max_others && in_range(self) && std::all_of(others, others + count, in_range);
  }
};
static_assert(sizeof(state_report) == 584 && std::is_trivially_copyable_v<state_report>);

/// The states of the other ranks of a communicator, as far as this rank knows them, while an
/// operation of that communicator waits.
class stragglers {
 public:
  /// A rank that does not answer for this long is silent.
  static constexpr time_point patience = 50 * milliseconds;

  /// A report that a rank waits for the messages of another.
  struct wait_claim {
    std::uint64_t sequence = 0;  // of the collective in which it waits; 0: it no longer waits
    time_point as_of = 0;
    bool first_hand = false;  // reported by that rank itself; third-party reports are older
  };
  struct peer_entry {
    rank_state known;
    std::map<int, wait_claim> waiters;   // by rank in the world
    time_point as_of = 0;                // the time of `known`
    time_point query_time = 0;           // of the first unanswered query; 0: none
    time_point last_heard = 0;           // the last report of it or about it; 0: never
    time_point last_named = 0;           // the last report of another rank that named it
    time_point last_stop_check = never;  // when the system was asked whether it is stopped
    time_point last_announced = never;   // the last announcement of an operation that waits for it
    time_point dial_start = never;       // since when a connection to it is being opened
    time_point last_logged = never;      // the last log entry that a message waits for it
    bool awaited = false;                // this rank waits for its messages
    bool queried = false;                // this rank queries it directly
    bool reported = false;               // as late; the end of its delay has to be reported, too
  };
  /// `missing`: it has not entered the operation. `quiet`: it is silent, and no rank has reported
  /// that it has entered or that it is awaited; it may have done its part. `silent`: it has
  /// entered, is awaited, and does not answer.
  enum class standing : std::uint8_t { unknown, entered, missing, quiet, silent };
  struct verdict {
    std::uint64_t sequence = 0;  // of the operation that waits
    int culprit = -1;
    bool has_entered = false;  // the culprit has entered and is silent
    bool is_quiet = false;     // the culprit is quiet, so it may have entered
    std::vector<int> others;   // further late ranks
    std::vector<int> quiet;    // further quiet ranks
  };

  /// `sequence` is that of the oldest collective of `comm` that waits here, or 0.
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

  /// Notes that this rank queries `rank`, and whether it waits for the messages of `rank`.
  void query(int rank, bool awaited, time_point now) {
    peer_entry& entry = entries_[rank];
    entry.queried = true;
    entry.known.rank = rank;
    entry.awaited |= awaited;
    wait_for_answer(entry, now);
    entry.last_announced = now;
  }
  /// Notes that a connection to `rank` is being opened. If that takes long, the rank is silent.
  void note_dial(int rank, time_point now) {
    peer_entry& entry = entries_[rank];
    entry.known.rank = rank;
    if (entry.dial_start == never) entry.dial_start = now;
    if (now - entry.dial_start < 500 * milliseconds) return;
    entry.queried = true;
    wait_for_answer(entry, now);
  }
  /// Notes that the connection to `rank` is open.
  void record_connected(int rank) {
    const auto result = entries_.find(rank);
    if (result == entries_.end() || result->second.dial_start == never) return;
    result->second.dial_start = never;
    result->second.query_time = 0;
  }
  /// Notes another query of the ranks whose reports may be outdated, and returns them. Returns none
  /// shortly after the last time.
  std::vector<int> requery(time_point now) {
    std::vector<int> result;
    if (round_start_ != never && now - round_start_ < seconds) return result;
    for (const auto& [rank, entry] : entries_) {
      if (entry.queried && entry.query_time == 0 && now - entry.as_of > 2 * patience)
        result.push_back(rank);
    }
    for (const int rank : result) query(rank, false, now);
    // A rank on a busy machine needs time to answer.
    if (!result.empty()) begin_query_round(now, 5 * patience);
    return result;
  }
  /// Begins a round of queries. The verdict waits up to `span` for their answers.
  void begin_query_round(time_point now, time_point span) {
    round_start_ = now;
    round_end_ = now + span;
  }
  /// Whether an answer to a query of the round is missing and the round has not timed out.
  bool awaits_answers(time_point now) const {
    if (now >= round_end_) return false;
    return std::any_of(entries_.begin(), entries_.end(), [&](const auto& each) {
      return each.second.queried && each.second.query_time >= round_start_;
    });
  }
  /// Whether a recent log entry says that a message waits for that rank.
  bool is_logged(int rank, time_point now) const {
    const peer_entry* const entry = find(rank);
    return entry != nullptr && entry->last_logged != never &&
           now - entry->last_logged < 30 * seconds;
  }
  void note_logged(int rank, time_point now) { entries_[rank].last_logged = now; }
  /// Stores the state that a rank reports of itself.
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
  /// Stores the state of another rank that `peer` reports; `peer` waits in the collective
  /// `waits_in`.
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

  /// The oldest operation of the communicator in which a rank is known to wait.
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
  /// Finds the lowest late rank. If none is known to be late, finds one that has entered and is
  /// silent.
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
    // While a rank is missing, no rank has ended such a call. So the quiet ranks have not called
    // it, or they compute while it runs.
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

  /// Adds the states of late ranks to the report, the lowest rank first, then the states of ranks
  /// that have entered and that a report has named.
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
  /// Whether it is time to look for news.
  bool is_due(time_point now) const { return now >= due(); }
  /// Whether `known` differs from the previous report.
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
  // A rank that others report as silent stays silent until it answers.
  static void wait_for_answer(peer_entry& entry, time_point now) {
    if (entry.query_time == 0) entry.query_time = is_silent(entry, now) ? entry.as_of : now;
  }
  static std::uint32_t in_milliseconds(time_point span) {
    return static_cast<std::uint32_t>(std::clamp<time_point>(span / milliseconds, 0, UINT32_MAX));
  }
  // A third-party report counts while it is repeated. Waiting ranks repeat it every 500 ms, and
  // less often the longer they wait.
  bool is_fresh(time_point last, time_point now) const {
    return now - last < 2 * seconds + (now - start_) / 4;
  }
  bool is_fresh(const peer_entry& entry, time_point now) const {
    return is_fresh(std::max({entry.last_named, entry.last_heard, entry.as_of}), now);
  }

  // The claim of a rank that has become silent does not count: it may have its messages by now.
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

/// Visits the ranks of a communicator that rank `rank` queries besides those that it waits for: all
/// ranks of a small communicator, else those at distances of powers of two, so that news spreads to
/// all ranks quickly.
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
