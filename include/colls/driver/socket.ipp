// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What a socket does: the second half of socket.hpp.

#include <colls/base/compiler.hpp>
#include <colls/driver/socket.hpp>

#include <netinet/tcp.h>

namespace colls::detail {

COLLS_ONCE std::error_code set_congestion(int socket, std::string_view name) {
  const int failed = ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                                  static_cast<socklen_t>(name.size()));
  return failed != 0 ? last_error() : std::error_code();
}

COLLS_ONCE endpoint name_of(int fd, decltype(&::getsockname) ask) {
  endpoint found;
  auto size = static_cast<socklen_t>(found.capacity());
  const bool known = ask(fd, found.data(), &size) == 0 && found.data()->sa_family != AF_UNIX;
  if (!known) return endpoint(boost::asio::ip::address_v4::loopback(), 0);
  found.resize(size);
  return found;
}

COLLS_ONCE std::error_code try_congestion(std::string_view name) {
  for (const auto& family : {boost::asio::ip::tcp::v4(), boost::asio::ip::tcp::v6()}) {
    const descriptor probe = open_socket({family, 0});
    if (probe) return set_congestion(probe.get(), name);
  }
  return {};
}

}  // namespace colls::detail

namespace colls {

COLLS_ONCE stream::stream(engine& on) : engine_(on) {
  engine_.add(static_cast<engine::source&>(*this), false);
}

COLLS_ONCE stream::stream(engine& on, detail::descriptor connected) : stream(on) {
  adopt(std::move(connected));
}

COLLS_ONCE stream::~stream() {
  close();
  engine_.remove(static_cast<engine::source&>(*this));
}

COLLS_ONCE void stream::close() {
  finish(reading_, make_error_code(errc::cancelled));
  finish(writing_, make_error_code(errc::cancelled));
  if (socket_) {
    engine_.unwatch(socket_.get(), *this);
    socket_ = {};
  }
}

COLLS_ONCE void stream::adopt(detail::descriptor socket) {
  const int on = 1;
  // A local socket has no such delay, and no such option.
  (void)::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  events_ = 0;
  engine_.watch(socket.get(), 0, *this);
  socket_ = std::move(socket);
}

COLLS_ONCE bool stream::is_ready(short events) const {
  pollfd now{socket_.get(), events, 0};
  return ::poll(&now, 1, 0) == 1;
}

COLLS_ONCE void stream::interest() {
  const std::uint32_t wanted = (reading_ != nullptr ? static_cast<std::uint32_t>(EPOLLIN) : 0U) |
                               (writing_ != nullptr ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
  if (socket_ && wanted != events_) {
    events_ = wanted;
    engine_.rewatch(socket_.get(), wanted, *this);
  }
}

COLLS_ONCE void stream::ready(std::uint32_t) {
  if (writing_ != nullptr && step<false>(*writing_)) finish(writing_);
  if (reading_ != nullptr && step<true>(*reading_)) finish(reading_);
  if (reading_ == nullptr && writing_ == nullptr && events_ == 0 && socket_) {
    // A hang-up that nobody waits for: epoll would report it without end.
    engine_.unwatch(socket_.get(), *this);
    socket_ = {};
  }
  interest();
}

COLLS_ONCE void stream::sweep(time_point now) {
  if (now < deadline_) return;
  // Who has not been here for long finds what came meanwhile.
  const bool may_write = writing_ != nullptr && (!writing_->connecting || is_ready(POLLOUT));
  if (may_write && step<false>(*writing_)) finish(writing_);
  if (reading_ != nullptr && step<true>(*reading_)) finish(reading_);
  finish(reading_, make_error_code(errc::timeout));
  finish(writing_, make_error_code(errc::timeout));
  interest();
}

COLLS_ONCE std::error_code listener::listen(const endpoint& where) {
  detail::descriptor made = detail::open_socket(where);
  if (!made) return detail::last_error();
  const int on = 1;
  const bool six = where.address().is_v6();
  if (::setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      (six && ::setsockopt(made.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) != 0) ||
      ::bind(made.get(), where.data(), static_cast<socklen_t>(where.size())) != 0 ||
      ::listen(made.get(), SOMAXCONN) != 0) {
    return detail::last_error();
  }
  adopt(std::move(made));
  return {};
}

COLLS_ONCE detail::descriptor listener::accept() {
  return detail::descriptor(
      ::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

COLLS_ONCE task_group::~task_group() {
  while (first_ != nullptr) delete std::exchange(first_, first_->next);
}

COLLS_ONCE void task_group::start(task<> work) {
  auto* const made = new entry(*this, std::move(work));
  made->next = first_;
  if (first_ != nullptr) first_->prev = made;
  first_ = made;
  ++running_;
  if (made->work.start(*made)) remove(made);
}

COLLS_ONCE void task_group::remove(entry* ended) {
  (ended->prev != nullptr ? ended->prev->next : first_) = ended->next;
  if (ended->next != nullptr) ended->next->prev = ended->prev;
  --running_;
  delete ended;
}

}  // namespace colls
