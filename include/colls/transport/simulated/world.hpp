// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of simulated_transport.hpp: the event loop of the simulated world, and the routing
// of messages through the network.

#include <colls/transport/simulated/simulated_transport.hpp>

namespace colls {

inline simulated_world::simulated_world(int size, const settings& config)
    : size_(size),
      network_(config.network, size),
      plan_(config.plan),
      seed_(config.seed),
      phantom_(config.phantom),
      traced_(config.traced),
      has_plan_(!config.plan.empty()),
      waits_for_deadlines_(config.plan.is_fatal()),
      link_busy_until_(network_.links()) {
  for (const fault& entry : plan_.faults) {
    if (entry.rank >= size || entry.peer >= size) {
      throw std::invalid_argument("the plan names rank " +
                                  std::to_string(std::max(entry.rank, entry.peer)) + " of " +
                                  std::to_string(size));
    }
  }
  if (has_plan_) connections_ = std::make_unique<simulated::connection_states>(size);
  ranks_ = std::allocator<simulated_transport>().allocate(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) std::construct_at(ranks_ + rank, *this, rank);
}

inline simulated_world::~simulated_world() {
  while (!events_.empty()) discard(events_.pop().item);
  for (int rank = size_; rank-- > 0;) std::destroy_at(ranks_ + rank);
  std::allocator<simulated_transport>().deallocate(ranks_, static_cast<std::size_t>(size_));
}

inline void simulated_world::reset_counters() {
  messages_ = bytes_ = overdue_ = 0;
  rounds_ = 0;
  for (int rank = 0; rank < size_; ++rank) ranks_[rank].recovery_round_ = 0;
  trace_.clear();
}

inline std::uint32_t simulated_world::add_trace(int source, const message_key& key,
                                                std::uint32_t round, std::size_t size,
                                                const std::byte* data) {
  simulated::message_trace& trace = trace_.emplace_back();
  trace.source = source;
  trace.dest = key.peer;
  trace.sequence = key.sequence;
  trace.lane = key.lane;
  trace.round = round;
  trace.size = size;
  trace.data = data;
  return static_cast<std::uint32_t>(trace_.size());
}

inline bool simulated_world::step() {
  if (!pending_faults_.empty()) {
    apply_pending_faults();
    return true;
  }
  if (events_.empty()) return false;
  if (!timers_.empty() && next_timer(events_.next_time())) return true;
  const auto next = events_.pop();
  now_ = next.time;
  prefetch();
  handle(next.item);
  return true;
}

// Prefetches the objects of upcoming events, because the state of thousands of ranks does not fit
// into a cache. The function is always inlined, because the compiler would drop calls of a function
// whose only effect is prefetching.
[[gnu::always_inline]] inline void simulated_world::prefetch() const {
  const auto prefetch_lines = [](const void* object, int before,
                                 int bytes) __attribute__((always_inline)) {
    if (object == nullptr) return;
    const char* const start = static_cast<const char*>(object) - before;
    for (int i = 0; i < before + bytes; i += 64) __builtin_prefetch(start + i);
  };
  if (const event* const far = events_.peek(16)) {
    prefetch_lines(ranks_ + far->rank, 0, sizeof(simulated_transport));
    prefetch_lines(far->subject, 0, sizeof(message));
  }
  if (const event* const near = events_.peek(8)) {
    const auto* const msg = static_cast<const message*>(near->subject);
    if (near->type == event::kind::arrived) {
      prefetch_lines(ranks_[near->rank].matcher_.receives().bucket_address(msg->key), 0, 1);
    } else if (near->type == event::kind::transmitted) {
      prefetch_lines(msg->send, 0, sizeof(simulated::outgoing));
    }
  }
  const event* const nearest = events_.peek(4);
  if (nearest == nullptr || nearest->type != event::kind::arrived) return;
  const auto* const msg = static_cast<const message*>(nearest->subject);
  // The receive that matches the message is usually the first one in its bucket of the matcher's
  // hash table. The receive is part of the frame of the coroutine that awaits it. That coroutine
  // will soon resume, so the memory before and after the receive is prefetched too.
  prefetch_lines(ranks_[nearest->rank].matcher_.receives().bucket_head(msg->key), 512, 512);
}

inline void simulated_world::handle(const event& due) {
  simulated_transport& rank = ranks_[due.rank];
  auto* const msg = static_cast<message*>(due.subject);
  const event::kind type = due.type;
  if (type == event::kind::hop) {
    handle_hop(*msg);
    return;
  }
  if (type == event::kind::arrived && !handle_arrival(*msg)) return;
  if (type == event::kind::control_arrived && now_ < rank.receiver_busy_until_) {
    // A control message must not overtake messages that arrived before it, so it waits until the
    // receiver has accepted these messages.
    push(rank.receiver_busy_until_, event::kind::control_accepted, due.rank, due.subject);
    return;
  }
  if (has_plan_ && intercept(due, rank)) return;
  switch (type) {
    case event::kind::transmitted:
      rank.handle_transmitted(*msg);
      break;
    case event::kind::arrived:
    case event::kind::accepted:
      rank.handle_accepted(*msg);
      break;
    case event::kind::piece:
      rank.handle_piece(*msg);
      break;
    case event::kind::control_arrived:
    case event::kind::control_accepted: {
      auto& control = *static_cast<control_message*>(due.subject);
      rank.handle_control(control);
      control_pool_.give(control);
      break;
    }
    default:
      break;
  }
  run_rank(rank);
}

inline void simulated_world::idle(unsigned) {
  if (!next_timer(simulated::no_time))
    throw std::logic_error("nothing will ever happen:\n" + waiting_report());
}

// Handles the earliest timer that expires at or before `max_time`. Skips timers that were replaced,
// and timers of ranks that are dead or have no operation in flight. Postpones timers of frozen
// ranks. Returns false if no timer was handled.
inline bool simulated_world::next_timer(ticks max_time) {
  while (!timers_.empty() && timers_.front().time <= max_time) {
    const timer first = timers_.front();
    std::pop_heap(timers_.begin(), timers_.end());
    timers_.pop_back();
    simulated_transport& rank = ranks_[first.rank];
    if (rank.timer_ != first.time) continue;  // replaced by an earlier timer
    rank.timer_ = simulated::no_time;
    if (!rank.matcher_.any_in_flight() || is_dead(first.rank)) continue;
    now_ = std::max(now_, first.time);
    if (now_ < rank.frozen_until_) {
      set_timer(rank, rank.frozen_until_);
      continue;
    }
    if (rank.matcher_.due() <= now()) ++overdue_;
    rank.sweep();
    set_timer(rank);
    run_rank(rank);
    return true;
  }
  return false;
}

inline void simulated_world::set_timer(simulated_transport& rank) {
  const time_point due = rank.matcher_.due();
  if (due != never) set_timer(rank, simulated::to_ticks(due));
}
inline void simulated_world::set_timer(simulated_transport& rank, ticks time) {
  if (time >= rank.timer_) return;
  rank.timer_ = time;
  timers_.push_back({time, ++timers_set_, rank.rank()});
  std::push_heap(timers_.begin(), timers_.end());
}

inline std::string simulated_world::waiting_report() {
  std::string report;
  int count = 0;
  for (int rank = 0; rank < size_; ++rank) {
    ranks_[rank].matcher_.for_each_posted([&](const posted_receive& receive) {
      if (++count > 8) return;
      report += "rank " + std::to_string(rank) + " waits in " + name(receive.record->operation) +
                " #" + std::to_string(receive.record->sequence) + " for rank " +
                std::to_string(receive.key.peer) + "\n";
    });
    ranks_[rank].waiting_sends_.for_each([&](simulated::outgoing& send) {
      if (++count > 8) return;
      report += "rank " + std::to_string(rank) + " waits in " + name(send.record->operation) +
                " #" + std::to_string(send.record->sequence) + " to send to rank " +
                std::to_string(send.key.peer) + "\n";
    });
  }
  return report;
}

// ---- routing

inline void simulated_world::finish_transmission(message& msg) {
  msg.is_transmitting = false;
  if (msg.is_released) {
    release(msg);
    return;
  }
  if (traced_ && !msg.is_repeated_rts) trace_[msg.trace - 1].left = now_;
  if (msg.hops == 0) schedule_arrival(msg);
}

// Schedules the arrival of a message at its receiver. `msg.tail` must be the time at which the last
// byte leaves the last link before the port of the receiver.
inline void simulated_world::schedule_arrival(message& msg) {
  const int source = msg.sender->rank();
  msg.is_lost = msg.is_lost || !try_pass(source, msg.dest);
  const ticks way = network_.latency(source, msg.dest) + network_.overhead();
  const ticks time = std::max(now_, msg.tail) + way;
  push(enforce_order(source, msg.dest, time), event::kind::arrived, msg.dest, &msg);
}

inline void simulated_world::handle_hop(message& msg) {
  ticks& busy_until = link_busy_until_[network_.link(msg.sender->rank(), msg.dest, msg.hop)];
  const ticks start = std::max(now_, busy_until);
  busy_until = start + network_.link_time(msg.size);
  const ticks way = msg.hop > 0 ? network_.hop() : 0;
  msg.tail = std::max(msg.tail + way, busy_until);
  if (++msg.hop < msg.hops) {
    push(start + network_.hop(), event::kind::hop, msg.dest, &msg);
  } else {
    schedule_arrival(msg);
  }
}

// Handles the arrival event of a message. The event occurs when the last byte has reached the port
// of the receiver and the overhead (the time to accept a message) has passed. Returns true if the
// receiver accepts the message now. If the port or the receiver is busy, schedules an event at
// which the receiver accepts the message, and returns false. If the message is lost and is
// not the first RTS of a message, releases it and returns false. For a first RTS, always returns
// true.
inline bool simulated_world::handle_arrival(message& msg) {
  simulated_transport& rank = ranks_[msg.dest];
  if (msg.is_rts && !msg.is_repeated_rts) return true;
  if (msg.is_lost) {
    release(msg);
    return false;
  }
  if (msg.is_rts) {
    if (now_ >= rank.receiver_busy_until_) return true;
    push(rank.receiver_busy_until_, event::kind::accepted, msg.dest, &msg);
    return false;
  }
  rank.ingress_busy_until_ =
      std::max(now_ - network_.overhead(), rank.ingress_busy_until_ + msg.port);
  rank.receiver_busy_until_ =
      std::max(rank.ingress_busy_until_, rank.receiver_busy_until_) + network_.overhead();
  if (traced_) trace_[msg.trace - 1].arrived = rank.ingress_busy_until_;
  if (rank.receiver_busy_until_ == now_) return true;
  push(rank.receiver_busy_until_, event::kind::accepted, msg.dest, &msg);
  return false;
}

inline void simulated_world::release(message& msg) {
  if (msg.is_transmitting) {
    msg.is_released = true;
    return;
  }
  if (msg.copy.memory != nullptr) msg.sender->matcher_.release_scratch(msg.copy);
  const bool is_eager = msg.key.is_point_to_point() && !msg.is_cleared && !msg.is_rts;
  if (is_eager) msg.sender->eager_bytes_ -= msg.size;
  message_pool_.give(msg);
}

inline void simulated_world::discard(const event& due) {
  if (due.type == event::kind::run) return;
  if (due.type == event::kind::control_arrived || due.type == event::kind::control_accepted) {
    control_pool_.give(*static_cast<control_message*>(due.subject));
    return;
  }
  auto& msg = *static_cast<message*>(due.subject);
  // If the message passes links inside the network, another event of the message may still be in
  // the queue. The message is released after that event, so it is not released here.
  if (due.type == event::kind::transmitted && msg.hops > 0 && !msg.is_released) {
    msg.is_transmitting = false;
  } else if (due.type == event::kind::transmitted) {
    finish_transmission(msg);
  } else {
    release(msg);
  }
}

}  // namespace colls
