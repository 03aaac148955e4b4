// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What a rank does beside its messages: the second half of interprocess_transport.hpp.

#include <colls/base/compiler.hpp>
#include <colls/transport/interprocess/interprocess_transport.hpp>

namespace colls {

COLLS_ONCE tcp_transport::tcp_transport(std::shared_ptr<engine> on, std::shared_ptr<membership> who)
    : engine_(std::move(on)),
      who_(std::move(who)),
      match_(who_->rank),
      links_(*engine_, static_cast<tcp::link_owner&>(*this), who_->cfg.checksum),
      lender_(*engine_, *who_, links_, match_),
      opener_(*engine_, *who_, links_, static_cast<tcp::opener::host&>(*this)),
      delivery_(match_, links_, opener_, static_cast<tcp::delivery::host&>(*this)),
      tasks_(*engine_) {
  match_.add(static_cast<mover&>(*this));
  engine_->add(static_cast<engine::source&>(*this));
  if (who_->rendezvous != nullptr) {
    who_->rendezvous->listen_for_failures(static_cast<failure_listener*>(this));
  }
}

COLLS_ONCE tcp_transport::~tcp_transport() {
  if (who_->rendezvous != nullptr) who_->rendezvous->listen_for_failures(nullptr);
  engine_->remove(static_cast<engine::source&>(*this));
  match_.remove(static_cast<mover&>(*this));
}

COLLS_ONCE network_cost tcp_transport::costs() const {
  network_cost all = who_->shares_memory() ? hybrid_cost : tcp_cost;
  all.cores = who_->fewest_cores();
  return all;
}

COLLS_ONCE std::shared_ptr<membership> tcp_transport::prepare_world(int rank, int size,
                                                                    card& mine) const {
  return offshoot::prepare(*who_, rank, size, mine);
}

COLLS_ONCE std::shared_ptr<tcp_transport> tcp_transport::open_world(
    const boost::asio::any_io_executor& executor, std::shared_ptr<membership> who,
    const std::vector<card>& cards) const {
  offshoot::complete(*who, cards);
  std::shared_ptr<engine> on = engine::of(executor);
  if (on != engine_) {
    // Each rank has two threads then, and the other may compute while this one waits.
    on->wait_as(*engine_, 2 * who->beside <= who->cores());
  }
  return std::make_shared<tcp_transport>(std::move(on), std::move(who));
}

COLLS_ONCE bool tcp_transport::poll() {
  // Now and then other links have their turn, too.
  if (!rounds_.empty() && take_rounds() && ++rounds_taken_ % 16 != 0) return true;
  return links_.poll(match_, [this](const auto& ask) {
    for (const round_operation* const each : rounds_) each->each_awaited(ask);
  });
}

COLLS_ONCE task<> tcp_transport::close(time_point deadline) {
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

COLLS_ONCE void tcp_transport::sweep(time_point time) {
  settle_rounds([=](round_operation& each) { return each.is_old(time); });
  match_.sweep(time);
  delivery_.remind(time);
  if (time - looked_for_hosts_ < 500 * milliseconds) return;
  looked_for_hosts_ = time;
  links_.each([&](int, tcp::link& link) {
    if (link.is_silent(time)) opener_.probe(link);
  });
}

COLLS_ONCE void tcp_transport::comes(const message_key& key) {
  settle_rounds([&](const round_operation& each) { return each.waits_for(key); });
}

COLLS_ONCE bool tcp_transport::take_rounds() {
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

COLLS_ONCE bool tcp_transport::take_next(tcp::link& from) {
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

COLLS_ONCE void tcp_transport::received(tcp::link& from, const tcp::header& frame,
                                        const std::byte* payload) {
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
    case tcp::kind::announce:
      match_.inspect(key, frame.hash);
      if (!hear(from, frame, payload)) return;
      report(from.peer(), frame.communicator, match_.report_on(frame.communicator, now()));
      break;
    case tcp::kind::report:
      if (!hear(from, frame, payload)) return;
      break;
    case tcp::kind::fingerprint: {
      fingerprint theirs;
      std::memcpy(static_cast<void*>(&theirs), payload, sizeof theirs);
      match_.compare(from.peer(), frame.communicator, frame.sequence, theirs);
      break;
    }
    case tcp::kind::revoke: {
      const failure unexplained(errc::protocol_error, "a peer revoked it without a reason");
      failure why = reported_failure::parse({payload, sizeof(failure)}, size())
                        .value_or(reported_failure(unexplained));
      if (why.code == errc::peer_failed && why.culprit == rank()) {
        // A rank that hears nothing from this one is lost to it, and its own words may still come.
        const failure said = why;
        const bool names_itself = said.observer >= 0 && said.observer != rank();
        why.culprit = names_itself ? said.observer : from.peer();
        why.address[0] = 0;
        why.say("it takes this rank for dead: %.250s", said.detail);
      }
      const bool is_of_another = why.culprit >= 0 && why.culprit != rank();
      if (why.code == errc::peer_failed && is_of_another) {
        match_.died(why.culprit, why, from.peer());
      } else {
        match_.revoke(frame.communicator, reported_failure(why), from.peer());
      }
      break;
    }
    case tcp::kind::goodbye:
      from.heard_goodbye();
      end_what_waits_for(from.peer(), has_left(from.peer()));
      break;
    case tcp::kind::mapped:
      from.is_seen = true;
      from.is_read = (frame.flags & tcp::flag::reads) != 0;
      break;
  }
  links_.flush_soon(from);
}

COLLS_ONCE void tcp_transport::opened(tcp::link& which) {
  if (which.has_ring()) lender_.opened(which);
  match_.each_failed(which.peer(), [&](const communicator_state& communicator) {
    tell_revoked(which, communicator.id(), communicator.why());
  });
  match_.linked(which.peer(), now());
}

COLLS_ONCE void tcp_transport::unreachable(tcp::link& which, const failure& why) {
  if (why.code == errc::closed) {
    which.heard_goodbye();
    end_what_waits_for(which.peer(), has_left(which.peer()));
  } else if (why.code == errc::peer_failed) {
    match_.died(which.peer(), why);
  } else {
    end_what_waits_for(which.peer(), why);
  }
}

COLLS_ONCE bool tcp_transport::is_needed(tcp::link& link) {
  bool any = match_.waiting_for(link.peer()) != nullptr;
  link.each_send([&](const tcp::outgoing&) { any = true; });
  return any;
}

COLLS_ONCE void tcp_transport::lent(tcp::link& from, detail::descriptor arena) {
  lender_.see(from, std::move(arena));
}

COLLS_ONCE void tcp_transport::rank_failed(int peer, const reported_failure& report) {
  const failure& why = report;
  if (why.code != errc::peer_failed) {
    match_.revoke(why.communicator, report, rank());
  } else if (peer >= 0 && peer != rank()) {
    match_.died(peer, why, rank());
  }
}

COLLS_ONCE task<> tcp_transport::report(failure why) {
  ++reports_;
  try {
    co_await who_->rendezvous->report_failure(why, now() + seconds);
  } catch (const error& thrown) {
    log_debug("the store is gone: %s", thrown.record().detail);
  }
  --reports_;
}

COLLS_ONCE void tcp_transport::lost(tcp::link& which, const failure& why) {
  if (which.said_goodbye()) {
    end_what_waits_for(which.peer(), has_left(which.peer()));
  } else if (!opener_.is_closing()) {
    match_.died(why.culprit, why);  // the peer, or this rank
  }
  which.fail_sends(why.code, [](const tcp::outgoing&) { return true; });
  which.fail_receive(why.code, [](const posted&) { return true; });
}

COLLS_ONCE void tcp_transport::end_what_waits_for(int peer, const failure& why) {
  settle_rounds([](const round_operation&) { return true; });
  while (communicator_state* const communicator = waiting_for(peer)) {
    match_.revoke(*communicator, why);
  }
}

COLLS_ONCE communicator_state* tcp_transport::waiting_for(int peer) {
  communicator_state* found = match_.waiting_for(peer);
  links_.at(peer).each_send([&](const tcp::outgoing& send) {
    if (!send.record->communicator->failed()) found = send.record->communicator;
  });
  return found;
}

COLLS_ONCE void tcp_transport::revoked(communicator_state& communicator, const failure& why,
                                       int told_by) {
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
    delivery_.held_go_on(link);
    if (peer == told_by || link.ended() || communicator.rank_of(peer) < 0) return;
    tell_revoked(link, communicator.id(), why);
  });
}

COLLS_ONCE void tcp_transport::tell_revoked(tcp::link& link, std::uint32_t communicator,
                                            const failure& why) {
  tcp::header frame;
  frame.kind = tcp::kind::revoke;
  frame.communicator = communicator;
  frame.length = sizeof(failure);
  link.control(frame, &why);
  link.flush();
}

COLLS_ONCE void tcp_transport::announce(int peer, const operation_record& waiting,
                                        const state_report& known) {
  if (peer == rank()) return;
  tcp::link& link = opener_.to(peer);
  // Until it opens one is enough.
  if (link.ended() || (!link.is_open() && link.has_control())) return;
  link.control(
      tcp::header_for(tcp::kind::announce, announcement(peer, waiting), sizeof known, waiting.hash),
      &known);
  link.flush();
}

COLLS_ONCE void tcp_transport::report(int peer, std::uint32_t communicator,
                                      const state_report& known) {
  tcp::link* const link = links_.known(peer);
  if (link == nullptr || !link->is_open()) return;
  tcp::header frame;
  frame.kind = tcp::kind::report;
  frame.communicator = communicator;
  frame.length = sizeof known;
  link->control(frame, &known);
  link->flush();
}

COLLS_ONCE bool tcp_transport::hear(tcp::link& from, const tcp::header& frame,
                                    const std::byte* payload) {
  state_report said;
  std::memcpy(static_cast<void*>(&said), payload, sizeof said);
  if (match_.hear(from.peer(), frame.communicator, said, now())) return true;
  from.fail(0, "a report on ranks that there cannot be");
  return false;
}

COLLS_ONCE void tcp_transport::dispute(int peer, std::uint32_t communicator, std::uint64_t sequence,
                                       const fingerprint& ours) {
  tcp::header frame;
  frame.kind = tcp::kind::fingerprint;
  frame.communicator = communicator;
  frame.sequence = sequence;
  frame.length = sizeof ours;
  tcp::link& link = opener_.to(peer);
  link.control(frame, &ours);
  link.flush();
}

COLLS_ONCE void tcp_transport::refuse(int peer, const failure& why) {
  tcp::header frame;
  frame.kind = tcp::kind::revoke;
  frame.communicator = why.communicator;
  frame.length = sizeof why;
  tcp::link& link = opener_.to(peer);
  link.control(frame, &why);
  links_.flush_soon(link);
}

COLLS_ONCE void tcp_transport::add_awaited(const operation_record& sending, std::vector<int>& to) {
  // Of an operation that receives, too, the send may have ended.
  const bool sends_alone = sending.what != collective::send_recv;
  if (sending.sends_to >= 0 && sends_alone) return to.push_back(sending.sends_to);
  links_.each([&](int peer, tcp::link& link) {
    bool any = false;
    link.each_send([&](const tcp::outgoing& send) { any |= send.record == &sending; });
    if (any) to.push_back(peer);
  });
}

COLLS_ONCE void tcp_transport::add_senders(const operation_record& receiving,
                                           std::vector<int>& to) {
  links_.each([&](int peer, const tcp::link& link) {
    if (link.fills(receiving)) to.push_back(peer);
  });
}

COLLS_ONCE bool tcp_transport::is_linked(int peer) {
  const tcp::link* const link = links_.known(peer);
  return link != nullptr && link->is_open();
}

COLLS_ONCE std::uint64_t tcp_transport::heard_in(int peer, std::uint32_t communicator) {
  const tcp::link* const link = links_.known(peer);
  return link != nullptr ? link->heard_in(communicator) : 0;
}

COLLS_ONCE bool tcp_transport::is_stopped(int peer) {
  const tcp::link* const link = links_.known(peer);
  return link != nullptr && link->is_open() && link->has_ring() && shm::is_stopped(link->process());
}

}  // namespace colls
