// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A simulated rank: what it sends, receives and tells others.

#include <colls/transport/simulated/simulated_transport.hpp>

namespace colls {

inline int simulated_transport::size() const { return world_.size(); }
inline time_point simulated_transport::now() const { return world_.now(); }
inline bool simulated_transport::is_phantom() const { return world_.phantom_; }
inline int simulated_transport::node_of(int rank) const { return world_.network_.node_of(rank); }

inline void simulated_transport::kick() {
  match_.sweep(now());
  world_.set_timer(*this);
  if (!queue_.empty())
    world_.push(world_.now_, simulated_world::event::kind::turn, rank(), nullptr);
}

// ---- a rank sends

inline bool simulated_transport::start(outgoing& send) {
  if (world_.planned_ && !world_.counts(*this)) return false;
  ++world_.messages_;
  world_.bytes_ += send.size;
  send.round = chain_of(send.key) + 1;
  if (send.round > world_.rounds_) world_.rounds_ = send.round;
  if (world_.traced_) send.trace = world_.note(rank(), send.key, send.round, send.size, send.data);
  const bool direct = send.key.is_point_to_point();
  const bool in_turn = waiting_.empty() || waiting_.find(send.key) == nullptr;
  if (in_turn && send.size <= world_.plan_.eager_limit) {
    if (!direct) return launch(send, true, false);
    if (unsolicited_ + send.size <= eager_window) {
      unsolicited_ += send.size;
      return launch(send, true, false);
    }
  }
  if (in_turn && !direct) {
    message_key theirs = send.key;
    theirs.peer = rank();
    posted* const receive = world_[send.key.peer].match_.peek(theirs);
    if (receive != nullptr && world_.passes(send.key.peer, rank())) {
      receive->granted = true;
      return launch(send, true, false);
    }
  }
  send.at = outgoing::stage::waiting;
  waiting_.push_back(send);
  if (direct) {
    flight& ahead = make(send);
    ahead.header = true;
    ahead.tail = world_.now_;
    world_.travel(ahead);
  }
  return false;
}

inline simulated::flight& simulated_transport::make(outgoing& send) {
  flight& message = world_.flights_.take();
  message.key = send.key;
  message.key.peer = rank();  // as the receiver sees it
  message.to = send.key.peer;
  message.from = this;
  message.send = &send;
  message.size = send.size;
  message.hash = send.record->hash;
  message.data = send.data;
  message.round = send.round;
  message.trace = send.trace;
  send.message = &message;
  return message;
}

// The message leaves when those before it have. True: at once, and its bytes may be used again.
inline bool simulated_transport::launch(outgoing& send, bool may_end, bool asked) {
  const simulated::network& wires = world_.network_;
  flight& message = make(send);
  message.asked = asked;
  message.hops = wires.hops(rank(), message.to);
  message.port = wires.port_time(message.size);
  const ticks turn = std::max(world_.now_, sends_until_);
  const ticks begin = turn + wires.overhead();
  message.tail = sends_until_ = begin + message.port;
  if (world_.traced_) world_.trace_[message.trace - 1].started = turn;
  if (world_.planned_) message.damaged = world_.damages(*this);
  if (message.hops > 0) {
    world_.push(begin, simulated_world::event::kind::hop, message.to, &message);
  }
  if (may_end && message.tail == world_.now_) {
    load(message);
    message.send = nullptr;
    send.message = nullptr;
    send.record->bytes += send.size;
    world_.left(message);
    return true;
  }
  send.at = outgoing::stage::leaving;
  send.prev = nullptr;
  send.next = leaving_;
  if (leaving_ != nullptr) leaving_->prev = &send;
  leaving_ = &send;
  message.leaving = true;
  world_.push(message.tail, simulated_world::event::kind::left, rank(), &message);
  return false;
}

// From here on the sender's bytes are not looked at.
inline void simulated_transport::load(flight& message) {
  if (world_.phantom_ || message.size == 0 || message.over) return;
  message.copy = match_.take_scratch(message.size);
  if (message.copy.memory == nullptr) throw error(errc::not_enough_memory);
  std::memcpy(message.copy.memory, message.data, message.size);
  message.data = static_cast<const std::byte*>(message.copy.memory);
}

// The last byte has left.
inline void simulated_transport::sent(flight& message) {
  if (outgoing* const send = message.send) {
    unlink(*send);
    load(message);
    message.send = nullptr;
    send->finish({});
  }
  world_.left(message);
}

// The rank has died meanwhile.
inline void simulated_transport::never_sent(flight& message) {
  if (outgoing* const send = std::exchange(message.send, nullptr)) {
    send->message = nullptr;
  }
  message.lost = true;
  world_.left(message);
}

inline void simulated_transport::unlink(outgoing& send) {
  (send.prev != nullptr ? send.prev->next : leaving_) = send.next;
  if (send.next != nullptr) send.next->prev = send.prev;
}

// Its operation ends before its time: what was on the way goes on from a copy.
inline void simulated_transport::withdraw(outgoing& send) {
  flight* const message = std::exchange(send.message, nullptr);
  if (send.at == outgoing::stage::leaving) {
    unlink(send);
    if (message != nullptr && world_.is_dead(rank())) {
      message->lost = true;
    } else if (message != nullptr) {
      load(*message);
    }
  } else {
    waiting_.remove(send);
    if (message != nullptr && message->kept) {
      world_[message->to].match_.forget(*message);
      world_.release(*message);
    } else if (message != nullptr) {
      message->lost = true;
    }
  }
  if (message != nullptr) message->send = nullptr;
  send.at = outgoing::stage::idle;
}

// The receiver has asked for it; short ones behind it had to wait for nothing but their turn.
inline void simulated_transport::go_ahead(outgoing& send) {
  const message_key key = send.key;
  const bool direct = key.is_point_to_point();
  waiting_.remove(send);
  launch(send, false, direct);
  while (!direct) {
    outgoing* const next = waiting_.find(key);
    if (next == nullptr || next->size > world_.plan_.eager_limit) return;
    waiting_.remove(*next);
    launch(*next, false, false);
  }
}

// Its header, behind all that has left before: it tells the length and asks for nothing.
inline void simulated_transport::remind(outgoing& send) {
  send.reminded = true;
  flight& message = make(send);
  message.send = nullptr;
  send.message = nullptr;
  message.header = message.reminder = message.leaving = true;
  message.hops = world_.network_.hops(rank(), message.to);
  message.tail = std::max(world_.now_, sends_until_);
  if (message.hops > 0) {
    world_.push(message.tail, simulated_world::event::kind::hop, message.to, &message);
  }
  world_.push(message.tail, simulated_world::event::kind::left, rank(), &message);
}

// ---- a rank receives

inline bool simulated_transport::start(posted& receive) {
  if (world_.planned_ && !world_.counts(*this)) return false;
  arrival* const first = match_.post(receive);
  if (first == nullptr) {
    const bool large = receive.size > world_.plan_.eager_limit;
    if (large && !receive.key.is_point_to_point()) ask(receive);
    return false;
  }
  auto& message = static_cast<flight&>(*first);
  if (message.header) {
    match_.list(receive);
    message.kept = false;
    return grant(receive, message);
  }
  if (!settle(receive, message)) return false;
  receive.record->bytes += receive.received;
  return true;
}

// A long message may be waiting for this receive.
inline void simulated_transport::ask(posted& receive) {
  simulated_transport& peer = world_[receive.key.peer];
  message_key theirs = receive.key;
  theirs.peer = rank();
  outgoing* const send = peer.waiting_.find(theirs);
  if (send == nullptr || !world_.passes(rank(), receive.key.peer)) return;
  receive.granted = true;
  peer.go_ahead(*send);
}

// A listed receive and the header of a long point-to-point message. True: the receive has ended,
// and is off its list.
inline bool simulated_transport::grant(posted& receive, flight& header) {
  outgoing* const send = header.send;
  simulated_transport& peer = *header.from;
  receive.ec = match_.check(receive, header.key.peer, header.size, header.hash);
  send->message = nullptr;
  world_.release(header);
  if (!receive.ec) {
    match_.grant(receive, peer.rank());
    if (world_.passes(rank(), peer.rank())) peer.go_ahead(*send);
    return false;
  }
  match_.unlist(receive);
  // Nobody wants the bytes; the sender has done its part.
  peer.waiting_.remove(*send);
  send->finish({});
  world_.push(world_.now_, simulated_world::event::kind::turn, peer.rank(), nullptr);
  return true;
}

inline void simulated_transport::taken(flight& message) {
  note(message.key, message.hash);
  if (message.header) {
    message.reminder ? reminded(message) : header(message);
    return;
  }
  if (message.damaged) {
    failure why(errc::protocol_error);
    why.culprit = message.key.peer;
    why.say("a message of rank %d has a wrong checksum", message.key.peer);
    world_.release(message);
    match_.died(why.culprit, why);
    return;
  }
  posted* const receive =
      message.asked ? match_.take_granted(message.key) : match_.take(message.key);
  if (receive != nullptr) {
    if (world_.plan_.pieces && message.size > 1) {
      begin_to_fill(*receive, message);
    } else if (settle(*receive, message)) {
      receive->finish(receive->ec);
    }
    return;
  }
  const communicator_state* const known = match_.find(message.key.communicator);
  const bool failed = known != nullptr && known->failed();
  if (!match_.inspect(message.key, message.hash) || failed || message.asked) {
    world_.release(message);
    return;
  }
  message.buffered = true;
  match_.keep(message);
}

// A receive that is off its list gets its message. False: they are of different calls, and the
// receive waits for the verdict, which names both sides.
inline bool simulated_transport::settle(posted& receive, flight& message) {
  receive.ec = match_.check(receive, message.key.peer, message.size, message.hash);
  if (!receive.ec) {
    std::uint32_t& longest = chain_of(message.key);
    longest = std::max(longest, message.round);
    if (world_.traced_) {
      simulated::message_trace& seen = world_.trace_[message.trace - 1];
      seen.received = world_.now_;
      seen.folded = receive.fold != nullptr;
    }
    if (world_.phantom_) {
      receive.received = message.size;
      receive.source = message.key.peer;
    } else {
      receive.accept(message.data, message.size, message.key.peer);
    }
  }
  world_.release(message);
  if (receive.ec != errc::mismatch || receive.record->communicator->failed()) return true;
  match_.list(receive);
  return false;
}

// Under a plan with `pieces`: some of it now, the rest bit by bit, and what reduces it at the end.
inline void simulated_transport::begin_to_fill(posted& receive, flight& message) {
  if (match_.check(receive, message.key.peer, message.size, message.hash)) {
    if (settle(receive, message)) receive.finish(receive.ec);
    return;
  }
  message.receive = &receive;
  receive.held_by = this;
  filling_.push_back(&message);
  filled(message);
}

inline void simulated_transport::filled(flight& message) {
  posted* const receive = message.receive;
  if (receive == nullptr) {
    std::erase(filling_, &message);
    world_.release(message);
    return;
  }
  const std::size_t piece = (message.size - message.filled + 1) / 2;
  if (message.filled + piece < message.size) {
    if (receive->fold == nullptr && !world_.phantom_) {
      std::memcpy(receive->data + message.filled, message.data + message.filled, piece);
    }
    message.filled += piece;
    world_.push(world_.now_ + simulated::per_nanosecond, simulated_world::event::kind::filled,
                rank(), &message);
    return;
  }
  std::erase(filling_, &message);
  receive->held_by = nullptr;
  if (settle(*receive, message)) receive->finish(receive->ec);
}

inline void simulated_transport::header(flight& message) {
  const communicator_state* const known = match_.find(message.key.communicator);
  if (message.lost || !match_.inspect(message.key, message.hash) ||
      (known != nullptr && known->failed())) {
    if (message.send != nullptr) message.send->message = nullptr;
    world_.release(message);
    return;
  }
  posted* const receive = match_.peek(message.key);
  if (receive == nullptr) {
    message.kept = true;
    match_.keep(message);
  } else if (grant(*receive, message)) {
    receive->finish(receive->ec);
  }
}

// Its receiver may expect another length, and then neither would end.
inline void simulated_transport::reminded(flight& message) {
  if (match_.inspect(message.key, message.hash)) {
    posted* const receive = match_.first(message.key);
    if (receive != nullptr) {
      match_.check(*receive, message.key.peer, message.size, message.hash);
    }
  }
  world_.release(message);
}

// ---- what ranks tell each other

inline void simulated_transport::say(int peer, word&& said) {
  if (!world_.passes(rank(), peer)) return;
  said.from = rank();
  said.to = peer;
  said.key.peer = rank();
  word& sent = world_.words_.take();
  sent = said;
  const ticks when = world_.now_ + world_.network_.latency(rank(), peer);
  world_.push(world_.in_order(rank(), peer, when), simulated_world::event::kind::said, peer, &sent);
}

inline void simulated_transport::heard(const word& said) {
  const int teller = said.news ? rank() : said.from;
  switch (said.what) {
    case word::kind::dial:
      say_of_link(said.from, word::kind::opened);
      [[fallthrough]];
    case word::kind::opened:
      match_.linked(said.from, now());
      world_.set_timer(*this);
      break;
    case word::kind::announce:
      match_.inspect(said.key, said.hash);
      note(said.key, said.hash);
      match_.hear(said.from, said.key.communicator, said.known, now());
      report(said.from, said.key.communicator, match_.report_on(said.key.communicator, now()));
      world_.set_timer(*this);
      break;
    case word::kind::report:
      match_.hear(said.from, said.key.communicator, said.known, now());
      world_.set_timer(*this);
      break;
    case word::kind::dispute:
      match_.compare(said.from, said.key.communicator, said.key.sequence, said.print);
      break;
    case word::kind::revoke:
      if (said.why.code == errc::peer_failed && said.why.culprit >= 0) {
        if (said.why.culprit != rank()) match_.died(said.why.culprit, said.why, teller);
      } else {
        match_.revoke(said.key.communicator, reported_failure(said.why), teller);
      }
      break;
    case word::kind::lost:
      match_.died(said.from, said.why);
      break;
  }
}

inline void simulated_transport::tell_why(int peer, std::uint32_t communicator,
                                          const failure& why) {
  word said;
  said.what = word::kind::revoke;
  said.key.communicator = communicator;
  said.why = why;
  say(peer, std::move(said));
}

inline void simulated_transport::revoked(communicator_state& communicator, const failure& why,
                                         int told_by) {
  waiting_.each([&](outgoing& send) {
    if (send.record->communicator != &communicator) return;
    withdraw(send);
    send.finish(why.code);
  });
  for (keyed* at = leaving_; at != nullptr;) {
    auto& send = static_cast<outgoing&>(*at);
    at = at->next;
    if (send.record->communicator != &communicator) continue;
    withdraw(send);
    send.finish(why.code);
  }
  for (flight* message : filling_) {
    posted* const receive = message->receive;
    if (receive == nullptr || receive->key.communicator != communicator.id()) continue;
    message->receive = nullptr;
    receive->finish(why.code);
  }
  if (world_.is_dead(rank())) return;
  if (told_by < 0 && world_.planned_) world_.spread(rank(), why, communicator.id());
  // Without a plan words always arrive, so the first to know tells all; else each tells its peers.
  if (told_by >= 0 && !world_.planned_) return;
  for (int i = 0; i < communicator.size(); ++i) {
    const int peer = communicator.world_rank(i);
    if (peer == rank() || peer == told_by) continue;
    if (world_.planned_ && !world_.links_->is_open(rank(), peer)) continue;
    tell_why(peer, communicator.id(), why);
  }
}

inline void simulated_transport::announce(int peer, const operation_record& waiting,
                                          const state_report& known) {
  word said;
  said.what = word::kind::announce;
  said.key = announcement(rank(), waiting);
  said.hash = waiting.hash;
  said.known = known;
  say(peer, std::move(said));
}

inline void simulated_transport::report(int peer, std::uint32_t communicator,
                                        const state_report& known) {
  word said;
  said.what = word::kind::report;
  said.key.communicator = communicator;
  said.known = known;
  say(peer, std::move(said));
}

inline void simulated_transport::add_awaited(const operation_record& waiting,
                                             std::vector<int>& to) {
  waiting_.each([&](outgoing& send) {
    if (send.record == &waiting) to.push_back(send.key.peer);
  });
}

inline void simulated_transport::add_senders(const operation_record& waiting,
                                             std::vector<int>& to) {
  for (const flight* message : filling_) {
    const posted* const receive = message->receive;
    if (receive != nullptr && receive->record == &waiting) to.push_back(message->key.peer);
  }
}

inline bool simulated_transport::is_linked(int peer) {
  return !world_.planned_ || world_.links_->is_open(rank(), peer);
}

inline void simulated_transport::open_link(int peer) {
  if (!is_linked(peer)) say_of_link(peer, word::kind::dial);
}

inline void simulated_transport::say_of_link(int peer, word::kind what) {
  word said;
  said.what = what;
  say(peer, std::move(said));
}

// Remembered where ranks may fall silent.
inline void simulated_transport::note(const message_key& key, std::uint64_t hash) {
  if (!world_.planned_ || hash == 0) return;
  simulated::links::one_way& way = world_.links_->between(key.peer, rank());
  way.communicator = key.communicator;
  way.sequence = key.sequence;
}

inline std::uint64_t simulated_transport::heard_in(int peer, std::uint32_t communicator) {
  if (!world_.planned_) return 0;
  const simulated::links::one_way& way = world_.links_->between(peer, rank());
  return way.communicator == communicator ? way.sequence : 0;
}

inline void simulated_transport::dispute(int peer, std::uint32_t communicator,
                                         std::uint64_t sequence, const fingerprint& ours) {
  word said;
  said.what = word::kind::dispute;
  said.key.communicator = communicator;
  said.key.sequence = sequence;
  said.print = ours;
  say(peer, std::move(said));
}

// Deadlines; and who has long waited to send says so.
inline void simulated_transport::sweep() {
  match_.sweep(now());
  waiting_.each([&](outgoing& send) {
    const bool direct = send.key.is_point_to_point();
    if (direct || send.reminded || now() - send.record->started < 100 * milliseconds) return;
    remind(send);
  });
}

inline void simulated::flight::drop() { from->world_.release(*this); }

}  // namespace colls
