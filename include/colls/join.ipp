// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// join: the definition of the function in join.hpp.

#include <colls/bootstrap/form_world.hpp>
#include <colls/bootstrap/repair.hpp>
#include <colls/call/repair_calls.hpp>
#include <colls/call/split.hpp>
#include <colls/join.hpp>
#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/interprocess_transport.hpp>
#endif

namespace colls {

namespace detail {

/// The call object of a `join`. The owner of a call is usually a communicator, but a join has no
/// communicator yet. Therefore this object is its own owner. It makes progress by polling the
/// engine.
template <class Communicator>
class join_call final : public call<Communicator>, call_owner {
 public:
  explicit join_call(std::shared_ptr<engine> driver)
      : call<Communicator>(static_cast<call_owner*>(this), nullptr, driver->queue()),
        driver_(std::move(driver)) {}

 private:
  void call_ended(call_base&) noexcept override {}
  void progress() override { driver_->poll(); }
  void wake_driver() override { driver_->wake_driver(); }

  std::shared_ptr<engine> driver_;
};

/// Returns the name of a transport, or null for that of colls, which `config::transport` describes.
template <class Transport>
constexpr const char* transport_name() {
  if constexpr (std::is_same_v<Transport, interprocess_transport>) {
    return nullptr;
  } else {
    static_assert(is_transport_name(Transport::name),
                  "colls: the name of a transport has 1 to 31 printable characters without spaces, "
                  "and is not hybrid, tcp or shm");
    return Transport::name;
  }
}

/// Makes the transport of this rank. If that fails, tells the other ranks why.
template <class Transport>
task<std::shared_ptr<Transport>> make_transport(std::shared_ptr<engine> driver,
                                                std::shared_ptr<world_info> info) {
  const exchange_guard closes_exchange(info);
  failure reason(errc::join_failed);
  auto making = Transport::make(driver, info);
  try {
    co_return co_await making;
  } catch (...) {
    reason = failure_of(std::current_exception());
  }
  if (reason.code == errc::user_op_failed) reason.code = errc::join_failed;
  const failure cause = reason;
  reason.set_detail("rank %d has no transport: %.280s", info->rank,
                    cause.detail[0] != 0 ? cause.detail : "its `make` has thrown");
  if (reason.observer < 0) reason.observer = info->rank;
  co_await abandon(*info, reason, driver->now() + seconds);
  throw error(reason);
}

/// What a process has when it has joined a world.
template <class Transport>
struct joined_world {
  std::shared_ptr<world_info> info;
  std::shared_ptr<Transport> net;
  std::string admission;  // what the other ranks tell a replacement
};

template <class Transport>
task<joined_world<Transport>> join_once(std::shared_ptr<engine> driver, config cfg, int attempt) {
  auto forming = form_world(*driver, std::move(cfg), transport_name<Transport>(), attempt);
  joined_world<Transport> result;
  result.info = std::make_shared<world_info>(co_await forming);
  // A waiting rank that spins may take the core from a rank that has work to do. A waiting rank
  // that sleeps must be woken by its peers, which delays all ranks. Therefore, if ranks share
  // cores, a waiting rank yields for some time before it sleeps. If every rank has a core of its
  // own, a waiting rank spins before it yields.
  if (result.info->is_oversubscribed()) {
    driver->spin(0, 10 * milliseconds);
  } else {
    driver->spin(5000, milliseconds / 5);
  }
  auto making = make_transport<Transport>(std::move(driver), result.info);
  result.net = co_await making;
  if (result.info->cfg.replacement > 0) {
    auto admitting = result.info->read_admission();
    result.admission = co_await admitting;
  }
  co_return std::move(result);  // nvcc does not move a local variable implicitly
}

/// Returns whether a replacement that could not join with this error waits for its next place. It
/// does so if another rank may have failed, because the others then repair the world once more.
inline bool waits_again(errc code) {
  return code == errc::peer_failed || code == errc::join_failed || code == errc::join_timeout ||
         code == errc::timeout || code == errc::closed || code == errc::revoked ||
         code == errc::unreachable;
}

/// Joins a world as a replacement, in the first of its places whose world forms.
template <class Transport>
task<joined_world<Transport>> join_as_replacement(std::shared_ptr<engine> driver, config cfg) {
  for (int attempt = 1;; ++attempt) {
    auto joining = join_once<Transport>(driver, cfg, attempt);
    failure problem;
    try {
      co_return co_await joining;
    } catch (const error& thrown) {
      problem = thrown.record();
    }
    // The launcher itself is not there.
    const bool is_final = problem.code == errc::unreachable && attempt == 1;
    if (is_final || !waits_again(problem.code) || attempt == max_places) throw error(problem);
    log_info("replacement %d has lost its place: %s", cfg.replacement, problem.detail);
  }
}

template <class Transport>
task<communicator<Transport>> join_body(std::shared_ptr<engine> driver, config opts) {
  const config cfg = complete_from_environment(opts);
  auto joining = cfg.replacement > 0 ? join_as_replacement<Transport>(driver, cfg)
                                     : join_once<Transport>(driver, cfg, 1);
  joined_world<Transport> joined = co_await joining;
  const world_info& info = *joined.info;
  auto impl = std::make_unique<core<Transport>>(joined.net, 0, info.rank, info.size, nullptr, true);
  impl->state().inactivity = info.cfg.timeout.count();
  impl->set_local_rank(info.local_rank);
  if (info.cfg.replacement == 0) co_return communicator<Transport>(std::move(impl));
  admission::parse(joined.admission, info.size).apply_to(*impl);
  communicator<Transport> world(std::move(impl));
  auto meeting = world.barrier();
  try {
    co_await meeting;
  } catch (const error& thrown) {
    // The world has failed, as its next call tells, and its ranks repair it.
    log_debug("the world after a repair: %s", thrown.what());
  }
  co_return std::move(world);  // nvcc does not move a local variable implicitly
}

}  // namespace detail

template <class Transport>
operation<communicator<Transport>> join(const boost::asio::any_io_executor& executor, config cfg) {
  static_assert(world_transport<Transport>,
                "colls: join needs a transport with a name and with `static "
                "task<std::shared_ptr<Transport>> make(std::shared_ptr<engine>, "
                "std::shared_ptr<world_info>)`");
  const std::shared_ptr<engine> driver = engine::get(executor);
  auto* const joining = new detail::join_call<communicator<Transport>>(driver);
  (void)(joining->body = detail::join_body<Transport>(driver, std::move(cfg)));
  joining->run();
  driver->wake_driver();
  return operation<communicator<Transport>>(joining);
}

}  // namespace colls
