// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What is no plain pairing: the second half of match.hpp.

#include <colls/version.hpp>

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
  // Their senders have not gone on, or wait for our part.
  while (const auto key = drop_arrival(communicator.id())) inspect(*key, 0);
}

COLLS_ONCE void match::abandon_ids(std::uint32_t first, const std::shared_ptr<const failure>& why) {
  const std::uint32_t count = communicators_.abandon_ids(first, why);
  while (const auto key = drop_arrival(first, count)) inspect(*key, 0);
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
        announce(record);
        break;
      case under_way::waited::late:
        tell_of_late_ranks(record);
        break;
      case under_way::waited::nothing:
        break;
    }
  });
}

COLLS_ONCE void match::tell(int peer, const failure& why) {
  for (mover* transport : movers_) transport->refuse(peer, why);
}

COLLS_ONCE void match::announce(const operation_record& record) {
  each_waiting_of(record, [&](posted& receive) {
    if (receive.key.peer < 0) return;
    for (mover* transport : movers_) transport->announce(receive.key.peer, record);
  });
  for (mover* transport : movers_) transport->announce_beside(record);
}

COLLS_ONCE int match::otherwise_awaited(const operation_record& record) const {
  int found = -1;
  for (mover* transport : movers_) found = std::max(found, transport->awaited_by(record));
  return found;
}

COLLS_ONCE void match::tell_of_late_ranks(const operation_record& record) {
  const auto tell = [&](int peer, const char* what) {
    log_warn("rank %d has waited 30 s in %s %s%llu for rank %d, which has not %s", rank_,
             name(record.what), record.hash != 0 ? "#" : "with tag ",
             static_cast<unsigned long long>(record.sequence), peer, what);
  };
  each_waiting_of(record, [&](posted& receive) { tell(receive.key.peer, "sent"); });
  if (const int peer = otherwise_awaited(record); peer >= 0) tell(peer, "come to take part");
}

COLLS_ONCE void match::expire(operation_record& record, time_point now, bool total) {
  failure why(errc::timeout);
  why.communicator = record.communicator->id();
  why.operation = record.what;
  why.sequence = record.hash == 0 ? 0 : record.sequence;
  why.bytes_done = record.bytes;
  why.bytes_expected = record.bytes_expected;
  why.elapsed_ns = now - record.started;
  each_waiting_of(record, [&](posted& receive) {
    if (why.waited_for < 0) why.waited_for = why.culprit = receive.key.peer;
  });
  if (why.waited_for < 0) why.waited_for = why.culprit = otherwise_awaited(record);
  detail::line told;
  if (record.hash == 0) told.add("tag %llu: ", static_cast<unsigned long long>(record.sequence));
  if (total) {
    told.add("options.timeout is over");
  } else {
    told.add("nothing moved for %lld s",
             static_cast<long long>(record.communicator->inactivity / seconds));
  }
  why.say("%s", told.text());
  if (record.expired != nullptr) {
    record.expired(record, why);
  } else {
    revoke(*record.communicator, why);
  }
}

}  // namespace colls
