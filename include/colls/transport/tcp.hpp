// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// tcp: ranks in processes, over links that open on first use: TCP between hosts, inside a host
// memory that both processes share.

#include <colls/receive.hpp>
#include <colls/rendezvous/meet.hpp>
#include <colls/rendezvous/offshoot.hpp>
#include <colls/send.hpp>
#include <colls/transport.hpp>
#include <colls/transport/tcp/delivery.hpp>
#include <colls/transport/tcp/lender.hpp>
#include <colls/transport/tcp/round.hpp>

namespace colls {

/// One rank of a world whose ranks reach each other over TCP. All of its communicators share its
/// links, its match and its executor; nothing in it may be used from another thread.
class tcp_transport final : mover,
                            engine::source,
                            tcp::link_owner,
                            tcp::opener::host,
                            tcp::delivery::host,
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
        delivery_(match_, links_, opener_, static_cast<tcp::delivery::host&>(*this)),
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
  network_cost costs() const {
    network_cost all = who_->shares_memory() ? hybrid_cost : tcp_cost;
    all.cores = who_->fewest_cores();
    return all;
  }
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
  std::shared_ptr<tcp_transport> open_world(const boost::asio::any_io_executor& executor,
                                            std::shared_ptr<membership> who,
                                            const std::vector<card>& cards) const {
    offshoot::complete(*who, cards);
    std::shared_ptr<engine> on = engine::of(executor);
    if (on != engine_) {
      // Each rank has two threads then, and the other may compute while this one waits.
      on->wait_as(*engine_, 2 * who->local_size <= who->cores());
    }
    return std::make_shared<tcp_transport>(std::move(on), std::move(who));
  }

  using send_operation = queued_send<tcp_transport, tcp::outgoing>;
  friend send_operation;
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
    return links_.poll(match_);
  }

  /// Ends no peer's operation: writes what is queued, says goodbye on every link, and reads each to
  /// its end before it is closed, or until the deadline.
  task<> close(time_point deadline) {
    if (!opener_.leave()) co_return;
    // A last word (why a communicator was revoked) may wait for a link that is still being dialled.
    while (unwritten() && now() < deadline) co_await engine_->sleep_until(now() + milliseconds);
    opener_.close();
    links_.say_goodbye();
    while (unwritten() && now() < deadline) co_await engine_->sleep_until(now() + milliseconds);
    links_.shut_writing();
    while (links_.any_open() && now() < deadline) {
      co_await engine_->sleep_until(now() + milliseconds);
    }
    links_.shut();
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
    delivery_.remind(time);
    if (time - looked_for_hosts_ < seconds) return;
    looked_for_hosts_ = time;
    links_.each([&](int, tcp::link& link) {
      if (link.is_silent()) opener_.probe(link);
    });
  }
  bool pending() const override { return match_.any_under_way(); }
  bool arm() override { return links_.arm(); }
  void disarm() override { links_.disarm(); }

  bool unwritten() { return links_.unwritten() || reports_ > 0; }
  bool start(tcp::outgoing& send) { return delivery_.start(send); }
  bool start(posted& receive) { return delivery_.start(receive); }
  void withdraw(tcp::outgoing& send) { delivery_.withdraw(send); }
  void comes(const message_key& key) override {
    settle_rounds([&](const round_operation& each) { return each.waits_for(key); });
  }

  // ---- rounds

  tcp::link* ring_to(int peer) { return links_.ring_to(peer); }
  void wake_peers() { links_.wake_peers(); }
  tcp::early* early_of(const message_key& key) {
    return static_cast<tcp::early*>(match_.arrived(key));
  }
  void drop(tcp::early& message) {
    match_.forget(message);
    delivery_.drop(message);
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

  // ---- what links say

  void received(tcp::link& from, const tcp::header& frame, const std::byte* payload) override {
    const message_key key = frame.key(from.peer());
    switch (frame.kind) {
      case tcp::kind::data:
        if ((frame.flags & tcp::flag::header_alone) != 0) {
          delivery_.announced(from, frame, key);
        } else {
          delivery_.message(from, frame, key);
        }
        break;
      case tcp::kind::grant:
        if ((frame.flags & tcp::flag::window) != 0) {
          from.credit.refill(frame.length);
        } else {
          delivery_.granted(from, frame, key);
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
        from.is_read = (frame.flags & tcp::flag::reads) != 0;
        break;
    }
    links_.flush_soon(from);
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
    bool any = match_.waiting_for(link.peer()) != nullptr;
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

  // `peer` has left: whatever still waits for it, or to be taken by it, waits in vain.
  void needed(int peer) {
    settle_rounds([](const round_operation&) { return true; });
    while (communicator_state* const communicator = waiting_for(peer)) {
      match_.revoke(*communicator, has_left(peer));
    }
  }
  // A good communicator that waits for it, or null.
  communicator_state* waiting_for(int peer) {
    communicator_state* found = match_.waiting_for(peer);
    links_.at(peer).each_send([&](const tcp::outgoing& send) {
      if (!send.record->communicator->failed()) found = send.record->communicator;
    });
    return found;
  }

  void revoked(communicator_state& communicator, const failure& why, int told_by) override {
    if (told_by < 0 && who_->rendezvous != nullptr) {
      try {
        tasks_.start(report(why));
      } catch (const std::bad_alloc&) {
        log_warn("rank %d has no memory to tell the store why a communicator has failed", rank());
      }
    }
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
    if (peer == rank()) return;
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
  time_point looked_for_hosts_ = 0;
  tcp::opener opener_;
  tcp::delivery delivery_;
  task_group tasks_;  // last: its tasks use all of the above
};
static_assert(consuming_transport<tcp_transport> && lending_transport<tcp_transport> &&
              round_transport<tcp_transport>);

}  // namespace colls
