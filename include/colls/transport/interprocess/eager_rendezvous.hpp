// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// delivery: the messages of a rank: its sends onto links, what links bring into its receives, and
// the grants between them.

#include <colls/matching/tag_matcher.hpp>
#include <colls/transport/interprocess/connection_table.hpp>
#include <colls/transport/interprocess/connector.hpp>

#include <new>

namespace colls::tcp {

/// A message goes unasked while it is short and the window lasts, else it waits for a grant: one of
/// a collective for that of its receive, which knows the length and comes by itself; one that is
/// point to point, or short, sends its header ahead, and the receive that fits grants it.
class delivery {
 public:
  class host {
   public:
    /// A message of that key is there, or asks for a grant: its receive has to be posted now.
    virtual void comes(const message_key& key) = 0;

   protected:
    ~host() = default;
  };

  delivery(match& of, links& all, opener& opens, host& to)
      : match_(of), links_(all), opener_(opens), host_(to) {}
  delivery(const delivery&) = delete;
  delivery& operator=(const delivery&) = delete;
  ~delivery() { match_.drop_arrivals(); }

  /// True: it has ended at once.
  bool start(outgoing& send) {
    link& to = opener_.to(send.key.peer);
    if (to.ended() || to.said_goodbye()) {
      send.ec = left(to, *send.record);
      return true;
    }
    const bool direct = send.key.is_point_to_point();
    send.frame = header_for(kind::data, send.key, send.size, send.record->hash);
    const bool in_turn = to.credit.is_next(send.key);
    if (in_turn && to.credit.spend(send.size)) return to.enqueue(send);
    if (in_turn && !direct && to.credit.take_grant(send.key)) {
      send.frame.flags = flag::granted;
      return to.enqueue(send);
    }
    send.on = &to;
    if (direct) {
      to.credit.put_behind(send);
      send.waits = true;
      go_on(to, send.key);
      to.flush();
      return false;
    }
    to.credit.waiting.push_back(send);
    send.waits = true;
    if (send.size <= eager_limit) {
      tell_of(to, send);
      to.flush();
    }
    return false;
  }

  bool start(posted& receive) {
    arrival* const message = match_.post(receive);
    if (message == nullptr) {
      const int peer = receive.key.peer;
      if (peer == posted::any_source) return false;
      const bool large = !receive.key.is_point_to_point() && receive.size > eager_limit;
      link* const known = links_.known(peer);
      if (known != nullptr && (known->ended() || known->said_goodbye())) {
        match_.unlist(receive);
        receive.ec = left(*known, *receive.record);
        return true;
      }
      if (large) grant(opener_.to(peer), receive);
      return false;
    }
    return take(receive, static_cast<early&>(*message));
  }

  void withdraw(outgoing& send) {
    link* const from = send.on;
    const bool was_ahead = send.waits && !send.behind && send.key.is_point_to_point();
    if (send.behind) {
      from->credit.leave_behind(send);
    } else if (send.waits && send.number != 0) {
      take_back(send);
    } else if (send.waits) {
      from->credit.waiting_as(send.key).remove(send);
    }
    if (send.queued) from->withdraw(send);
    if (was_ahead) others_go_on(*from, send.key);
  }

  /// The message that came before its receive is not needed any more.
  void drop(early& message) {
    link& from = *message.from;
    message.drop();
    links_.flush_soon(from);
  }

  /// Messages have ended that others waited for.
  void held_go_on(link& to) noexcept;

  /// Long messages whose receivers expect short ones would wait without a word.
  void remind(time_point now);

  // ---- what links bring

  void message(link& from, const header& frame, const message_key& key) {
    const bool unsolicited = (frame.flags & flag::granted) == 0;
    const auto size = static_cast<std::size_t>(frame.length);
    if (unsolicited && !from.credit.expects(size)) {
      from.fail(0, "a message that it may not send unasked");
      return;
    }
    host_.comes(key);
    posted* const receive =
        key.is_point_to_point() && !unsolicited ? match_.take_granted(key) : match_.take(key);
    if (receive != nullptr) {
      if (const std::error_code ec = match_.check(*receive, key.peer, size, frame.hash)) {
        refuse_later(*receive, ec, nullptr);
      } else {
        receive->received = size;
        receive->source = key.peer;
        from.deliver_to(*receive);
      }
      if (unsolicited) from.consumed(size);
      return;
    }
    const communicator_state* const known = match_.find(key.communicator);
    if (!match_.inspect(key, frame.hash) || (known != nullptr && known->failed())) {
      if (unsolicited) from.consumed(size);
      return;
    }
    if (!unsolicited) {
      if (known != nullptr) from.fail(0, "a message that answers no grant of ours");
      return;
    }
    early& kept = keep(from, frame, key, true);
    from.credit.keep(size);
    from.deliver_to(kept);
  }

  /// The header of a message that waits for a grant.
  void announced(link& from, const header& frame, const message_key& key);

  /// A message of that key may come to the peer.
  void granted(link& from, const header& frame, const message_key& key);

 private:
  // Nothing goes to that peer or comes from it any more. That the link broke may not be told yet.
  std::error_code left(link& gone, const operation_record& record) {
    gone.tell_if_broken();
    return match_.left(gone.peer(), record);
  }

  // A receive and a message that came before it. True: it has ended at once.
  bool take(posted& receive, early& first) {
    const std::error_code ec = match_.check(receive, first.key.peer, first.size, first.hash);
    if (!first.buffered) {
      link& from = *first.from;
      const std::uint64_t number = first.number;
      early::free(&first);
      if (ec) return refused(receive, ec, &from);
      match_.list(receive);
      ask_for(from, receive, number);
      return false;
    }
    if (ec) {
      first.drop();
      return refused(receive, ec, nullptr);
    }
    if (first.filled < first.size) {
      first.from->complete_later(first, receive);
      return false;
    }
    receive.accept(first.bytes(), first.size, first.key.peer);
    receive.record->bytes += first.size;
    drop(first);
    return true;
  }

  // Messages of that key that are behind others go as far as they may: unasked, or their headers.
  // Then those of other keys do for which there was no room ahead.
  void go_on(link& to, const message_key& key);
  void those_of_key_go_on(link& to, const message_key& key);
  // The same after one that was before them.
  void others_go_on(link& to, const message_key& key) noexcept;

  // A message that waits, and whose header has gone, or has begun to go.
  void take_back(outgoing& send);
  // Its sender does so: nobody gets it. If a receive has asked for it, that meets what comes after.
  void taken_back(link& from, const message_key& key, std::uint64_t number);
  void ask_for(link& from, posted& receive, std::uint64_t number) {
    if (receive.key.is_point_to_point()) {
      match_.grant(receive, from.peer());
      receive.number = number;
    }
    grant(from, receive);
  }

  void tell_of(link& to, outgoing& send, std::uint8_t flags = 0) {
    send.reminded = true;
    flags |= flag::header_alone;
    to.control(header_for(kind::data, send.key, send.size, send.record->hash, flags));
  }
  void grant(link& to, posted& receive, std::uint8_t flags = 0) {
    receive.granted = true;
    to.control(header_for(kind::grant, receive.key, receive.size, receive.record->hash, flags));
    to.flush();
  }
  // A message that no receive waits for. `buffered`: its bytes follow, and have to be kept as well.
  early& keep(link& from, const header& frame, const message_key& key, bool buffered) {
    const auto size = static_cast<std::size_t>(frame.length);
    early& kept = *early::make(buffered ? size : 0);
    kept.key = key;
    kept.size = size;
    kept.hash = frame.hash;
    kept.from = &from;
    kept.buffered = buffered;
    if (!buffered) ++from.credit.headers;
    try {
      match_.keep(kept);
    } catch (const std::bad_alloc&) {
      early::free(&kept);
      throw;
    }
    return kept;
  }

  // A message that may not go into its receive. With a dispute under way the receive waits for the
  // verdict, which names both sides.
  bool refused(posted& receive, std::error_code ec, link* announced);
  void refuse_later(posted& receive, std::error_code ec, link* announced) {
    if (refused(receive, ec, announced)) receive.finish(ec);
  }

  match& match_;
  links& links_;
  opener& opener_;
  host& host_;
};

}  // namespace colls::tcp

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/eager_rendezvous.ipp>
#endif
