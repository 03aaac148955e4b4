// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What a join does: the second half of join.hpp.

#include <colls/bootstrap/form_world.hpp>
#include <colls/join.hpp>
#include <colls/transport/interprocess/interprocess_transport.hpp>

namespace colls {

namespace detail {

/// A join under way: a call that belongs to no communicator.
class join_call final : public call<world>, call_owner {
 public:
  explicit join_call(std::shared_ptr<engine> on)
      : call<world>(static_cast<call_owner*>(this), nullptr, on->queue()), engine_(std::move(on)) {}

 private:
  void ended(call_base&) noexcept override {}
  void progress() override { engine_->poll(); }
  void kick() override { engine_->kick(); }

  std::shared_ptr<engine> engine_;
};

COLLS_ONCE task<world> form(std::shared_ptr<engine> on, config how) {
  auto who = std::make_shared<membership>(co_await meet(*on, std::move(how)));
  // A rank that spins while it waits takes the core of one that could work. Where one sleeps, those
  // who write to it have to wake it, and all others wait for that: so none does for some time.
  if (who->shares_cores()) {
    on->spin(0, 10 * milliseconds);
  } else {
    on->spin(5000, milliseconds / 5);
  }
  const int rank = who->rank;
  const int size = who->size;
  const int local_rank = who->local_rank;
  const time_point inactivity = who->cfg.timeout.count();
  auto net = std::make_shared<tcp_transport>(std::move(on), std::move(who));
  auto made = std::make_unique<core<tcp_transport>>(std::move(net), 0, rank, size, nullptr, true);
  made->state().inactivity = inactivity;
  made->local_rank(local_rank);
  co_return world(std::move(made));
}

}  // namespace detail

COLLS_ONCE operation<world> join(const boost::asio::any_io_executor& executor, config how) {
  const std::shared_ptr<engine> on = engine::of(executor);
  auto* const made = new detail::join_call(on);
  (void)(made->body = detail::form(on, std::move(how)));
  made->run();
  on->kick();
  return operation<world>(made);
}

}  // namespace colls
