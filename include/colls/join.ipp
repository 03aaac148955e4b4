// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// join: the definitions of the functions in join.hpp.

#include <colls/bootstrap/form_world.hpp>
#include <colls/join.hpp>
#include <colls/transport/interprocess/interprocess_transport.hpp>

namespace colls {

namespace detail {

/// The call object of a `join`. The owner of a call is usually a communicator, but a join has no
/// communicator yet. Therefore this object is its own owner. It makes progress by polling the
/// engine.
class join_call final : public call<world>, call_owner {
 public:
  explicit join_call(std::shared_ptr<engine> driver)
      : call<world>(static_cast<call_owner*>(this), nullptr, driver->queue()),
        driver_(std::move(driver)) {}

 private:
  void call_ended(call_base&) noexcept override {}
  void progress() override { driver_->poll(); }
  void wake_driver() override { driver_->wake_driver(); }

  std::shared_ptr<engine> driver_;
};

COLLS_ONCE task<world> join_body(std::shared_ptr<engine> driver, config cfg) {
  auto info = std::make_shared<world_info>(co_await form_world(*driver, std::move(cfg)));
  // A waiting rank that spins may take the core from a rank that has work to do. A waiting rank
  // that sleeps must be woken by its peers, which delays all ranks. Therefore, if ranks share
  // cores, a waiting rank yields for some time before it sleeps. If every rank has a core of its
  // own, a waiting rank spins before it yields.
  if (info->is_oversubscribed()) {
    driver->spin(0, 10 * milliseconds);
  } else {
    driver->spin(5000, milliseconds / 5);
  }
  const int rank = info->rank;
  const int size = info->size;
  const int local_rank = info->local_rank;
  const time_point inactivity = info->cfg.timeout.count();
  auto net = std::make_shared<interprocess_transport>(std::move(driver), std::move(info));
  auto impl =
      std::make_unique<core<interprocess_transport>>(std::move(net), 0, rank, size, nullptr, true);
  impl->state().inactivity = inactivity;
  impl->set_local_rank(local_rank);
  co_return world(std::move(impl));
}

}  // namespace detail

COLLS_ONCE operation<world> join(const boost::asio::any_io_executor& executor, config cfg) {
  const std::shared_ptr<engine> driver = engine::get(executor);
  auto* const joining = new detail::join_call(driver);
  (void)(joining->body = detail::join_body(driver, std::move(cfg)));
  joining->run();
  driver->wake_driver();
  return operation<world>(joining);
}

}  // namespace colls
