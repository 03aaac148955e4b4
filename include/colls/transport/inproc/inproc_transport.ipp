// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The member functions of inproc_transport and inproc_world that are not called for every message.
// The other member functions are inline in the header.

#include <colls/base/compiler.hpp>
#include <colls/transport/inproc/inproc_transport.hpp>

namespace colls {

COLLS_ONCE inproc_transport::inproc_transport(inproc_world& ranks, int rank)
    : world_(ranks), matcher_(rank) {
  matcher_.add(*this);
}

COLLS_ONCE inproc_transport::~inproc_transport() {
  matcher_.remove(static_cast<failure_hooks&>(*this));
}

COLLS_ONCE void inproc_transport::revoked(communicator_state& communicator, const failure& reason,
                                          int) {
  waiting_sends_.for_each([&](send_operation& send) {
    if (send.record_.communicator != &communicator) return;
    world_[send.dest_].matcher_.remove_unexpected(send);
    remove_waiting(send);
    finish(send, reason.code);
  });
  world_.barriers_.fail(communicator, reason.code);
  for (int i = 0; i < communicator.size(); ++i) {
    const int peer = communicator.world_rank(i);
    if (peer != rank())
      world_[peer].matcher_.revoke(communicator.id(), reported_failure(reason), rank());
  }
}

COLLS_ONCE void inproc_transport::announce(int peer, const operation_record& waiting,
                                           const state_report& state) {
  tag_matcher& peer_matcher = world_[peer].matcher_;
  const std::uint32_t communicator = waiting.communicator->id();
  peer_matcher.inspect(announcement(rank(), waiting), waiting.hash);
  peer_matcher.receive_report(rank(), communicator, state, now());
  matcher_.receive_report(peer, communicator, peer_matcher.make_report(communicator, now()), now());
}

COLLS_ONCE void inproc_transport::report(int peer, std::uint32_t communicator,
                                         const state_report& state) {
  world_[peer].matcher_.receive_report(rank(), communicator, state, now());
}

COLLS_ONCE void inproc_transport::add_awaited(const operation_record& waiting,
                                              std::vector<int>& ranks) {
  waiting_sends_.for_each([&](const send_operation& send) {
    if (&send.record_ == &waiting) ranks.push_back(send.dest_);
  });
  const std::vector<int> missing = world_.barriers_.missing_ranks(waiting);
  ranks.insert(ranks.end(), missing.begin(), missing.end());
}

COLLS_ONCE void inproc_transport::dispute(int peer, std::uint32_t communicator,
                                          std::uint64_t sequence, const fingerprint& local) {
  world_[peer].matcher_.compare(rank(), communicator, sequence, local);
}

COLLS_ONCE void inproc_transport::refuse(int peer, const failure& reason) {
  tag_matcher& peer_matcher = world_[peer].matcher_;
  if (communicator_state* const same = peer_matcher.find(reason.communicator)) {
    peer_matcher.revoke(*same, reason, rank());
  }
}

COLLS_ONCE bool inproc_transport::recover(int peer, std::uint32_t communicator,
                                          std::span<const std::byte> message) {
  return world_[peer].matcher_.receive_recovery(rank(), communicator, message);
}

COLLS_ONCE inproc_world::inproc_world(int size) {
  for (int rank = 0; rank < size; ++rank) {
    ranks_.push_back(std::make_unique<inproc_transport>(*this, rank));
    barriers_.add_rank(ranks_.back()->matching());
  }
}

COLLS_ONCE inproc_world::~inproc_world() = default;

COLLS_ONCE void inproc_world::sweep() {
  const time_point time = now();
  for (const auto& rank : ranks_) rank->matching().sweep(time);
}

}  // namespace colls
