// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// links: the links of one rank, by peer, and the turn of each.

#include <colls/transport/interprocess/connection.hpp>

#include <algorithm>
#include <bit>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace colls::tcp {

/// A link stays where it is, whether it is open or not, until all of them go.
class links {
 public:
  /// `checks`: frames through sockets have checksums.
  links(engine& on, link_owner& owner, bool checks = false)
      : engine_(on), owner_(owner), checks_(checks) {}

  /// Made, not opened, if it is not there yet.
  link& at(int peer) {
    if (last_used_ != nullptr && last_used_->peer() == peer) return *last_used_;
    auto found = all_.find(peer);
    if (found == all_.end()) {
      to_flush_.reserve(all_.size() + 1);  // who withdraws a message asks for no memory
      found = all_.emplace(peer, std::make_unique<link>(engine_, owner_, peer)).first;
    }
    last_used_ = found->second.get();
    return *last_used_;
  }
  /// Null: there is none.
  link* known(int peer) {
    if (last_used_ != nullptr && last_used_->peer() == peer) return last_used_;
    const auto found = all_.find(peer);
    return found == all_.end() ? nullptr : found->second.get();
  }
  /// Opens the link from a rank to itself: `out` and another end.
  void open_to_self(link& out, detail::descriptor first, detail::descriptor other);
  template <class Visit>
  void each(Visit visit) {
    for (auto& [peer, link] : all_) visit(peer, *link);
  }
  /// Those through shared memory.
  const std::vector<link*>& rings() const { return rings_; }

  /// Without `ring` its bytes go through the socket.
  void open(link& which, detail::descriptor socket, std::unique_ptr<shm::ring> ring);

  /// Writes what has gathered for it when all links have had their turn.
  void flush_soon(link& which) {
    if (which.idle()) return;
    if (std::find(to_flush_.begin(), to_flush_.end(), &which) == to_flush_.end()) {
      to_flush_.push_back(&which);
    }
  }
  /// `waiting`: whom this rank wants messages of; `also(ask)` says `ask(link)` of others.
  template <class Also>
  bool poll(pairing& waiting, const Also& also) {
    bool moved = false;
    for (std::size_t i = 0; i < rings_.size(); ++i) moved |= rings_[i]->pump();
    if (all_.size() > rings_.size()) moved |= poll_sockets(waiting, also);
    for (link* each : to_flush_) moved |= each->flush();
    to_flush_.clear();
    return moved;
  }

  // ---- ends

  /// Writes what it can. Whether something is left that a link may take later, or a link opens to
  /// which the goodbye has to be said.
  bool unwritten();
  void say_goodbye();
  void shut_writing();
  bool any_open() const {
    return std::any_of(all_.begin(), all_.end(),
                       [](const auto& each) { return each.second->is_open(); });
  }
  void shut() {
    for (auto& [peer, link] : all_) link->shut();
  }

  // ---- the turns of those through shared memory

  void wake_peers() {
    for (link* each : rings_) each->wake_peer();
  }
  bool arm() {
    bool armed = true;
    for (link* each : rings_) armed &= each->arm();
    hear_all();
    return armed;
  }
  void disarm() {
    for (link* each : rings_) each->disarm();
  }

 private:
  static constexpr int receives_from_self = -1;
  static constexpr std::size_t most_looked_at = 8;
  static constexpr int most_asked = 4;
  static constexpr std::size_t most_receives = 15;
  static constexpr std::size_t most_unheard = most_asked;

  // Each socket that is asked in vain takes as long as the next rank on this core waits: where it
  // is known whom this rank waits for, and these are few, it asks them, and all of them now and
  // then.
  template <class Also>
  bool poll_sockets(pairing& waiting, const Also& also) {
    const bool many = sockets_.size() > most_looked_at;
    if (++polls_ % 8 == 0 || many) return serve(many);
    std::uint32_t asked = 0;
    for (std::size_t i = 0; i < sockets_.size(); ++i) {
      if (sockets_[i]->is_busy()) asked |= 1u << i;
    }
    const auto ask = [&](const link& which) {
      const auto at = std::find(sockets_.begin(), sockets_.end(), &which);
      if (at != sockets_.end()) asked |= 1u << (at - sockets_.begin());
    };
    also(ask);
    const bool known =
        waiting.waiting() <= most_receives && waiting.all_waiting([&](const posted& receive) {
          const auto from = std::find_if(sockets_.begin(), sockets_.end(), [&](const link* each) {
            return each->peer() == receive.key.peer;
          });
          if (from == sockets_.end()) return false;
          asked |= 1u << (from - sockets_.begin());
          return true;
        });
    if (!known || asked == 0 || std::popcount(asked) > most_asked) return serve(true);
    bool moved = false;
    for (; asked != 0; asked &= asked - 1) {
      link& each = *sockets_[static_cast<std::size_t>(std::countr_zero(asked))];
      if (each.is_open()) moved |= each.pump();
    }
    // To tell epoll of each message takes its sender's time, and nobody asks epoll meanwhile.
    if (moved && hear_ && engine_.spins_now() && sockets_.size() <= most_unheard) {
      hear_ = false;
      for (link* each : sockets_) each->hear(false);
    }
    return moved;
  }
  // All of them; `others`: and whatever else epoll tells of.
  bool serve(bool others) {
    bool moved = false;
    if (!hear_) {
      for (std::size_t i = 0; i < sockets_.size(); ++i) {
        if (sockets_[i]->is_open()) moved |= sockets_[i]->pump();
        others |= !sockets_[i]->idle();
      }
    }
    return hear_ || others ? engine_.dispatch() || moved : moved;
  }
  void hear_all() {
    if (hear_) return;
    hear_ = true;
    for (link* each : sockets_) each->hear(true);
  }

  engine& engine_;
  link_owner& owner_;
  bool checks_;
  std::unordered_map<int, std::unique_ptr<link>> all_;
  link* last_used_ = nullptr;
  std::vector<link*> rings_;
  std::vector<link*> sockets_;  // but those of a rank to itself
  unsigned polls_ = 0;
  bool hear_ = true;  // epoll tells of what comes by them
  std::vector<link*> to_flush_;
};

}  // namespace colls::tcp

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/connection_table.ipp>
#endif
