// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The simulated world: what happens next, and how messages travel.

#include <colls/transport/simulated/simulated_transport.hpp>

namespace colls {

inline simulated_world::simulated_world(int size, const settings& how)
    : size_(size),
      network_(how.network, size),
      plan_(how.plan),
      seed_(how.seed),
      phantom_(how.phantom),
      traced_(how.traced),
      planned_(!how.plan.empty()),
      patient_(how.plan.is_fatal()),
      taken_until_(network_.links()) {
  for (const fault& each : plan_.faults) {
    if (each.rank >= size || each.peer >= size) {
      throw std::invalid_argument("the plan names rank " +
                                  std::to_string(std::max(each.rank, each.peer)) + " of " +
                                  std::to_string(size));
    }
  }
  if (planned_) links_ = std::make_unique<simulated::links>(size);
  ranks_ = std::allocator<simulated_transport>().allocate(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) std::construct_at(ranks_ + rank, *this, rank);
}

inline simulated_world::~simulated_world() {
  while (!events_.empty()) discard(events_.pop().item);
  for (int rank = size_; rank-- > 0;) std::destroy_at(ranks_ + rank);
  std::allocator<simulated_transport>().deallocate(ranks_, static_cast<std::size_t>(size_));
}

inline void simulated_world::forget_counts() {
  messages_ = bytes_ = overdue_ = 0;
  rounds_ = 0;
  trace_.clear();
}

inline std::uint32_t simulated_world::note(int from, const message_key& key, std::uint32_t round,
                                           std::size_t size, const std::byte* data) {
  simulated::message_trace& made = trace_.emplace_back();
  made.from = from;
  made.to = key.peer;
  made.sequence = key.sequence;
  made.lane = key.lane;
  made.round = round;
  made.size = size;
  made.data = data;
  return static_cast<std::uint32_t>(trace_.size());
}

inline bool simulated_world::step() {
  if (!strikes_.empty()) {
    strike();
    return true;
  }
  if (events_.empty()) return false;
  if (!timers_.empty() && next_timer(events_.next_time())) return true;
  const auto next = events_.pop();
  now_ = next.time;
  look_ahead();
  handle(next.item);
  return true;
}

// With thousands of ranks no cache holds them all: what will be touched soon is fetched in time.
// Inlined, since a function that only prefetches is one without effect, and its calls are dropped.
[[gnu::always_inline]] inline void simulated_world::look_ahead() const {
  const auto fetch = [](const void* at, int before, int bytes) __attribute__((always_inline)) {
    if (at == nullptr) return;
    const char* const from = static_cast<const char*>(at) - before;
    for (int i = 0; i < before + bytes; i += 64) __builtin_prefetch(from + i);
  };
  if (const event* const far = events_.guess(16)) {
    fetch(ranks_ + far->rank, 0, sizeof(simulated_transport));
    fetch(far->subject, 0, sizeof(flight));
  }
  if (const event* const near = events_.guess(8)) {
    const auto* const message = static_cast<const flight*>(near->subject);
    if (near->what == event::kind::arrived) {
      fetch(ranks_[near->rank].match_.receives().home(message->key), 0, 1);
    } else if (near->what == event::kind::left) {
      fetch(message->send, 0, sizeof(simulated::outgoing));
    }
  }
  const event* const nearest = events_.guess(4);
  if (nearest == nullptr || nearest->what != event::kind::arrived) return;
  const auto* const message = static_cast<const flight*>(nearest->subject);
  // A receive lies in the middle of its coroutine.
  fetch(ranks_[nearest->rank].match_.receives().first_at_home(message->key), 512, 512);
}

inline void simulated_world::handle(const event& due) {
  simulated_transport& rank = ranks_[due.rank];
  auto* const message = static_cast<flight*>(due.subject);
  const event::kind what = due.what;
  if (what == event::kind::hop) {
    hop(*message);
    return;
  }
  if (what == event::kind::arrived && !arrive(*message)) return;
  if (what == event::kind::said && now_ < rank.takes_until_) {
    // It does not overtake messages that came before it.
    push(rank.takes_until_, event::kind::heard, due.rank, due.subject);
    return;
  }
  if (planned_ && holds_up(due, rank)) return;
  switch (what) {
    case event::kind::left:
      rank.sent(*message);
      break;
    case event::kind::arrived:
    case event::kind::taken:
      rank.taken(*message);
      break;
    case event::kind::filled:
      rank.filled(*message);
      break;
    case event::kind::said:
    case event::kind::heard: {
      auto& said = *static_cast<word*>(due.subject);
      rank.heard(said);
      words_.give(said);
      break;
    }
    default:
      break;
  }
  turn(rank);
}

inline void simulated_world::idle(unsigned) {
  if (!next_timer(simulated::no_time))
    throw std::logic_error("nothing will ever happen:\n" + waiting());
}

// The first timer that is still of use and comes no later than that.
inline bool simulated_world::next_timer(ticks at_latest) {
  while (!timers_.empty() && timers_.front().when <= at_latest) {
    const timer first = timers_.front();
    std::pop_heap(timers_.begin(), timers_.end());
    timers_.pop_back();
    simulated_transport& rank = ranks_[first.rank];
    if (rank.timer_ != first.when) continue;  // another was set since
    rank.timer_ = simulated::no_time;
    if (!rank.match_.any_under_way() || is_dead(first.rank)) continue;
    now_ = std::max(now_, first.when);
    if (now_ < rank.frozen_until_) {
      set_timer(rank, rank.frozen_until_);
      continue;
    }
    if (rank.match_.due() <= now()) ++overdue_;
    rank.sweep();
    set_timer(rank);
    turn(rank);
    return true;
  }
  return false;
}

inline void simulated_world::set_timer(simulated_transport& rank) {
  const time_point due = rank.match_.due();
  if (due != never) set_timer(rank, simulated::to_ticks(due));
}
inline void simulated_world::set_timer(simulated_transport& rank, ticks when) {
  if (when >= rank.timer_) return;
  rank.timer_ = when;
  timers_.push_back({when, ++timers_set_, rank.rank()});
  std::push_heap(timers_.begin(), timers_.end());
}

inline std::string simulated_world::waiting() {
  std::string all;
  int told = 0;
  for (int rank = 0; rank < size_; ++rank) {
    ranks_[rank].match_.each_waiting([&](const posted& receive) {
      if (++told > 8) return;
      all += "rank " + std::to_string(rank) + " waits in " + name(receive.record->what) + " #" +
             std::to_string(receive.record->sequence) + " for rank " +
             std::to_string(receive.key.peer) + "\n";
    });
    ranks_[rank].waiting_.each([&](simulated::outgoing& send) {
      if (++told > 8) return;
      all += "rank " + std::to_string(rank) + " waits in " + name(send.record->what) + " #" +
             std::to_string(send.record->sequence) + " to send to rank " +
             std::to_string(send.key.peer) + "\n";
    });
  }
  return all;
}

// ---- a message travels

inline void simulated_world::left(flight& message) {
  message.leaving = false;
  if (message.over) {
    release(message);
    return;
  }
  if (traced_ && !message.reminder) trace_[message.trace - 1].left = now_;
  if (message.hops == 0) travel(message);
}

// It has passed all links but the receiver's own.
inline void simulated_world::travel(flight& message) {
  const int from = message.from->rank();
  message.lost = message.lost || !passes(from, message.to);
  const ticks way = network_.latency(from, message.to) + network_.overhead();
  const ticks when = std::max(now_, message.tail) + way;
  push(in_order(from, message.to, when), event::kind::arrived, message.to, &message);
}

inline void simulated_world::hop(flight& message) {
  ticks& taken_until = taken_until_[network_.link(message.from->rank(), message.to, message.hop)];
  const ticks start = std::max(now_, taken_until);
  taken_until = start + network_.link_time(message.size);
  const ticks way = message.hop > 0 ? network_.hop() : 0;
  message.tail = std::max(message.tail + way, taken_until);
  if (++message.hop < message.hops) {
    push(start + network_.hop(), event::kind::hop, message.to, &message);
  } else {
    travel(message);
  }
}

// Its last byte was here an overhead ago, if the way in was free. False: it has to wait for that,
// or for the receiver, or never gets there.
inline bool simulated_world::arrive(flight& message) {
  simulated_transport& rank = ranks_[message.to];
  if (message.header && !message.reminder) return true;
  if (message.lost) {
    release(message);
    return false;
  }
  if (message.header) {
    if (now_ >= rank.takes_until_) return true;
    push(rank.takes_until_, event::kind::taken, message.to, &message);
    return false;
  }
  rank.bytes_until_ = std::max(now_ - network_.overhead(), rank.bytes_until_ + message.port);
  rank.takes_until_ = std::max(rank.bytes_until_, rank.takes_until_) + network_.overhead();
  if (traced_) trace_[message.trace - 1].arrived = rank.bytes_until_;
  if (rank.takes_until_ == now_) return true;
  push(rank.takes_until_, event::kind::taken, message.to, &message);
  return false;
}

inline void simulated_world::release(flight& message) {
  if (message.leaving) {
    message.over = true;
    return;
  }
  if (message.copy.memory != nullptr) message.from->match_.give_scratch(message.copy);
  const bool unsolicited = message.key.is_point_to_point() && !message.asked && !message.header;
  if (unsolicited) message.from->unsolicited_ -= message.size;
  flights_.give(message);
}

inline void simulated_world::discard(const event& due) {
  if (due.what == event::kind::turn) return;
  if (due.what == event::kind::said || due.what == event::kind::heard) {
    words_.give(*static_cast<word*>(due.subject));
    return;
  }
  auto& message = *static_cast<flight*>(due.subject);
  // Of a message with a way of its own two events may be left.
  if (due.what == event::kind::left && message.hops > 0 && !message.over) {
    message.leaving = false;
  } else if (due.what == event::kind::left) {
    left(message);
  } else {
    release(message);
  }
}

}  // namespace colls
