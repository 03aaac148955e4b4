// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// ucx_carrier: the carrier whose pipes go through UCX.

#include <colls/transport/interprocess/carrier/socket_carrier.hpp>
#include <colls/transport/ucx/ucx_pipe.hpp>

#include <cstring>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

namespace colls::ucx::detail {

/// Checks that what UCX may use reaches other processes. Throws `join_failed` if it does not. A
/// second worker stands for another process: UCX does not connect it by memory, because that does
/// not show the end of a process.
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

/// Owns an inbox until a pipe does.
class inbox_owner {
 public:
  explicit inbox_owner(std::shared_ptr<worker> of) : worker_(std::move(of)) {
    std::tie(token_, box_) = worker_->add_inbox();
  }
  inbox_owner(const inbox_owner&) = delete;
  inbox_owner& operator=(const inbox_owner&) = delete;
  ~inbox_owner() {
    if (box_ != nullptr) worker_->remove_inbox(token_);
  }
  std::uint64_t token() const { return token_; }
  inbox* box() const { return box_; }
  void release() { box_ = nullptr; }

 private:
  std::shared_ptr<worker> worker_;
  std::uint64_t token_ = 0;
  inbox* box_ = nullptr;
};

/// The carrier of UCX. It reaches a peer by TCP first: there the two ranks prove who they are, and
/// exchange the addresses of their workers.
class ucx_carrier final : public interprocess::socket_carrier {
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
  /// Says that the peer's end is no longer open alone.
  struct half_open_guard {
    owner& user;
    int peer;
    ~half_open_guard() { user.set_half_open(peer, false); }
  };
  static constexpr std::size_t max_address_bytes = 64 * 1024;
  // After this time a rank leaves its greeting to UCX, which may also refuse to send it at once for
  // other reasons than that it connects.
  static constexpr time_point patience = 100 * milliseconds;

  inline task<> open_pipe(std::unique_ptr<stream> socket, int peer) override;

  std::shared_ptr<worker> worker_;
};

inline task<> ucx_carrier::open_pipe(std::unique_ptr<stream> socket, int peer) {
  // From now on the peer may open its end before this rank does.
  owner_->set_half_open(peer, true);
  const half_open_guard opening{*owner_, peer};
  socket->set_deadline(handshake_deadline());
  inbox_owner own(worker_);
  const introduction said{own.token(), worker_->address().size()};
  std::vector<std::byte> sent(sizeof said + said.size);
  std::memcpy(sent.data(), &said, sizeof said);
  std::memcpy(sent.data() + sizeof said, worker_->address().data(), said.size);
  ++worker_->connecting;  // from now on the peer can connect to the worker
  worker::hold holding(*worker_);
  co_await socket->write({sent.data(), sent.size()});
  introduction remote;
  co_await socket->read({reinterpret_cast<std::byte*>(&remote), sizeof remote});
  if (remote.size == 0 || remote.size > max_address_bytes) {
    colls::detail::raise(errc::protocol_error, "it has sent no address of UCX");
  }
  std::vector<std::byte> address(remote.size);
  co_await socket->read({address.data(), address.size()});
  if (!owner_->is_wanted(peer)) co_return;
  auto made = std::make_unique<ucx_pipe>(engine_, worker_, own.token(), own.box(), remote.token,
                                         world_.cfg.checksum);
  own.release();
  const ucs_status_t status = made->connect(address);
  holding.release();
  if (status != UCS_OK) {
    colls::detail::raise(errc::peer_failed, "UCX does not reach it: %s (UCX_TLS, UCX_NET_DEVICES)",
                         ucs_status_string(status));
  }
  // Both ranks greet when UCX has connected them. Otherwise UCX exchanges messages of its own
  // beforehand, and if the peer dies while UCX 1.13 has one in a queue, it ends this process.
  const time_point began = engine_.now();
  const time_point limit = handshake_deadline();
  for (;;) {
    worker_->progress();
    if (!made->try_greet() && engine_.now() - began > patience) made->queue_greeting();
    if (made->is_connected()) break;
    if (!owner_->is_wanted(peer) || !socket->is_open()) co_return;
    if (made->failure() != UCS_OK || socket->has_input()) {
      colls::detail::raise(errc::unreachable, "UCX has lost the connection: %s",
                           made->failure() != UCS_OK ? ucs_status_string(made->failure())
                                                     : "the peer has closed it");
    }
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
  if (!socket->is_open()) co_return owner_->opened(peer, nullptr);
  colls::detail::descriptor released = socket->release();
  set_options(released.get());
  made->adopt(std::move(released));
  owner_->opened(peer, std::move(made));
}

}  // namespace colls::ucx::detail
