// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How a link opens, wakes and ends: the second half of connection.hpp.

#include <colls/base/compiler.hpp>
#include <colls/transport/interprocess/connection.hpp>

namespace colls::tcp {

COLLS_ONCE void link::open(detail::descriptor socket, std::unique_ptr<shm::ring> shared,
                           bool checks) {
  if (checks && shared == nullptr) {
    out_.add_checksums();
    in_.add_checksums();
  }
  events_ = EPOLLIN;
  engine_.watch(socket.get(), events_, *this);
  socket_ = std::move(socket);
  ring_ = std::move(shared);
  flush();
}

COLLS_ONCE bool link::peer_is_gone() const {
  const int asked = socket_ ? socket_.get() : half_closed_.get();
  if (asked < 0) return hung_up_;
  pollfd now{asked, 0, 0};
  return ::poll(&now, 1, 0) == 1 && (now.revents & POLLHUP) != 0;
}

COLLS_ONCE void link::break_off() {
  ended_ = true;
  shut();
  broken_.post();
}

COLLS_ONCE void link::tell_if_broken() {
  if (!broken_.posted()) return;
  broken_.withdraw();
  broken_.run();
}

COLLS_ONCE bool link::is_silent(time_point now) {
  constexpr time_point longest = 5 * seconds;
  int under_way = 0;
  tcp_info said{};
  socklen_t size = sizeof said;
  const bool waits = is_open() && !ring_ && ::ioctl(socket_.get(), SIOCOUTQ, &under_way) == 0 &&
                     under_way > 0 &&
                     ::getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &said, &size) == 0;
  // What a peer that hears nothing sends again and again is no answer to what it did not hear.
  const bool unanswered = waits && said.tcpi_unacked > 0 && said.tcpi_retransmits > 0;
  if (!unanswered) {
    unanswered_since_ = never;
  } else if (unanswered_since_ == never) {
    unanswered_since_ = now;
  }
  return (waits && said.tcpi_last_ack_recv > longest / milliseconds) ||
         (unanswered && now - unanswered_since_ >= longest);
}

COLLS_ONCE void link::shut() {
  if (!socket_) return;
  engine_.unwatch(socket_.get(), *this);
  // A socket that closes before all was read resets the connection, and what was written is lost.
  if ((is_seen || refused_) && !hung_up_) {
    (void)::shutdown(socket_.get(), SHUT_WR);  // or the peer is gone
    half_closed_ = detail::kept_socket(std::move(socket_));
  }
  socket_ = {};
  out_.end();
}

COLLS_ONCE void link::fail(int system_error, const char* sentence) {
  if (sentence != nullptr) return refuse(sentence);
  ended_ = true;
  hung_up_ = true;
  shut();
  tell_lost(errc::peer_failed, std::strerror(system_error));
}

COLLS_ONCE void link::refuse(const char* sentence) {
  // The link takes words to the peer as yet: those that say why communicators fail.
  char where[120];
  std::snprintf(where, sizeof where, "on the link from rank %d to rank %d: %s", peer_,
                owner_.matching().rank(), sentence);
  tell_lost(errc::protocol_error, where);
  ended_ = true;
  refused_ = true;
  flush();
  shut();
}

COLLS_ONCE void link::tell_lost(errc code, const char* sentence) {
  failure why(code);
  why.culprit = peer_;
  std::snprintf(why.address, sizeof why.address, "%s", address_.c_str());
  why.say("%s", sentence);
  owner_.lost(*this, why);
}

COLLS_ONCE void link::tell_broken() {
  if (out_.is_too_much_unread()) {
    return tell_lost(errc::peer_failed, "it does not read what it is told");
  }
  failure why(errc::peer_failed);
  why.culprit = owner_.matching().rank();
  why.say("rank %d has no memory for messages to others and from them", why.culprit);
  owner_.lost(*this, why);
}

COLLS_ONCE void link::ready(std::uint32_t events) {
  if (ring_) return listen();
  if ((events & static_cast<std::uint32_t>(EPOLLOUT)) != 0) flush();
  if (is_open()) pump();
  if (is_open()) flush();
}

COLLS_ONCE void link::listen() {
  // A peer that writes on and on does not keep this thread: epoll tells again of what is left.
  constexpr int most_reads = 16;
  // What a peer that is gone has left is a ring of slots, and each round of a pump takes one.
  constexpr int most_pumps = static_cast<int>(shm::slots) / 256;
  char bells[256];
  ssize_t got = 1;
  int why = 0;
  for (int reads = 0; got > 0 && reads < most_reads; ++reads) {
    detail::descriptor passed;
    got = detail::take_with_descriptor(socket_.get(), bells, sizeof bells, passed);
    why = got < 0 ? errno : 0;
    // A byte of its own comes with an arena, also where there is no descriptor left for it.
    const bool has_come =
        got > 0 && std::memchr(bells, '+', static_cast<std::size_t>(got)) != nullptr;
    if (passed || has_come) take_arena(std::move(passed));
  }
  errno = why;
  const bool over = got == 0 || (got < 0 && !detail::would_block());
  for (int pumps = over ? most_pumps : 1; pumps > 0 && is_open() && pump_ring();) --pumps;
  if (!is_open() || !over) return;
  if (got == 0) {
    end_of_file();
  } else if (!is_explained_soon()) {
    fail(why);
  }
}

COLLS_ONCE void link::take_arena(detail::descriptor passed) {
  try {
    owner_.lent(*this, std::move(passed));
  } catch (const std::bad_alloc&) {
  }
}

COLLS_ONCE bool link::is_explained_soon() {
  constexpr time_point longest = 100 * milliseconds;
  if (goodbye_received_ || !owner_.has_news()) return false;
  if (end_met_ == never) end_met_ = engine_.now();
  return engine_.now() - end_met_ < longest;
}

COLLS_ONCE void link::end_of_file() {
  if (!goodbye_received_) {
    if (is_explained_soon()) return;
    fail(ECONNRESET);
    return;
  }
  ended_ = true;
  hung_up_ = true;
  shut();
  owner_.lost(*this, failure(errc::closed));
}

}  // namespace colls::tcp
