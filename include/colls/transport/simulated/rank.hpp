// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of simulated_transport.hpp: how a simulated rank sends and receives messages and
// control messages. An RTS (request to send) announces a long message, and a CTS (clear to send)
// permits its transmission.

#include <colls/transport/simulated/simulated_transport.hpp>

#include <new>

namespace colls {

inline int simulated_transport::size() const { return world_.size(); }
inline time_point simulated_transport::now() const { return world_.now(); }
inline bool simulated_transport::is_phantom() const { return world_.phantom_; }
inline int simulated_transport::node_of(int rank) const { return world_.network_.node_of(rank); }

inline void simulated_transport::wake_driver() {
  matcher_.sweep(now());
  world_.set_timer(*this);
  if (!queue_.empty()) world_.push(world_.now_, simulated_world::event::kind::run, rank(), nullptr);
}
inline void simulated_transport::wake() noexcept {
  try {
    world_.push(world_.now_, simulated_world::event::kind::run, rank(), nullptr);
  } catch (const std::bad_alloc&) {
    return;  // the completion runs after the rank's next event
  }
}

// ---- sending

inline bool simulated_transport::start(outgoing& send) {
  if (world_.has_plan_ && !world_.count_event(*this)) return false;
  ++world_.messages_;
  world_.bytes_ += send.size;
  send.round = chain_of(send.key) + 1;
  if (send.round > world_.rounds_) world_.rounds_ = send.round;
  if (world_.traced_)
    send.trace = world_.add_trace(rank(), send.key, send.round, send.size, send.data);
  const bool is_direct = send.key.is_point_to_point();
  const bool is_next = waiting_sends_.empty() || waiting_sends_.find(send.key) == nullptr;
  if (is_next && send.size <= world_.plan_.eager_limit) {
    if (!is_direct) return transmit(send, true, false);
    if (eager_bytes_ + send.size <= eager_window) {
      eager_bytes_ += send.size;
      return transmit(send, true, false);
    }
  }
  if (is_next && !is_direct) {
    message_key peer_key = send.key;
    peer_key.peer = rank();
    posted_receive* const receive = world_[send.key.peer].matcher_.peek(peer_key);
    if (receive != nullptr && world_.try_pass(send.key.peer, rank())) {
      receive->cleared = true;
      return transmit(send, true, false);
    }
  }
  send.progress = outgoing::stage::waiting;
  waiting_sends_.push_back(send);
  if (is_direct) {
    message& msg = make_message(send);
    msg.is_rts = true;
    msg.tail = world_.now_;
    world_.schedule_arrival(msg);
  }
  return false;
}

inline simulated::message& simulated_transport::make_message(outgoing& send) {
  message& msg = world_.message_pool_.take();
  msg.key = send.key;
  msg.key.peer = rank();  // for the receiver, the peer is the sender
  msg.dest = send.key.peer;
  msg.sender = this;
  msg.send = &send;
  msg.size = send.size;
  msg.hash = send.record->hash;
  msg.data = send.data;
  msg.round = send.round;
  msg.trace = send.trace;
  send.msg = &msg;
  return msg;
}

// Starts to transmit the message of `send`. The transmission begins when the earlier transmissions
// of this rank have ended. `is_cleared` is true for a point-to-point message for which the receiver
// has sent a CTS. If `may_end` is true and the transmission takes no time, completes the send and
// returns true. Otherwise returns false.
inline bool simulated_transport::transmit(outgoing& send, bool may_end, bool is_cleared) {
  const simulated::network& network = world_.network_;
  message& msg = make_message(send);
  msg.is_cleared = is_cleared;
  msg.hops = network.hops(rank(), msg.dest);
  msg.port = network.port_time(msg.size);
  const ticks start = std::max(world_.now_, egress_busy_until_);
  const ticks begin = start + network.overhead();
  msg.tail = egress_busy_until_ = begin + msg.port;
  if (world_.traced_) world_.trace_[msg.trace - 1].started = start;
  if (world_.has_plan_) msg.is_corrupted = world_.corrupts(*this);
  if (msg.hops > 0) {
    world_.push(begin, simulated_world::event::kind::hop, msg.dest, &msg);
  }
  if (may_end && msg.tail == world_.now_) {
    copy_payload(msg);
    msg.send = nullptr;
    send.msg = nullptr;
    send.record->bytes += send.size;
    world_.finish_transmission(msg);
    return true;
  }
  send.progress = outgoing::stage::transmitting;
  transmitting_.push_front(send);
  msg.is_transmitting = true;
  world_.push(msg.tail, simulated_world::event::kind::transmitted, rank(), &msg);
  return false;
}

// Copies the payload of a message from the buffer of the send to memory of this rank. The send can
// then complete before the receiver accepts the message. Does nothing in a phantom run.
inline void simulated_transport::copy_payload(message& msg) {
  if (world_.phantom_ || msg.size == 0 || msg.is_released) return;
  msg.copy = matcher_.acquire_scratch(msg.size);
  if (msg.copy.memory == nullptr) throw error(errc::not_enough_memory);
  std::memcpy(msg.copy.memory, msg.data, msg.size);
  msg.data = static_cast<const std::byte*>(msg.copy.memory);
}

// Completes the send of a message whose last byte has left the rank.
inline void simulated_transport::handle_transmitted(message& msg) {
  if (outgoing* const send = msg.send) {
    transmitting_.remove(*send);
    copy_payload(msg);
    msg.send = nullptr;
    send->finish({});
  }
  world_.finish_transmission(msg);
}

// Drops a message whose last byte had not left this rank when the rank died.
inline void simulated_transport::drop_unsent(message& msg) {
  if (outgoing* const send = std::exchange(msg.send, nullptr)) {
    send->msg = nullptr;
  }
  msg.is_lost = true;
  world_.finish_transmission(msg);
}

// Cancels a send that has not completed. If the send is still waiting, its message is never
// transmitted. If the transmission has begun, it continues from a copy of the bytes, unless this
// rank is dead.
inline void simulated_transport::withdraw(outgoing& send) {
  message* const msg = std::exchange(send.msg, nullptr);
  if (send.progress == outgoing::stage::transmitting) {
    transmitting_.remove(send);
    if (msg != nullptr && world_.is_dead(rank())) {
      msg->is_lost = true;
    } else if (msg != nullptr) {
      copy_payload(*msg);
    }
  } else {
    waiting_sends_.remove(send);
    if (msg != nullptr && msg->is_queued) {
      world_[msg->dest].matcher_.remove_unexpected(*msg);
      world_.release(*msg);
    } else if (msg != nullptr) {
      msg->is_lost = true;
    }
  }
  if (msg != nullptr) msg->send = nullptr;
  send.progress = outgoing::stage::idle;
}

// Called when the receiver has sent a CTS for `send`. Transmits the message of `send`. In a
// collective, messages with the same key must stay in order, so short messages may be waiting
// behind this message. Also transmits these short messages, up to the next long message.
inline void simulated_transport::handle_cts(outgoing& send) {
  const message_key key = send.key;
  const bool is_direct = key.is_point_to_point();
  waiting_sends_.remove(send);
  transmit(send, false, is_direct);
  while (!is_direct) {
    outgoing* const next = waiting_sends_.find(key);
    if (next == nullptr || next->size > world_.plan_.eager_limit) return;
    waiting_sends_.remove(*next);
    transmit(*next, false, false);
  }
}

// Sends a repeated RTS for a message of a collective that still waits 100 ms after the start of the
// collective. The RTS tells the receiver the length of the message. It leaves this rank after all
// messages that the rank has already sent.
inline void simulated_transport::repeat_rts(outgoing& send) {
  send.rts_repeated = true;
  message& msg = make_message(send);
  msg.send = nullptr;
  send.msg = nullptr;
  msg.is_rts = msg.is_repeated_rts = msg.is_transmitting = true;
  msg.hops = world_.network_.hops(rank(), msg.dest);
  msg.tail = std::max(world_.now_, egress_busy_until_);
  if (msg.hops > 0) {
    world_.push(msg.tail, simulated_world::event::kind::hop, msg.dest, &msg);
  }
  world_.push(msg.tail, simulated_world::event::kind::transmitted, rank(), &msg);
}

// ---- receiving

inline bool simulated_transport::start(posted_receive& receive) {
  if (world_.has_plan_ && !world_.count_event(*this)) return false;
  unexpected_message* const arrived = matcher_.post(receive);
  if (arrived == nullptr) {
    const bool is_long = receive.size > world_.plan_.eager_limit;
    if (is_long && !receive.key.is_point_to_point()) clear_waiting_send(receive);
    return false;
  }
  auto& msg = static_cast<message&>(*arrived);
  if (msg.is_rts) {
    matcher_.enqueue(receive);
    msg.is_queued = false;
    return send_cts(receive, msg);
  }
  if (!deliver(receive, msg)) return false;
  receive.record->bytes += receive.received;
  return true;
}

// Called when this rank posts a receive for a long message of a collective. If a send of the peer
// is already waiting for this receive, sends a CTS to the peer.
inline void simulated_transport::clear_waiting_send(posted_receive& receive) {
  simulated_transport& peer = world_[receive.key.peer];
  message_key peer_key = receive.key;
  peer_key.peer = rank();
  outgoing* const send = peer.waiting_sends_.find(peer_key);
  if (send == nullptr || !world_.try_pass(rank(), receive.key.peer)) return;
  receive.cleared = true;
  peer.handle_cts(*send);
}

// Answers `msg`, the RTS of a long point-to-point message that matches `receive`. The receive must
// be in the queue of the matcher. If the message fits the receive, sends a CTS and returns false.
// Otherwise removes the receive from the queue and returns true, because the receive has failed.
inline bool simulated_transport::send_cts(posted_receive& receive, message& msg) {
  outgoing* const send = msg.send;
  simulated_transport& peer = *msg.sender;
  receive.ec = matcher_.check(receive, msg.key.peer, msg.size, msg.hash);
  const message_key key = msg.key;
  send->msg = nullptr;
  world_.release(msg);
  if (!receive.ec) {
    matcher_.set_cleared(receive, key);
    if (world_.try_pass(rank(), peer.rank())) peer.handle_cts(*send);
    return false;
  }
  matcher_.take(receive, key);
  // The receive has failed, so the peer does not transmit the message. Only the receive reports an
  // error. The send completes without one.
  peer.waiting_sends_.remove(*send);
  send->finish({});
  world_.push(world_.now_, simulated_world::event::kind::run, peer.rank(), nullptr);
  return true;
}

inline void simulated_transport::handle_accepted(message& msg) {
  record_collective(msg.key, msg.hash);
  if (msg.is_rts) {
    msg.is_repeated_rts ? handle_repeated_rts(msg) : handle_rts(msg);
    return;
  }
  if (msg.is_corrupted) {
    failure reason(errc::protocol_error);
    reason.culprit = msg.key.peer;
    reason.set_detail("a message of rank %d has a wrong checksum", msg.key.peer);
    world_.release(msg);
    matcher_.peer_died(reason.culprit, reason);
    matcher_.link_broken(reason.culprit);
    return;
  }
  posted_receive* const receive =
      msg.is_cleared ? matcher_.take_cleared(msg.key) : matcher_.take(msg.key);
  if (receive != nullptr) {
    if (world_.plan_.pieces && msg.size > 1) {
      start_piecewise(*receive, msg);
    } else if (deliver(*receive, msg)) {
      receive->finish(receive->ec);
    }
    return;
  }
  const communicator_state* const comm = matcher_.find(msg.key.communicator);
  const bool failed = comm != nullptr && comm->failed();
  if (!matcher_.inspect(msg.key, msg.hash) || failed || msg.is_cleared) {
    world_.release(msg);
    return;
  }
  msg.buffered = true;
  matcher_.add_unexpected(msg);
}

// Delivers a message to a receive, which must not be in the queue of the matcher. Returns true if
// the receive has completed, with or without an error. If the message and the receive belong to
// different calls, puts the receive into the queue and returns false. The receive stays there until
// the communicator fails. The reason of that failure names both calls.
inline bool simulated_transport::deliver(posted_receive& receive, message& msg) {
  receive.ec = matcher_.check(receive, msg.key.peer, msg.size, msg.hash);
  if (!receive.ec) {
    std::uint32_t& length = chain_of(msg.key);
    length = std::max(length, msg.round);
    if (world_.traced_) {
      simulated::message_trace& trace = world_.trace_[msg.trace - 1];
      trace.received = world_.now_;
      trace.folded = receive.fold != nullptr;
    }
    if (world_.phantom_) {
      receive.received = msg.size;
      receive.source = msg.key.peer;
    } else {
      receive.accept(msg.data, msg.size, msg.key.peer);
    }
  }
  world_.release(msg);
  if (receive.ec != errc::mismatch || receive.record->communicator->failed()) return true;
  matcher_.enqueue(receive);
  return false;
}

// Starts to deliver a message to a receive piece by piece. This happens only in a run whose fault
// plan contains the statement `pieces`. If the receive reduces the message into its buffer, the
// reduction runs after the last piece has arrived.
inline void simulated_transport::start_piecewise(posted_receive& receive, message& msg) {
  if (matcher_.check(receive, msg.key.peer, msg.size, msg.hash)) {
    if (deliver(receive, msg)) receive.finish(receive.ec);
    return;
  }
  msg.receive = &receive;
  receive.writer = this;
  piecewise_.push_back(&msg);
  handle_piece(msg);
}

inline void simulated_transport::handle_piece(message& msg) {
  posted_receive* const receive = msg.receive;
  if (receive == nullptr) {
    std::erase(piecewise_, &msg);
    world_.release(msg);
    return;
  }
  const std::size_t piece = (msg.size - msg.filled + 1) / 2;
  if (msg.filled + piece < msg.size) {
    if (receive->fold == nullptr && !world_.phantom_) {
      std::memcpy(receive->data + msg.filled, msg.data + msg.filled, piece);
    }
    msg.filled += piece;
    world_.push(world_.now_ + simulated::per_nanosecond, simulated_world::event::kind::piece,
                rank(), &msg);
    return;
  }
  std::erase(piecewise_, &msg);
  receive->writer = nullptr;
  if (deliver(*receive, msg)) receive->finish(receive->ec);
}

inline void simulated_transport::handle_rts(message& msg) {
  const communicator_state* const comm = matcher_.find(msg.key.communicator);
  if (msg.is_lost || !matcher_.inspect(msg.key, msg.hash) || (comm != nullptr && comm->failed())) {
    if (msg.send != nullptr) msg.send->msg = nullptr;
    world_.release(msg);
    return;
  }
  posted_receive* const receive = matcher_.peek(msg.key);
  if (receive == nullptr) {
    msg.is_queued = true;
    matcher_.add_unexpected(msg);
  } else if (send_cts(*receive, msg)) {
    receive->finish(receive->ec);
  }
}

// Handles a repeated RTS, which announces a message that waits at its sender. Compares the length
// of this message with the length of the matching receive. If the lengths differ, the communicator
// fails. Without this check, a long send and a short receive would wait for each other forever,
// because this rank sends no CTS for a short receive.
inline void simulated_transport::handle_repeated_rts(message& msg) {
  if (matcher_.inspect(msg.key, msg.hash)) {
    posted_receive* const receive = matcher_.first(msg.key);
    if (receive != nullptr) {
      matcher_.check(*receive, msg.key.peer, msg.size, msg.hash);
    }
  }
  world_.release(msg);
}

// ---- control messages

inline void simulated_transport::send_control(int peer, control_message&& msg) {
  if (!world_.try_pass(rank(), peer)) return;
  msg.source = rank();
  msg.dest = peer;
  msg.key.peer = rank();
  control_message& copy = world_.control_pool_.take();
  copy = msg;
  const ticks time = world_.now_ + world_.network_.latency(rank(), peer);
  world_.push(world_.enforce_order(rank(), peer, time),
              simulated_world::event::kind::control_arrived, peer, &copy);
}

inline void simulated_transport::handle_control(const control_message& msg) {
  const int reporter = msg.from_store ? rank() : msg.source;
  switch (msg.type) {
    case control_message::kind::dial:
      send_connection_control(msg.source, control_message::kind::opened);
      [[fallthrough]];
    case control_message::kind::opened:
      matcher_.peer_connected(msg.source, now());
      world_.set_timer(*this);
      break;
    case control_message::kind::announce:
      matcher_.inspect(msg.key, msg.hash);
      record_collective(msg.key, msg.hash);
      matcher_.receive_report(msg.source, msg.key.communicator, msg.state, now());
      report(msg.source, msg.key.communicator, matcher_.make_report(msg.key.communicator, now()));
      world_.set_timer(*this);
      break;
    case control_message::kind::report:
      matcher_.receive_report(msg.source, msg.key.communicator, msg.state, now());
      world_.set_timer(*this);
      break;
    case control_message::kind::dispute:
      matcher_.compare(msg.source, msg.key.communicator, msg.key.sequence, msg.print);
      break;
    case control_message::kind::revoke:
      if (msg.reason.code == errc::peer_failed && msg.reason.proved &&
          msg.reason.culprit != rank()) {
        matcher_.peer_died(msg.reason.culprit, msg.reason, reporter);
      }
      matcher_.revoke(msg.key.communicator, reported_failure(msg.reason), reporter);
      break;
    case control_message::kind::recovery:
      recovery_round_ = std::max(recovery_round_, msg.round);
      // The sender is a rank of this process, so the message is valid.
      (void)matcher_.receive_recovery(msg.source, msg.key.communicator, msg.recovery);
      world_.set_timer(*this);
      break;
    case control_message::kind::lost:
      matcher_.peer_died(msg.source, msg.reason);
      if (!msg.reason.proved) matcher_.link_broken(msg.source);
      break;
  }
}

inline void simulated_transport::send_revoke(int peer, std::uint32_t communicator,
                                             const failure& reason) {
  control_message msg;
  msg.type = control_message::kind::revoke;
  msg.key.communicator = communicator;
  msg.reason = reason;
  send_control(peer, std::move(msg));
}

inline void simulated_transport::revoked(communicator_state& communicator, const failure& reason,
                                         int reporter) {
  waiting_sends_.for_each([&](outgoing& send) {
    if (send.record->communicator != &communicator) return;
    withdraw(send);
    send.finish(reason.code);
  });
  transmitting_.for_each([&](outgoing& send) {
    if (send.record->communicator != &communicator) return;
    withdraw(send);
    send.finish(reason.code);
  });
  for (message* msg : piecewise_) {
    posted_receive* const receive = msg->receive;
    if (receive == nullptr || receive->key.communicator != communicator.id()) continue;
    msg->receive = nullptr;
    receive->finish(reason.code);
  }
  if (world_.is_dead(rank())) return;
  if (reporter < 0 && world_.has_plan_) world_.broadcast_failure(rank(), reason, communicator.id());
  // In a run without a fault plan, every control message arrives. The rank that detects the failure
  // therefore informs all ranks, and the other ranks need not forward its report. In a run with a
  // fault plan, a control message may be lost, so every rank informs its connected peers.
  if (reporter >= 0 && !world_.has_plan_) return;
  for (int i = 0; i < communicator.size(); ++i) {
    const int peer = communicator.world_rank(i);
    if (peer == rank() || peer == reporter) continue;
    if (world_.has_plan_ && !world_.connections_->is_open(rank(), peer)) continue;
    send_revoke(peer, communicator.id(), reason);
  }
}

inline void simulated_transport::announce(int peer, const operation_record& waiting,
                                          const state_report& state) {
  control_message msg;
  msg.type = control_message::kind::announce;
  msg.key = announcement(rank(), waiting);
  msg.hash = waiting.hash;
  msg.state = state;
  send_control(peer, std::move(msg));
}

inline void simulated_transport::report(int peer, std::uint32_t communicator,
                                        const state_report& state) {
  control_message msg;
  msg.type = control_message::kind::report;
  msg.key.communicator = communicator;
  msg.state = state;
  send_control(peer, std::move(msg));
}

// Recovery messages count as messages of the world, and their chains as rounds.
inline bool simulated_transport::recover(int peer, std::uint32_t communicator,
                                         std::span<const std::byte> bytes) {
  if (world_.is_dead(rank())) return true;
  control_message msg;
  msg.type = control_message::kind::recovery;
  msg.key.communicator = communicator;
  msg.recovery.assign(bytes.begin(), bytes.end());
  msg.round = recovery_round_ + 1;
  ++world_.messages_;
  world_.bytes_ += bytes.size();
  world_.rounds_ = std::max(world_.rounds_, msg.round);
  send_control(peer, std::move(msg));
  return true;
}

inline bool simulated_transport::proves_losses(const communicator_state&) const {
  return world_.plan_.proves_losses();
}

inline void simulated_transport::add_awaited(const operation_record& waiting,
                                             std::vector<int>& ranks) {
  waiting_sends_.for_each([&](outgoing& send) {
    if (send.record == &waiting) ranks.push_back(send.key.peer);
  });
}

inline void simulated_transport::add_senders(const operation_record& waiting,
                                             std::vector<int>& ranks) {
  for (const message* msg : piecewise_) {
    const posted_receive* const receive = msg->receive;
    if (receive != nullptr && receive->record == &waiting) ranks.push_back(msg->key.peer);
  }
}

inline bool simulated_transport::is_connected(int peer) {
  return !world_.has_plan_ || world_.connections_->is_open(rank(), peer);
}

inline void simulated_transport::open_connection(int peer) {
  if (!is_connected(peer)) send_connection_control(peer, control_message::kind::dial);
}

inline void simulated_transport::send_connection_control(int peer, control_message::kind type) {
  control_message msg;
  msg.type = type;
  send_control(peer, std::move(msg));
}

// Records that a message of the collective with this key has arrived from `key.peer`. The message
// shows that `key.peer` has called this collective. Reports on ranks that are late or do not answer
// use this fact. Does nothing in a run without a fault plan.
inline void simulated_transport::record_collective(const message_key& key, std::uint64_t hash) {
  if (!world_.has_plan_ || hash == 0) return;
  simulated::connection_states::connection_state& state =
      world_.connections_->between(key.peer, rank());
  state.communicator = key.communicator;
  state.sequence = key.sequence;
}

inline std::uint64_t simulated_transport::newest_sequence_from(int peer,
                                                               std::uint32_t communicator) {
  if (!world_.has_plan_) return 0;
  const simulated::connection_states::connection_state& state =
      world_.connections_->between(peer, rank());
  return state.communicator == communicator ? state.sequence : 0;
}

inline void simulated_transport::dispute(int peer, std::uint32_t communicator,
                                         std::uint64_t sequence, const fingerprint& print) {
  control_message msg;
  msg.type = control_message::kind::dispute;
  msg.key.communicator = communicator;
  msg.key.sequence = sequence;
  msg.print = print;
  send_control(peer, std::move(msg));
}

// Called when the timer of this rank expires. Makes the matcher check the deadlines of the
// operations in flight. Sends a repeated RTS for each send that still waits 100 ms after its
// collective has started, but at most one for each send.
inline void simulated_transport::sweep() {
  matcher_.sweep(now());
  waiting_sends_.for_each([&](outgoing& send) {
    const bool is_direct = send.key.is_point_to_point();
    if (is_direct || send.rts_repeated || now() - send.record->started < 100 * milliseconds) return;
    repeat_rts(send);
  });
}

inline void simulated::message::drop() { sender->world_.release(*this); }

// Completes the send of an RTS that the receiver has discarded.
inline void simulated_transport::handle_discard(outgoing& send) {
  waiting_sends_.remove(send);
  send.finish(make_error_code(errc::cancelled));
  world_.push(world_.now_, simulated_world::event::kind::run, rank(), nullptr);
}

inline void simulated::message::discard() noexcept {
  outgoing* const waiting = is_rts ? send : nullptr;
  simulated_transport& origin = *sender;
  const std::int32_t receiver = dest;
  drop();
  if (waiting == nullptr) return;
  waiting->msg = nullptr;
  if (origin.world_.try_pass(receiver, origin.rank())) origin.handle_discard(*waiting);
}

}  // namespace colls
