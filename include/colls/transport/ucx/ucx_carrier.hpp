// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// ucx_carrier: the carrier whose pipes go through UCX.

#include <colls/transport/interprocess/carrier/socket_carrier.hpp>
#include <colls/transport/ucx/ucx_pipe.hpp>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace colls::ucx::detail {

/// Checks that what UCX may use reaches other processes. Throws `join_failed` if it does not. A second
/// worker stands for another process: UCX does not connect it by memory, because that does not show
/// the end of a process.
inline void check_reach(engine& driver, const worker& own) {
  ucs_status_t failure = UCS_OK;
  ucp_ep_h endpoint = nullptr;
  worker other(driver);
  const std::vector<std::byte> address(own.address().begin(), own.address().end());
  const ucs_status_t status = other.make_endpoint(address, failure, endpoint);
  if (status != UCS_OK) {
    colls::detail::raise(errc::join_failed,
                         "UCX %s reaches no other process: %s; UCX_TLS and UCX_NET_DEVICES choose "
                         "what it uses, and `ucx_info -d` lists what there is",
                         version().c_str(), ucs_status_string(status));
  }
  other.close_endpoint(endpoint, false);
}

/// The carrier of UCX. It reaches a peer by TCP first: there the two ranks prove who they are, and
/// exchange the addresses of their workers.
class ucx_carrier final : public ip::socket_carrier {
 public:
  ucx_carrier(engine& driver, world_info& info)
      : socket_carrier(driver, info), worker_(std::make_shared<worker>(driver)) {
    if (info.size > 1) check_reach(driver, *worker_);
  }

 private:
  /// What a rank sends before the address of its worker.
  struct introduction {
    std::uint64_t token = 0;
    std::uint64_t size = 0;  // of the address
  };
  static constexpr std::size_t max_address_bytes = 64 * 1024;

  inline task<> open_pipe(std::unique_ptr<stream> socket, int peer) override;

  std::shared_ptr<worker> worker_;
};

inline task<> ucx_carrier::open_pipe(std::unique_ptr<stream> socket, int peer) {
  socket->set_deadline(handshake_deadline());
  introduction own{worker_->token(), worker_->address().size()};
  std::vector<std::byte> sent(sizeof own + own.size);
  std::memcpy(sent.data(), &own, sizeof own);
  std::memcpy(sent.data() + sizeof own, worker_->address().data(), own.size);
  ++worker_->connecting;  // from now on the peer can connect to the worker
  co_await socket->write({sent.data(), sent.size()});
  introduction remote;
  co_await socket->read({reinterpret_cast<std::byte*>(&remote), sizeof remote});
  if (remote.size == 0 || remote.size > max_address_bytes) {
    colls::detail::raise(errc::protocol_error, "it has sent no address of UCX");
  }
  std::vector<std::byte> address(remote.size);
  co_await socket->read({address.data(), address.size()});
  if (!owner_->is_wanted(peer)) co_return;
  auto made = std::make_unique<ucx_pipe>(engine_, worker_, world_.rank, peer, remote.token,
                                         world_.cfg.checksum);
  const ucs_status_t status = made->connect(address);
  if (status != UCS_OK) {
    colls::detail::raise(errc::peer_failed, "UCX does not reach it: %s (UCX_TLS, UCX_NET_DEVICES)",
                         ucs_status_string(status));
  }
  // The peer greets this rank at the same time.
  const time_point began = engine_.now();
  const time_point limit = handshake_deadline();
  while (!made->is_connected()) {
    if (!owner_->is_wanted(peer)) co_return;
    if (engine_.now() >= limit) {
      colls::detail::raise(errc::timeout, "it does not answer through UCX");
    }
    if (engine_.now() - began < 2 * milliseconds) {
      co_await yield();
    } else {
      co_await engine_.sleep_until(engine_.now() + milliseconds);
    }
  }
  --worker_->connecting;
  colls::detail::descriptor released = socket->release();
  if (!released) co_return owner_->opened(peer, nullptr);
  set_options(released.get());
  made->adopt(std::move(released));
  owner_->opened(peer, std::move(made));
}

}  // namespace colls::ucx::detail
