// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Fault injection: applies the faults of a fault plan to simulated ranks, their connections and
// their messages.

#include <colls/transport/simulated/simulated_transport.hpp>

namespace colls {

// Returns the arrival time of a message from `source` to `dest`. `time` is its arrival time in a
// run without a fault plan. In a run with a fault plan, the message arrives after an additional
// random delay. It does not arrive while the connection is stalled, nor before an earlier message
// of the connection.
inline simulated::ticks simulated_world::enforce_order(int source, int dest, ticks time) {
  if (!has_plan_) return time;
  simulated::connection_states::connection_state& state = connections_->between(source, dest);
  const std::uint64_t pair =
      static_cast<std::uint64_t>(source) << 32 | static_cast<std::uint32_t>(dest);
  const std::uint64_t random = mix(mix(seed_, pair), ++state.messages);
  time += static_cast<ticks>(random % static_cast<std::uint64_t>(plan_.delay + 1));
  time = std::max({time, state.stalled_until, state.last_arrival});
  state.last_arrival = time;
  return time;
}

inline bool simulated_world::try_pass(int source, int dest) {
  if (!has_plan_) return true;
  switch (connections_->try_send(source, dest)) {
    case simulated::connection_states::outcome::passes:
      return true;
    case simulated::connection_states::outcome::dropped:
      break;
    case simulated::connection_states::outcome::refused:
      report_loss(source, dest, now_ + 2 * network_.latency(source, dest),
                  "its host refuses connections: its process has ended", true);
      break;
    case simulated::connection_states::outcome::unreachable:
      report_loss(source, dest, now_ + dial_timeout, "it does not answer", false);
      break;
  }
  return false;
}

inline bool simulated_world::count_event(simulated_transport& rank) {
  ++rank.events_;
  for (const fault& entry : plan_.faults) {
    if (entry.event == rank.events_ && entry.rank == rank.rank() &&
        entry.type != fault::kind::flip && !is_dead(rank.rank())) {
      inject(entry);
    }
  }
  return !is_dead(rank.rank());
}

inline bool simulated_world::corrupts(simulated_transport& sender) {
  ++sender.sent_;
  for (const fault& entry : plan_.faults) {
    if (entry.type == fault::kind::flip && entry.rank == sender.rank() &&
        entry.event == sender.sent_) {
      injected_faults_.push_back({entry, now_});
      return true;
    }
  }
  return false;
}

// Applies the fault plan before `rank` handles the event `due`. If the rank is frozen, defers the
// event. Otherwise counts the event and injects the faults that are planned for it. If the rank was
// already dead, or if one of these faults has killed it, drops the event. Returns true if the event
// was deferred or dropped. Returns false if the caller must handle the event.
inline bool simulated_world::intercept(const event& due, simulated_transport& rank) {
  if (now_ < rank.frozen_until_) {
    event later = due;
    if (due.type == event::kind::arrived) later.type = event::kind::accepted;
    events_.defer(rank.frozen_until_, later);
    return true;
  }
  if (count_event(rank)) return false;
  if (due.type == event::kind::transmitted) {
    rank.drop_unsent(*static_cast<message*>(due.subject));
  } else {
    discard(due);
  }
  if (!pending_faults_.empty()) apply_pending_faults();
  return true;
}

inline void simulated_world::inject(const fault& injected) {
  simulated::connection_states& states = *connections_;
  injected_faults_.push_back({injected, now_});
  switch (injected.type) {
    case fault::kind::kill:
      end_rank(injected.rank, simulated::rank_state::killed);
      break;
    case fault::kind::half_open:
      end_rank(injected.rank, simulated::rank_state::vanished);
      break;
    case fault::kind::isolate:
      end_rank(injected.rank, simulated::rank_state::isolated);
      break;
    case fault::kind::cut_both:
      states.between(injected.peer, injected.rank).cut = true;
      [[fallthrough]];
    case fault::kind::cut:
      states.between(injected.rank, injected.peer).cut = true;
      detect_loss(injected.rank, injected.peer);
      detect_loss(injected.peer, injected.rank);
      break;
    case fault::kind::clog:
      states.between(injected.rank, injected.peer).stalled_until = now_ + injected.duration;
      break;
    case fault::kind::freeze:
      ranks_[injected.rank].frozen_until_ = now_ + injected.duration;
      break;
    default:
      break;
  }
  const bool keeps_running =
      injected.type != fault::kind::kill && injected.type != fault::kind::half_open &&
      injected.type != fault::kind::cancel && injected.type != fault::kind::destroy;
  if (!keeps_running) pending_faults_.push_back(injected);
}

inline void simulated_world::apply_pending_faults() {
  for (const fault& injected : std::exchange(pending_faults_, {})) {
    if (fault_handler_ != nullptr) fault_handler_->handle(injected);
    simulated_transport& rank = ranks_[injected.rank];
    while (!rank.queue_.empty() && !is_dead(injected.rank)) rank.queue_.run();
  }
}

// Sets the state of a rank to `state`, which must not be `alive`. Schedules control messages that
// tell the connected ranks about the failure at the times at which they would detect it. If `state`
// is `killed` and the plan has a store, the store also reports the failure to the other ranks. If
// `state` is `isolated`, the rank itself is also told about its peers. Otherwise the messages that
// the rank is still transmitting are lost.
inline void simulated_world::end_rank(int rank, simulated::rank_state state) {
  connections_->state_of(rank) = state;
  if (state != simulated::rank_state::isolated) {
    ranks_[rank].transmitting_.for_each([](const simulated::outgoing& send) {
      if (send.msg != nullptr) send.msg->is_lost = true;
    });
  }
  for (int other = 0; other < size_; ++other) {
    if (other == rank) continue;
    if (state == simulated::rank_state::killed) {
      if (!connections_->detect_failure(other, rank)) continue;
      // `other` sees the end of the stream only after it has received all bytes that the killed
      // rank has sent.
      const ticks last = std::max(now_, connections_->between(rank, other).last_arrival);
      report_loss(other, rank, last + network_.latency(rank, other), "its process has ended", true);
    } else {
      detect_loss(other, rank);
      if (state == simulated::rank_state::isolated) detect_loss(rank, other);
    }
  }
  if (state == simulated::rank_state::killed && plan_.store) {
    failure reason(errc::peer_failed, "its process has ended, as its launcher reports");
    reason.culprit = rank;
    reason.proved = true;
    broadcast_failure(rank, reason, 0);
  }
}

// Called when `peer` has become unreachable for `rank`. If the two ranks are connected, schedules a
// control message that tells `rank` about the failure. The control message arrives after
// `idle_timeout`, because a rank detects such a failure when its keep-alive probes have not been
// answered for that time.
inline void simulated_world::detect_loss(int rank, int peer) {
  if (connections_->detect_failure(rank, peer))
    report_loss(rank, peer, now_ + idle_timeout, "it is cut off", false);
}

// Schedules a control message that tells `rank` at `time` that `peer` has failed. `detail`
// describes the failure, and `proved` tells whether `peer` is known to have ended.
inline void simulated_world::report_loss(int rank, int peer, ticks time, const char* detail,
                                         bool proved) {
  control_message& msg = control_pool_.take();
  msg.type = control_message::kind::lost;
  msg.source = peer;
  msg.dest = rank;
  msg.reason = failure(errc::peer_failed, detail);
  msg.reason.culprit = peer;
  msg.reason.proved = proved;
  push(time, event::kind::control_arrived, rank, &msg);
}

// Reports the failure `reason` through the store (the key-value service of the job). All ranks that
// can reach the store receive the report, except `source`. Does nothing if the plan has no store or
// if `source` is isolated.
inline void simulated_world::broadcast_failure(int source, const failure& reason,
                                               std::uint32_t communicator) {
  if (!plan_.store || connections_->state_of(source) == simulated::rank_state::isolated) return;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == source || connections_->is_unreachable(rank)) continue;
    control_message& msg = control_pool_.take();
    msg.type = control_message::kind::revoke;
    msg.source = source;
    msg.dest = rank;
    msg.from_store = true;
    msg.key.communicator = communicator;
    msg.reason = reason;
    push(now_ + store_latency, event::kind::control_arrived, rank, &msg);
  }
}

}  // namespace colls
