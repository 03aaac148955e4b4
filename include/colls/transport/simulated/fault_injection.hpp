// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What a plan does to simulated ranks, their links and messages.

#include <colls/transport/simulated/simulated_transport.hpp>

namespace colls {

// Under a plan a link keeps its order, whatever each message draws.
inline simulated::ticks simulated_world::in_order(int from, int to, ticks when) {
  if (!planned_) return when;
  simulated::links::one_way& link = links_->between(from, to);
  const std::uint64_t pair =
      static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to);
  const std::uint64_t drawn = mix(mix(seed_, pair), ++link.messages);
  when += static_cast<ticks>(drawn % static_cast<std::uint64_t>(plan_.delay + 1));
  when = std::max({when, link.clogged_until, link.last_arrival});
  link.last_arrival = when;
  return when;
}

inline bool simulated_world::passes(int from, int to) {
  if (!planned_) return true;
  switch (links_->use(from, to)) {
    case simulated::links::outcome::passes:
      return true;
    case simulated::links::outcome::swallowed:
      break;
    case simulated::links::outcome::refused:
      lose(from, to, now_ + 2 * network_.latency(from, to),
           "its host refuses: the process is gone");
      break;
    case simulated::links::outcome::unreachable:
      lose(from, to, now_ + give_up_dialling, "it does not answer");
      break;
  }
  return false;
}

inline bool simulated_world::counts(simulated_transport& rank) {
  ++rank.events_;
  for (const fault& each : plan_.faults) {
    if (each.event == rank.events_ && each.rank == rank.rank() && each.what != fault::kind::flip &&
        !is_dead(rank.rank())) {
      happen(each);
    }
  }
  return !is_dead(rank.rank());
}

inline bool simulated_world::damages(simulated_transport& sender) {
  ++sender.sent_;
  for (const fault& each : plan_.faults) {
    if (each.what == fault::kind::flip && each.rank == sender.rank() &&
        each.event == sender.sent_) {
      happened_.push_back({each, now_});
      return true;
    }
  }
  return false;
}

// What reaches a rank that is dead, or stands still.
inline bool simulated_world::holds_up(const event& due, simulated_transport& rank) {
  if (now_ < rank.frozen_until_) {
    event later = due;
    if (due.what == event::kind::arrived) later.what = event::kind::taken;
    events_.defer(rank.frozen_until_, later);
    return true;
  }
  if (counts(rank)) return false;
  if (due.what == event::kind::left) {
    rank.never_sent(*static_cast<flight*>(due.subject));
  } else {
    discard(due);
  }
  if (!strikes_.empty()) strike();
  return true;
}

inline void simulated_world::happen(const fault& what) {
  simulated::links& all = *links_;
  happened_.push_back({what, now_});
  switch (what.what) {
    case fault::kind::kill:
      end_of(what.rank, simulated::presence::killed);
      break;
    case fault::kind::half_open:
      end_of(what.rank, simulated::presence::vanished);
      break;
    case fault::kind::isolate:
      end_of(what.rank, simulated::presence::isolated);
      break;
    case fault::kind::cut_both:
      all.between(what.peer, what.rank).cut = true;
      [[fallthrough]];
    case fault::kind::cut:
      all.between(what.rank, what.peer).cut = true;
      notice(what.rank, what.peer);
      notice(what.peer, what.rank);
      break;
    case fault::kind::clog:
      all.between(what.rank, what.peer).clogged_until = now_ + what.duration;
      break;
    case fault::kind::freeze:
      ranks_[what.rank].frozen_until_ = now_ + what.duration;
      break;
    default:
      break;
  }
  const bool runs_on = what.what != fault::kind::kill && what.what != fault::kind::half_open &&
                       what.what != fault::kind::cancel && what.what != fault::kind::destroy;
  if (!runs_on) strikes_.push_back(what);
}

inline void simulated_world::strike() {
  for (const fault& what : std::exchange(strikes_, {})) {
    if (director_ != nullptr) director_->strike(what);
    simulated_transport& rank = ranks_[what.rank];
    while (!rank.queue_.empty() && !is_dead(what.rank)) rank.queue_.run();
  }
}

// A rank does nothing more, or nothing that others would see.
inline void simulated_world::end_of(int rank, simulated::presence how) {
  links_->of(rank) = how;
  if (how != simulated::presence::isolated) {
    for (keyed* at = ranks_[rank].leaving_; at != nullptr; at = at->next) {
      if (flight* const message = static_cast<simulated::outgoing&>(*at).message)
        message->lost = true;
    }
  }
  for (int other = 0; other < size_; ++other) {
    if (other == rank) continue;
    if (how == simulated::presence::killed) {
      if (!links_->gives_up(other, rank)) continue;
      // The end of the file comes after all that was sent.
      const ticks last = std::max(now_, links_->between(rank, other).last_arrival);
      lose(other, rank, last + network_.latency(rank, other), "its process has ended");
    } else {
      notice(other, rank);
      if (how == simulated::presence::isolated) notice(rank, other);
    }
  }
  if (how == simulated::presence::killed && plan_.store) {
    failure why(errc::peer_failed, "its process has ended, says who started it");
    why.culprit = rank;
    spread(rank, why, 0);
  }
}

// A connection over which nothing passes any more is given up when its probes stay unanswered.
inline void simulated_world::notice(int rank, int peer) {
  if (links_->gives_up(rank, peer)) lose(rank, peer, now_ + give_up_idle, "it is cut off");
}

// At that time `rank` finds that `peer` cannot be reached.
inline void simulated_world::lose(int rank, int peer, ticks when, const char* how) {
  word& found = words_.take();
  found.what = word::kind::lost;
  found.from = peer;
  found.to = rank;
  found.why = failure(errc::peer_failed, how);
  found.why.culprit = peer;
  push(when, event::kind::said, rank, &found);
}

// The store tells everybody, if there is one; who is cut off from the others is cut off from it.
inline void simulated_world::spread(int from, const failure& why, std::uint32_t communicator) {
  if (!plan_.store || links_->of(from) == simulated::presence::isolated) return;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == from || links_->is_cut_off(rank)) continue;
    word& news = words_.take();
    news.what = word::kind::revoke;
    news.from = from;
    news.to = rank;
    news.news = true;
    news.key.communicator = communicator;
    news.why = why;
    push(now_ + news_time, event::kind::said, rank, &news);
  }
}

}  // namespace colls
