// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// layered_transport: the base class of transports that move their messages through another one.

#include <colls/channel/transport.hpp>

namespace colls {

/// The base class of a transport that moves its messages through a transport of the type `Host`.
template <transport Host>
class layered_transport {
 public:
  explicit layered_transport(std::shared_ptr<Host> host) : host_(std::move(host)) {}

  Host& next_layer() const { return *host_; }

  int rank() const { return host_->rank(); }
  int size() const { return host_->size(); }
  auto send(const message_key& key, const_bytes data, operation_record& record) {
    return host_->send(key, data, record);
  }
  auto recv(const message_key& key, mutable_bytes buffer, operation_record& record) {
    return host_->recv(key, buffer, record);
  }
  time_point now() const { return host_->now(); }
  tag_matcher& matching() const { return host_->matching(); }
  run_queue& queue() const { return host_->queue(); }
  void wake_driver() { host_->wake_driver(); }
  void wake_peers()
    requires waking_transport<Host>
  {
    host_->wake_peers();
  }
  auto& driver() const { return host_->driver(); }
  int node_of(int rank) const { return host_->node_of(rank); }
  task<> close(time_point deadline) { return host_->close(deadline); }

 private:
  std::shared_ptr<Host> host_;
};

}  // namespace colls
