// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The member functions of transport_base that are not defined in its class.

#include <colls/base/compiler.hpp>
#include <colls/transport/interprocess/transport_base.hpp>

namespace colls {

COLLS_ONCE transport_base::transport_base(
    std::shared_ptr<engine> driver, std::shared_ptr<world_info> info,
    std::vector<std::unique_ptr<interprocess::carrier>> carriers)
    : engine_(std::move(driver)),
      info_(std::move(info)),
      matcher_(info_->rank),
      protocol_(*engine_, matcher_, info_->size, std::move(carriers),
                static_cast<interprocess::peer_protocol::owner&>(*this)),
      tasks_(*engine_) {
  engine_->add(static_cast<engine::source&>(*this));
  if (info_->kv_store != nullptr) {
    info_->kv_store->listen_for_failures(static_cast<failure_listener*>(this));
    if (!info_->cfg.launcher.empty()) tasks_.start(watch_waiting());
  }
}

COLLS_ONCE transport_base::~transport_base() {
  if (info_->kv_store != nullptr) info_->kv_store->listen_for_failures(nullptr);
  engine_->remove(static_cast<engine::source&>(*this));
}

COLLS_ONCE bool transport_base::poll() {
  // A call that completes a multi_send_recv operation usually returns without polling the other
  // connections. Only every 16th call of this kind also polls them.
  if (!multi_operations_.empty() && poll_multi_operations() && ++multi_only_polls_ % 16 != 0) {
    return true;
  }
  return protocol_.connections().poll(matcher_, [this](const auto& add) {
    for (const auto* const operation : multi_operations_) operation->for_each_awaited(add);
  });
}

COLLS_ONCE task<> transport_base::close(time_point deadline) {
  interprocess::connection_table& connections = protocol_.connections();
  interprocess::connector& dialer = protocol_.dialer();
  if (!dialer.stop_dialing()) co_return;
  // A frame such as a revoke may be queued on a connection that this rank is still dialling. After
  // `dialer.close()` that connection could no longer open, so the queued frames are written
  // first.
  while (flush_all() && now() < deadline) co_await engine_->sleep_until(now() + milliseconds);
  dialer.close();
  connections.say_goodbye();
  while (flush_all() && now() < deadline) co_await engine_->sleep_until(now() + milliseconds);
  connections.shut_writing();
  while (connections.any_open() && now() < deadline) {
    co_await engine_->sleep_until(now() + milliseconds);
  }
  *has_left_orderly_ = !connections.any_open() && !matcher_.has_failed(0);
  connections.shut();
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
  dialer.close_listeners();
  co_await colls::leave(*info_, deadline);
}

COLLS_ONCE task<> transport_base::watch_waiting() {
  const std::shared_ptr<store> kept = info_->kv_store;
  try {
    for (int number = 1;; ++number) {
      const std::string count = co_await kept->get(detail::waiting_key(number), never - 1);
      waiting_ = static_cast<int>(std::max(detail::parse_number(count, 1 << 20), 0L));
    }
  } catch (const error& thrown) {
    log_debug("the store is gone: %s", thrown.record().detail);
  }
}

COLLS_ONCE task<> transport_base::leave_store(time_point deadline) {
  if (info_->kv_store == nullptr) co_return;
  info_->kv_store->listen_for_failures(nullptr);
  left_store_ = std::exchange(info_->kv_store, nullptr);
  co_await left_store_->leave(deadline);
}

COLLS_ONCE void transport_base::sweep(time_point time) {
  convert_multi_operations(
      [=](multi_send_recv_operation& operation) { return operation.is_due(time); });
  protocol_.sweep(time);
}

COLLS_ONCE void transport_base::post_receive_for(const message_key& key) {
  convert_multi_operations(
      [&](const multi_send_recv_operation& operation) { return operation.awaits(key); });
}

COLLS_ONCE void transport_base::post_all_receives() {
  convert_multi_operations([](const multi_send_recv_operation&) { return true; });
}

COLLS_ONCE bool transport_base::poll_multi_operations() {
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

COLLS_ONCE bool transport_base::take_next(interprocess::connection& conn) {
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

COLLS_ONCE task<bool> transport_base::has_left(int peer) {
  std::string left;
  try {
    const std::vector<std::string> key{detail::left_key(peer)};
    if (info_->kv_store != nullptr) left = co_await info_->kv_store->check(key, now() + seconds);
  } catch (const error&) {
    // The store cannot be reached either, so it gives no better reason.
  }
  co_return left == "1";
}

// Between ranks that share memory a local socket shows each loss.
COLLS_ONCE bool transport_base::proves_losses(const communicator_state& communicator) const {
  if (!info_->shares_memory()) return false;
  for (int i = 1; i < communicator.size(); ++i) {
    if (node_of(communicator.world_rank(i)) != node_of(communicator.world_rank(0))) return false;
  }
  return true;
}

COLLS_ONCE void transport_base::revoked(communicator_state& communicator, const failure& reason,
                                        bool is_first) {
  if (is_first && info_->kv_store != nullptr) {
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
}

COLLS_ONCE void transport_base::excluded(int peer, bool is_excluded) {
  exclude(*info_, peer, is_excluded);
}

COLLS_ONCE void transport_base::rank_failed(int peer, const reported_failure& report) {
  const failure& reason = report;
  if (reason.code != errc::peer_failed || reason.is_suspicion_of_a_rank()) {
    matcher_.revoke(reason.communicator, report, rank());
  } else if (peer >= 0 && peer != rank()) {
    matcher_.peer_died(peer, reason, rank());
  }
}

COLLS_ONCE task<> transport_base::report_to_store(failure reason) {
  ++reports_;
  try {
    co_await info_->kv_store->report_failure(reason, now() + seconds);
  } catch (const error& thrown) {
    log_debug("the store is gone: %s", thrown.record().detail);
  }
  --reports_;
}

}  // namespace colls
