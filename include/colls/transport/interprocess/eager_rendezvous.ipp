// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What is no plain message: the second half of eager_rendezvous.hpp.

#include <colls/base/compiler.hpp>
#include <colls/transport/interprocess/eager_rendezvous.hpp>

namespace colls::tcp {

COLLS_ONCE void delivery::remind(time_point now) {
  links_.each([&](int, link& to) {
    to.credit.waiting.each([&](outgoing& send) {
      if (send.reminded || now - send.record->started < 100 * milliseconds) return;
      tell_of(to, send, flag::reminder);
      links_.flush_soon(to);
    });
  });
}

COLLS_ONCE void delivery::announced(link& from, const header& frame, const message_key& key) {
  if ((frame.flags & flag::taken_back) != 0) return taken_back(from, key, frame.length);
  const std::uint64_t number = key.is_point_to_point() ? ++from.credit.heard_of : 0;
  if (!match_.inspect(key, frame.hash)) return;
  // Its sender had no credit left, and waits for a grant, which a receive gives.
  host_.comes(key);
  const communicator_state* const known = match_.find(key.communicator);
  if (known != nullptr && known->failed()) return;
  const bool reminder = (frame.flags & flag::reminder) != 0;
  posted* const receive = reminder ? match_.first(key) : match_.peek(key);
  if (receive != nullptr) {
    const auto size = static_cast<std::size_t>(frame.length);
    if (const std::error_code ec = match_.check(*receive, key.peer, size, frame.hash)) {
      if (!receive->listed) return;  // the check has revoked the communicator
      match_.unlist(*receive);
      refuse_later(*receive, ec, &from);
    } else if (!receive->granted) {
      ask_for(from, *receive, number);
    }
    return;
  }
  if (reminder && key.is_point_to_point()) return;
  keep(from, frame, key, false).number = number;
  if (from.credit.headers > most_headers) from.fail(0, "more headers than a rank sends ahead");
}

COLLS_ONCE void delivery::granted(link& from, const header& frame, const message_key& key) {
  if ((frame.flags & flag::taken_back) != 0) {
    const communicator_state* const known = match_.find(key.communicator);
    if (!from.credit.forget(key, frame.length) && known != nullptr && !known->failed()) {
      from.fail(0, "an answer about a message that was not taken back");
      return;
    }
    return go_on(from, key);
  }
  if (!match_.inspect(key, frame.hash)) return;
  outgoing* const send = from.credit.waiting_as(key).take(key);
  if (send == nullptr) {
    const communicator_state* const known = match_.find(key.communicator);
    const bool is_early = !key.is_point_to_point() && (known == nullptr || !known->failed());
    if (is_early && !from.credit.bank_grant(key)) from.fail(0, "more grants than a rank gives");
    return;
  }
  if (send->gone) {
    delete send;
    return go_on(from, key);
  }
  if (send->queued) {
    from.credit.waiting_as(key).push_back(*send);
    from.fail(0, "a grant of a message that was not announced");
    return;
  }
  send->waits = false;
  if ((frame.flags & flag::unwanted) != 0) {
    send->finish();
    return go_on(from, key);
  }
  send->frame.flags = flag::granted;
  if (from.enqueue(*send)) send->done->post();  // its bytes are counted
  go_on(from, key);
}

COLLS_ONCE void delivery::go_on(link& to, const message_key& key) {
  those_of_key_go_on(to, key);
  to.credit.let_held_go([&](const message_key& held) { those_of_key_go_on(to, held); });
}

COLLS_ONCE void delivery::held_go_on(link& to) noexcept {
  if (to.credit.holds_any()) others_go_on(to, message_key());
}

COLLS_ONCE void delivery::those_of_key_go_on(link& to, const message_key& key) {
  while (outgoing* const next = to.credit.next_behind(key)) {
    if (to.credit.is_next(key) && to.credit.spend(next->size)) {
      to.credit.leave_behind(*next);
      next->waits = false;
      to.queue(*next, false);
    } else if (to.credit.may_announce(*next)) {
      to.credit.ahead.make_room();
      to.credit.leave_behind(*next);
      to.credit.ahead.push_back(*next);
      next->frame.flags = flag::header_alone;
      next->reminded = true;
      to.queue(*next, true);
    } else {
      if (to.credit.are_all_ahead()) to.credit.hold(*next);
      return;
    }
  }
}

COLLS_ONCE void delivery::others_go_on(link& to, const message_key& key) noexcept {
  try {
    go_on(to, key);
  } catch (const std::bad_alloc&) {
    to.break_off();
  }
  links_.flush_soon(to);
}

COLLS_ONCE void delivery::take_back(outgoing& send) {
  link& to = *send.on;
  to.control(header_for(kind::data, send.key, send.number, send.record->hash,
                        flag::header_alone | flag::taken_back));
  const bool stays = to.credit.bury(send);
  send.waits = false;
  if (!stays) to.credit.ahead.remove(send), to.break_off();
  links_.flush_soon(to);
}

COLLS_ONCE void delivery::taken_back(link& from, const message_key& key, std::uint64_t number) {
  if (number == 0 || number > from.credit.heard_of) {
    from.fail(0, "a message that it takes back was not announced");
    return;
  }
  arrival* const kept = match_.take_arrival(key, [&](const arrival& message) {
    return !message.buffered && static_cast<const early&>(message).number == number;
  });
  if (kept != nullptr) {
    early::free(static_cast<early*>(kept));
    from.control(header_for(kind::grant, key, number, 0, flag::taken_back));
    return;
  }
  posted* const receive = match_.asker(key, number);
  if (receive == nullptr) return;
  match_.take_grant_back(*receive);
  arrival* const next = match_.pair_again(*receive);
  if (next != nullptr && take(*receive, static_cast<early&>(*next))) receive->done->post();
}

COLLS_ONCE bool delivery::refused(posted& receive, std::error_code ec, link* announced) {
  if (ec == make_error_code(errc::truncated) && announced != nullptr) {
    grant(*announced, receive, flag::unwanted);
    receive.granted = false;
  }
  if (ec == make_error_code(errc::mismatch) && !receive.record->communicator->failed()) {
    match_.list(receive);
    return false;
  }
  receive.ec = ec;
  return true;
}

}  // namespace colls::tcp
