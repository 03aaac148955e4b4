// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The member functions of peer_protocol.

#include <colls/base/compiler.hpp>
#include <colls/transport/interprocess/peer_protocol.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

namespace colls::interprocess {

COLLS_ONCE peer_protocol::peer_protocol(scheduler& runner, tag_matcher& matcher, int size,
                                        std::vector<std::unique_ptr<carrier>> carriers, owner& user)
    : scheduler_(runner),
      matcher_(matcher),
      size_(size),
      owner_(user),
      connections_(runner, static_cast<connection_owner&>(*this)),
      connector_(runner, matcher.rank(), std::move(carriers), connections_,
                 static_cast<connector::owner&>(*this)),
      messages_(matcher, connections_, connector_, user) {
  direct = &user;
  matcher_.add(static_cast<failure_hooks&>(*this));
}

COLLS_ONCE void peer_protocol::sweep(time_point time) {
  matcher_.sweep(time);
  messages_.repeat_rts(time);
  if (time - last_silence_check_ < 500 * milliseconds) return;
  last_silence_check_ = time;
  connections_.for_each([&](int, connection& conn) {
    if (conn.is_silent(time)) connector_.probe(conn);
  });
}

COLLS_ONCE void peer_protocol::received(connection& conn, const header& frame,
                                        const std::byte* payload) {
  const message_key key = frame.key(conn.peer());
  switch (frame.kind) {
    case kind::data:
      if ((frame.flags & flag::rts) != 0) {
        messages_.receive_rts(conn, frame, key);
      } else {
        messages_.receive_data(conn, frame, key);
      }
      break;
    case kind::cts:
      if ((frame.flags & flag::credit) != 0) {
        conn.flow.refill(frame.length);
      } else {
        messages_.receive_cts(conn, frame, key);
      }
      break;
    case kind::announce:
      matcher_.inspect(key, frame.hash);
      if (!receive_report(conn, frame, payload)) return;
      report(conn.peer(), frame.communicator,
             matcher_.make_report(frame.communicator, scheduler_.now()));
      break;
    case kind::report:
      if (!receive_report(conn, frame, payload)) return;
      break;
    case kind::fingerprint: {
      fingerprint remote_call;
      std::memcpy(static_cast<void*>(&remote_call), payload, sizeof remote_call);
      matcher_.compare(conn.peer(), frame.communicator, frame.sequence, remote_call);
      break;
    }
    case kind::revoke:
      receive_revoke(conn, frame, payload);
      break;
    case kind::recovery:
      receive_recovery(conn, frame, payload);
      break;
    case kind::goodbye:
      peer_left(conn);
      break;
    case kind::mapped:
      conn.peer_maps_heap = true;
      conn.peer_reads_memory = (frame.flags & flag::cma) != 0;
      break;
  }
  connections_.flush_soon(conn);
}

COLLS_ONCE void peer_protocol::receive_revoke(connection& conn, const header& frame,
                                              const std::byte* payload) {
  const failure unexplained(errc::protocol_error, "a peer revoked it without a reason");
  failure reason = reported_failure::parse({payload, sizeof(failure)}, size_)
                       .value_or(reported_failure(unexplained));
  const bool is_of_another = reason.culprit >= 0 && reason.culprit != matcher_.rank();
  if (reason.code == errc::excluded && is_of_another) reason.code = errc::revoked;
  if (reason.code == errc::peer_failed && is_of_another && reason.proved) {
    matcher_.peer_died(reason.culprit, reason, conn.peer());
  }
  // What the peer only suspects makes this communicator fail, and no other: the link of this rank
  // to the culprit may be good.
  matcher_.revoke(frame.communicator, reported_failure(reason), conn.peer());
}

COLLS_ONCE void peer_protocol::opened(connection& conn) {
  owner_.opened(conn);
  const auto tell = [&](std::uint32_t communicator, const failure& reason) {
    send_revoke(conn, communicator, reason);
  };
  matcher_.for_each_failed(conn.peer(), tell);
  matcher_.peer_connected(conn.peer(), scheduler_.now());
}

COLLS_ONCE void peer_protocol::unreachable(connection& conn, const failure& reason) {
  if (reason.code == errc::closed) {
    peer_left(conn);
  } else if (reason.code == errc::peer_failed) {
    matcher_.peer_died(conn.peer(), reason);
    if (!reason.proved) matcher_.link_broken(conn.peer());
  } else if (reason.code == errc::excluded) {
    matcher_.excluded_by(conn.peer());
  } else {
    fail_waiting_for(conn.peer(), reason);
  }
}

COLLS_ONCE bool peer_protocol::is_needed(connection& conn) {
  bool any = matcher_.communicator_waiting_for(conn.peer()) != nullptr ||
             matcher_.is_recovering_with(conn.peer());
  conn.each_send([&](const posted_send&) { any = true; });
  return any;
}

COLLS_ONCE void peer_protocol::lost(connection& conn, const failure& reason) {
  if (conn.received_goodbye()) {
    fail_waiting_for(conn.peer(), peer_left_failure(conn.peer()));
  } else if (!connector_.is_closing()) {
    matcher_.peer_died(reason.culprit, reason);  // the culprit is the peer or this rank
    if (reason.culprit == conn.peer() && !reason.proved) connector_.examine_loss(conn);
  }
  conn.fail_sends(reason.code, [](const posted_send&) { return true; });
  conn.fail_receive(reason.code, [](const posted_receive&) { return true; });
}

COLLS_ONCE void peer_protocol::loss_examined(connection& conn, bool proved) {
  if (!proved) return matcher_.link_broken(conn.peer());
  failure reason(errc::peer_failed, "its process has ended: its host refuses connections");
  reason.culprit = conn.peer();
  reason.proved = true;
  std::snprintf(reason.address, sizeof reason.address, "%s", conn.address().c_str());
  matcher_.peer_died(conn.peer(), reason);
}

COLLS_ONCE void peer_protocol::peer_left(connection& conn) {
  conn.note_goodbye();
  fail_waiting_for(conn.peer(), peer_left_failure(conn.peer()));
  matcher_.peer_ended(conn.peer());
}

COLLS_ONCE void peer_protocol::fail_waiting_for(int peer, const failure& reason) {
  owner_.post_all_receives();
  while (communicator_state* const communicator = communicator_waiting_for(peer)) {
    matcher_.revoke(*communicator, reason);
  }
}

COLLS_ONCE communicator_state* peer_protocol::communicator_waiting_for(int peer) {
  communicator_state* found = matcher_.communicator_waiting_for(peer);
  connections_.get(peer).each_send([&](const posted_send& send) {
    if (!send.record->communicator->failed()) found = send.record->communicator;
  });
  return found;
}

COLLS_ONCE void peer_protocol::revoked(communicator_state& communicator, const failure& reason,
                                       int reporter) {
  owner_.revoked(communicator, reason, reporter < 0);
  connections_.for_each([&](int peer, connection& conn) {
    conn.fail_sends(reason.code, [&](const posted_send& send) {
      return send.key.communicator == communicator.id();
    });
    conn.fail_receive(reason.code, [&](const posted_receive& receive) {
      return receive.key.communicator == communicator.id();
    });
    conn.flow.drop_cts(communicator.id());
    messages_.resume_deferred(conn);
    if (peer == reporter || conn.has_ended() || communicator.rank_of(peer) < 0) return;
    send_revoke(conn, communicator.id(), reason);
  });
}

COLLS_ONCE void peer_protocol::send_revoke(connection& conn, std::uint32_t communicator,
                                           const failure& reason) {
  header frame;
  frame.kind = kind::revoke;
  frame.communicator = communicator;
  frame.length = sizeof(failure);
  conn.control(frame, &reason);
  conn.flush();
}

COLLS_ONCE void peer_protocol::announce(int peer, const operation_record& record,
                                        const state_report& known) {
  if (peer == matcher_.rank()) return;
  connection& conn = connector_.connect(peer);
  // An operation announces itself again and again while it waits. Until the connection opens, the
  // announcements would accumulate in the queue. Therefore no announcement is queued on an unopened
  // connection that already has a queued control frame.
  if (conn.has_ended() || (!conn.is_open() && conn.has_control())) return;
  conn.control(make_header(kind::announce, announcement(peer, record), sizeof known, record.hash),
               &known);
  conn.flush();
}

COLLS_ONCE void peer_protocol::report(int peer, std::uint32_t communicator,
                                      const state_report& known) {
  connection* const conn = connections_.find(peer);
  if (conn == nullptr || !conn->is_open()) return;
  header frame;
  frame.kind = kind::report;
  frame.communicator = communicator;
  frame.length = sizeof known;
  conn->control(frame, &known);
  conn->flush();
}

COLLS_ONCE bool peer_protocol::receive_report(connection& conn, const header& frame,
                                              const std::byte* payload) {
  state_report peer_report;
  std::memcpy(static_cast<void*>(&peer_report), payload, sizeof peer_report);
  if (matcher_.receive_report(conn.peer(), frame.communicator, peer_report, scheduler_.now()))
    return true;
  conn.fail(0, "a report on ranks that do not exist");
  return false;
}

COLLS_ONCE void peer_protocol::dispute(int peer, std::uint32_t communicator, std::uint64_t sequence,
                                       const fingerprint& local_call) {
  header frame;
  frame.kind = kind::fingerprint;
  frame.communicator = communicator;
  frame.sequence = sequence;
  frame.length = sizeof local_call;
  connection& conn = connector_.connect(peer);
  conn.control(frame, &local_call);
  conn.flush();
}

COLLS_ONCE void peer_protocol::refuse(int peer, const failure& reason) {
  header frame;
  frame.kind = kind::revoke;
  frame.communicator = reason.communicator;
  frame.length = sizeof reason;
  connection& conn = connector_.connect(peer);
  conn.control(frame, &reason);
  connections_.flush_soon(conn);
}

COLLS_ONCE bool peer_protocol::recover(int peer, std::uint32_t communicator,
                                       std::span<const std::byte> message) {
  connection& conn = connector_.connect(peer);
  // A peer that has said goodbye reads nothing more, although its connection may still be open.
  if (conn.received_goodbye()) return false;
  if (conn.has_ended()) return true;
  while (!message.empty()) {
    const auto part = message.first(std::min(message.size(), max_control_bytes));
    message = message.subspan(part.size());
    header frame;
    frame.kind = kind::recovery;
    frame.flags = message.empty() ? flag::last : std::uint8_t{0};
    frame.communicator = communicator;
    frame.length = part.size();
    conn.control(frame, part.data());
  }
  // This rank may compute for a long time before it polls again, and others may need the message.
  conn.flush();
  return true;
}

COLLS_ONCE void peer_protocol::ask_lost_peer(int peer) {
  connector_.ask_lost_peer(connections_.get(peer));
}

COLLS_ONCE void peer_protocol::peer_excluded(int peer, bool is_excluded) {
  connections_.get(peer).is_fenced = is_excluded;
  owner_.excluded(peer, is_excluded);
}

COLLS_ONCE void peer_protocol::receive_recovery(connection& conn, const header& frame,
                                                const std::byte* payload) {
  const std::span<const std::byte> part(payload, frame.length);
  std::vector<std::byte>& parts = partial_recoveries_[conn.peer()];
  if (parts.size() + part.size() > max_recovery_bytes) return conn.fail(0, malformed);
  parts.insert(parts.end(), part.begin(), part.end());
  if ((frame.flags & flag::last) == 0) return;
  const std::vector<std::byte> whole = std::exchange(parts, {});
  if (!matcher_.receive_recovery(conn.peer(), frame.communicator, whole)) conn.fail(0, malformed);
}

COLLS_ONCE void peer_protocol::add_awaited(const operation_record& record,
                                           std::vector<int>& ranks) {
  // A send_recv operation in flight may have completed its send already. It therefore does not
  // necessarily wait for the rank `record.destination`.
  const bool only_sends = record.operation != collective::send_recv;
  if (record.destination >= 0 && only_sends) return ranks.push_back(record.destination);
  connections_.for_each([&](int peer, connection& conn) {
    bool any = false;
    conn.each_send([&](const posted_send& send) { any |= send.record == &record; });
    if (any) ranks.push_back(peer);
  });
}

COLLS_ONCE void peer_protocol::add_senders(const operation_record& record,
                                           std::vector<int>& ranks) {
  connections_.for_each([&](int peer, const connection& conn) {
    if (conn.is_receiving(record)) ranks.push_back(peer);
  });
}

COLLS_ONCE bool peer_protocol::is_connected(int peer) {
  const connection* const conn = connections_.find(peer);
  return conn != nullptr && conn->is_open();
}

COLLS_ONCE std::uint64_t peer_protocol::newest_sequence_from(int peer, std::uint32_t communicator) {
  const connection* const conn = connections_.find(peer);
  return conn != nullptr ? conn->newest_sequence_in(communicator) : 0;
}

COLLS_ONCE bool peer_protocol::is_stopped(int peer) {
  const connection* const conn = connections_.find(peer);
  return conn != nullptr && conn->is_peer_stopped();
}

}  // namespace colls::interprocess
