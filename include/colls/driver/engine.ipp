// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// engine.ipp: the functions of engine.hpp that are not called for every message.

#include <colls/base/compiler.hpp>
#include <colls/driver/engine.hpp>

#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>

#include <sys/eventfd.h>

#include <cerrno>
#include <mutex>
#include <new>

namespace colls {

namespace detail {

/// Returns the io_context of an executor, even if the executor is a strand. Returns null if the
/// executor belongs to no io_context.
COLLS_ONCE boost::asio::io_context* io_context_of(const boost::asio::any_io_executor& executor) {
  using boost::asio::any_io_executor;
  using boost::asio::strand;
  using plain = boost::asio::io_context::executor_type;
  using tracked = decltype(boost::asio::require(std::declval<plain>(),
                                                boost::asio::execution::outstanding_work.tracked));
  const auto context_of = [](const auto& target) {
    return &boost::asio::query(target, boost::asio::execution::context);
  };
  if (const auto* target = executor.target<plain>()) return context_of(*target);
  if (const auto* target = executor.target<tracked>()) return context_of(*target);
  if (const auto* target = executor.target<strand<plain>>()) {
    return context_of(target->get_inner_executor());
  }
  if (const auto* target = executor.target<strand<tracked>>()) {
    return context_of(target->get_inner_executor());
  }
  if (const auto* target = executor.target<strand<any_io_executor>>()) {
    return io_context_of(target->get_inner_executor());
  }
  return nullptr;
}

/// Returns whether the executor is that of an io_context itself. The handlers of other executors,
/// such as strands, may run on several threads, one after another.
COLLS_ONCE bool is_io_context(const boost::asio::any_io_executor& executor) {
  using plain = boost::asio::io_context::executor_type;
  using tracked = decltype(boost::asio::require(std::declval<plain>(),
                                                boost::asio::execution::outstanding_work.tracked));
  return executor.target<plain>() != nullptr || executor.target<tracked>() != nullptr;
}

}  // namespace detail

COLLS_ONCE std::shared_ptr<engine> engine::get(const boost::asio::any_io_executor& executor) {
  static std::mutex guard;
  static std::vector<std::pair<boost::asio::any_io_executor, std::weak_ptr<engine>>> engines;
  const std::lock_guard lock(guard);
  std::erase_if(engines, [](const auto& entry) { return entry.second.expired(); });
  for (const auto& [known_executor, known_engine] : engines) {
    if (known_executor == executor) {
      if (auto shared = known_engine.lock()) return shared;
    }
  }
  std::shared_ptr<engine> result(new engine(executor));
  engines.emplace_back(executor, result);
  return result;
}

COLLS_ONCE engine::~engine() {
  if (epoll_stream_.is_open()) epoll_stream_.release();
  detail::fork_guard::remove(epoll_.get());
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

COLLS_ONCE void engine::watch(int descriptor, std::uint32_t events, watcher& handler) {
  detail::fork_guard::add(descriptor);
  ++watched_;
  try {
    arm();
    if (!control(EPOLL_CTL_ADD, descriptor, events, handler)) {
      throw error(errc::too_many_files, "epoll_ctl failed");
    }
  } catch (...) {
    unwatch(descriptor, handler);
    throw;
  }
}

COLLS_ONCE void engine::unwatch(int descriptor, watcher& handler) {
  detail::fork_guard::remove(descriptor);
  // `watch` also calls this function if it could not add the descriptor. In this case epoll_ctl
  // fails. Therefore the result is ignored.
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
  --watched_;
  for (int i = 0; i < in_batch_; ++i) {
    if (batch_[i].data.ptr == &handler) batch_[i].data.ptr = nullptr;
  }
  disarm_if_unused();
}

COLLS_ONCE bool engine::dispatch(int timeout_ms) {
  in_batch_ = ::epoll_wait(epoll_.get(), batch_, batch_size, timeout_ms);
  if (in_batch_ < 0 && (errno == EINVAL || errno == EBADF)) {
    throw error(errc::closed,
                "this process was forked from a rank: the world belongs to its parent");
  }
  for (int i = 0; i < in_batch_; ++i) {
    if (batch_[i].data.ptr != nullptr) {
      static_cast<watcher*>(batch_[i].data.ptr)->ready(batch_[i].events);
    }
  }
  return std::exchange(in_batch_, 0) > 0;
}

COLLS_ONCE void engine::post_poll() {
  if (drivers_ > 0 || poll_posted_) return;
  poll_posted_ = true;
  try {
    boost::asio::post(executor_, [self = weak_from_this()] {
      if (const auto me = self.lock()) {
        me->poll_posted_ = false;
        me->poll_from_executor();
      }
    });
  } catch (const std::bad_alloc&) {
    poll_posted_ = false;  // the next tick polls
  }
}

COLLS_ONCE bool engine::serve() {
  const time_point time = now();
  if (time - last_service_ < milliseconds) return false;
  last_service_ = time;
  bool moved = dispatch(0);
  moved |= queue_.run();
  sweep();
  return moved;
}

COLLS_ONCE engine::engine(const boost::asio::any_io_executor& executor)
    : executor_(executor),
      io_(detail::io_context_of(executor)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      epoll_stream_(executor),
      ticker_(executor) {
  if (!epoll_) throw error(errc::too_many_files, "epoll_create1 failed");
  detail::fork_guard::add(epoll_.get());
  queue_.executor = &executor_;
  queue_.waker = &waker_;
  if (!detail::is_io_context(executor)) queue_.accept_all_threads();
}

COLLS_ONCE void engine::event_waker::prepare() noexcept {
  if (std::exchange(is_prepared_, true)) return;
  detail::descriptor event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (event && owner_.control(EPOLL_CTL_ADD, event.get(), EPOLLIN, *this))
    event_ = std::move(event);
}

COLLS_ONCE void engine::event_waker::wake() noexcept {
  const std::uint64_t one = 1;
  // The result is ignored. The write fails if there is no eventfd, or if the eventfd is readable
  // anyway, because its counter is full.
  [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
}

COLLS_ONCE void engine::event_waker::ready(std::uint32_t) {
  std::uint64_t count = 0;
  // The result is ignored. The caller polls the run queue in any case.
  [[maybe_unused]] const ssize_t taken = ::read(event_.get(), &count, sizeof count);
}

COLLS_ONCE void engine::sweep() {
  const time_point time = now();
  for (std::size_t i = 0; i < timers_.size();) {
    timer* const due = timers_[i];
    if (time >= due->due()) {
      timers_.erase(timers_.begin() + static_cast<std::ptrdiff_t>(i));
      due->expire();
    } else {
      ++i;
    }
  }
  for (std::size_t i = 0; i < sources_.size(); ++i) sources_[i]->sweep(time);
  disarm_if_unused();
}

COLLS_ONCE void engine::poll_from_executor() {
  for (int i = 0; i < 64; ++i) {
    bool moved = dispatch(0);
    for (std::size_t k = 0; k < polled_.size(); ++k) moved |= polled_[k]->poll();
    moved |= queue_.run();
    moved_while_asleep_ |= moved;
    if (!moved && arm_sources()) return wake_driver();
  }
  post_poll();
}

COLLS_ONCE void engine::run_other_handlers() {
  if (io_ == nullptr) return;
  if (io_->stopped()) io_->restart();
  io_->poll();
}

COLLS_ONCE void engine::sleep() {
  if (queue_.is_watching()) {
    const timespec duration{0, max_poll_sleep};
    ::nanosleep(&duration, nullptr);
    run_other_handlers();
    return;
  }
  time_point duration = tick;
  for (const timer* pending : timers_) duration = std::min(duration, pending->due() - now());
  if (duration <= 0) return;
  if (io_ == nullptr) {
    moved_while_asleep_ = dispatch(static_cast<int>((duration + milliseconds - 1) / milliseconds));
    return;
  }
  if (io_->stopped()) io_->restart();
  io_->run_one_for(std::chrono::nanoseconds(duration));
}

COLLS_ONCE void engine::arm() {
  if (!epoll_stream_.is_open()) epoll_stream_.assign(epoll_.get());
  if (!wait_armed_) {
    epoll_stream_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                             [self = weak_from_this()](boost::system::error_code ec) {
                               const auto me = self.lock();
                               if (!me) return;
                               me->wait_armed_ = false;
                               if (!ec) me->poll_from_executor();
                               if (me->used()) me->arm();
                             });
    wait_armed_ = true;
  }
  if (!tick_armed_) {
    ticker_.expires_after(std::chrono::nanoseconds(tick));
    ticker_.async_wait([self = weak_from_this()](boost::system::error_code ec) {
      const auto me = self.lock();
      if (!me) return;
      me->tick_armed_ = false;
      if (!ec && me->drivers_ == 0) {
        me->poll_from_executor();
        me->sweep();
        me->wake_driver();
      }
      if (me->used()) me->arm();
    });
    tick_armed_ = true;
  }
}

COLLS_ONCE void engine::disarm_if_unused() {
  if (used() || !epoll_stream_.is_open()) return;
  epoll_stream_.cancel();
  ticker_.cancel();
}

}  // namespace colls
