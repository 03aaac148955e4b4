// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of connection.hpp: the member functions that open, wake and end a connection.

#include <colls/base/compiler.hpp>
#include <colls/transport/interprocess/connection.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace colls::interprocess {

COLLS_ONCE void connection::open(std::unique_ptr<pipe> opened) {
  opened->attach(*this, send_queue_, target_);
  pipe_ = pipe_pointer(std::move(opened));
  is_open_ = true;
  flush();
}

COLLS_ONCE void connection::abort(const char* fault) {
  ended_ = true;
  fault_ = fault;
  shut();
  abort_report_.post();
}

COLLS_ONCE void connection::report_if_aborted() {
  if (!abort_report_.posted()) return;
  abort_report_.withdraw();
  abort_report_.run();
}

COLLS_ONCE void connection::shut() {
  if (!std::exchange(is_open_, false)) return;
  // In two cases, the pipe must outlive the connection. If the peer maps this rank's heap, this
  // rank needs to see when the peer exits. If this rank has received an invalid frame, the peer
  // must be able to read why.
  pipe_->close((peer_maps_heap || refused_) && !peer_closed_);
  send_queue_.end();
}

COLLS_ONCE void connection::fail(int system_error, const char* fault) {
  if (fault != nullptr) return refuse(fault);
  ended_ = true;
  peer_closed_ = true;
  // Ranks that share memory are connected by a local socket, which the kernel closes when the
  // process of the peer has ended.
  const bool proved = is_open_ && pipe_->properties().shares_memory;
  shut();
  report_lost(errc::peer_failed, std::strerror(system_error), proved);
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

COLLS_ONCE void connection::report_lost(errc code, const char* message, bool proved) {
  failure reason(code);
  reason.proved = proved;
  reason.culprit = peer_;
  std::snprintf(reason.address, sizeof reason.address, "%s", address_.c_str());
  reason.set_detail("%s", message);
  owner_.lost(*this, reason);
}

COLLS_ONCE void connection::report_abort() {
  if (send_queue_.is_too_much_unread()) {
    return report_lost(errc::peer_failed, "it does not read what it is sent");
  }
  if (fault_ != nullptr) return report_lost(errc::peer_failed, fault_);
  failure reason(errc::peer_failed);
  reason.culprit = owner_.matching().rank();
  reason.set_detail("rank %d has no memory for messages to others and from them", reason.culprit);
  owner_.lost(*this, reason);
}

COLLS_ONCE void connection::heap_received(detail::descriptor heap) {
  try {
    owner_.heap_received(*this, std::move(heap));
  } catch (const std::bad_alloc&) {
  }
}

COLLS_ONCE bool connection::awaits_explanation() {
  constexpr time_point limit = 100 * milliseconds;
  if (goodbye_received_ || !owner_.has_unread_failures()) return false;
  if (end_seen_ == never) end_seen_ = scheduler_.now();
  return scheduler_.now() - end_seen_ < limit;
}

COLLS_ONCE void connection::ended(int system_error) {
  if (goodbye_received_ && system_error == 0) {
    ended_ = true;
    peer_closed_ = true;
    shut();
    owner_.lost(*this, failure(errc::closed));
  } else if (!awaits_explanation()) {
    fail(system_error != 0 ? system_error : ECONNRESET);
  }
}

}  // namespace colls::interprocess
