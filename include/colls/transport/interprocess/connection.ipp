// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of connection.hpp: the member functions that open, wake and end a connection.

#include <colls/base/compiler.hpp>
#include <colls/transport/interprocess/connection.hpp>

namespace colls::interprocess {

COLLS_ONCE void connection::open(detail::descriptor socket, std::unique_ptr<shm::ring_buffer> ring,
                                 bool checks) {
  if (checks && ring == nullptr) {
    send_queue_.add_checksums();
    in_.add_checksums();
  }
  events_ = EPOLLIN;
  engine_.watch(socket.get(), events_, *this);
  socket_ = std::move(socket);
  ring_ = std::move(ring);
  flush();
}

COLLS_ONCE bool connection::has_peer_exited() const {
  const int socket = socket_ ? socket_.get() : half_closed_socket_.get();
  if (socket < 0) return peer_closed_;
  pollfd state{socket, 0, 0};
  return ::poll(&state, 1, 0) == 1 && (state.revents & POLLHUP) != 0;
}

COLLS_ONCE void connection::abort() {
  ended_ = true;
  shut();
  abort_report_.post();
}

COLLS_ONCE void connection::report_if_aborted() {
  if (!abort_report_.posted()) return;
  abort_report_.withdraw();
  abort_report_.run();
}

COLLS_ONCE bool connection::is_silent(time_point now) {
  constexpr time_point limit = 5 * seconds;
  int unsent = 0;
  tcp_info info{};
  socklen_t size = sizeof info;
  const bool waits = is_open() && !ring_ && ::ioctl(socket_.get(), SIOCOUTQ, &unsent) == 0 &&
                     unsent > 0 &&
                     ::getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0;
  // The time of the last ACK does not suffice to detect a silent peer. A peer that receives nothing
  // may still retransmit its own data. The kernel counts these segments as ACKs, although they
  // acknowledge no new data of this rank. This function therefore also checks retransmissions.
  const bool unanswered = waits && info.tcpi_unacked > 0 && info.tcpi_retransmits > 0;
  if (!unanswered) {
    unanswered_since_ = never;
  } else if (unanswered_since_ == never) {
    unanswered_since_ = now;
  }
  return (waits && info.tcpi_last_ack_recv > limit / milliseconds) ||
         (unanswered && now - unanswered_since_ >= limit);
}

COLLS_ONCE void connection::shut() {
  if (!socket_) return;
  engine_.unwatch(socket_.get(), *this);
  // In two cases, this rank closes only its sending direction of the socket. If the peer maps this
  // rank's heap, this rank needs the socket to see when the peer exits. If this rank has received
  // an invalid frame, the socket may hold unread data. Closing the socket would then reset the
  // connection, and the peer would lose frames that this rank has sent.
  if ((peer_maps_heap || refused_) && !peer_closed_) {
    (void)::shutdown(socket_.get(), SHUT_WR);  // fails if the peer is gone
    half_closed_socket_ = detail::fork_guarded_socket(std::move(socket_));
  }
  socket_ = {};
  send_queue_.end();
}

COLLS_ONCE void connection::fail(int system_error, const char* fault) {
  if (fault != nullptr) return refuse(fault);
  ended_ = true;
  peer_closed_ = true;
  shut();
  report_lost(errc::peer_failed, std::strerror(system_error));
}

COLLS_ONCE void connection::refuse(const char* fault) {
  // `report_lost` must come before the last flush. The owner responds to the report by queuing
  // frames that tell the peer why communicators fail, and the last flush writes these frames.
  char message[120];
  std::snprintf(message, sizeof message, "on the connection from rank %d to rank %d: %s", peer_,
                owner_.matching().rank(), fault);
  report_lost(errc::protocol_error, message);
  ended_ = true;
  refused_ = true;
  flush();
  shut();
}

COLLS_ONCE void connection::report_lost(errc code, const char* message) {
  failure reason(code);
  reason.culprit = peer_;
  std::snprintf(reason.address, sizeof reason.address, "%s", address_.c_str());
  reason.set_detail("%s", message);
  owner_.lost(*this, reason);
}

COLLS_ONCE void connection::report_abort() {
  if (send_queue_.is_too_much_unread()) {
    return report_lost(errc::peer_failed, "it does not read what it is sent");
  }
  failure reason(errc::peer_failed);
  reason.culprit = owner_.matching().rank();
  reason.set_detail("rank %d has no memory for messages to others and from them", reason.culprit);
  owner_.lost(*this, reason);
}

COLLS_ONCE void connection::ready(std::uint32_t events) {
  if (ring_) return read_wakeups();
  if ((events & static_cast<std::uint32_t>(EPOLLOUT)) != 0) flush();
  if (is_open()) pump();
  if (is_open()) flush();
}

COLLS_ONCE void connection::read_wakeups() {
  // The number of reads is limited, so that a peer that writes without pause cannot keep this
  // thread in the loop. If bytes remain in the socket, epoll reports them again.
  constexpr int max_reads = 16;
  // Once the peer no longer writes, `max_pumps` calls of `pump_ring_buffer` empty the ring buffer.
  // The ring buffer has `shm::slots` slots, and one call reads up to 256 of them.
  constexpr int max_pumps = static_cast<int>(shm::slots) / 256;
  char bytes[256];
  ssize_t got = 1;
  int system_error = 0;
  for (int reads = 0; got > 0 && reads < max_reads; ++reads) {
    detail::descriptor passed;
    got = detail::receive_bytes_with_descriptor(socket_.get(), bytes, sizeof bytes, passed);
    system_error = got < 0 ? errno : 0;
    // The peer sends the byte '+' together with the descriptor of its shared heap. If this process
    // has reached its limit on open files, the byte arrives without the descriptor.
    const bool is_announced =
        got > 0 && std::memchr(bytes, '+', static_cast<std::size_t>(got)) != nullptr;
    if (passed || is_announced) receive_peer_heap(std::move(passed));
  }
  errno = system_error;
  const bool over = got == 0 || (got < 0 && !detail::would_block());
  for (int pumps = over ? max_pumps : 1; pumps > 0 && is_open() && pump_ring_buffer();) --pumps;
  if (!is_open() || !over) return;
  if (got == 0) {
    handle_end_of_file();
  } else if (!awaits_explanation()) {
    fail(system_error);
  }
}

COLLS_ONCE void connection::receive_peer_heap(detail::descriptor heap) {
  try {
    owner_.heap_received(*this, std::move(heap));
  } catch (const std::bad_alloc&) {
  }
}

COLLS_ONCE bool connection::awaits_explanation() {
  constexpr time_point limit = 100 * milliseconds;
  if (goodbye_received_ || !owner_.has_unread_failures()) return false;
  if (end_seen_ == never) end_seen_ = engine_.now();
  return engine_.now() - end_seen_ < limit;
}

COLLS_ONCE void connection::handle_end_of_file() {
  if (!goodbye_received_) {
    if (awaits_explanation()) return;
    fail(ECONNRESET);
    return;
  }
  ended_ = true;
  peer_closed_ = true;
  shut();
  owner_.lost(*this, failure(errc::closed));
}

}  // namespace colls::interprocess
