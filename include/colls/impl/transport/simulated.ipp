// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How simulated messages travel and what a plan does to them: the second half of
// transport/simulated.hpp.

namespace colls {

inline int simulated_transport::size() const { return world_.size(); }
inline bool simulated_transport::poll() { return world_.poll(); }
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
inline void simulated_transport::detach(outgoing& send) {
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
  receive.ec = match_.check(receive, header.size, header.hash);
  send->message = nullptr;
  world_.release(header);
  if (!receive.ec) {
    receive.granted = true;
    receive.key.peer = peer.rank();
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
  if (message.reminder) {
    reminded(message);
    return;
  }
  if (message.header) {
    header(message);
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
  receive.ec = match_.check(receive, message.size, message.hash);
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
  if (match_.check(receive, message.size, message.hash)) {
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
    if (receive != nullptr) match_.check(*receive, message.size, message.hash);
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
    case word::kind::announce:
      match_.inspect(said.key, said.hash);
      break;
    case word::kind::dispute:
      match_.compare(said.from, said.key.communicator, said.key.sequence, said.print);
      break;
    case word::kind::revoke:
      if (said.why.code == errc::peer_failed && said.why.culprit >= 0) {
        if (said.why.culprit != rank()) match_.died(said.why.culprit, said.why, teller);
      } else {
        match_.revoke(said.key.communicator, said.why, teller);
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
    detach(send);
    send.finish(why.code);
  });
  for (keyed* at = leaving_; at != nullptr;) {
    auto& send = static_cast<outgoing&>(*at);
    at = at->next;
    if (send.record->communicator != &communicator) continue;
    detach(send);
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

inline void simulated_transport::announce(int peer, const operation_record& waiting) {
  word said;
  said.what = word::kind::announce;
  said.key = announcement(rank(), waiting);
  said.hash = waiting.hash;
  say(peer, std::move(said));
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

// ---- the world

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
  if (message.reminder) {
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

// ---- the plan

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
