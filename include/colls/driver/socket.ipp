// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// socket.ipp: the functions of socket.hpp that are not inline.

#include <colls/base/compiler.hpp>
#include <colls/driver/socket.hpp>

#include <netinet/tcp.h>

namespace colls::detail {

COLLS_ONCE std::error_code set_congestion(int socket, std::string_view name) {
  const int result = ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                                  static_cast<socklen_t>(name.size()));
  return result != 0 ? last_error() : std::error_code();
}

COLLS_ONCE endpoint socket_endpoint(int fd, decltype(&::getsockname) get_name) {
  endpoint address;
  auto size = static_cast<socklen_t>(address.capacity());
  const bool is_ip =
      get_name(fd, address.data(), &size) == 0 && address.data()->sa_family != AF_UNIX;
  if (!is_ip) return endpoint(boost::asio::ip::address_v4::loopback(), 0);
  address.resize(size);
  return address;
}

COLLS_ONCE std::error_code try_congestion(std::string_view name) {
  for (const auto& family : {boost::asio::ip::tcp::v4(), boost::asio::ip::tcp::v6()}) {
    const descriptor socket = open_socket({family, 0});
    if (socket) return set_congestion(socket.get(), name);
  }
  return {};
}

}  // namespace colls::detail

namespace colls {

COLLS_ONCE stream::stream(engine& executor_engine) : engine_(executor_engine) {
  engine_.add(static_cast<engine::source&>(*this), false);
}

COLLS_ONCE stream::stream(engine& executor_engine, detail::descriptor connected)
    : stream(executor_engine) {
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
  const int enabled = 1;
  // The result is ignored, because the call fails for an AF_UNIX socket. Such a socket does not
  // need TCP_NODELAY, because it never delays small messages.
  (void)::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &enabled, sizeof enabled);
  events_ = 0;
  engine_.watch(socket.get(), 0, *this);
  socket_ = std::move(socket);
}

COLLS_ONCE bool stream::is_ready(short events) const {
  pollfd entry{socket_.get(), events, 0};
  return ::poll(&entry, 1, 0) == 1;
}

COLLS_ONCE void stream::update_events() {
  const std::uint32_t events = (reading_ != nullptr ? static_cast<std::uint32_t>(EPOLLIN) : 0U) |
                               (writing_ != nullptr ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
  if (socket_ && events != events_) {
    events_ = events;
    engine_.rewatch(socket_.get(), events, *this);
  }
}

COLLS_ONCE void stream::ready(std::uint32_t) {
  if (writing_ != nullptr && step<false>(*writing_)) finish(writing_);
  if (reading_ != nullptr && step<true>(*reading_)) finish(reading_);
  if (reading_ == nullptr && writing_ == nullptr && events_ == 0 && socket_) {
    // No operation is in flight, so epoll has reported a hang-up or an error. This function closes
    // the socket, because otherwise epoll would repeat the report endlessly.
    engine_.unwatch(socket_.get(), *this);
    socket_ = {};
  }
  update_events();
}

COLLS_ONCE void stream::sweep(time_point now) {
  if (now < deadline_) return;
  // The thread may not have polled for a long time, so an operation may be able to complete now.
  // Therefore this function tries each operation once more before it reports a timeout.
  const bool may_write = writing_ != nullptr && (!writing_->connecting || is_ready(POLLOUT));
  if (may_write && step<false>(*writing_)) finish(writing_);
  if (reading_ != nullptr && step<true>(*reading_)) finish(reading_);
  finish(reading_, make_error_code(errc::timeout));
  finish(writing_, make_error_code(errc::timeout));
  update_events();
}

COLLS_ONCE std::error_code listener::listen(const endpoint& address) {
  detail::descriptor socket = detail::open_socket(address);
  if (!socket) return detail::last_error();
  const int enabled = 1;
  const bool is_v6 = address.address().is_v6();
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &enabled, sizeof enabled) != 0 ||
      (is_v6 &&
       ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &enabled, sizeof enabled) != 0) ||
      ::bind(socket.get(), address.data(), static_cast<socklen_t>(address.size())) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    return detail::last_error();
  }
  adopt(std::move(socket));
  return {};
}

COLLS_ONCE detail::descriptor listener::accept() {
  return detail::descriptor(
      ::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

}  // namespace colls
