// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What is no plain pairing: the second half of tag_matcher.hpp.

#include <colls/base/compiler.hpp>
#include <colls/matching/tag_matcher.hpp>

namespace colls {

COLLS_ONCE failure has_left(int peer) {
  failure why(errc::closed);
  why.culprit = peer;
  why.say("rank %d has left", peer);
  return why;
}

COLLS_ONCE match::match(int rank) : rank_(rank) {}

COLLS_ONCE void match::add(mover& transport) { movers_.push_back(&transport); }

COLLS_ONCE void match::remove(mover& transport) { std::erase(movers_, &transport); }

COLLS_ONCE void match::add(communicator_state& communicator) {
  const std::optional<failure> failed = communicators_.take_failure(communicator.id());
  communicators_.add(communicator);
  if (failed) revoke(communicator, *failed);
  if (const failure* const why = communicators_.death_in(communicator)) revoke(communicator, *why);
}

COLLS_ONCE void match::remove(communicator_state& communicator) {
  communicators_.remove(communicator);
  std::erase_if(inquiries_,
                [&](const inquiry& one) { return &one.communicator() == &communicator; });
  // Their senders have not gone on, or wait for our part.
  drop_arrivals_of(communicator.id(), 1, [this](const message_key& key) { inspect(key, 0); });
}

COLLS_ONCE void match::abandon_ids(std::uint32_t first, const std::shared_ptr<const failure>& why) {
  const std::uint32_t count = communicators_.abandon_ids(first, why);
  drop_arrivals_of(first, count, [this](const message_key& key) { inspect(key, 0); });
}

COLLS_ONCE void match::revoke(communicator_state& communicator, failure why, int told_by) {
  if (communicator.failed()) return;
  if (why.observer < 0) why.observer = rank_;
  // A death is no matter of one communicator.
  why.communicator = why.code == errc::peer_failed ? 0 : communicator.id();
  communicator.fail(reported_failure(why));
  fail_receives(communicator.id(), communicator.why().code);
  for (mover* transport : movers_) transport->revoked(communicator, why, told_by);
}

COLLS_ONCE void match::revoke(std::uint32_t id, const reported_failure& report, int told_by) {
  if (communicator_state* const communicator = find(id)) {
    revoke(*communicator, report, told_by);
  } else {
    communicators_.expect_failure(id, report);
  }
}

COLLS_ONCE void match::died(int peer, const failure& why, int told_by) {
  communicators_.note_death(peer, why);
  for (std::size_t i = 0; i < communicators_.all().size(); ++i) {
    communicator_state& communicator = *communicators_.all()[i];
    if (communicator.rank_of(peer) >= 0 && !communicator.closing) {
      revoke(communicator, why, told_by);
    }
  }
}

COLLS_ONCE std::error_code match::left(int peer, const operation_record& record) {
  failure why = has_left(peer);
  why.operation = record.what;
  why.sequence = record.hash != 0 ? record.sequence : 0;
  why.communicator = record.communicator->id();
  revoke(*record.communicator, why);
  return record.communicator->why().code;
}

COLLS_ONCE void match::disagree(communicator_state& communicator, std::uint64_t sequence,
                                int peer) {
  if (communicator.failed()) return;
  const fingerprint* const ours = communicator.recall(sequence);
  if (ours == nullptr) return;
  for (mover* transport : movers_) {
    transport->dispute(peer, communicator.id(), sequence, *ours);
  }
}

namespace detail {

inline void add_call(line& to, const communicator_state& of, std::uint64_t sequence) {
  to.add("#%llu", static_cast<unsigned long long>(sequence));
  const fingerprint* const call = of.recall(sequence);
  if (call != nullptr) to.add(" %s", name(call->what));
}

}  // namespace detail

COLLS_ONCE void match::compare(int peer, std::uint32_t id, std::uint64_t sequence,
                               const fingerprint& theirs) {
  communicator_state* const communicator = find(id);
  if (communicator == nullptr || communicator->failed()) return;
  if (sequence >= communicator->next_sequence()) return;
  const fingerprint* const ours = communicator->recall(sequence);
  if (ours != nullptr && *ours == theirs) return;
  failure why(errc::mismatch);
  why.culprit = peer;
  why.communicator = id;
  why.operation = ours != nullptr ? ours->what : theirs.what;
  why.sequence = sequence;
  if (ours != nullptr) {
    detail::say_difference(why, rank_, *ours, peer, theirs);
  } else {
    detail::say_forgotten(why, rank_, peer, theirs);
  }
  const std::uint64_t newest = communicator->next_sequence() - 1;
  if (newest > sequence) {
    detail::line with_place;
    with_place.add("%.280s; rank %d is at ", why.detail, rank_);
    detail::add_call(with_place, *communicator, newest);
    why.say("%s", with_place.text());
  }
  revoke(*communicator, why);
}

COLLS_ONCE void match::sweep(time_point now) {
  calls_.sweep(now, [&](operation_record& record, under_way::waited what) {
    switch (what) {
      case under_way::waited::in_all:
        expire(record, now, true);
        break;
      case under_way::waited::idle:
        expire(record, now, false);
        break;
      case under_way::waited::unheard_of:
        if (!was_just_announced(record, now)) announce(record, now);
        break;
      case under_way::waited::late:
        tell_of_late_ranks(record, now);
        break;
      case under_way::waited::nothing:
        break;
    }
  });
  if (inquiries_.empty() || now - news_spread_ < 5 * milliseconds) return;
  news_spread_ = now;
  spread_news(now);
}

namespace detail {

/// Of a message.
inline int peer_of(const operation_record& record) {
  return record.receive != nullptr ? record.receive->key.peer : record.sends_to;
}

}  // namespace detail

COLLS_ONCE bool match::was_just_announced(const operation_record& record, time_point now) {
  if (record.hash != 0 || record.what == collective::send_recv) return false;
  const int peer = detail::peer_of(record);
  const inquiry* const asks = inquiry_on(record.communicator->id());
  const inquiry::entry* const known = asks != nullptr ? asks->find(peer) : nullptr;
  constexpr time_point pause = 20 * milliseconds;
  return known != nullptr && known->announced != never && now - known->announced < pause;
}

COLLS_ONCE time_point match::due() const {
  time_point first = calls_.due();
  for (const inquiry& one : inquiries_) {
    first = std::min(first, std::max(one.due(), news_spread_ + 5 * milliseconds));
  }
  return first;
}

COLLS_ONCE void match::tell(int peer, const failure& why) {
  for (mover* transport : movers_) transport->refuse(peer, why);
}

// ---- late ranks

COLLS_ONCE std::vector<int> match::senders_to(const operation_record& record) {
  std::vector<int> found;
  each_waiting_of(record, [&](const posted& receive) { found.push_back(receive.key.peer); });
  for (mover* transport : movers_) transport->add_senders(record, found);
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

COLLS_ONCE std::vector<int> match::takers_of(const operation_record& record) const {
  std::vector<int> found;
  for (mover* transport : movers_) transport->add_awaited(record, found);
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

COLLS_ONCE std::vector<int> match::peers_of(const operation_record& record) {
  std::vector<int> found = senders_to(record);
  const std::vector<int> takers = takers_of(record);
  found.insert(found.end(), takers.begin(), takers.end());
  return found;
}

COLLS_ONCE inquiry* match::inquiry_on(std::uint32_t communicator) {
  for (inquiry& one : inquiries_) {
    if (one.communicator().id() == communicator) return &one;
  }
  return nullptr;
}

COLLS_ONCE inquiry& match::inquire(const operation_record& record, time_point now) {
  communicator_state& of = *record.communicator;
  const operation_record* const oldest = of.oldest_collective();
  const std::uint64_t sequence = oldest != nullptr ? oldest->sequence : 0;
  inquiry* const known = inquiry_on(of.id());
  if (known == nullptr) return inquiries_.emplace_back(of, sequence, now);
  if (known->sequence() != sequence) *known = inquiry(of, sequence, now);
  return *known;
}

COLLS_ONCE void match::refresh(inquiry& asks, time_point now) {
  const communicator_state& of = asks.communicator();
  const std::uint64_t last = asks.sequence() != 0 ? asks.sequence() : of.next_sequence();
  const std::uint64_t by_all = of.entered_by_all(last);
  std::optional<std::vector<int>> awaited(std::in_place);
  try {
    if (const operation_record* const waits = of.oldest_collective()) awaited = peers_of(*waits);
  } catch (const std::bad_alloc&) {
    awaited.reset();
  }
  asks.each([&](int rank, inquiry::entry& one) {
    // A rank whose messages have all come is not waited for any more.
    if (awaited) one.awaited = std::find(awaited->begin(), awaited->end(), rank) != awaited->end();
    std::uint64_t& entered = one.known.entered;
    entered = std::max(entered, by_all);
    if (!one.direct) return;
    for (mover* transport : movers_) {
      entered = std::max(entered, transport->heard_in(rank, of.id()));
    }
    // The system is asked of many ranks, and needs a while for each.
    if (one.looked_at != never && now - one.looked_at < inquiry::patience) return;
    one.looked_at = now;
    const bool silent = inquiry::is_silent(one, now);
    one.known.stopped = 0;
    for (mover* transport : movers_) {
      if (silent && transport->is_stopped(rank)) one.known.stopped = 1;
    }
  });
}

COLLS_ONCE state_report match::own_state(std::uint32_t communicator) const {
  state_report made;
  rank_state& self = made.self;
  self.rank = rank_;
  self.answers = 1;
  if (const communicator_state* const of = find(communicator)) {
    self.entered = of->next_sequence() - 1;
    const operation_record* const oldest = of->oldest_collective();
    if (oldest != nullptr) self.waits_in = oldest->sequence;
  }
  const operation_record* in = nullptr;  // the oldest collective, or else the oldest of all
  for (const communicator_state* const each : communicators_.all()) {
    if (each->failed() || !each->is_in_use()) continue;
    const operation_record* const call = each->oldest_collective();
    const operation_record* const own = call != nullptr ? call : each->oldest_direct();
    const auto place_of = [](const operation_record& one) {
      return std::pair(one.hash == 0, one.begun);
    };
    if (in == nullptr || place_of(*own) < place_of(*in)) in = own;
  }
  if (in != nullptr) {
    self.communicator = in->communicator->id();
    self.sequence = in->sequence;
    self.operation = in->what;
  }
  return made;
}

COLLS_ONCE state_report match::report_on(std::uint32_t communicator, time_point now) {
  state_report made = own_state(communicator);
  if (inquiry* const asks = inquiry_on(communicator)) {
    refresh(*asks, now);
    asks->put(made, now);
  }
  return made;
}

COLLS_ONCE bool match::hear(int peer, std::uint32_t id, const state_report& said, time_point now) {
  if (!said.is_plausible()) return false;
  const communicator_state* const of = find(id);
  if (of == nullptr) return true;
  if (of->rank_of(peer) < 0) return false;
  for (std::uint32_t i = 0; i < said.count; ++i) {
    const rank_state& other = said.others[i];
    if (other.rank < 0 || of->rank_of(other.rank) < 0) return false;
    if (other.waiter >= 0 && of->rank_of(other.waiter) < 0) return false;
  }
  inquiry* const asks = inquiry_on(id);
  if (asks == nullptr) return true;
  try {
    rank_state self = said.self;
    self.rank = peer;
    asks->hear(self, now);
    for (std::uint32_t i = 0; i < said.count; ++i) {
      if (said.others[i].rank != rank_) asks->learn(peer, self.waits_in, said.others[i], now);
    }
  } catch (const std::bad_alloc&) {
    // Then less is known of late ranks.
  }
  return true;
}

COLLS_ONCE void match::linked(int peer, time_point now) {
  for (std::size_t i = 0; i < communicators_.all().size(); ++i) {
    const communicator_state& of = *communicators_.all()[i];
    const operation_record* const oldest = of.oldest_collective();
    if (oldest == nullptr || of.failed()) continue;
    inquiry* const asks = inquiry_on(of.id());
    if (asks == nullptr || of.rank_of(peer) < 0) continue;
    try {
      asks->end_dial(peer);
      asks->ask(peer, false, now);
    } catch (const std::bad_alloc&) {
      return;  // the next announcement is not far
    }
    const state_report known = report_on(of.id(), now);
    for (mover* transport : movers_) transport->announce(peer, *oldest, known);
  }
}

COLLS_ONCE void match::announce(const operation_record& record, time_point now) {
  const communicator_state& of = *record.communicator;
  // What comes back at once may end it.
  const auto tell = [&](const std::vector<int>& peers, bool are_awaited) {
    if (of.failed()) return;
    for (const int peer : peers) inquire(record, now).ask(peer, are_awaited, now);
    const state_report known = report_on(of.id(), now);
    for (const int peer : peers) {
      for (mover* transport : movers_) {
        if (!of.failed()) transport->announce(peer, record, known);
      }
    }
  };
  try {
    std::vector<int> awaited = peers_of(record);
    std::erase_if(awaited, [&](int peer) { return peer < 0 || peer == rank_; });
    tell(awaited, true);
    if (record.hash == 0 || &record != of.oldest_collective()) return;
    std::vector<int> others;
    const time_point waited = now - record.started;
    const time_point limit = std::min(record.deadline - record.started, of.inactivity);
    const bool opens = waited >= std::min(1 * seconds, limit / 2);
    each_neighbour(of.rank(), of.size(), [&](int neighbour) {
      const int peer = of.world_rank(neighbour);
      if (std::find(awaited.begin(), awaited.end(), peer) != awaited.end()) return;
      const bool linked = std::any_of(movers_.begin(), movers_.end(),
                                      [&](mover* each) { return each->is_linked(peer); });
      if (linked) return others.push_back(peer);
      if (!opens) return;
      inquire(record, now).dial(peer, now);
      for (mover* transport : movers_) transport->open_link(peer);
    });
    tell(others, false);
  } catch (const std::bad_alloc&) {
    // The next time is not far.
  }
}

COLLS_ONCE void match::report_to_asked(inquiry& asks, const state_report& known) {
  const std::uint32_t id = asks.communicator().id();
  asks.each([&](int rank, const inquiry::entry& one) {
    for (mover* transport : movers_) {
      if (one.direct && transport->is_linked(rank)) transport->report(rank, id, known);
    }
  });
}

COLLS_ONCE void match::tell_of_the_end(const operation_record& record) {
  const communicator_state& of = *record.communicator;
  inquiry* const asks = inquiry_on(of.id());
  const bool was_told = asks != nullptr && record.hash != 0 && asks->sequence() == record.sequence;
  if (!was_told || of.failed()) return;
  const state_report known = own_state(of.id());
  try {
    report_to_asked(*asks, known);
  } catch (const std::bad_alloc&) {
    // Then what this rank has said counts until it is too old.
  }
}

COLLS_ONCE void match::spread_news(time_point now) {
  std::erase_if(inquiries_, [&](const inquiry& one) {
    const communicator_state& of = one.communicator();
    const operation_record* const oldest = of.oldest_collective();
    return of.failed() || one.sequence() != (oldest != nullptr ? oldest->sequence : 0) ||
           !of.is_in_use();
  });
  for (std::size_t i = 0; i < inquiries_.size(); ++i) {
    inquiry& asks = inquiries_[i];
    if (!asks.is_due(now)) continue;
    const std::uint32_t id = asks.communicator().id();
    const state_report known = report_on(id, now);
    if (!asks.is_news(known, now)) continue;
    report_to_asked(asks, known);
  }
}

namespace detail {

/// Where a rank is that has not entered `missed`, or, if that is 0, has no part in a message.
/// `is_quiet`: as far as is known.
inline void add_place(line& to, const communicator_state& of, const inquiry::entry& late,
                      std::uint64_t missed, bool is_quiet, time_point now) {
  const rank_state& at = late.known;
  const bool silent = inquiry::is_silent(late, now);
  if (!silent && at.operation != collective::none) {
    const bool direct = at.operation == collective::send || at.operation == collective::recv ||
                        at.operation == collective::send_recv;
    const auto number = static_cast<unsigned long long>(at.sequence);
    if (direct) {
      to.add("; it is at %s with tag %llu", name(at.operation), number);
    } else {
      to.add("; it is at #%llu %s", number, name(at.operation));
    }
    if (at.communicator != of.id()) to.add(" on communicator %x", at.communicator);
  } else if (missed == 0) {
    const double span = static_cast<double>(inquiry::silent_for(late, now)) * 1e-9;
    silent ? to.add("; nothing was heard of it for %.1f s", span)
           : to.add("; it has no operation under way");
  } else if (at.entered == 0) {
    to.add(silent ? "; nothing was heard of it" : "; it has made no call");
  } else {
    const bool has_made_none = !silent || (at.entered + 1 == missed && !is_quiet);
    to.add(has_made_none ? "; it has made no call since " : "; nothing was heard of it since ");
    add_call(to, of, at.entered);
  }
  if (at.stopped != 0) to.add(", and is stopped");
}

inline void add_ranks(line& to, const char* one, const char* several,
                      const std::vector<int>& ranks) {
  if (ranks.empty()) return;
  to.add("%s", ranks.size() == 1 ? one : several);
  for (std::size_t i = 0; i < ranks.size(); ++i) to.add("%s%d", i == 0 ? " " : ", ", ranks[i]);
}

}  // namespace detail

COLLS_ONCE void match::blame_peer(blame& to, const operation_record& record, time_point now) {
  const auto tag = static_cast<unsigned long long>(record.sequence);
  const std::vector<int> senders = senders_to(record);
  const std::vector<int> takers = takers_of(record);
  if (!senders.empty() && senders.front() < 0) {
    to.sentence.add("no rank has sent tag %llu", tag);
    return;
  }
  if (senders.empty() && takers.empty()) {
    to.sentence.add("the message with tag %llu has not come to its end", tag);
    return;
  }
  to.culprit = to.waited_for = senders.empty() ? takers.front() : senders.front();
  to.sentence.add("rank %d has not %s tag %llu", to.culprit, senders.empty() ? "received" : "sent",
                  tag);
  inquiry* const asks = inquiry_on(record.communicator->id());
  if (asks == nullptr) return;
  refresh(*asks, now);
  const inquiry::entry* const late = asks->find(to.culprit);
  if (late == nullptr || (late->known.answers == 0 && !inquiry::is_silent(*late, now))) return;
  detail::add_place(to.sentence, *record.communicator, *late, 0, false, now);
}

COLLS_ONCE void match::blame_member(blame& to, const operation_record& record, time_point now) {
  const communicator_state& of = *record.communicator;
  const std::vector<int> peers = peers_of(record);
  if (!peers.empty()) to.waited_for = peers.front();
  inquiry* const asks = inquiry_on(of.id());
  if (asks != nullptr) refresh(*asks, now);
  const inquiry::verdict found = asks != nullptr ? asks->judge(now) : inquiry::verdict();
  detail::line& line = to.sentence;
  to.culprit = found.culprit;
  if (found.culprit < 0) {
    line.add("no rank is known to be late");
    return;
  }
  const inquiry::entry& late = *asks->find(found.culprit);
  line.add("rank %d %s ", found.culprit, found.has_entered ? "entered" : "has not entered");
  detail::add_call(line, of, found.sequence);
  if (found.is_quiet) line.add(" as far as is known");
  if (found.has_entered) {
    const double span = static_cast<double>(inquiry::silent_for(late, now)) * 1e-9;
    line.add(" and has been silent for %.1f s", span);
    if (late.known.stopped != 0) line.add(", and is stopped");
  } else {
    detail::add_place(line, of, late, found.sequence, found.is_quiet, now);
    detail::add_ranks(line, "; nor has rank", "; nor have ranks", found.others);
    detail::add_ranks(line, "; nothing was heard of rank", "; nothing was heard of ranks",
                      found.quiet);
  }
}

COLLS_ONCE match::blame match::who_is_late(const operation_record& record, time_point now) {
  blame found;
  try {
    // Of a rank that shares the thread the answer is there at once.
    if (inquiry_on(record.communicator->id()) == nullptr) announce(record, now);
    record.hash == 0 ? blame_peer(found, record, now) : blame_member(found, record, now);
  } catch (const std::bad_alloc&) {
    found.sentence.add("there is no memory to say which rank is late");
  }
  return found;
}

COLLS_ONCE bool match::asks_again(operation_record& record, time_point now) {
  const communicator_state& of = *record.communicator;
  // A receive with a short timeout ends on time.
  if (record.hash == 0 && now - record.started < 2 * inquiry::patience) return false;
  const bool is_first = inquiry_on(of.id()) == nullptr;
  if (is_first) announce(record, now);
  inquiry* const asks = inquiry_on(of.id());
  if (asks == nullptr || of.failed()) return false;
  if (is_first) asks->begin_round(now, inquiry::patience);
  try {
    const std::vector<int> peers = asks->ask_again(now);
    // What comes back at once may end the operation.
    const state_report known = peers.empty() ? state_report() : report_on(of.id(), now);
    for (const int peer : peers) {
      for (mover* transport : movers_) {
        if (!of.failed()) transport->announce(peer, record, known);
      }
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  if (!asks->expects_answers(now)) return false;
  calls_.look_at(record, now + inquiry::patience);
  return true;
}

COLLS_ONCE void match::tell_of_late_ranks(operation_record& record, time_point now) {
  const communicator_state& of = *record.communicator;
  const bool is_direct = record.hash == 0;
  const bool is_first = is_direct || &record == of.oldest_collective();
  // Those before it may end soon, and it may not.
  if (!is_first) calls_.look_at(record, now + 1 * seconds);
  record.late = is_first && !asks_again(record, now);
  if (!record.late || of.failed()) return;
  // Of the messages that wait for one rank the log is told once.
  const int peer = is_direct ? detail::peer_of(record) : -1;
  const inquiry* const known = inquiry_on(of.id());
  if (is_direct && known != nullptr && known->is_logged(peer, now)) return;
  const blame late = who_is_late(record, now);
  detail::line where;
  const auto number = static_cast<unsigned long long>(record.sequence);
  if (is_direct) {
    std::size_t others = 0;
    for (const operation_record* each = calls_.first(); each != nullptr; each = each->next) {
      const bool is_like_it = each->hash == 0 && each->communicator == record.communicator;
      if (is_like_it && each != &record && detail::peer_of(*each) == peer) ++others;
    }
    where.add("%s with tag %llu", name(record.what), number);
    if (others > 0) where.add(" (and in %zu more messages)", others);
    note_logged(of, peer, now);
  } else {
    where.add("%s #%llu", name(record.what), number);
  }
  log_warn("rank %d has waited 30 s in %s: %s", rank_, where.text(), late.sentence.text());
}

COLLS_ONCE void match::note_logged(const communicator_state& of, int peer, time_point now) {
  try {
    if (inquiry* const asks = inquiry_on(of.id())) asks->note_logged(peer, now);
  } catch (const std::bad_alloc&) {
    // Then the log is told again.
  }
}

COLLS_ONCE void match::expire(operation_record& record, time_point now, bool total) {
  const communicator_state& of = *record.communicator;
  // Ranks may have entered the operation, or ended it, since they said where they were.
  if (asks_again(record, now)) return;
  const blame late = who_is_late(record, now);
  if (of.failed()) return;  // what was answered at once has ended it
  failure why(errc::timeout);
  why.communicator = of.id();
  why.operation = record.what;
  why.sequence = record.hash == 0 ? 0 : record.sequence;
  why.bytes_done = record.bytes;
  why.bytes_expected = record.bytes_expected;
  why.elapsed_ns = now - record.started;
  why.culprit = late.culprit;
  why.waited_for = late.waited_for;
  detail::line told;
  told.add("%.250s", late.sentence.text());
  if (total) {
    told.add("; options.timeout is over");
  } else {
    told.add("; nothing moved for %g s", static_cast<double>(of.inactivity) * 1e-9);
  }
  why.say("%s", told.text());
  if (record.expired != nullptr) {
    record.expired(record, why);
  } else {
    revoke(*record.communicator, why);
  }
}

}  // namespace colls
