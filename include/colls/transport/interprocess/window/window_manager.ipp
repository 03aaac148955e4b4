// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The non-inline member functions of window_manager, which allocate, map, expose and relocate
// memory.

#include <colls/base/compiler.hpp>
#include <colls/transport/interprocess/window/window_manager.hpp>

namespace colls::interprocess {

COLLS_ONCE std::shared_ptr<std::byte> window_manager::allocate(std::size_t size) {
  std::error_code reason;
  if (size != 0 && ensure_heap()) {
    if (std::byte* const data = heap_->allocate(size, &reason)) {
      return {data, [owner = heap_](std::byte* freed) { owner->free(freed); }};
    }
  }
  std::shared_ptr<std::byte> memory = detail::allocate_private_memory(size);
  if (reason && memory != nullptr && !std::exchange(logged_private_, true)) {
    log_warn("rank %d allocates memory that its peers cannot work in: %s", info_.rank,
             reason.message().c_str());
  }
  return memory;
}

COLLS_ONCE void window_manager::map_peer_heap(connection& conn, detail::descriptor heap) {
  if (conn.peer_heap != nullptr) return;
  shm::segment memory;
  auto view = std::make_unique<shm::shared_heap_view>();
  auto ec = std::make_error_code(std::errc::too_many_files_open);
  if (heap) ec = memory.adopt(std::move(heap));
  if (!ec) ec = view->map(memory, info_.size, info_.rank);
  if (ec) {
    if (!std::exchange(logged_not_mapped_, true)) {
      log_warn("rank %d cannot map the memory that rank %d exposes: %s", info_.rank, conn.peer(),
               ec.message().c_str());
    }
    return;
  }
  conn.peer_heap = std::move(view);
  header frame;
  frame.kind = kind::mapped;
  conn.reads_peer_memory = may_use_cma(conn);
  if (conn.reads_peer_memory) frame.flags = flag::cma;
  conn.control(frame);
  connections_.flush_soon(conn);
}

COLLS_ONCE bool window_manager::ensure_heap() {
  if (heap_ != nullptr || !may_create_heap_) return heap_ != nullptr;
  may_create_heap_ = false;
  if (!info_.local_listener.is_open()) return false;
  auto heap = std::make_shared<shm::shared_heap>();
  if (const std::error_code ec = heap->make(info_.size)) {
    log_warn("rank %d has no memory for its peers to work in: %s", info_.rank,
             ec.message().c_str());
    return false;
  }
  heap_ = std::move(heap);
  for (connection* conn : connections_.shared_memory_connections()) {
    if (conn->is_open()) opened(*conn);
  }
  return true;
}

COLLS_ONCE void window_manager::opened(connection& conn) {
  if (heap_ == nullptr) return;
  const std::error_code ec = conn.pass_heap(*heap_);
  // If the connection is broken, another part of the transport reports that failure. This function
  // therefore does not log it.
  if (!ec || ec == std::errc::broken_pipe || ec == std::errc::connection_reset) return;
  if (std::exchange(logged_not_passed_, true)) return;
  log_warn("rank %d cannot pass the memory that it exposes to rank %d: %s", info_.rank, conn.peer(),
           ec.message().c_str());
}

COLLS_ONCE bool window_manager::may_use_cma(connection& conn) {
  // The lowest speed, in GB/s, at which a read by CMA (process_vm_readv) is worthwhile. It equals
  // the speed of the ring buffer. A transfer through the ring buffer takes two copies, one by each
  // rank. If the two ranks share a core, their copies cannot overlap, so the speed is halved.
  const double min_speed = info_.is_oversubscribed() ? 6 : 12;
  if (info_.cfg.reads == "never") return false;
  if (const std::error_code ec = conn.peer_heap->attach_owner(conn.peer_process())) {
    log_info("rank %d cannot read the memory of rank %d, and is sent what lies there: %s",
             info_.rank, conn.peer(), ec.message().c_str());
    return false;
  }
  if (info_.cfg.reads == "always") return true;
  const time_point duration = conn.peer_heap->time_to_read([this] { return engine_.now(); });
  const double speed = static_cast<double>(shm::sample_bytes) / static_cast<double>(duration);
  if (speed >= min_speed) return true;
  log_info("rank %d is sent what lies in memory of rank %d: the kernel reads it at %.1f GB/s",
           info_.rank, conn.peer(), speed);
  return false;
}

COLLS_ONCE bool window_manager::is_worth_reading(std::size_t size, readers pattern) const {
  constexpr std::size_t kib = 1024;
  if (info_.cfg.reads == "always") return true;
  switch (pattern) {
    // For data of more than 1 MiB, the ring buffer is as fast as CMA, because one rank writes to
    // the ring buffer while the other rank reads from it.
    case readers::one:
      return !info_.is_oversubscribed() && size <= 1024 * kib;
    // If ranks share cores, the ring buffer is better for data of less than 32 KiB, because a rank
    // that waits for the ring buffer yields its core to another rank.
    case readers::all:
      return !info_.is_oversubscribed() || size >= 32 * kib;
    // If ranks share cores, ranks read only inputs of 256 KiB to 1 MiB by CMA. The caches would no
    // longer hold a longer input when it is read.
    case readers::all_to_reduce:
      return !info_.is_oversubscribed() || (size >= 256 * kib && size <= 1024 * kib);
    case readers::no_rank:
      break;
  }
  return false;
}

COLLS_ONCE void window_manager::end_exposure(const exposure& ending) noexcept {
  if (is_forked_child()) return;
  if (!ending.key_revoked_) heap_->guard().revoke_key(ending.key_);
  if (ending.exposed_[0] == nullptr) return;  // peers only read, and check the key after reading
  const std::byte* blocks[] = {ending.exposed_[0], ending.exposed_[1]};
  time_point try_at = engine_.now() + relocation_delay;
  bool is_relocated = false;
  bool is_logged = false;
  // The result is not needed, because no call of the lambda returns `unknown`.
  (void)heap_->guard().await_exit([&](int peer) {
    const connection* const conn = connections_.find(peer);
    if (is_relocated || conn == nullptr || !conn->peer_maps_heap || conn->has_peer_exited()) {
      return shm::may_access::no;
    }
    is_logged ? ::usleep(1000) : ::sched_yield();
    if (engine_.now() < try_at) return shm::may_access::yes;
    is_relocated = true;
    for (const std::byte*& block : blocks) {
      if (block != nullptr && relocate(block, peer)) block = nullptr;
      is_relocated &= block == nullptr;
    }
    if (!is_relocated && !std::exchange(is_logged, true)) {
      log_warn(
          "rank %d waits until rank %d, which was stopped in memory exposed to it, goes on or "
          "ends: that memory cannot be moved",
          info_.rank, peer);
    }
    try_at = engine_.now() + relocation_delay;
    return is_relocated ? shm::may_access::no : shm::may_access::yes;
  });
}

COLLS_ONCE bool window_manager::relocate(const std::byte* block, int stopped_peer) {
  for (std::size_t i = 0; i < exposures_.size(); ++i) {
    exposure& other = *exposures_[i];
    if (other.completed_ || other.key_revoked_ || other.key_ == 0 || !other.exposes_block_of(block))
      continue;
    other.key_revoked_ = true;
    heap_->guard().revoke_key(other.key_);  // Model step: relocate_revokes
    failure reason(errc::peer_failed);
    reason.set_detail(
        "rank %d was stopped while it worked in memory that this operation exposes as well",
        stopped_peer);
    matcher_.revoke(other.communicator_, reason);
  }
  return heap_->relocate(block);
}

}  // namespace colls::interprocess
