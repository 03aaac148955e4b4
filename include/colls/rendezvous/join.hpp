// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// join: from a launcher's environment (or a config) to the world.

#include <colls/communicator.hpp>
#include <colls/rendezvous/environment.hpp>
#include <colls/rendezvous/meet.hpp>
#include <colls/transport/tcp.hpp>

#include <thread>

namespace colls {

/// The communicator that a launcher created: all ranks of the job.
using world = communicator<tcp_transport>;

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

inline task<world> form(std::shared_ptr<engine> on, config how) {
  const time_point inactivity = how.timeout;
  auto who = std::make_shared<membership>(co_await meet(*on, std::move(how)));
  // A rank that spins while it waits takes the core of one that could work.
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  on->spin(who->local_size <= cores ? 2000 : 0);
  const int rank = who->rank;
  const int size = who->size;
  auto net = std::make_shared<tcp_transport>(std::move(on), std::move(who));
  auto made = std::make_unique<core<tcp_transport>>(std::move(net), 0, rank, size, nullptr, true);
  made->state().inactivity = inactivity;
  co_return world(std::move(made));
}

}  // namespace detail

/// Joins the world that `how` describes: `co_await colls::join(executor, colls::environment())`.
/// Every rank holds the world afterwards, or a `colls::error` that says who or what is missing and
/// what to do, within the one deadline of the config. All further work of the world happens on
/// `executor` (an io_context's, or a strand), which outlives it.
inline operation<world> join(const boost::asio::any_io_executor& executor,
                             config how = environment()) {
  const std::shared_ptr<engine> on = engine::of(executor);
  auto* const made = new detail::join_call(on);
  (void)(made->body = detail::form(on, std::move(how)));
  made->run();
  on->kick();
  return operation<world>(made);
}

}  // namespace colls
