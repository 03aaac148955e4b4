// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// tag_matcher.ipp: the functions of tag_matcher that handle failures, disputes and late ranks. A
// dispute begins when a rank finds out that another rank made a different call with the same
// sequence number.

#include <colls/base/compiler.hpp>
#include <colls/matching/communicator_recovery.hpp>
#include <colls/matching/stragglers.hpp>
#include <colls/matching/tag_matcher.hpp>

namespace colls {

COLLS_ONCE failure peer_left_failure(int peer) {
  failure reason(errc::closed);
  reason.culprit = peer;
  reason.set_detail("rank %d has left", peer);
  return reason;
}

COLLS_ONCE tag_matcher::tag_matcher(int rank) : rank_(rank) {}
COLLS_ONCE tag_matcher::~tag_matcher() = default;

COLLS_ONCE void tag_matcher::add(failure_hooks& hooks) { hooks_.push_back(&hooks); }

COLLS_ONCE void tag_matcher::remove(failure_hooks& hooks) { std::erase(hooks_, &hooks); }

COLLS_ONCE void tag_matcher::add(communicator_state& communicator) {
  const std::optional<failure> failed = communicators_.take_early_failure(communicator.id());
  communicators_.add(communicator);
  if (failed) revoke(communicator, *failed);
  if (const failure* const reason = communicators_.death_in(communicator))
    revoke(communicator, *reason);
  if (!early_recoveries_.empty()) replay_early_recoveries(communicator);
}

COLLS_ONCE void tag_matcher::remove(communicator_state& communicator) {
  communicators_.remove(communicator);
  end_recovery(communicator.id());
  std::erase_if(stragglers_,
                [&](const auto& table) { return &table->communicator() == &communicator; });
  // The senders of the dropped messages may still wait for this rank. `inspect` tells them that
  // this rank has left the communicator.
  drop_unexpected_of(communicator.id(), 1, [this](const message_key& key) { inspect(key, 0); });
}

COLLS_ONCE void tag_matcher::abandon_ids(std::uint32_t first,
                                         const std::shared_ptr<const failure>& reason) {
  const std::uint32_t count = communicators_.abandon_ids(first, reason);
  drop_unexpected_of(first, count, [this](const message_key& key) { inspect(key, 0); });
}

COLLS_ONCE void tag_matcher::revoke(communicator_state& communicator, failure reason,
                                    int reporter) {
  if (communicator.failed()) {
    // This rank knows now why the others could not be reached.
    const bool is_excluded_now = reason.code == errc::excluded && reason.culprit == rank_ &&
                                 communicator.rank_of(reporter) >= 0;
    if (is_excluded_now) communicator.fail(reported_failure(reason));
    return;
  }
  if (reason.observer < 0) reason.observer = rank_;
  // A dead rank may belong to several communicators, so the reason names none of them.
  const bool is_death = reason.code == errc::peer_failed && reason.proved;
  reason.communicator = is_death ? 0 : communicator.id();
  communicator.fail(reported_failure(reason));
  fail_receives(communicator.id(), communicator.reason().code);
  for (failure_hooks* hooks : hooks_) hooks->revoked(communicator, reason, reporter);
}

namespace detail {

/// Returns the failure that a rank records when it is told `report`, which says that this rank is
/// dead. The report is wrong, so the culprit is the rank that observed the failure or, if the
/// report names no other rank, the reporter. It is -1 if this rank has the report from itself.
inline reported_failure blame_observer(const reported_failure& report, int rank, int reporter) {
  const failure& original = report;
  failure reason = original;
  const bool names_observer = original.observer >= 0 && original.observer != rank;
  reason.culprit = names_observer ? original.observer : reporter == rank ? -1 : reporter;
  reason.proved = false;
  reason.address[0] = 0;
  reason.set_detail("it takes this rank for dead: %.250s", original.detail);
  return reported_failure(reason);
}

}  // namespace detail

COLLS_ONCE void tag_matcher::revoke(std::uint32_t id, const reported_failure& told, int reporter) {
  const failure& reason = told;
  const bool says_this_rank_is_dead = reason.code == errc::peer_failed && reason.culprit == rank_;
  const reported_failure report =
      says_this_rank_is_dead ? detail::blame_observer(told, rank_, reporter) : told;
  if (communicator_state* const communicator = find(id)) {
    revoke(*communicator, report, reporter);
  } else {
    communicators_.store_early_failure(id, report);
  }
}

COLLS_ONCE void tag_matcher::peer_died(int peer, const failure& reason, int reporter) {
  communicators_.note_death(peer, reason, reporter < 0);
  for (std::size_t i = 0; i < communicators_.all().size(); ++i) {
    communicator_state& communicator = *communicators_.all()[i];
    if (communicator.rank_of(peer) >= 0 && !communicator.closing) {
      revoke(communicator, reason, reporter);
    }
  }
  // What another rank suspects, it tells in its own recovery messages.
  if (reason.proved) peer_ended(peer);
}

COLLS_ONCE std::error_code tag_matcher::peer_left(int peer, const operation_record& record) {
  failure reason = peer_left_failure(peer);
  reason.operation = record.operation;
  reason.sequence = record.hash != 0 ? record.sequence : 0;
  reason.communicator = record.communicator->id();
  revoke(*record.communicator, reason);
  return record.communicator->reason().code;
}

COLLS_ONCE void tag_matcher::begin_dispute(communicator_state& communicator, std::uint64_t sequence,
                                           int peer) {
  if (communicator.failed()) return;
  const fingerprint* const local_call = communicator.recall(sequence);
  if (local_call == nullptr) return;
  for (failure_hooks* hooks : hooks_) {
    hooks->dispute(peer, communicator.id(), sequence, *local_call);
  }
}

namespace detail {

inline void add_call_name(line& text, const communicator_state& comm, std::uint64_t sequence) {
  text.add("#%llu", static_cast<unsigned long long>(sequence));
  const fingerprint* const call = comm.recall(sequence);
  if (call != nullptr) text.add(" %s", name(call->operation));
}

}  // namespace detail

COLLS_ONCE void tag_matcher::compare(int peer, std::uint32_t id, std::uint64_t sequence,
                                     const fingerprint& peer_call) {
  communicator_state* const communicator = find(id);
  if (communicator == nullptr || communicator->failed()) return;
  if (sequence >= communicator->next_sequence()) return;
  const fingerprint* const local_call = communicator->recall(sequence);
  if (local_call != nullptr && *local_call == peer_call) return;
  failure reason(errc::mismatch);
  reason.culprit = peer;
  reason.communicator = id;
  reason.operation = local_call != nullptr ? local_call->operation : peer_call.operation;
  reason.sequence = sequence;
  if (local_call != nullptr) {
    detail::describe_mismatch(reason, rank_, *local_call, peer, peer_call);
  } else {
    detail::describe_forgotten_call(reason, rank_, peer, peer_call);
  }
  const std::uint64_t newest = communicator->next_sequence() - 1;
  if (newest > sequence) {
    detail::line sentence;
    sentence.add("%.280s; rank %d is at ", reason.detail, rank_);
    detail::add_call_name(sentence, *communicator, newest);
    reason.set_detail("%s", sentence.text());
  }
  revoke(*communicator, reason);
}

COLLS_ONCE void tag_matcher::sweep(time_point now) {
  calls_.sweep(now, [&](operation_record& record, in_flight::due_action action) {
    switch (action) {
      case in_flight::due_action::total_timeout:
        expire(record, now, true);
        break;
      case in_flight::due_action::inactivity_timeout:
        expire(record, now, false);
        break;
      case in_flight::due_action::announce:
        if (!is_recently_announced(record, now)) announce(record, now);
        break;
      case in_flight::due_action::report_late:
        log_late_ranks(record, now);
        break;
      case in_flight::due_action::nothing:
        break;
    }
  });
  for (std::size_t i = 0; i < recoveries_.size(); ++i) recoveries_[i]->sweep(now);
  if (stragglers_.empty() || now - last_spread_ < 5 * milliseconds) return;
  last_spread_ = now;
  spread_reports(now);
}

namespace detail {

/// Returns the peer of a point-to-point operation, or -1 if the operation receives from any source.
inline int peer_of(const operation_record& record) {
  return record.receive != nullptr ? record.receive->key.peer : record.destination;
}

}  // namespace detail

COLLS_ONCE bool tag_matcher::is_recently_announced(const operation_record& record, time_point now) {
  if (record.hash != 0 || record.operation == collective::send_recv) return false;
  const int peer = detail::peer_of(record);
  const stragglers* const table = stragglers_on(record.communicator->id());
  const stragglers::peer_entry* const known = table != nullptr ? table->find(peer) : nullptr;
  constexpr time_point pause = 20 * milliseconds;
  return known != nullptr && known->last_announced != never && now - known->last_announced < pause;
}

COLLS_ONCE time_point tag_matcher::due() const {
  time_point first = calls_.due();
  for (const auto& table : stragglers_) {
    first = std::min(first, std::max(table->due(), last_spread_ + 5 * milliseconds));
  }
  for (const auto& recovery : recoveries_) first = std::min(first, recovery->due());
  return first;
}

COLLS_ONCE failure tag_matcher::reason_for(int peer, const failure& reason,
                                           std::uint32_t communicator) const {
  return is_excluded(peer) ? excluded_failure(peer, communicator) : reason;
}

COLLS_ONCE void tag_matcher::refuse_peer(int peer, std::uint32_t communicator,
                                         const failure& reason) {
  failure told = reason_for(peer, reason, communicator);
  told.communicator = communicator;
  for (failure_hooks* hooks : hooks_) hooks->refuse(peer, told);
}

// ---- recovery

COLLS_ONCE communicator_recovery* tag_matcher::find_recovery(std::uint32_t id) const {
  for (const auto& each : recoveries_) {
    if (each->id() == id) return each.get();
  }
  return nullptr;
}

COLLS_ONCE communicator_recovery& tag_matcher::recovery_of(const communicator_state& communicator) {
  if (communicator_recovery* const known = find_recovery(communicator.id())) return *known;
  const auto proves = [&](failure_hooks* hooks) { return hooks->proves_losses(communicator); };
  const bool is_always_proved = std::all_of(hooks_.begin(), hooks_.end(), proves);
  communicator_recovery& made = *recoveries_.emplace_back(std::make_unique<communicator_recovery>(
      static_cast<recovery_owner&>(*this), communicator, is_always_proved));
  communicators_.for_each_death([&](int peer, const failure& reason) {
    if (reason.proved) made.peer_lost(peer, true);
  });
  for (const int peer : broken_links_) made.peer_lost(peer, false);
  return made;
}

COLLS_ONCE bool tag_matcher::can_recover() const {
  return std::any_of(hooks_.begin(), hooks_.end(),
                     [](const failure_hooks* hooks) { return hooks->can_recover(); });
}

COLLS_ONCE bool tag_matcher::receive_recovery(int peer, std::uint32_t id,
                                              std::span<const std::byte> message) {
  if (communicator_recovery* const known = find_recovery(id)) return known->receive(peer, message);
  if (communicator_state* const communicator = find(id)) {
    return recovery_of(*communicator).receive(peer, message);
  }
  if (communicators_.find_departed(id) != nullptr) {
    const auto parsed = recovery_message::parse(message, INT32_MAX);
    if (!parsed) return false;
    if (parsed->type == recovery_message::kind::departed) return true;
    recovery_message reply;
    reply.type = recovery_message::kind::departed;
    reply.number = parsed->number;
    send_recovery(peer, id, reply.bytes());
    return true;
  }
  if (communicators_.is_to_come(id)) keep_early_recovery(peer, id, message);
  return true;
}

COLLS_ONCE void tag_matcher::keep_early_recovery(int peer, std::uint32_t id,
                                                 std::span<const std::byte> message) {
  constexpr std::size_t limit = 2 * max_recovery_bytes;
  // Some of the communicators may not come to exist.
  std::erase_if(early_recoveries_, [&](const early_recovery& each) {
    return !communicators_.is_to_come(each.communicator);
  });
  std::size_t size = message.size();
  for (const early_recovery& each : early_recoveries_) size += each.message.size();
  if (size <= limit) early_recoveries_.push_back({peer, id, {message.begin(), message.end()}});
}

COLLS_ONCE void tag_matcher::replay_early_recoveries(communicator_state& communicator) {
  for (const early_recovery& each : std::exchange(early_recoveries_, {})) {
    if (each.communicator != communicator.id()) {
      early_recoveries_.push_back(each);
      continue;
    }
    (void)receive_recovery(each.peer, each.communicator, each.message);  // its sender is not asked
  }
}

COLLS_ONCE bool tag_matcher::is_recovering_with(int peer) const {
  return std::any_of(recoveries_.begin(), recoveries_.end(),
                     [&](const auto& each) { return each->is_waiting_for(peer); });
}

COLLS_ONCE void tag_matcher::peer_ended(int peer) {
  for (std::size_t i = 0; i < recoveries_.size(); ++i) recoveries_[i]->peer_lost(peer, true);
}

COLLS_ONCE void tag_matcher::link_broken(int peer) {
  if (std::find(broken_links_.begin(), broken_links_.end(), peer) != broken_links_.end()) return;
  broken_links_.push_back(peer);
  for (std::size_t i = 0; i < recoveries_.size(); ++i) recoveries_[i]->peer_lost(peer, false);
}

COLLS_ONCE bool tag_matcher::send_recovery(int peer, std::uint32_t communicator,
                                           std::span<const std::byte> message) {
  return std::all_of(hooks_.begin(), hooks_.end(), [&](failure_hooks* hooks) {
    return hooks->recover(peer, communicator, message);
  });
}

COLLS_ONCE void tag_matcher::losses_agreed(const communicator_state& communicator,
                                           const std::vector<lost_rank>& lost) {
  communicator_state* const in_use = find(communicator.id());
  if (in_use == nullptr || in_use->failed()) return;
  failure reason(errc::peer_failed);
  reason.culprit = communicator.world_rank(lost.front().rank);
  // A rank that has only closed this communicator lives on in others.
  reason.proved = communicators_.is_proved_dead(reason.culprit);
  reason.set_detail("the ranks have agreed that rank %d is lost", reason.culprit);
  revoke(*in_use, reason);
}

COLLS_ONCE void tag_matcher::excluded(const communicator_state& communicator) {
  communicator_state* const in_use = find(communicator.id());
  if (in_use != nullptr) revoke(*in_use, excluded_failure(rank_, communicator.id()), rank_);
}

COLLS_ONCE void tag_matcher::excluded_by(int peer) {
  for (std::size_t i = 0; i < communicators_.all().size(); ++i) {
    const communicator_state& communicator = *communicators_.all()[i];
    if (communicator.rank_of(peer) >= 0) excluded(communicator);
  }
  for (std::size_t i = 0; i < recoveries_.size(); ++i) recoveries_[i]->excluded_by(peer);
}

COLLS_ONCE void tag_matcher::confirm(int peer) {
  const bool is_cut_off =
      std::find(broken_links_.begin(), broken_links_.end(), peer) != broken_links_.end();
  if (!is_cut_off) communicators_.forget_suspicion(peer);
  if (std::erase(excluded_, peer) == 0) return;
  for (failure_hooks* hooks : hooks_) hooks->peer_excluded(peer, false);
}

COLLS_ONCE void tag_matcher::exclude(int peer) {
  if (is_excluded(peer)) return;
  excluded_.push_back(peer);
  for (failure_hooks* hooks : hooks_) hooks->peer_excluded(peer, true);
}

// Called when this rank leaves a communicator. Keeps some agreements of such communicators, since a
// rank may still need the last decision.
COLLS_ONCE void tag_matcher::end_recovery(std::uint32_t id) {
  constexpr std::ptrdiff_t kept = 64;
  communicator_recovery* const ended = find_recovery(id);
  if (ended == nullptr) return;
  ended->depart();
  const auto has_departed = [](const auto& each) { return each->has_departed(); };
  if (std::count_if(recoveries_.begin(), recoveries_.end(), has_departed) > kept) {
    recoveries_.erase(std::find_if(recoveries_.begin(), recoveries_.end(), has_departed));
  }
}

// ---- late ranks

COLLS_ONCE std::vector<int> tag_matcher::pending_senders(const operation_record& record) {
  std::vector<int> result;
  for_each_posted_by(record,
                     [&](const posted_receive& receive) { result.push_back(receive.key.peer); });
  for (failure_hooks* hooks : hooks_) hooks->add_senders(record, result);
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

COLLS_ONCE std::vector<int> tag_matcher::pending_receivers(const operation_record& record) const {
  std::vector<int> result;
  for (failure_hooks* hooks : hooks_) hooks->add_awaited(record, result);
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

COLLS_ONCE std::vector<int> tag_matcher::peers_of(const operation_record& record) {
  std::vector<int> result = pending_senders(record);
  const std::vector<int> receivers = pending_receivers(record);
  result.insert(result.end(), receivers.begin(), receivers.end());
  return result;
}

COLLS_ONCE stragglers* tag_matcher::stragglers_on(std::uint32_t communicator) {
  for (const auto& table : stragglers_) {
    if (table->communicator().id() == communicator) return table.get();
  }
  return nullptr;
}

COLLS_ONCE stragglers& tag_matcher::ensure_stragglers(const operation_record& record,
                                                      time_point now) {
  communicator_state& comm = *record.communicator;
  const operation_record* const oldest = comm.oldest_collective();
  const std::uint64_t sequence = oldest != nullptr ? oldest->sequence : 0;
  stragglers* const known = stragglers_on(comm.id());
  if (known == nullptr) {
    return *stragglers_.emplace_back(std::make_unique<stragglers>(comm, sequence, now));
  }
  if (known->sequence() != sequence) *known = stragglers(comm, sequence, now);
  return *known;
}

COLLS_ONCE void tag_matcher::refresh(stragglers& table, time_point now) {
  const communicator_state& comm = table.communicator();
  const std::uint64_t last = table.sequence() != 0 ? table.sequence() : comm.next_sequence();
  const std::uint64_t by_all = comm.entered_by_all(last);
  std::optional<std::vector<int>> awaited(std::in_place);
  try {
    if (const operation_record* const waits = comm.oldest_collective()) awaited = peers_of(*waits);
  } catch (const std::bad_alloc&) {
    awaited.reset();
  }
  table.for_each([&](int rank, stragglers::peer_entry& entry) {
    // When all messages of a peer have arrived, this rank no longer waits for that peer. The stored
    // value of `entry.awaited` may therefore be outdated.
    if (awaited)
      entry.awaited = std::find(awaited->begin(), awaited->end(), rank) != awaited->end();
    std::uint64_t& entered = entry.known.entered;
    entered = std::max(entered, by_all);
    if (!entry.queried) return;
    for (failure_hooks* hooks : hooks_) {
      entered = std::max(entered, hooks->newest_sequence_from(rank, comm.id()));
    }
    // `is_stopped` makes system calls, so this rank limits how often it checks each peer.
    if (entry.last_stop_check != never && now - entry.last_stop_check < stragglers::patience)
      return;
    entry.last_stop_check = now;
    const bool silent = stragglers::is_silent(entry, now);
    entry.known.stopped = 0;
    for (failure_hooks* hooks : hooks_) {
      if (silent && hooks->is_stopped(rank)) entry.known.stopped = 1;
    }
  });
}

COLLS_ONCE state_report tag_matcher::own_state(std::uint32_t communicator) const {
  state_report result;
  rank_state& self = result.self;
  self.rank = rank_;
  self.answers = 1;
  if (const communicator_state* const comm = find(communicator)) {
    self.entered = comm->next_sequence() - 1;
    const operation_record* const oldest = comm->oldest_collective();
    if (oldest != nullptr) self.waits_in = oldest->sequence;
  }
  // As its current operation, this rank reports its oldest collective in flight. If it has no
  // collective in flight, it reports its oldest point-to-point operation.
  const operation_record* current = nullptr;
  for (const communicator_state* const other : communicators_.all()) {
    if (other->failed() || !other->is_in_use()) continue;
    const operation_record* const call = other->oldest_collective();
    const operation_record* const own = call != nullptr ? call : other->oldest_point_to_point();
    const auto priority_of = [](const operation_record& record) {
      return std::pair(record.hash == 0, record.start_order);
    };
    if (current == nullptr || priority_of(*own) < priority_of(*current)) current = own;
  }
  if (current != nullptr) {
    self.communicator = current->communicator->id();
    self.sequence = current->sequence;
    self.operation = current->operation;
  }
  return result;
}

COLLS_ONCE state_report tag_matcher::make_report(std::uint32_t communicator, time_point now) {
  state_report result = own_state(communicator);
  if (stragglers* const table = stragglers_on(communicator)) {
    refresh(*table, now);
    table->fill(result, now);
  }
  return result;
}

COLLS_ONCE void tag_matcher::keep_failed_operation(rank_state& state,
                                                   const stragglers& table) const {
  const stragglers::peer_entry* const earlier = table.find(state.rank);
  if (earlier == nullptr || state.operation != collective::none) return;
  const rank_state& known = earlier->known;
  if (known.operation == collective::none || known.entered != state.entered) return;
  const communicator_state* const other = find(known.communicator);
  if (other == nullptr || !other->failed()) return;
  state.operation = known.operation;
  state.sequence = known.sequence;
  state.communicator = known.communicator;
}

COLLS_ONCE bool tag_matcher::receive_report(int peer, std::uint32_t id, const state_report& report,
                                            time_point now) {
  if (!report.is_plausible()) return false;
  const communicator_state* const comm = find(id);
  if (comm == nullptr) return true;
  if (comm->rank_of(peer) < 0) return false;
  for (std::uint32_t i = 0; i < report.count; ++i) {
    const rank_state& other = report.others[i];
    if (other.rank < 0 || comm->rank_of(other.rank) < 0) return false;
    if (other.waiter >= 0 && comm->rank_of(other.waiter) < 0) return false;
  }
  stragglers* const table = stragglers_on(id);
  if (table == nullptr) return true;
  try {
    rank_state self = report.self;
    self.rank = peer;
    keep_failed_operation(self, *table);
    table->record_report(self, now);
    for (std::uint32_t i = 0; i < report.count; ++i) {
      if (report.others[i].rank != rank_)
        table->record_third_party_report(peer, self.waits_in, report.others[i], now);
    }
  } catch (const std::bad_alloc&) {
    // If memory runs out, this rank ignores the rest of the report. The only effect is that this
    // rank has less information about the late ranks.
  }
  return true;
}

COLLS_ONCE void tag_matcher::peer_connected(int peer, time_point now) {
  for (std::size_t i = 0; i < communicators_.all().size(); ++i) {
    const communicator_state& comm = *communicators_.all()[i];
    const operation_record* const oldest = comm.oldest_collective();
    if (oldest == nullptr || comm.failed()) continue;
    stragglers* const table = stragglers_on(comm.id());
    if (table == nullptr || comm.rank_of(peer) < 0) continue;
    try {
      table->record_connected(peer);
      table->query(peer, false, now);
    } catch (const std::bad_alloc&) {
      return;  // the next announcement follows soon
    }
    const state_report known = make_report(comm.id(), now);
    for (failure_hooks* hooks : hooks_) hooks->announce(peer, *oldest, known);
  }
}

COLLS_ONCE void tag_matcher::announce(const operation_record& record, time_point now) {
  const communicator_state& comm = *record.communicator;
  // If a peer runs on the same thread as this rank, it answers an announcement before
  // `hooks->announce` returns. The answer may revoke the communicator, so `announce_to` calls
  // `failed` before each announcement.
  const auto announce_to = [&](const std::vector<int>& peers, bool are_awaited) {
    if (comm.failed()) return;
    for (const int peer : peers) ensure_stragglers(record, now).query(peer, are_awaited, now);
    const state_report known = make_report(comm.id(), now);
    for (const int peer : peers) {
      for (failure_hooks* hooks : hooks_) {
        if (!comm.failed()) hooks->announce(peer, record, known);
      }
    }
  };
  try {
    std::vector<int> awaited = peers_of(record);
    std::erase_if(awaited, [&](int peer) { return peer < 0 || peer == rank_; });
    announce_to(awaited, true);
    if (record.hash == 0 || &record != comm.oldest_collective()) return;
    std::vector<int> others;
    const time_point waited = now - record.started;
    const time_point limit = std::min(record.deadline - record.started, comm.inactivity);
    const bool opens_connections = waited >= std::min(1 * seconds, limit / 2);
    for_each_neighbour(comm.rank(), comm.size(), [&](int neighbour) {
      const int peer = comm.world_rank(neighbour);
      if (std::find(awaited.begin(), awaited.end(), peer) != awaited.end()) return;
      const bool has_connection =
          std::any_of(hooks_.begin(), hooks_.end(),
                      [&](failure_hooks* hooks) { return hooks->is_connected(peer); });
      if (has_connection) return others.push_back(peer);
      if (!opens_connections) return;
      ensure_stragglers(record, now).note_dial(peer, now);
      for (failure_hooks* hooks : hooks_) hooks->open_connection(peer);
    });
    announce_to(others, false);
  } catch (const std::bad_alloc&) {
    // If memory runs out, some ranks do not get this announcement. A later sweep announces the
    // operation again.
  }
}

COLLS_ONCE void tag_matcher::report_to_queried(stragglers& table, const state_report& known) {
  const std::uint32_t id = table.communicator().id();
  table.for_each([&](int rank, const stragglers::peer_entry& entry) {
    for (failure_hooks* hooks : hooks_) {
      if (entry.queried && hooks->is_connected(rank)) hooks->report(rank, id, known);
    }
  });
}

COLLS_ONCE void tag_matcher::report_end(const operation_record& record) {
  const communicator_state& comm = *record.communicator;
  stragglers* const table = stragglers_on(comm.id());
  const bool was_queried =
      table != nullptr && record.hash != 0 && table->sequence() == record.sequence;
  if (!was_queried || comm.failed()) return;
  const state_report known = own_state(comm.id());
  try {
    report_to_queried(*table, known);
  } catch (const std::bad_alloc&) {
    // If memory runs out, some peers do not get this report. They use the previous report of this
    // rank until that report is outdated.
  }
}

COLLS_ONCE void tag_matcher::spread_reports(time_point now) {
  std::erase_if(stragglers_, [&](const auto& table) {
    const communicator_state& comm = table->communicator();
    const operation_record* const oldest = comm.oldest_collective();
    return comm.failed() || table->sequence() != (oldest != nullptr ? oldest->sequence : 0) ||
           !comm.is_in_use();
  });
  for (std::size_t i = 0; i < stragglers_.size(); ++i) {
    stragglers& table = *stragglers_[i];
    if (!table.is_due(now)) continue;
    const std::uint32_t id = table.communicator().id();
    const state_report known = make_report(id, now);
    if (!table.is_news(known, now)) continue;
    report_to_queried(table, known);
  }
}

namespace detail {

/// Appends to `text` what this rank knows about the current call of a late rank. `missed_sequence`
/// is the number of the collective for which the rank is late, or 0 if the rank is late for a
/// point-to-point operation. `is_quiet` is true if the late rank does not answer and may have
/// entered the collective. `elsewhere` is the communicator of that call, or null if this rank is
/// not a member of it.
inline void add_position(line& text, const communicator_state& comm,
                         const communicator_state* elsewhere, const stragglers::peer_entry& late,
                         std::uint64_t missed_sequence, bool is_quiet, time_point now) {
  const rank_state& state = late.known;
  const bool silent = stragglers::is_silent(late, now);
  if (!silent && state.operation != collective::none) {
    const bool is_message =
        state.operation == collective::send || state.operation == collective::recv ||
        state.operation == collective::probe || state.operation == collective::send_recv;
    const auto number = static_cast<unsigned long long>(state.sequence);
    if (is_message) {
      text.add("; it is at %s with tag %llu", name(state.operation), number);
    } else {
      text.add("; it is at #%llu %s", number, name(state.operation));
    }
    if (state.communicator != comm.id()) text.add(" on communicator %x", state.communicator);
    if (elsewhere != nullptr && elsewhere->failed()) text.add(", which has failed");
  } else if (missed_sequence == 0) {
    const double span = static_cast<double>(stragglers::silence_of(late, now)) * 1e-9;
    silent ? text.add("; nothing was heard of it for %.1f s", span)
           : text.add("; it has no operation under way");
  } else if (state.entered == 0) {
    text.add(silent ? "; nothing was heard of it" : "; it has made no call");
  } else {
    const bool has_not_called = !silent || (state.entered + 1 == missed_sequence && !is_quiet);
    text.add(has_not_called ? "; it has made no call since " : "; nothing was heard of it since ");
    add_call_name(text, comm, state.entered);
  }
  if (state.stopped != 0) text.add(", and is stopped");
}

inline void add_ranks(line& text, const char* singular, const char* plural,
                      const std::vector<int>& ranks) {
  if (ranks.empty()) return;
  text.add("%s", ranks.size() == 1 ? singular : plural);
  for (std::size_t i = 0; i < ranks.size(); ++i) text.add("%s%d", i == 0 ? " " : ", ", ranks[i]);
}

}  // namespace detail

COLLS_ONCE void tag_matcher::describe_late_peer(late_rank_info& info,
                                                const operation_record& record, time_point now) {
  const auto tag = static_cast<unsigned long long>(record.sequence);
  const std::vector<int> senders = pending_senders(record);
  const std::vector<int> receivers = pending_receivers(record);
  if (!senders.empty() && senders.front() < 0) {
    info.sentence.add("no rank has sent tag %llu", tag);
    return;
  }
  if (senders.empty() && receivers.empty()) {
    info.sentence.add("the message with tag %llu has not come to its end", tag);
    return;
  }
  info.culprit = info.waited_for = senders.empty() ? receivers.front() : senders.front();
  info.sentence.add("rank %d has not %s tag %llu", info.culprit,
                    senders.empty() ? "received" : "sent", tag);
  stragglers* const table = stragglers_on(record.communicator->id());
  if (table == nullptr) return;
  refresh(*table, now);
  const stragglers::peer_entry* const late = table->find(info.culprit);
  if (late == nullptr || (late->known.answers == 0 && !stragglers::is_silent(*late, now))) return;
  detail::add_position(info.sentence, *record.communicator, find(late->known.communicator), *late,
                       0, false, now);
}

COLLS_ONCE void tag_matcher::describe_late_member(late_rank_info& info,
                                                  const operation_record& record, time_point now) {
  const communicator_state& comm = *record.communicator;
  const std::vector<int> peers = peers_of(record);
  if (!peers.empty()) info.waited_for = peers.front();
  stragglers* const table = stragglers_on(comm.id());
  if (table != nullptr) refresh(*table, now);
  const stragglers::verdict result = table != nullptr ? table->judge(now) : stragglers::verdict();
  detail::line& line = info.sentence;
  info.culprit = result.culprit;
  if (result.culprit < 0) {
    line.add("no rank is known to be late");
    return;
  }
  const stragglers::peer_entry& late = *table->find(result.culprit);
  line.add("rank %d %s ", result.culprit, result.has_entered ? "entered" : "has not entered");
  detail::add_call_name(line, comm, result.sequence);
  if (result.is_quiet) line.add(" as far as is known");
  if (result.has_entered) {
    const double span = static_cast<double>(stragglers::silence_of(late, now)) * 1e-9;
    line.add(" and has been silent for %.1f s", span);
    if (late.known.stopped != 0) line.add(", and is stopped");
  } else {
    detail::add_position(line, comm, find(late.known.communicator), late, result.sequence,
                         result.is_quiet, now);
    detail::add_ranks(line, "; nor has rank", "; nor have ranks", result.others);
    detail::add_ranks(line, "; nothing was heard of rank", "; nothing was heard of ranks",
                      result.quiet);
  }
}

COLLS_ONCE tag_matcher::late_rank_info tag_matcher::find_late_rank(const operation_record& record,
                                                                   time_point now) {
  late_rank_info result;
  try {
    // If there is no table of late ranks, this rank has not yet asked its peers for reports. The
    // function `announce` asks them. A peer on the same thread answers before `announce` returns,
    // so its report is known when the late rank is described below.
    if (stragglers_on(record.communicator->id()) == nullptr) announce(record, now);
    record.hash == 0 ? describe_late_peer(result, record, now)
                     : describe_late_member(result, record, now);
  } catch (const std::bad_alloc&) {
    result.sentence.add("there is no memory to say which rank is late");
  }
  return result;
}

COLLS_ONCE bool tag_matcher::requery_stragglers(operation_record& record, time_point now) {
  const communicator_state& comm = *record.communicator;
  // If a point-to-point operation started less than `2 * patience` ago, its timeout is short. Such
  // an operation must fail on time, so this rank does not wait for other ranks to answer a query.
  if (record.hash == 0 && now - record.started < 2 * stragglers::patience) return false;
  const bool is_first = stragglers_on(comm.id()) == nullptr;
  if (is_first) announce(record, now);
  stragglers* const table = stragglers_on(comm.id());
  if (table == nullptr || comm.failed()) return false;
  if (is_first) table->begin_query_round(now, stragglers::patience);
  try {
    const std::vector<int> peers = table->requery(now);
    // If a peer runs on the same thread as this rank, it answers an announcement before
    // `hooks->announce` returns. The answer may revoke the communicator, so the loop calls `failed`
    // before each announcement.
    const state_report known = peers.empty() ? state_report() : make_report(comm.id(), now);
    for (const int peer : peers) {
      for (failure_hooks* hooks : hooks_) {
        if (!comm.failed()) hooks->announce(peer, record, known);
      }
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  if (!table->awaits_answers(now)) return false;
  calls_.check_at(record, now + stragglers::patience);
  return true;
}

COLLS_ONCE void tag_matcher::log_late_ranks(operation_record& record, time_point now) {
  const communicator_state& comm = *record.communicator;
  const bool is_point_to_point = record.hash == 0;
  const bool is_first = is_point_to_point || &record == comm.oldest_collective();
  // Only the oldest collective of a communicator gets a log entry. A sweep checks a younger
  // collective again after a second, because it may be the oldest by then.
  if (!is_first) calls_.check_at(record, now + 1 * seconds);
  record.is_reported_late = is_first && !requery_stragglers(record, now);
  if (!record.is_reported_late || comm.failed()) return;
  // All point-to-point operations that wait for the same peer share one log entry.
  const int peer = is_point_to_point ? detail::peer_of(record) : -1;
  const stragglers* const known = stragglers_on(comm.id());
  if (is_point_to_point && known != nullptr && known->is_logged(peer, now)) return;
  const late_rank_info late = find_late_rank(record, now);
  detail::line description;
  const auto number = static_cast<unsigned long long>(record.sequence);
  if (is_point_to_point) {
    std::size_t others = 0;
    for (const operation_record* other = calls_.first(); other != nullptr;
         other = in_flight::next(*other)) {
      const bool is_similar = other->hash == 0 && other->communicator == record.communicator;
      if (is_similar && other != &record && detail::peer_of(*other) == peer) ++others;
    }
    description.add("%s with tag %llu", name(record.operation), number);
    if (others > 0) description.add(" (and in %zu more messages)", others);
    note_logged(comm, peer, now);
  } else {
    description.add("%s #%llu", name(record.operation), number);
  }
  log_warn("rank %d has waited 30 s in %s: %s", rank_, description.text(), late.sentence.text());
}

COLLS_ONCE void tag_matcher::note_logged(const communicator_state& comm, int peer, time_point now) {
  try {
    if (stragglers* const table = stragglers_on(comm.id())) table->note_logged(peer, now);
  } catch (const std::bad_alloc&) {
    // If memory runs out, this rank does not remember that it has written the log entry, and it may
    // write the entry again within 30 s.
  }
}

COLLS_ONCE void tag_matcher::expire(operation_record& record, time_point now, bool total) {
  const communicator_state& comm = *record.communicator;
  // Before this rank names a late rank, it queries the ranks whose reports may be outdated. Such a
  // rank may have entered or completed the operation since its last report.
  if (requery_stragglers(record, now)) return;
  const late_rank_info late = find_late_rank(record, now);
  if (comm.failed()) return;  // an immediate answer has revoked the communicator
  failure reason(errc::timeout);
  reason.communicator = comm.id();
  reason.operation = record.operation;
  reason.sequence = record.hash == 0 ? 0 : record.sequence;
  reason.bytes_done = record.bytes;
  reason.bytes_expected = record.bytes_expected;
  reason.elapsed_ns = now - record.started;
  reason.culprit = late.culprit;
  reason.waited_for = late.waited_for;
  detail::line text;
  text.add("%.250s", late.sentence.text());
  if (total) {
    text.add("; options.timeout is over");
  } else {
    text.add("; nothing moved for %g s", static_cast<double>(comm.inactivity) * 1e-9);
  }
  reason.set_detail("%s", text.text());
  if (record.expired != nullptr) {
    record.expired(record, reason);
  } else {
    revoke(*record.communicator, reason);
  }
}

}  // namespace colls
