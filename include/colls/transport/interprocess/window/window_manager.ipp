// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How memory is lent and taken back: the second half of window_manager.hpp.

#include <colls/base/compiler.hpp>
#include <colls/transport/interprocess/window/window_manager.hpp>

namespace colls::tcp {

COLLS_ONCE std::shared_ptr<std::byte> lender::allocate(std::size_t size) {
  std::error_code why;
  if (size != 0 && has_arena()) {
    if (std::byte* const at = arena_->allocate(size, &why)) {
      return {at, [owner = arena_](std::byte* memory) { owner->free(memory); }};
    }
  }
  std::shared_ptr<std::byte> own = detail::own_memory(size);
  if (why && own != nullptr && !std::exchange(told_of_own_, true)) {
    log_warn("rank %d allocates memory that its peers cannot work in: %s", who_.rank,
             why.message().c_str());
  }
  return own;
}

COLLS_ONCE void lender::see(link& from, detail::descriptor arena) {
  if (from.view != nullptr) return;
  shm::segment theirs;
  auto mapped = std::make_unique<shm::arena_view>();
  auto ec = std::make_error_code(std::errc::too_many_files_open);
  if (arena) ec = theirs.adopt(std::move(arena));
  if (!ec) ec = mapped->map(theirs, who_.size, who_.rank);
  if (ec) {
    if (!std::exchange(told_of_theirs_, true)) {
      log_warn("rank %d cannot see the memory that rank %d lends: %s", who_.rank, from.peer(),
               ec.message().c_str());
    }
    return;
  }
  from.view = std::move(mapped);
  header frame;
  frame.kind = kind::mapped;
  from.reads_peer = may_read(from);
  if (from.reads_peer) frame.flags = flag::reads;
  from.control(frame);
  links_.flush_soon(from);
}

COLLS_ONCE bool lender::has_arena() {
  if (arena_ != nullptr || !may_make_) return arena_ != nullptr;
  may_make_ = false;
  if (!who_.local_listener.is_open()) return false;
  auto made = std::make_shared<shm::arena>();
  if (const std::error_code ec = made->make(who_.size)) {
    log_warn("rank %d has no memory for its peers to work in: %s", who_.rank, ec.message().c_str());
    return false;
  }
  arena_ = std::move(made);
  for (link* to : links_.rings()) {
    if (to->is_open()) opened(*to);
  }
  return true;
}

COLLS_ONCE void lender::opened(link& to) {
  if (arena_ == nullptr) return;
  const std::error_code ec = to.lend(*arena_);
  // A link that breaks says so itself.
  if (!ec || ec == std::errc::broken_pipe || ec == std::errc::connection_reset) return;
  if (std::exchange(told_of_passing_, true)) return;
  log_warn("rank %d cannot pass the memory that it lends to rank %d: %s", who_.rank, to.peer(),
           ec.message().c_str());
}

COLLS_ONCE bool lender::may_read(link& from) {
  // Two copies through the ring: by two cores both ways at once, or one after the other.
  const double slowest = who_.shares_cores() ? 6 : 12;
  if (who_.cfg.reads == "never") return false;
  if (const std::error_code ec = from.view->find_owner(from.process())) {
    log_info("rank %d cannot read the memory of rank %d, and is sent what lies there: %s",
             who_.rank, from.peer(), ec.message().c_str());
    return false;
  }
  if (who_.cfg.reads == "always") return true;
  const time_point taken = from.view->time_to_read([this] { return engine_.now(); });
  const double speed = static_cast<double>(shm::sample_bytes) / static_cast<double>(taken);
  if (speed >= slowest) return true;
  log_info("rank %d is sent what lies in memory of rank %d: the kernel reads it at %.1f GB/s",
           who_.rank, from.peer(), speed);
  return false;
}

COLLS_ONCE bool lender::is_worth_reading(std::size_t size, readers by) const {
  constexpr std::size_t kib = 1024;
  if (who_.cfg.reads == "always") return true;
  switch (by) {
    // Longer ones two copy as quickly, one behind the other.
    case readers::one:
      return !who_.shares_cores() && size <= 1024 * kib;
    // Where ranks share cores, who waits for the ring leaves its core to another rank.
    case readers::all:
      return !who_.shares_cores() || size >= 32 * kib;
    // Longer inputs have left the caches before they are read.
    case readers::all_to_add:
      return !who_.shares_cores() || (size >= 256 * kib && size <= 1024 * kib);
    case readers::nobody:
      break;
  }
  return false;
}

COLLS_ONCE void lender::take_back(const loan& ended) noexcept {
  if (is_child()) return;
  if (!ended.spoiled_) arena_->revoke(ended.ticket_);
  if (ended.lent_[0] == nullptr) return;  // who reads sees that it was too late
  const std::byte* blocks[] = {ended.lent_[0], ended.lent_[1]};
  time_point try_at = engine_.now() + patience;
  bool retired = false;
  bool tried = false;
  links_.each([&](int peer, const link& to) {
    while (to.is_seen && !retired && arena_->is_inside(peer) && !to.peer_is_gone()) {
      tried ? ::usleep(1000) : ::sched_yield();
      if (engine_.now() < try_at) continue;
      retired = true;
      for (const std::byte*& block : blocks) {
        if (block != nullptr && retire(block, peer)) block = nullptr;
        retired &= block == nullptr;
      }
      if (!retired && !std::exchange(tried, true)) {
        log_warn(
            "rank %d waits until rank %d, which was stopped in memory lent to it, goes on or ends: "
            "that memory can be moved nowhere else",
            who_.rank, peer);
      }
      try_at = engine_.now() + patience;
    }
  });
}

COLLS_ONCE bool lender::retire(const std::byte* block, int stopped) {
  for (std::size_t i = 0; i < loans_.size(); ++i) {
    loan& other = *loans_[i];
    if (other.settled_ || other.spoiled_ || other.ticket_ == 0 || !other.has_lent(block)) continue;
    other.spoiled_ = true;
    arena_->revoke(other.ticket_);
    failure why(errc::peer_failed);
    why.say("rank %d was stopped while it worked in memory that this operation lends as well",
            stopped);
    match_.revoke(other.communicator_, why);
  }
  return arena_->retire(block);
}

}  // namespace colls::tcp
