// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The member functions of eager_rendezvous that are not inline: they handle RTS, CTS and cancels.

#include <colls/base/compiler.hpp>
#include <colls/transport/interprocess/eager_rendezvous.hpp>

namespace colls::interprocess {

COLLS_ONCE void eager_rendezvous::repeat_rts(time_point now) {
  connections_.for_each([&](int, connection& conn) {
    conn.flow.collective_sends.for_each([&](posted_send& send) {
      if (send.rts_sent || now - send.record->started < 100 * milliseconds) return;
      send_rts(conn, send, flag::repeat);
      connections_.flush_soon(conn);
    });
  });
}

COLLS_ONCE void eager_rendezvous::receive_rts(connection& conn, const header& frame,
                                              const message_key& key) {
  if ((frame.flags & flag::cancel) != 0) return receive_cancel(conn, key, frame.length);
  const std::uint64_t number = key.is_point_to_point() ? ++conn.flow.rts_received : 0;
  if (!matcher_.inspect(key, frame.hash)) return;
  owner_.post_receive_for(key);
  const communicator_state* const comm = matcher_.find(key.communicator);
  if (comm != nullptr && comm->failed()) return;
  const bool is_repeat = (frame.flags & flag::repeat) != 0;
  posted_receive* const receive = is_repeat ? matcher_.first(key) : matcher_.peek(key);
  if (receive != nullptr) {
    const auto size = static_cast<std::size_t>(frame.length);
    if (const std::error_code ec = matcher_.check(*receive, key.peer, size, frame.hash)) {
      if (!receive->queued) return;  // `check` revoked the communicator and completed the receive
      matcher_.take(*receive, key);
      receive->number = number;
      reject_and_finish(*receive, ec, &conn);
    } else if (!receive->cleared) {
      receive->number = number;
      clear_to_send(conn, *receive, key);
    }
    return;
  }
  if (is_repeat && key.is_point_to_point()) return;
  add_unexpected(conn, frame, key, false).number = number;
  if (conn.flow.rts_waiting > max_rts) conn.fail(0, "more RTS than a rank sends");
}

COLLS_ONCE void eager_rendezvous::receive_cts(connection& conn, const header& frame,
                                              const message_key& key) {
  if ((frame.flags & flag::cancel) != 0) {
    const communicator_state* const comm = matcher_.find(key.communicator);
    if (!conn.flow.remove_tombstone(key, frame.length) && comm != nullptr && !comm->failed()) {
      conn.fail(0, "a confirmation of an RTS cancel that was not sent");
      return;
    }
    return advance(conn, key);
  }
  if (!matcher_.inspect(key, frame.hash)) return;
  posted_send* const send = conn.flow.take_pending(key, frame.length);
  if (send == nullptr) {
    const communicator_state* const comm = matcher_.find(key.communicator);
    const bool is_early = !key.is_point_to_point() && (comm == nullptr || !comm->failed());
    if (is_early && !conn.flow.store_cts(key)) conn.fail(0, "more CTS than a rank sends");
    return;
  }
  if (send->is_tombstone) {
    delete send;
    return advance(conn, key);
  }
  if (send->queued) {
    conn.flow.pending_sends(key).push_back(*send);
    conn.fail(0, "a CTS for a message without RTS");
    return;
  }
  send->awaits_cts = false;
  if ((frame.flags & (flag::truncated | flag::discarded)) != 0) {
    const bool is_discarded = (frame.flags & flag::discarded) != 0;
    send->finish(is_discarded ? make_error_code(errc::cancelled) : std::error_code());
    return advance(conn, key);
  }
  send->frame.flags = flag::cleared;
  // If `enqueue` returns true, it has written the whole message and counted its bytes. `finish`
  // must not be called here, because it would count the bytes a second time.
  if (conn.enqueue(*send)) send->done->post();
  advance(conn, key);
}

COLLS_ONCE void eager_rendezvous::advance(connection& conn, const message_key& key) {
  advance_key(conn, key);
  conn.flow.resume_deferred([&](const message_key& deferred) { advance_key(conn, deferred); });
}

COLLS_ONCE void eager_rendezvous::resume_deferred(connection& conn) noexcept {
  if (conn.flow.any_deferred()) resume_others(conn, message_key());
}

COLLS_ONCE void eager_rendezvous::advance_key(connection& conn, const message_key& key) {
  while (posted_send* const next = conn.flow.next_blocked(key)) {
    if (conn.flow.none_pending(key) && conn.flow.spend(next->size)) {
      conn.flow.unblock(*next);
      next->awaits_cts = false;
      conn.queue(*next, false);
    } else if (conn.flow.may_send_rts(*next)) {
      conn.flow.announced_sends.make_room();
      conn.flow.unblock(*next);
      conn.flow.announced_sends.push_back(*next);
      next->frame.flags = flag::rts;
      next->rts_sent = true;
      conn.queue(*next, true);
    } else {
      if (conn.flow.is_rts_limit_reached()) conn.flow.defer(*next);
      return;
    }
  }
}

COLLS_ONCE void eager_rendezvous::resume_others(connection& conn, const message_key& key) noexcept {
  try {
    advance(conn, key);
  } catch (const std::bad_alloc&) {
    conn.abort();
  }
  connections_.flush_soon(conn);
}

COLLS_ONCE void eager_rendezvous::send_cancel(posted_send& send) {
  connection& conn = *send.conn;
  conn.control(
      make_header(kind::data, send.key, send.number, send.record->hash, flag::rts | flag::cancel));
  const bool has_tombstone = conn.flow.leave_tombstone(send);
  send.awaits_cts = false;
  if (!has_tombstone) conn.flow.announced_sends.remove(send), conn.abort();
  connections_.flush_soon(conn);
}

COLLS_ONCE void eager_rendezvous::receive_cancel(connection& conn, const message_key& key,
                                                 std::uint64_t number) {
  if (number == 0 || number > conn.flow.rts_received) {
    conn.fail(0, "a cancel of a message without RTS");
    return;
  }
  const auto is_cancelled = [&](const unexpected_message& message) {
    return !message.buffered && static_cast<const unexpected_frame&>(message).number == number;
  };
  unexpected_message* const stored = matcher_.take_unexpected(key, is_cancelled);
  if (stored != nullptr) {
    unexpected_frame::free(static_cast<unexpected_frame*>(stored));
    conn.control(make_header(kind::cts, key, number, 0, flag::cancel));
    return;
  }
  posted_receive* const receive = matcher_.find_cleared(key, number);
  if (receive == nullptr) return;
  if (receive->takes_probed) {
    matcher_.dequeue(*receive);
    receive->finish(make_error_code(errc::cancelled));
    return;
  }
  matcher_.unset_cleared(*receive);
  unexpected_message* const next = matcher_.rematch(*receive);
  if (next != nullptr && take(*receive, static_cast<unexpected_frame&>(*next))) {
    receive->done->post();
  }
}

COLLS_ONCE bool eager_rendezvous::reject(posted_receive& receive, std::error_code ec,
                                         connection* rts_source) {
  if (ec == make_error_code(errc::truncated) && rts_source != nullptr) {
    send_cts(*rts_source, receive, flag::truncated);
    receive.cleared = false;
  }
  if (ec == make_error_code(errc::mismatch) && !receive.record->communicator->failed()) {
    matcher_.enqueue(receive);
    return false;
  }
  receive.ec = ec;
  return true;
}

}  // namespace colls::interprocess
