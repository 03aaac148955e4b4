// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How a world begins and ends, and what is seldom: the second half of inproc_transport.hpp.

#include <colls/base/compiler.hpp>
#include <colls/transport/inproc/inproc_transport.hpp>

namespace colls {

COLLS_ONCE inproc_transport::inproc_transport(inproc_world& ranks, int rank)
    : world_(ranks), match_(rank) {
  match_.add(*this);
}

COLLS_ONCE inproc_transport::~inproc_transport() { match_.remove(static_cast<mover&>(*this)); }

COLLS_ONCE void inproc_transport::revoked(communicator_state& communicator, const failure& why,
                                          int) {
  for (send_operation* send = first_sent_; send != nullptr;) {
    send_operation* const following = send->next_sent_;
    if (send->record_.communicator == &communicator) {
      world_[send->to_].match_.forget(*send);
      unhold(*send);
      finish(*send, why.code);
    }
    send = following;
  }
  world_.meetings_.end(communicator, why.code);
  for (int i = 0; i < communicator.size(); ++i) {
    const int peer = communicator.world_rank(i);
    if (peer != rank())
      world_[peer].match_.revoke(communicator.id(), reported_failure(why), rank());
  }
}

COLLS_ONCE void inproc_transport::announce(int peer, const operation_record& waiting,
                                           const state_report& known) {
  match& theirs = world_[peer].match_;
  const std::uint32_t communicator = waiting.communicator->id();
  theirs.inspect(announcement(rank(), waiting), waiting.hash);
  theirs.hear(rank(), communicator, known, now());
  match_.hear(peer, communicator, theirs.report_on(communicator, now()), now());
}

COLLS_ONCE void inproc_transport::report(int peer, std::uint32_t communicator,
                                         const state_report& known) {
  world_[peer].match_.hear(rank(), communicator, known, now());
}

COLLS_ONCE void inproc_transport::add_awaited(const operation_record& waiting,
                                              std::vector<int>& to) {
  for (const send_operation* send = first_sent_; send != nullptr; send = send->next_sent_) {
    if (&send->record_ == &waiting) to.push_back(send->to_);
  }
  const std::vector<int> ranks = world_.meetings_.missing(waiting);
  to.insert(to.end(), ranks.begin(), ranks.end());
}

COLLS_ONCE void inproc_transport::dispute(int peer, std::uint32_t communicator,
                                          std::uint64_t sequence, const fingerprint& ours) {
  world_[peer].match_.compare(rank(), communicator, sequence, ours);
}

COLLS_ONCE void inproc_transport::refuse(int peer, const failure& why) {
  match& theirs = world_[peer].match_;
  if (communicator_state* const same = theirs.find(why.communicator)) {
    theirs.revoke(*same, why, rank());
  }
}

COLLS_ONCE inproc_world::inproc_world(int size) {
  for (int rank = 0; rank < size; ++rank) {
    ranks_.push_back(std::make_unique<inproc_transport>(*this, rank));
    meetings_.add_rank(ranks_.back()->matching());
  }
}

COLLS_ONCE inproc_world::~inproc_world() = default;

COLLS_ONCE void inproc_world::sweep() {
  const time_point time = now();
  for (const auto& rank : ranks_) rank->matching().sweep(time);
}

}  // namespace colls
