// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// stragglers: which ranks have not entered an operation that others wait in, as far as the waiting
// ranks have told each other.

#include <colls/matching/operation_record.hpp>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace colls {

/// Where a rank is, by its own word or as far as another rank knows. It travels as it is.
struct rank_state {
  std::uint64_t entered = 0;       // the newest collective of the communicator that it has called
  std::uint64_t waits_in = 0;      // the oldest one there that it has not finished; 0: none
  std::uint64_t sequence = 0;      // of the operation that it is in; the tag, if point to point
  std::uint64_t waiter_in = 0;     // the collective in which rank `waiter` waits for its messages
  std::uint32_t communicator = 0;  // of that operation
  std::int32_t rank = -1;          // in the world
  std::uint32_t age_ms = 0;        // how long ago it was so
  std::uint32_t silent_ms = 0;     // how long nothing has been heard of it
  collective operation = collective::none;  // that it is in; none: it has none under way
  std::uint8_t answers = 0;                 // it has answered when it was asked last
  std::uint8_t awaited = 0;                 // the rank that says this waits for its messages
  std::uint8_t stopped = 0;                 // its process is stopped, says the system
  std::int32_t waiter = -1;                 // a third rank, which has said so
  std::uint32_t waiter_ms = 0;              // how long ago
  std::uint32_t reserved = 0;
};

/// What a waiting rank tells others: where it is, and where those are that it knows to be late.
struct state_report {
  static constexpr std::uint32_t most = 8;

  rank_state self;
  std::uint32_t count = 0;
  std::uint32_t reserved = 0;
  rank_state others[most];

  /// Whether a rank of colls would say so.
  bool is_plausible() const {
    const auto can_be = [](const rank_state& of) { return of.operation <= collective::attach; };
    return count <= most && can_be(self) && std::all_of(others, others + count, can_be);
  }
};
static_assert(sizeof(state_report) == 584 && std::is_trivially_copyable_v<state_report>);

/// What one rank knows of the others while an operation of a communicator waits.
class inquiry {
 public:
  /// A rank that does not answer for so long is silent.
  static constexpr time_point patience = 50 * milliseconds;

  /// A rank that has said that it waits for the messages of another.
  struct waiter {
    std::uint64_t sequence = 0;  // of the collective in which it does; 0: it does not any more
    time_point as_of = 0;
    bool said_so = false;  // itself: what others say of it is older
  };
  struct entry {
    rank_state known;
    std::map<int, waiter> waiters;  // by rank in the world
    time_point as_of = 0;           // when it was so
    time_point asked = 0;           // for the first time since it answered; 0: it has answered
    time_point heard = 0;           // when it, or another rank of it, was heard of last; 0: never
    time_point named = 0;           // when another rank's report named it last
    time_point looked_at = never;   // when the system was asked whether it is stopped
    time_point announced = never;   // an operation that waits for it, the last time
    time_point dialled = never;     // a link to it is being opened since
    time_point logged = never;      // when the log was told that a message waits for it
    bool awaited = false;           // this rank waits for its messages
    bool direct = false;            // this rank asks it itself
    bool reported = false;          // as late, so that others have to learn when it is not any more
  };
  /// `quiet`: it is silent, and no rank has said that it has entered or that it waits for it. It may
  /// have done its part.
  enum class standing : std::uint8_t { unknown, inside, missing, quiet, silent };
  struct verdict {
    std::uint64_t sequence = 0;  // of the operation that waits
    int culprit = -1;
    bool has_entered = false;  // and is silent
    bool is_quiet = false;     // so that it may have entered
    std::vector<int> others;   // that are late as well
    std::vector<int> quiet;    // and others of which nothing is heard
  };

  /// `sequence`: of the oldest collective of `of` that waits here; 0: none does.
  inquiry(communicator_state& of, std::uint64_t sequence, time_point now)
      : of_(&of), sequence_(sequence), began_(now) {}

  communicator_state& communicator() const { return *of_; }
  std::uint64_t sequence() const { return sequence_; }
  const entry* find(int rank) const {
    const auto found = all_.find(rank);
    return found != all_.end() ? &found->second : nullptr;
  }
  template <class Visit>
  void each(Visit visit) {
    for (auto& [rank, one] : all_) visit(rank, one);
  }

  void ask(int rank, bool awaited, time_point now) {
    entry& one = all_[rank];
    one.direct = true;
    one.known.rank = rank;
    one.awaited |= awaited;
    wait_for_answer(one, now);
    one.announced = now;
  }
  /// There is no link to it yet, and one is being opened. If that takes long, the rank is silent.
  void dial(int rank, time_point now) {
    entry& one = all_[rank];
    one.known.rank = rank;
    if (one.dialled == never) one.dialled = now;
    if (now - one.dialled < 500 * milliseconds) return;
    one.direct = true;
    wait_for_answer(one, now);
  }
  /// The link has opened.
  void end_dial(int rank) {
    const auto found = all_.find(rank);
    if (found == all_.end() || found->second.dialled == never) return;
    found->second.dialled = never;
    found->second.asked = 0;
  }
  /// Asks the ranks again that may be elsewhere by now than where they said they were, and gives
  /// them. None if that was done a moment ago.
  std::vector<int> ask_again(time_point now) {
    std::vector<int> found;
    if (asked_again_ != never && now - asked_again_ < seconds) return found;
    for (const auto& [rank, one] : all_) {
      if (one.direct && one.asked == 0 && now - one.as_of > 2 * patience) found.push_back(rank);
    }
    for (const int rank : found) ask(rank, false, now);
    // A rank on a busy machine needs a while.
    if (!found.empty()) begin_round(now, 5 * patience);
    return found;
  }
  /// What is asked from now on is asked for a verdict, which waits so long for answers.
  void begin_round(time_point now, time_point span) {
    asked_again_ = now;
    answers_by_ = now + span;
  }
  /// Whether some of those have still to answer, and may.
  bool expects_answers(time_point now) const {
    if (now >= answers_by_) return false;
    return std::any_of(all_.begin(), all_.end(), [&](const auto& each) {
      return each.second.direct && each.second.asked >= asked_again_;
    });
  }
  /// Whether the log was told lately that a message waits for that rank.
  bool is_logged(int rank, time_point now) const {
    const entry* const one = find(rank);
    return one != nullptr && one->logged != never && now - one->logged < 30 * seconds;
  }
  void note_logged(int rank, time_point now) { all_[rank].logged = now; }
  /// The rank says so of itself.
  void hear(const rank_state& said, time_point now) {
    for (auto& [rank, other] : all_) {
      const auto word = other.waiters.find(said.rank);
      if (word != other.waiters.end() && word->second.sequence != said.waits_in) {
        word->second = {0, now, true};
      }
    }
    entry& one = all_[said.rank];
    one.known = said;
    one.known.answers = 1;
    one.as_of = one.heard = now;
    one.asked = 0;
    changed_ = true;
  }
  /// `peer`, which waits in the collective `waits_in`, says so of another rank.
  void learn(int peer, std::uint64_t waits_in, const rank_state& said, time_point now) {
    entry& one = all_[said.rank];
    one.waiters[peer] = {said.awaited != 0 ? waits_in : 0, now, true};
    if (said.waiter >= 0 && said.waiter != of_->world_rank(of_->rank())) {
      const time_point then = now - said.waiter_ms * milliseconds;
      waiter& known = one.waiters[said.waiter];
      if (!known.said_so && then > known.as_of) known = {said.waiter_in, then, false};
    }
    const time_point as_of = now - said.age_ms * milliseconds;
    const std::uint64_t entered = std::max(one.known.entered, said.entered);
    if (as_of > std::max(one.as_of, one.asked)) {
      one.known = said;
      one.as_of = as_of;
      if (said.answers != 0) one.asked = 0;
    }
    one.known.rank = said.rank;
    one.known.entered = entered;
    one.heard = std::max(one.heard, now - said.silent_ms * milliseconds);
    one.named = now;
    changed_ = true;
  }

  /// The oldest operation of the communicator that some rank is known to wait in.
  std::uint64_t oldest(time_point now) const {
    std::uint64_t found = sequence_;
    for (const auto& [rank, one] : all_) {
      const bool waits = one.known.waits_in != 0 && !is_silent(one, now) && is_fresh(one, now);
      if (waits && one.known.waits_in < found) found = one.known.waits_in;
    }
    return found;
  }
  standing of(const entry& one, std::uint64_t sequence, time_point now) const {
    if (!one.direct && !is_fresh(one, now)) return standing::unknown;
    const bool silent = is_silent(one, now);
    const bool awaited = is_awaited(one, sequence, now);
    if (one.known.entered >= sequence) {
      return silent && awaited ? standing::silent : standing::inside;
    }
    if (silent) return awaited ? standing::missing : standing::quiet;
    return one.known.answers != 0 ? standing::missing : standing::unknown;
  }
  /// Of the ranks that are late the lowest; where none is known to be, one that is silent inside.
  verdict judge(time_point now) const {
    verdict found;
    found.sequence = oldest(now);
    if (found.sequence == 0) return found;
    std::vector<int> missing, quiet, silent;
    for (const auto& [rank, one] : all_) {
      const standing is = of(one, found.sequence, now);
      if (is == standing::missing) missing.push_back(rank);
      if (is == standing::quiet) quiet.push_back(rank);
      if (is == standing::silent) silent.push_back(rank);
    }
    found.has_entered = missing.empty();
    std::vector<int>& late = found.has_entered ? silent : missing;
    if (late.empty()) return found;
    // While a rank is missing none has ended such a call: the quiet ones have not called it, or
    // compute while it runs.
    if (found.has_entered || !of_->ends_after_all(found.sequence)) quiet.clear();
    found.is_quiet = !quiet.empty() && quiet.front() < late.front();
    std::vector<int>& first = found.is_quiet ? quiet : late;
    found.culprit = first.front();
    first.erase(first.begin());
    late.resize(std::min<std::size_t>(late.size(), state_report::most - 1));
    quiet.resize(std::min<std::size_t>(quiet.size(), state_report::most - 1 - late.size()));
    found.others = std::move(late);
    found.quiet = std::move(quiet);
    return found;
  }

  /// Adds what others have to know: of late ranks, the lowest first, then of those that have
  /// entered and that this rank or another one has told of.
  void put(state_report& into, time_point now) {
    const std::uint64_t sequence = oldest(now);
    if (sequence == 0) return;
    for (const bool wants_late : {true, false}) {
      for (auto& [rank, one] : all_) {
        if (into.count == state_report::most) return;
        const standing is = of(one, sequence, now);
        const bool is_told_of = one.reported || one.named != 0;
        if (is == standing::unknown || wants_late != (is != standing::inside)) continue;
        if (is == standing::inside && !is_told_of) continue;
        one.reported = true;
        put(into.others[into.count++], one, sequence, now);
      }
    }
  }
  /// Whether it may be otherwise by now: not asked all the time.
  bool is_due(time_point now) const { return now >= due(); }
  /// Whether `known` says something else than the report before it.
  bool is_news(const state_report& known, time_point now) {
    changed_ = false;
    looked_ = now;
    std::uint64_t print = 0;
    for (std::uint32_t i = 0; i < known.count; ++i) {
      const rank_state& one = known.others[i];
      for (const std::uint64_t word :
           {static_cast<std::uint64_t>(one.rank), one.entered, one.sequence,
            std::uint64_t{one.communicator}, static_cast<std::uint64_t>(one.operation),
            std::uint64_t{one.answers}, std::uint64_t{one.awaited}, one.waiter_in}) {
        print = mix(print, word);
      }
    }
    return std::exchange(told_, print) != print;
  }
  time_point due() const {
    time_point first = changed_ ? looked_ + pause : never;
    for (const auto& [rank, one] : all_) {
      const time_point then = one.asked + patience;
      if (one.asked != 0 && then > looked_) first = std::min(first, then);
    }
    return first;
  }

  static bool is_silent(const entry& one, time_point now) {
    if (one.asked == 0) return one.known.answers == 0 && one.as_of != 0;
    return one.asked >= one.as_of ? now - one.asked >= patience : one.known.answers == 0;
  }
  static time_point silent_for(const entry& one, time_point now) {
    return now - (one.heard != 0 ? one.heard : one.asked != 0 ? one.asked : now);
  }

 private:
  // One that others know to be silent stays so until it answers.
  static void wait_for_answer(entry& one, time_point now) {
    if (one.asked == 0) one.asked = is_silent(one, now) ? one.as_of : now;
  }
  static std::uint32_t in_milliseconds(time_point span) {
    return static_cast<std::uint32_t>(std::clamp<time_point>(span / milliseconds, 0, UINT32_MAX));
  }
  // What only others say counts while they go on to say so: ranks that wait repeat it every 500 ms,
  // and more seldom the longer they wait.
  bool is_fresh(time_point last, time_point now) const {
    return now - last < 2 * seconds + (now - began_) / 4;
  }
  bool is_fresh(const entry& one, time_point now) const {
    return is_fresh(std::max({one.named, one.heard, one.as_of}), now);
  }

  // A rank that is silent itself may have its messages by now.
  bool still_waits(int rank, const waiter& word, std::uint64_t sequence, time_point now) const {
    const entry* const its = find(rank);
    const bool silent = its != nullptr && its->direct && is_silent(*its, now);
    return word.sequence == sequence && !silent && is_fresh(word.as_of, now);
  }
  bool is_awaited(const entry& one, std::uint64_t sequence, time_point now) const {
    if (of_->size() == 2 || (one.awaited && sequence == sequence_)) return true;
    return std::any_of(one.waiters.begin(), one.waiters.end(), [&](const auto& each) {
      return still_waits(each.first, each.second, sequence, now);
    });
  }
  void put(rank_state& into, const entry& one, std::uint64_t sequence, time_point now) const {
    into = one.known;
    const bool silent = is_silent(one, now);
    const time_point since = silent && one.asked != 0 ? one.asked : one.as_of;
    into.answers = silent ? 0 : 1;
    into.age_ms = in_milliseconds(now - since);
    into.silent_ms = in_milliseconds(silent_for(one, now));
    into.awaited = one.awaited ? 1 : 0;
    into.waiter = -1;
    into.waiter_in = 0;
    time_point latest = -1;
    for (const auto& [rank, word] : one.waiters) {
      if (word.as_of <= latest || !still_waits(rank, word, sequence, now)) continue;
      latest = word.as_of;
      into.waiter = rank;
      into.waiter_in = sequence;
      into.waiter_ms = in_milliseconds(now - latest);
    }
  }

  static constexpr time_point pause = 20 * milliseconds;

  communicator_state* of_;
  std::uint64_t sequence_;
  time_point began_;
  time_point asked_again_ = never;
  time_point answers_by_ = -seconds;
  std::map<int, entry> all_;  // by rank in the world
  time_point looked_ = 0;
  bool changed_ = false;
  std::uint64_t told_ = 0;
};

/// The ranks of a communicator that rank `rank` asks besides those that it waits for: all where
/// they are few, else those at powers of two, so that what one knows is known to all soon.
template <class Visit>
void each_neighbour(int rank, int size, Visit visit) {
  constexpr int few = 16;
  if (size <= few) {
    for (int other = 0; other < size; ++other) {
      if (other != rank) visit(other);
    }
    return;
  }
  for (int stride = 1; stride < size; stride *= 2) {
    visit((rank + stride) % size);
    if (2 * stride != size) visit((rank + size - stride) % size);
  }
}

}  // namespace colls
