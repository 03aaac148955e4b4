// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// tcp: ranks in processes, over links that open on first use: TCP between hosts, inside a host
// memory that both processes share.

#include <colls/receive.hpp>
#include <colls/rendezvous/meet.hpp>
#include <colls/rendezvous/offshoot.hpp>
#include <colls/transport.hpp>
#include <colls/transport/tcp/lender.hpp>
#include <colls/transport/tcp/opener.hpp>
#include <colls/transport/tcp/round.hpp>

namespace colls {

/// One rank of a world whose ranks reach each other over TCP. All of its communicators share its
/// links, its match and its executor; nothing in it may be used from another thread.
class tcp_transport final : mover,
                            engine::source,
                            tcp::link_owner,
                            tcp::opener::host,
                            failure_listener {
 public:
  static constexpr bool consumes = true;

  tcp_transport(std::shared_ptr<engine> on, std::shared_ptr<membership> who)
      : engine_(std::move(on)),
        who_(std::move(who)),
        match_(who_->rank),
        links_(*engine_, static_cast<tcp::link_owner&>(*this)),
        lender_(*engine_, *who_, links_),
        opener_(*engine_, *who_, links_, static_cast<tcp::opener::host&>(*this)),
        tasks_(*engine_) {
    match_.add(static_cast<mover&>(*this));
    engine_->add(static_cast<engine::source&>(*this));
    if (who_->rendezvous != nullptr) {
      who_->rendezvous->listen_for_failures(static_cast<failure_listener*>(this));
    }
  }
  tcp_transport(const tcp_transport&) = delete;
  tcp_transport& operator=(const tcp_transport&) = delete;
  ~tcp_transport() {
    if (who_->rendezvous != nullptr) who_->rendezvous->listen_for_failures(nullptr);
    engine_->remove(static_cast<engine::source&>(*this));
    match_.remove(static_cast<mover&>(*this));
  }

  int rank() const { return who_->rank; }
  int size() const { return who_->size; }
  match& matching() override { return match_; }
  run_queue& queue() { return engine_->queue(); }
  void kick() {
    links_.wake_peers();
    engine_->kick();
  }
  time_point now() const { return engine_->now(); }
  network_cost costs() const { return who_->shares_memory() ? hybrid_cost : tcp_cost; }
  engine& driver() { return *engine_; }
  int node_of(int rank) const { return who_->node_of[static_cast<std::size_t>(rank)]; }
  const std::shared_ptr<engine>& shared_engine() const { return engine_; }
  const membership& members() const { return *who_; }
  const std::shared_ptr<membership>& shared_members() const { return who_; }

  /// What the ranks of a communicator tell each other to form a world of its own on another
  /// executor.
  using card = offshoot::card;
  /// Opens this rank's listeners for such a world and says where they are.
  std::shared_ptr<membership> prepare_world(int rank, int size, card& mine) const {
    return offshoot::prepare(*who_, rank, size, mine);
  }
  /// The transport of that world, once every rank's card is known. Nobody else may turn the
  /// executor meanwhile.
  static std::shared_ptr<tcp_transport> open_world(const boost::asio::any_io_executor& executor,
                                                   std::shared_ptr<membership> who,
                                                   const std::vector<card>& cards) {
    offshoot::complete(*who, cards);
    return std::make_shared<tcp_transport>(engine::of(executor), std::move(who));
  }

  class send_operation : tcp::outgoing {
   public:
    send_operation(tcp_transport& net, const message_key& to, const_bytes from,
                   operation_record& of)
        : net_(net) {
      key = to;
      data = from.data;
      size = from.size;
      record = &of;
    }
    send_operation(send_operation&& other) noexcept
        : send_operation(other.net_, other.key, {other.data, other.size}, *other.record) {}
    ~send_operation() {
      if (waits) on->credit.waiting.remove(*this);
      if (queued) on->withdraw(*this);
    }

    bool start(completion& waiter) {
      if (record->communicator->failed()) {
        ec = record->communicator->why().code;
        return true;
      }
      done = &waiter;
      return net_.start(*this);
    }
    std::error_code result() const { return ec; }
    /// Nothing of it has left this rank and nobody has asked for it.
    bool untouched() const { return waits; }

   private:
    friend tcp_transport;
    tcp_transport& net_;
  };

  using recv_operation = receive_operation<tcp_transport>;
  friend recv_operation;

  using round_operation = tcp::round_operation<tcp_transport>;
  friend round_operation;

  /// See `tcp::lender`.
  std::shared_ptr<std::byte> allocate(std::size_t size) { return lender_.allocate(size); }
  bool lends(const_bytes data) const { return lender_.has(data); }
  struct desk : tcp::lender::desk {
    explicit desk(tcp_transport& net) : tcp::lender::desk(net.lender_) {}
  };
  struct loan : tcp::lender::loan {
    explicit loan(tcp_transport& net) : tcp::lender::loan(net.lender_) {}
  };
  using view = shm::arena_view;
  view* view_of(int peer) { return lender_.view_of(peer); }

  send_operation send(const message_key& to, const_bytes from, operation_record& record) {
    return {*this, to, from, record};
  }
  recv_operation recv(const message_key& from, mutable_bytes into, operation_record& record) {
    return {*this, from, into, record};
  }

  bool poll() override {
    // Now and then other links have their turn, too.
    if (!rounds_.empty() && take_rounds() && ++rounds_taken_ % 16 != 0) return true;
    return links_.poll();
  }

  /// Ends no peer's operation: writes what is queued, says goodbye on every link, and reads each to
  /// its end before it is closed, or until the deadline.
  task<> close(time_point deadline) {
    if (!opener_.leave()) co_return;
    // A last word (why a communicator was revoked) may wait for a link that is still being dialled.
    while (unwritten() && now() < deadline) co_await engine_->sleep_until(now() + milliseconds);
    opener_.close();
    links_.each([](int, tcp::link& link) {
      if (!link.is_open()) return;
      tcp::header frame;
      frame.kind = tcp::kind::goodbye;
      link.control(frame);
      link.flush();
    });
    while (unwritten() && now() < deadline) co_await engine_->sleep_until(now() + milliseconds);
    links_.each([](int, tcp::link& link) {
      if (link.is_open()) link.shut_writing();
    });
    const auto reading = [this] {
      bool any = false;
      links_.each([&](int, const tcp::link& link) { any |= link.is_open(); });
      return any;
    };
    while (reading() && now() < deadline) co_await engine_->sleep_until(now() + milliseconds);
    links_.each([](int, tcp::link& link) { link.shut(); });
    if (who_->rendezvous != nullptr) {
      // Who dials us later is told that we have left, not that we died.
      try {
        co_await who_->rendezvous->set(detail::left_key(rank()), "1",
                                       std::min(deadline, now() + seconds));
      } catch (const error& thrown) {
        log_debug("the store is gone already: %s", thrown.record().detail);
      }
    }
    opener_.close_doors();
    co_await colls::leave(*who_, deadline);
  }

 private:
  void sweep(time_point time) override {
    settle_rounds([=](round_operation& each) { return each.is_old(time); });
    match_.sweep(time);
    links_.each([&](int, tcp::link& link) {
      // A large message whose receiver expects a small one would wait without a word.
      link.credit.waiting.each([&](tcp::outgoing& send) {
        if (send.reminded || time - send.record->started < 100 * milliseconds) return;
        send.reminded = true;
        link.control(tcp::header_for(tcp::kind::data, send.key, send.size, send.record->hash,
                                     tcp::flag::header_alone | tcp::flag::reminder));
        links_.flush_soon(link);
      });
    });
  }
  bool pending() const override { return match_.any_under_way(); }
  bool arm() override { return links_.arm(); }
  void disarm() override { links_.disarm(); }

  bool unwritten() {
    bool any = reports_ > 0;
    links_.each([&](int, tcp::link& link) {
      if (link.is_open()) link.flush();
      any |= !link.idle() && !link.ended() && (link.is_open() || link.dialing || link.promised);
    });
    return any;
  }

  // ---- sending and receiving

  bool start(send_operation& send) {
    tcp::link& link = opener_.to(send.key.peer);
    if (link.ended() || link.said_goodbye()) {
      send.ec = left(send.key.peer, *send.record);
      return true;
    }
    const bool direct = send.key.is_point_to_point();
    send.frame = tcp::header_for(tcp::kind::data, send.key, send.size, send.record->hash);
    const bool in_turn = link.credit.is_next(send.key);
    if (in_turn && link.credit.spend(send.size)) return link.enqueue(send);
    if (in_turn && !direct && link.credit.take_grant(send.key)) {
      send.frame.flags = tcp::flag::granted;
      return link.enqueue(send);
    }
    send.on = &link;
    send.waits = true;
    link.credit.waiting.push_back(send);
    if (direct || send.size <= tcp::eager_limit) {
      send.reminded = true;
      link.control(tcp::header_for(tcp::kind::data, send.key, send.size, send.record->hash,
                                   tcp::flag::header_alone));
      link.flush();
    }
    return false;
  }

  bool start(posted& receive) {
    arrival* const message = match_.post(receive);
    if (message == nullptr) {
      const int peer = receive.key.peer;
      if (peer == posted::any_source) return false;
      const bool large = !receive.key.is_point_to_point() && receive.size > tcp::eager_limit;
      const tcp::link* const known = links_.known(peer);
      if (known != nullptr && (known->ended() || known->said_goodbye())) {
        match_.unlist(receive);
        receive.ec = left(peer, *receive.record);
        return true;
      }
      if (large) grant(opener_.to(peer), receive);
      return false;
    }
    auto& first = static_cast<tcp::early&>(*message);
    const std::error_code ec = match_.check(receive, first.size, first.hash);
    if (!first.buffered) {
      tcp::link& link = *first.from;
      tcp::early::free(&first);
      if (ec) return refused(receive, ec, &link);
      match_.list(receive);
      receive.key.peer = link.peer();
      grant(link, receive);
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
    tcp::link& link = *first.from;
    first.drop();
    links_.flush_soon(link);
    return true;
  }

  void grant(tcp::link& link, posted& receive, std::uint8_t flags = 0) {
    receive.granted = true;
    link.control(tcp::header_for(tcp::kind::grant, receive.key, receive.size, receive.record->hash,
                                 flags));
    link.flush();
  }

  // ---- rounds

  tcp::link* ring_to(int peer) { return links_.ring_to(peer); }
  void wake_peers() { links_.wake_peers(); }
  tcp::early* early_of(const message_key& key) {
    return static_cast<tcp::early*>(match_.arrived(key));
  }
  void drop(tcp::early& message) {
    tcp::link& link = *message.from;
    match_.forget(message);
    message.drop();
    links_.flush_soon(link);
  }
  // Who never waits would never look at other links.
  int looks_at_once() {
    if (++rounds_in_all_ % 64 == 0) return 0;
    return engine_->spins() ? 100 : 1;
  }
  void list(round_operation& waiting) {
    waiting.listed_ = true;
    rounds_.push_back(&waiting);
  }
  void unlist(round_operation& waiting) {
    waiting.listed_ = false;
    std::erase(rounds_, &waiting);
  }
  bool take_rounds() {
    bool any = false;
    for (std::size_t i = 0; i < rounds_.size();) {
      round_operation& each = *rounds_[i];
      if (!each.take()) {
        ++i;
        continue;
      }
      unlist(each);
      each.end();
      any = true;
    }
    return any;
  }
  bool take_next(tcp::link& from) override {
    for (round_operation* const each : rounds_) {
      if (!each->take_from(from)) continue;
      if (each->has_all()) {
        unlist(*each);
        each->end();
      }
      return true;
    }
    return false;
  }
  // Those that `which` picks become other messages, which may end more of them.
  template <class Which>
  void settle_rounds(Which which) {
    for (std::size_t i = 0; i < rounds_.size();) {
      round_operation& each = *rounds_[i];
      if (!which(each)) {
        ++i;
        continue;
      }
      unlist(each);
      each.settle_later();
      i = 0;
    }
  }

  // A message that may not go into its receive. With a dispute under way the receive waits for the
  // verdict, which names both sides.
  bool refused(posted& receive, std::error_code ec, tcp::link* announced) {
    if (ec == make_error_code(errc::truncated) && announced != nullptr) {
      grant(*announced, receive, tcp::flag::unwanted);
      receive.granted = false;
    }
    if (ec == make_error_code(errc::mismatch) && !receive.record->communicator->failed()) {
      match_.list(receive);
      return false;
    }
    receive.ec = ec;
    return true;
  }
  void refuse_later(posted& receive, std::error_code ec, tcp::link* announced) {
    if (refused(receive, ec, announced)) receive.finish(ec);
  }

  // ---- what links say

  void received(tcp::link& from, const tcp::header& frame, const std::byte* payload) override {
    const message_key key = frame.key(from.peer());
    switch (frame.kind) {
      case tcp::kind::data:
        if ((frame.flags & tcp::flag::header_alone) != 0) {
          announced(from, frame, key);
        } else {
          message(from, frame, key);
        }
        break;
      case tcp::kind::grant:
        if ((frame.flags & tcp::flag::window) != 0) {
          from.credit.refill(frame.length);
        } else {
          granted(from, frame, key);
        }
        break;
      case tcp::kind::announce: match_.inspect(key, frame.hash); break;
      case tcp::kind::fingerprint: {
        fingerprint theirs;
        std::memcpy(static_cast<void*>(&theirs), payload, sizeof theirs);
        match_.compare(from.peer(), frame.communicator, frame.sequence, theirs);
        break;
      }
      case tcp::kind::revoke: {
        const failure why = tcp::parse_failure(payload);
        if (why.code == errc::peer_failed && why.culprit >= 0 && why.culprit != rank()) {
          match_.died(why.culprit, why, from.peer());
        } else {
          match_.revoke(frame.communicator, why, from.peer());
        }
        break;
      }
      case tcp::kind::goodbye:
        from.heard_goodbye();
        needed(from.peer());
        break;
      case tcp::kind::mapped:
        from.is_seen = true;
        break;
    }
    links_.flush_soon(from);
  }

  void message(tcp::link& from, const tcp::header& frame, const message_key& key) {
    const bool unsolicited = (frame.flags & tcp::flag::granted) == 0;
    const auto size = static_cast<std::size_t>(frame.length);
    if (unsolicited && size > tcp::eager_limit) {
      from.fail(0, "a long message that nobody had asked for");
      return;
    }
    settle_rounds([&](const round_operation& each) { return each.waits_for(key); });
    posted* const receive = key.is_point_to_point() && !unsolicited ? match_.take_granted(key)
                                                                    : match_.take(key);
    if (receive != nullptr) {
      if (const std::error_code ec = match_.check(*receive, size, frame.hash)) {
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
    tcp::early& kept = *tcp::early::make(size);
    kept.key = key;
    kept.size = size;
    kept.hash = frame.hash;
    kept.buffered = true;
    kept.from = &from;
    match_.keep(kept);
    from.deliver_to(kept);
  }

  void announced(tcp::link& from, const tcp::header& frame, const message_key& key) {
    if (!match_.inspect(key, frame.hash)) return;
    // Its sender had no credit left, and waits for a grant, which a receive gives.
    settle_rounds([&](const round_operation& each) { return each.waits_for(key); });
    const communicator_state* const known = match_.find(key.communicator);
    if (known != nullptr && known->failed()) return;
    const bool reminder = (frame.flags & tcp::flag::reminder) != 0;
    posted* const receive = reminder ? match_.first(key) : match_.peek(key);
    if (receive != nullptr) {
      if (const std::error_code ec =
              match_.check(*receive, static_cast<std::size_t>(frame.length), frame.hash)) {
        if (!receive->listed) return;  // the check has revoked the communicator
        match_.unlist(*receive);
        refuse_later(*receive, ec, &from);
      } else if (!receive->granted) {
        if (key.is_point_to_point()) receive->key.peer = key.peer;
        grant(from, *receive);
      }
      return;
    }
    if (reminder && key.is_point_to_point()) return;
    tcp::early& kept = *tcp::early::make(0);
    kept.key = key;
    kept.size = static_cast<std::size_t>(frame.length);
    kept.hash = frame.hash;
    kept.from = &from;
    match_.keep(kept);
  }

  void granted(tcp::link& from, const tcp::header& frame, const message_key& key) {
    if (!match_.inspect(key, frame.hash)) return;
    tcp::outgoing* const send = from.credit.waiting.take(key);
    if (send == nullptr) {
      const communicator_state* const known = match_.find(key.communicator);
      if (!key.is_point_to_point() && (known == nullptr || !known->failed())) from.credit.bank_grant(key);
      return;
    }
    send->waits = false;
    if ((frame.flags & tcp::flag::unwanted) != 0) {
      send->finish();
      return;
    }
    send->frame.flags = tcp::flag::granted;
    if (from.enqueue(*send)) send->done->post();  // its bytes are counted
  }

  // ---- links

  void opened(tcp::link& which) override {
    if (which.has_ring()) lender_.opened(which);
    match_.each_failed(which.peer(), [&](const communicator_state& communicator) {
      tell_revoked(which, communicator.id(), communicator.why());
    });
  }
  void unreachable(tcp::link& which, const failure& why) override {
    if (why.code == errc::closed) {
      which.heard_goodbye();
      needed(which.peer());
    } else {
      match_.died(which.peer(), why);
    }
  }
  bool is_needed(tcp::link& link) override {
    bool any = !match_.waiting_for(link.peer()).empty();
    link.each_send([&](const tcp::outgoing&) { any = true; });
    return any;
  }
  void lent(tcp::link& from, detail::descriptor arena) override {
    lender_.see(from, std::move(arena));
  }

  // ---- ends

  // The launcher or the store says that a rank has died.
  void rank_failed(int peer, const failure& why) override {
    if (why.code != errc::peer_failed) {
      match_.revoke(why.communicator, why, rank());
    } else if (peer >= 0 && peer != rank()) {
      match_.died(peer, why, rank());
    }
  }

  // Who has no link to us learns it by the failure channel.
  task<> report(failure why) {
    ++reports_;
    try {
      co_await who_->rendezvous->report_failure(why, now() + seconds);
    } catch (const error& thrown) {
      log_debug("the store is gone: %s", thrown.record().detail);
    }
    --reports_;
  }

  void lost(tcp::link& which, const failure& why) override {
    if (which.said_goodbye()) {
      needed(which.peer());
    } else if (!opener_.is_closing()) {
      match_.died(which.peer(), why);
    }
    which.fail_sends(why.code, [](const tcp::outgoing&) { return true; });
    which.fail_receive(why.code, [](const posted&) { return true; });
  }

  std::error_code left(int peer, operation_record& record) {
    failure why = tcp::has_left(peer);
    why.operation = record.what;
    why.sequence = record.hash != 0 ? record.sequence : 0;
    why.communicator = record.communicator->id();
    match_.revoke(*record.communicator, why);
    return record.communicator->why().code;
  }
  // `peer` has left: whatever still waits for it, or to be taken by it, waits in vain.
  void needed(int peer) {
    settle_rounds([](const round_operation&) { return true; });
    std::vector<communicator_state*> by = match_.waiting_for(peer);
    links_.at(peer).each_send(
        [&](const tcp::outgoing& send) { by.push_back(send.record->communicator); });
    for (communicator_state* communicator : by) {
      match_.revoke(*communicator, tcp::has_left(peer));
    }
  }

  void revoked(communicator_state& communicator, const failure& why, int told_by) override {
    if (told_by < 0 && who_->rendezvous != nullptr) tasks_.start(report(why));
    for (std::size_t i = 0; i < rounds_.size();) {
      round_operation& each = *rounds_[i];
      if (!each.is_of(communicator)) {
        ++i;
        continue;
      }
      unlist(each);
      each.fail(why.code);
    }
    links_.each([&](int peer, tcp::link& link) {
      link.fail_sends(why.code, [&](const tcp::outgoing& send) {
        return send.key.communicator == communicator.id();
      });
      link.fail_receive(why.code, [&](const posted& receive) {
        return receive.key.communicator == communicator.id();
      });
      link.credit.drop_grants(communicator.id());
      if (peer == told_by || link.ended() || communicator.rank_of(peer) < 0) return;
      tell_revoked(link, communicator.id(), why);
    });
  }
  static void tell_revoked(tcp::link& link, std::uint32_t communicator, const failure& why) {
    tcp::header frame;
    frame.kind = tcp::kind::revoke;
    frame.communicator = communicator;
    frame.length = sizeof(failure);
    link.control(frame, &why);
    link.flush();
  }

  void announce(int peer, const operation_record& waiting) override {
    tcp::link& link = opener_.to(peer);
    if (link.ended()) return;
    link.control(
        tcp::header_for(tcp::kind::announce, announcement(peer, waiting), 0, waiting.hash));
    link.flush();
  }

  void dispute(int peer, std::uint32_t communicator, std::uint64_t sequence,
               const fingerprint& ours) override {
    tcp::header frame;
    frame.kind = tcp::kind::fingerprint;
    frame.communicator = communicator;
    frame.sequence = sequence;
    frame.length = sizeof ours;
    tcp::link& link = opener_.to(peer);
    link.control(frame, &ours);
    link.flush();
  }

  void refuse(int peer, const failure& why) override {
    tcp::header frame;
    frame.kind = tcp::kind::revoke;
    frame.communicator = why.communicator;
    frame.length = sizeof why;
    tcp::link& link = opener_.to(peer);
    link.control(frame, &why);
    links_.flush_soon(link);
  }

  int awaited_by(const operation_record& sending) override {
    int found = -1;
    links_.each([&](int peer, tcp::link& link) {
      link.each_send([&](const tcp::outgoing& send) {
        if (send.record == &sending) found = peer;
      });
    });
    return found;
  }

  std::shared_ptr<engine> engine_;
  std::shared_ptr<membership> who_;
  match match_;
  tcp::links links_;
  tcp::lender lender_;
  std::vector<round_operation*> rounds_;  // that wait, in the order of their calls
  unsigned rounds_in_all_ = 0;
  unsigned rounds_taken_ = 0;
  int reports_ = 0;
  tcp::opener opener_;
  task_group tasks_;  // last: its tasks use all of the above
};
static_assert(consuming_transport<tcp_transport> && lending_transport<tcp_transport> &&
              round_transport<tcp_transport>);

}  // namespace colls
