// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What needs no haste: the second half of engine.hpp.

#include <colls/base/compiler.hpp>
#include <colls/driver/engine.hpp>

#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>

#include <cerrno>
#include <mutex>
#include <new>

namespace colls {

namespace detail {

/// The io_context whose threads run what is posted there; null: another execution context's do.
COLLS_ONCE boost::asio::io_context* io_context_of(const boost::asio::any_io_executor& executor) {
  using boost::asio::any_io_executor;
  using boost::asio::strand;
  using plain = boost::asio::io_context::executor_type;
  using tracked = decltype(boost::asio::require(std::declval<plain>(),
                                                boost::asio::execution::outstanding_work.tracked));
  const auto context_of = [](const auto& found) {
    return &boost::asio::query(found, boost::asio::execution::context);
  };
  if (const auto* found = executor.target<plain>()) return context_of(*found);
  if (const auto* found = executor.target<tracked>()) return context_of(*found);
  if (const auto* found = executor.target<strand<plain>>()) {
    return context_of(found->get_inner_executor());
  }
  if (const auto* found = executor.target<strand<any_io_executor>>()) {
    return io_context_of(found->get_inner_executor());
  }
  return nullptr;
}

}  // namespace detail

COLLS_ONCE std::shared_ptr<engine> engine::of(const boost::asio::any_io_executor& executor) {
  static std::mutex guard;
  static std::vector<std::pair<boost::asio::any_io_executor, std::weak_ptr<engine>>> all;
  const std::lock_guard lock(guard);
  std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
  for (const auto& [known, made] : all) {
    if (known == executor) {
      if (auto shared = made.lock()) return shared;
    }
  }
  std::shared_ptr<engine> made(new engine(executor));
  all.emplace_back(executor, made);
  return made;
}

COLLS_ONCE engine::~engine() {
  if (standing_.is_open()) standing_.release();
  detail::kept_from_children::remove(epoll_.get());
}

COLLS_ONCE void engine::add(source& transport, bool polled) {
  try {
    sources_.push_back(&transport);
    if (polled) polled_.push_back(&transport);
    arm();
  } catch (...) {
    remove(transport);
    throw;
  }
}

COLLS_ONCE void engine::remove(source& transport) {
  std::erase(sources_, &transport);
  std::erase(polled_, &transport);
  disarm_if_unused();
}

COLLS_ONCE void engine::watch(int descriptor, std::uint32_t events, watcher& who) {
  detail::kept_from_children::add(descriptor);
  ++watched_;
  try {
    arm();
    if (!control(EPOLL_CTL_ADD, descriptor, events, who)) {
      throw error(errc::too_many_files, "epoll_ctl failed");
    }
  } catch (...) {
    unwatch(descriptor, who);
    throw;
  }
}

COLLS_ONCE void engine::unwatch(int descriptor, watcher& who) {
  detail::kept_from_children::remove(descriptor);
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr);  // or it never was watched
  --watched_;
  for (int i = 0; i < in_batch_; ++i) {
    if (batch_[i].data.ptr == &who) batch_[i].data.ptr = nullptr;
  }
  disarm_if_unused();
}

COLLS_ONCE bool engine::dispatch(int timeout_ms) {
  in_batch_ = ::epoll_wait(epoll_.get(), batch_, batch_size, timeout_ms);
  if (in_batch_ < 0 && (errno == EINVAL || errno == EBADF)) {
    throw error(errc::closed, "this process was forked off a rank: the world is its parent's");
  }
  for (int i = 0; i < in_batch_; ++i) {
    if (batch_[i].data.ptr != nullptr) {
      static_cast<watcher*>(batch_[i].data.ptr)->ready(batch_[i].events);
    }
  }
  return std::exchange(in_batch_, 0) > 0;
}

COLLS_ONCE void engine::turn_soon() {
  if (driven_ > 0 || kicked_) return;
  kicked_ = true;
  try {
    boost::asio::post(executor_, [self = weak_from_this()] {
      if (const auto me = self.lock()) {
        me->kicked_ = false;
        me->turn();
      }
    });
  } catch (const std::bad_alloc&) {
    kicked_ = false;  // the next tick turns it
  }
}

COLLS_ONCE bool engine::serve() {
  const time_point time = now();
  if (time - served_ < milliseconds) return false;
  served_ = time;
  bool moved = dispatch(0);
  moved |= queue_.run();
  sweep();
  return moved;
}

COLLS_ONCE engine::engine(const boost::asio::any_io_executor& executor)
    : executor_(executor),
      io_(detail::io_context_of(executor)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      standing_(executor),
      ticker_(executor) {
  if (!epoll_) throw error(errc::too_many_files, "epoll_create1 failed");
  detail::kept_from_children::add(epoll_.get());
  queue_.executor = &executor_;
}

COLLS_ONCE void engine::sweep() {
  const time_point time = now();
  for (std::size_t i = 0; i < timers_.size();) {
    timer* const due = timers_[i];
    if (time >= due->due_) {
      timers_.erase(timers_.begin() + static_cast<std::ptrdiff_t>(i));
      due->done_->post();
    } else {
      ++i;
    }
  }
  for (std::size_t i = 0; i < sources_.size(); ++i) sources_[i]->sweep(time);
  disarm_if_unused();
}

COLLS_ONCE bool engine::pending() const {
  bool any = !timers_.empty();
  for (const source* transport : sources_) any |= transport->pending();
  return any;
}

COLLS_ONCE void engine::turn() {
  for (int round = 0; round < 64; ++round) {
    bool moved = dispatch(0);
    for (std::size_t i = 0; i < polled_.size(); ++i) moved |= polled_[i]->poll();
    moved |= queue_.run();
    moved_asleep_ |= moved;
    if (!moved && arm_sources()) return kick();
  }
  turn_soon();
}

COLLS_ONCE void engine::run_others() {
  if (io_ == nullptr) return;
  if (io_->stopped()) io_->restart();
  io_->poll();
}

COLLS_ONCE void engine::sleep() {
  if (queue_.is_watching()) {
    const timespec nap{0, watched_nap};
    ::nanosleep(&nap, nullptr);
    run_others();
    return;
  }
  time_point nap = tick;
  for (const timer* waiting : timers_) nap = std::min(nap, waiting->due_ - now());
  if (nap <= 0) return;
  if (io_ == nullptr) {
    moved_asleep_ = dispatch(static_cast<int>((nap + milliseconds - 1) / milliseconds));
    return;
  }
  if (io_->stopped()) io_->restart();
  io_->run_one_for(std::chrono::nanoseconds(nap));
}

COLLS_ONCE void engine::arm() {
  if (!standing_.is_open()) standing_.assign(epoll_.get());
  if (!waiting_) {
    standing_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                         [self = weak_from_this()](boost::system::error_code ec) {
                           const auto me = self.lock();
                           if (!me) return;
                           me->waiting_ = false;
                           if (!ec) me->turn();
                           if (me->used()) me->arm();
                         });
    waiting_ = true;
  }
  if (!ticking_) {
    ticker_.expires_after(std::chrono::nanoseconds(tick));
    ticker_.async_wait([self = weak_from_this()](boost::system::error_code ec) {
      const auto me = self.lock();
      if (!me) return;
      me->ticking_ = false;
      if (!ec && me->driven_ == 0) {
        me->turn();
        me->sweep();
        me->kick();
      }
      if (me->used()) me->arm();
    });
    ticking_ = true;
  }
}

COLLS_ONCE void engine::disarm_if_unused() {
  if (used() || !standing_.is_open()) return;
  standing_.cancel();
  ticker_.cancel();
}

}  // namespace colls
