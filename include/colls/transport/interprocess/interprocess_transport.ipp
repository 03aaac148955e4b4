// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The member functions of interprocess_transport that are not defined in its class. Among them are
// the functions that handle arriving frames and failures, and `close`, which leaves the world.

#include <colls/base/compiler.hpp>
#include <colls/os/procfs.hpp>
#include <colls/transport/interprocess/interprocess_transport.hpp>

namespace colls {

COLLS_ONCE interprocess_transport::interprocess_transport(std::shared_ptr<engine> driver,
                                                          std::shared_ptr<world_info> info)
    : engine_(std::move(driver)),
      info_(std::move(info)),
      matcher_(info_->rank),
      connections_(*engine_, static_cast<interprocess::connection_owner&>(*this),
                   info_->cfg.checksum),
      windows_(*engine_, *info_, connections_, matcher_),
      connector_(*engine_, *info_, connections_,
                 static_cast<interprocess::connector::owner&>(*this)),
      protocol_(matcher_, connections_, connector_,
                static_cast<interprocess::eager_rendezvous::owner&>(*this)),
      tasks_(*engine_) {
  matcher_.add(static_cast<failure_hooks&>(*this));
  engine_->add(static_cast<engine::source&>(*this));
  if (info_->kv_store != nullptr) {
    info_->kv_store->listen_for_failures(static_cast<failure_listener*>(this));
  }
}

COLLS_ONCE interprocess_transport::~interprocess_transport() {
  if (info_->kv_store != nullptr) info_->kv_store->listen_for_failures(nullptr);
  engine_->remove(static_cast<engine::source&>(*this));
  matcher_.remove(static_cast<failure_hooks&>(*this));
}

COLLS_ONCE network_cost interprocess_transport::costs() const {
  network_cost all = info_->shares_memory() ? hybrid_cost : tcp_cost;
  all.cores = info_->min_node_cores();
  return all;
}

COLLS_ONCE std::shared_ptr<world_info> interprocess_transport::prepare_world(
    int rank, int size, rank_entry& local) const {
  return subworld::prepare(*info_, rank, size, local);
}

COLLS_ONCE std::shared_ptr<interprocess_transport> interprocess_transport::open_world(
    const boost::asio::any_io_executor& executor, std::shared_ptr<world_info> info,
    const std::vector<rank_entry>& entries) const {
  subworld::complete(*info, entries);
  std::shared_ptr<engine> driver = engine::get(executor);
  if (driver != engine_) {
    // A rank with two engines has two threads. One thread may compute while the other thread waits.
    // The new engine may therefore spin only if this machine has two cores for each of its ranks.
    driver->copy_idle_policy(*engine_, 2 * info->ranks_on_machine <= info->cores());
  }
  return std::make_shared<interprocess_transport>(std::move(driver), std::move(info));
}

COLLS_ONCE bool interprocess_transport::poll() {
  // A call that completes a multi_send_recv operation usually returns without polling the other
  // connections. Only every 16th call of this kind also polls them.
  if (!multi_operations_.empty() && poll_multi_operations() && ++multi_only_polls_ % 16 != 0) {
    return true;
  }
  return connections_.poll(matcher_, [this](const auto& add) {
    for (const auto* const operation : multi_operations_) operation->for_each_awaited(add);
  });
}

COLLS_ONCE task<> interprocess_transport::close(time_point deadline) {
  if (!connector_.stop_dialing()) co_return;
  // A frame such as a revoke may be queued on a connection that this rank is still dialling. After
  // `connector_.close()` that connection could no longer open, so the queued frames are written
  // first.
  while (flush_all() && now() < deadline) co_await engine_->sleep_until(now() + milliseconds);
  connector_.close();
  connections_.say_goodbye();
  while (flush_all() && now() < deadline) co_await engine_->sleep_until(now() + milliseconds);
  connections_.shut_writing();
  while (connections_.any_open() && now() < deadline) {
    co_await engine_->sleep_until(now() + milliseconds);
  }
  connections_.shut();
  if (info_->kv_store != nullptr) {
    // The key `left_key(rank())` of the store shows that this rank has left the world. A rank that
    // fails to connect to this rank reads the key, and then does not report this rank as dead.
    try {
      co_await info_->kv_store->set(detail::left_key(rank()), "1",
                                    std::min(deadline, now() + seconds));
    } catch (const error& thrown) {
      log_debug("the store is gone already: %s", thrown.record().detail);
    }
  }
  connector_.close_listeners();
  co_await colls::leave(*info_, deadline);
}

COLLS_ONCE void interprocess_transport::sweep(time_point time) {
  convert_multi_operations(
      [=](multi_send_recv_operation& operation) { return operation.is_due(time); });
  matcher_.sweep(time);
  protocol_.repeat_rts(time);
  if (time - last_silence_check_ < 500 * milliseconds) return;
  last_silence_check_ = time;
  connections_.for_each([&](int, interprocess::connection& conn) {
    if (conn.is_silent(time)) connector_.probe(conn);
  });
}

COLLS_ONCE void interprocess_transport::post_receive_for(const message_key& key) {
  convert_multi_operations(
      [&](const multi_send_recv_operation& operation) { return operation.awaits(key); });
}

COLLS_ONCE bool interprocess_transport::poll_multi_operations() {
  bool any = false;
  for (std::size_t i = 0; i < multi_operations_.size();) {
    multi_send_recv_operation& operation = *multi_operations_[i];
    if (!operation.take()) {
      ++i;
      continue;
    }
    dequeue(operation);
    operation.end();
    any = true;
  }
  return any;
}

COLLS_ONCE bool interprocess_transport::take_next(interprocess::connection& conn) {
  for (multi_send_recv_operation* const operation : multi_operations_) {
    if (!operation->receive_from(conn)) continue;
    if (operation->is_complete()) {
      dequeue(*operation);
      operation->end();
    }
    return true;
  }
  return false;
}

COLLS_ONCE void interprocess_transport::received(interprocess::connection& conn,
                                                 const interprocess::header& frame,
                                                 const std::byte* payload) {
  const message_key key = frame.key(conn.peer());
  switch (frame.kind) {
    case interprocess::kind::data:
      if ((frame.flags & interprocess::flag::rts) != 0) {
        protocol_.receive_rts(conn, frame, key);
      } else {
        protocol_.receive_data(conn, frame, key);
      }
      break;
    case interprocess::kind::cts:
      if ((frame.flags & interprocess::flag::credit) != 0) {
        conn.flow.refill(frame.length);
      } else {
        protocol_.receive_cts(conn, frame, key);
      }
      break;
    case interprocess::kind::announce:
      matcher_.inspect(key, frame.hash);
      if (!receive_report(conn, frame, payload)) return;
      report(conn.peer(), frame.communicator, matcher_.make_report(frame.communicator, now()));
      break;
    case interprocess::kind::report:
      if (!receive_report(conn, frame, payload)) return;
      break;
    case interprocess::kind::fingerprint: {
      fingerprint remote_call;
      std::memcpy(static_cast<void*>(&remote_call), payload, sizeof remote_call);
      matcher_.compare(conn.peer(), frame.communicator, frame.sequence, remote_call);
      break;
    }
    case interprocess::kind::revoke: {
      const failure unexplained(errc::protocol_error, "a peer revoked it without a reason");
      failure reason = reported_failure::parse({payload, sizeof(failure)}, size())
                           .value_or(reported_failure(unexplained));
      if (reason.code == errc::peer_failed && reason.culprit == rank()) {
        // The revoke says that this rank is dead, which is wrong. This rank therefore blames
        // another rank: the rank that observed the failure or, if the revoke names no such rank,
        // the sender of the revoke.
        const failure original = reason;
        const bool names_observer = original.observer >= 0 && original.observer != rank();
        reason.culprit = names_observer ? original.observer : conn.peer();
        reason.address[0] = 0;
        reason.set_detail("it takes this rank for dead: %.250s", original.detail);
      }
      const bool is_of_another = reason.culprit >= 0 && reason.culprit != rank();
      if (reason.code == errc::peer_failed && is_of_another) {
        matcher_.peer_died(reason.culprit, reason, conn.peer());
      } else {
        matcher_.revoke(frame.communicator, reported_failure(reason), conn.peer());
      }
      break;
    }
    case interprocess::kind::goodbye:
      conn.note_goodbye();
      fail_waiting_for(conn.peer(), peer_left_failure(conn.peer()));
      break;
    case interprocess::kind::mapped:
      conn.peer_maps_heap = true;
      conn.peer_reads_memory = (frame.flags & interprocess::flag::cma) != 0;
      break;
  }
  connections_.flush_soon(conn);
}

COLLS_ONCE void interprocess_transport::opened(interprocess::connection& conn) {
  if (conn.uses_shared_memory()) windows_.opened(conn);
  matcher_.for_each_failed(conn.peer(), [&](const communicator_state& communicator) {
    send_revoke(conn, communicator.id(), communicator.reason());
  });
  matcher_.peer_connected(conn.peer(), now());
}

COLLS_ONCE void interprocess_transport::unreachable(interprocess::connection& conn,
                                                    const failure& reason) {
  if (reason.code == errc::closed) {
    conn.note_goodbye();
    fail_waiting_for(conn.peer(), peer_left_failure(conn.peer()));
  } else if (reason.code == errc::peer_failed) {
    matcher_.peer_died(conn.peer(), reason);
  } else {
    fail_waiting_for(conn.peer(), reason);
  }
}

COLLS_ONCE bool interprocess_transport::is_needed(interprocess::connection& conn) {
  bool any = matcher_.communicator_waiting_for(conn.peer()) != nullptr;
  conn.each_send([&](const interprocess::posted_send&) { any = true; });
  return any;
}

COLLS_ONCE void interprocess_transport::heap_received(interprocess::connection& conn,
                                                      detail::descriptor heap) {
  windows_.map_peer_heap(conn, std::move(heap));
}

COLLS_ONCE void interprocess_transport::rank_failed(int peer, const reported_failure& report) {
  const failure& reason = report;
  if (reason.code != errc::peer_failed) {
    matcher_.revoke(reason.communicator, report, rank());
  } else if (peer >= 0 && peer != rank()) {
    matcher_.peer_died(peer, reason, rank());
  }
}

COLLS_ONCE task<> interprocess_transport::report_to_store(failure reason) {
  ++reports_;
  try {
    co_await info_->kv_store->report_failure(reason, now() + seconds);
  } catch (const error& thrown) {
    log_debug("the store is gone: %s", thrown.record().detail);
  }
  --reports_;
}

COLLS_ONCE void interprocess_transport::lost(interprocess::connection& conn,
                                             const failure& reason) {
  if (conn.received_goodbye()) {
    fail_waiting_for(conn.peer(), peer_left_failure(conn.peer()));
  } else if (!connector_.is_closing()) {
    matcher_.peer_died(reason.culprit, reason);  // the culprit is the peer or this rank
  }
  conn.fail_sends(reason.code, [](const interprocess::posted_send&) { return true; });
  conn.fail_receive(reason.code, [](const posted_receive&) { return true; });
}

COLLS_ONCE void interprocess_transport::fail_waiting_for(int peer, const failure& reason) {
  convert_multi_operations([](const multi_send_recv_operation&) { return true; });
  while (communicator_state* const communicator = communicator_waiting_for(peer)) {
    matcher_.revoke(*communicator, reason);
  }
}

COLLS_ONCE communicator_state* interprocess_transport::communicator_waiting_for(int peer) {
  communicator_state* found = matcher_.communicator_waiting_for(peer);
  connections_.get(peer).each_send([&](const interprocess::posted_send& send) {
    if (!send.record->communicator->failed()) found = send.record->communicator;
  });
  return found;
}

COLLS_ONCE void interprocess_transport::revoked(communicator_state& communicator,
                                                const failure& reason, int reporter) {
  if (reporter < 0 && info_->kv_store != nullptr) {
    try {
      tasks_.start(report_to_store(reason));
    } catch (const std::bad_alloc&) {
      log_warn("rank %d has no memory to tell the store why a communicator has failed", rank());
    }
  }
  for (std::size_t i = 0; i < multi_operations_.size();) {
    multi_send_recv_operation& operation = *multi_operations_[i];
    if (!operation.belongs_to(communicator)) {
      ++i;
      continue;
    }
    dequeue(operation);
    operation.fail(reason.code);
  }
  connections_.for_each([&](int peer, interprocess::connection& conn) {
    conn.fail_sends(reason.code, [&](const interprocess::posted_send& send) {
      return send.key.communicator == communicator.id();
    });
    conn.fail_receive(reason.code, [&](const posted_receive& receive) {
      return receive.key.communicator == communicator.id();
    });
    conn.flow.drop_cts(communicator.id());
    protocol_.resume_deferred(conn);
    if (peer == reporter || conn.has_ended() || communicator.rank_of(peer) < 0) return;
    send_revoke(conn, communicator.id(), reason);
  });
}

COLLS_ONCE void interprocess_transport::send_revoke(interprocess::connection& conn,
                                                    std::uint32_t communicator,
                                                    const failure& reason) {
  interprocess::header frame;
  frame.kind = interprocess::kind::revoke;
  frame.communicator = communicator;
  frame.length = sizeof(failure);
  conn.control(frame, &reason);
  conn.flush();
}

COLLS_ONCE void interprocess_transport::announce(int peer, const operation_record& record,
                                                 const state_report& known) {
  if (peer == rank()) return;
  interprocess::connection& conn = connector_.connect(peer);
  // An operation announces itself again and again while it waits. Until the connection opens, the
  // announcements would accumulate in the queue. Therefore no announcement is queued on an unopened
  // connection that already has a queued control frame.
  if (conn.has_ended() || (!conn.is_open() && conn.has_control())) return;
  conn.control(interprocess::make_header(interprocess::kind::announce, announcement(peer, record),
                                         sizeof known, record.hash),
               &known);
  conn.flush();
}

COLLS_ONCE void interprocess_transport::report(int peer, std::uint32_t communicator,
                                               const state_report& known) {
  interprocess::connection* const conn = connections_.find(peer);
  if (conn == nullptr || !conn->is_open()) return;
  interprocess::header frame;
  frame.kind = interprocess::kind::report;
  frame.communicator = communicator;
  frame.length = sizeof known;
  conn->control(frame, &known);
  conn->flush();
}

COLLS_ONCE bool interprocess_transport::receive_report(interprocess::connection& conn,
                                                       const interprocess::header& frame,
                                                       const std::byte* payload) {
  state_report peer_report;
  std::memcpy(static_cast<void*>(&peer_report), payload, sizeof peer_report);
  if (matcher_.receive_report(conn.peer(), frame.communicator, peer_report, now())) return true;
  conn.fail(0, "a report on ranks that do not exist");
  return false;
}

COLLS_ONCE void interprocess_transport::dispute(int peer, std::uint32_t communicator,
                                                std::uint64_t sequence,
                                                const fingerprint& local_call) {
  interprocess::header frame;
  frame.kind = interprocess::kind::fingerprint;
  frame.communicator = communicator;
  frame.sequence = sequence;
  frame.length = sizeof local_call;
  interprocess::connection& conn = connector_.connect(peer);
  conn.control(frame, &local_call);
  conn.flush();
}

COLLS_ONCE void interprocess_transport::refuse(int peer, const failure& reason) {
  interprocess::header frame;
  frame.kind = interprocess::kind::revoke;
  frame.communicator = reason.communicator;
  frame.length = sizeof reason;
  interprocess::connection& conn = connector_.connect(peer);
  conn.control(frame, &reason);
  connections_.flush_soon(conn);
}

COLLS_ONCE void interprocess_transport::add_awaited(const operation_record& record,
                                                    std::vector<int>& ranks) {
  // A send_recv operation in flight may have completed its send already. It therefore does not
  // necessarily wait for the rank `record.destination`.
  const bool only_sends = record.operation != collective::send_recv;
  if (record.destination >= 0 && only_sends) return ranks.push_back(record.destination);
  connections_.for_each([&](int peer, interprocess::connection& conn) {
    bool any = false;
    conn.each_send([&](const interprocess::posted_send& send) { any |= send.record == &record; });
    if (any) ranks.push_back(peer);
  });
}

COLLS_ONCE void interprocess_transport::add_senders(const operation_record& record,
                                                    std::vector<int>& ranks) {
  connections_.for_each([&](int peer, const interprocess::connection& conn) {
    if (conn.is_receiving(record)) ranks.push_back(peer);
  });
}

COLLS_ONCE bool interprocess_transport::is_connected(int peer) {
  const interprocess::connection* const conn = connections_.find(peer);
  return conn != nullptr && conn->is_open();
}

COLLS_ONCE std::uint64_t interprocess_transport::newest_sequence_from(int peer,
                                                                      std::uint32_t communicator) {
  const interprocess::connection* const conn = connections_.find(peer);
  return conn != nullptr ? conn->newest_sequence_in(communicator) : 0;
}

COLLS_ONCE bool interprocess_transport::is_stopped(int peer) {
  const interprocess::connection* const conn = connections_.find(peer);
  return conn != nullptr && conn->is_open() && conn->uses_shared_memory() &&
         detail::is_stopped(conn->peer_process()).value_or(false);
}

}  // namespace colls
