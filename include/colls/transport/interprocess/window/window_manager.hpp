// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// window_manager: memory of a rank that its peers may access while an operation lasts.

#include <colls/base/shared_buffer.hpp>
#include <colls/bootstrap/world_info.hpp>
#include <colls/channel/transport.hpp>
#include <colls/transport/interprocess/connection_table.hpp>

#include <sched.h>
#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

namespace colls::interprocess {

/// The shared heap of this rank, what its operations expose, and the heaps of its peers. After an
/// exposure ends no peer writes to what it exposed, and whatever a peer still reads from it is
/// discarded.
class window_manager {
 public:
  window_manager(engine& driver, const world_info& info, connection_table& connections,
                 tag_matcher& matcher)
      : engine_(driver), info_(info), connections_(connections), matcher_(matcher) {}
  window_manager(const window_manager&) = delete;
  window_manager& operator=(const window_manager&) = delete;

  /// Allocates `size` bytes of zeros that an operation can expose to the ranks of this host. If
  /// there are no such ranks, or no memory can be shared, it is private memory. Null: there is no
  /// memory.
  std::shared_ptr<std::byte> allocate(std::size_t size);

  /// Whether `data` lies in the shared heap.
  bool contains(const_bytes data) const { return heap_ != nullptr && heap_->locate(data) != 0; }

  /// Holds `size` bytes of the shared heap while it lives, for copies of buffers that lie outside
  /// of it. `data()` is null if there is no memory, or all bounce buffers are in use. It outlives
  /// the exposure of its memory.
  class bounce_buffer {
   public:
    static constexpr std::size_t size = 2 * 1024 * 1024;

    explicit bounce_buffer(window_manager& manager) : manager_(manager) {
      if (manager_.is_forked_child()) return;
      if (!manager_.bounce_buffers_.empty()) {
        memory_ = manager_.bounce_buffers_.back();
        manager_.bounce_buffers_.pop_back();
      } else if (manager_.bounce_buffer_count_ < max_bounce_buffers && manager_.has_peers() &&
                 manager_.ensure_heap()) {
        manager_.bounce_buffers_.reserve(max_bounce_buffers);  // so that the destructor cannot fail
        memory_ = manager_.heap_->allocate(size);
        if (memory_ != nullptr) ++manager_.bounce_buffer_count_;
      }
    }
    bounce_buffer(const bounce_buffer&) = delete;
    bounce_buffer& operator=(const bounce_buffer&) = delete;
    ~bounce_buffer() {
      if (memory_ != nullptr) manager_.bounce_buffers_.push_back(memory_);
    }
    std::byte* data() const { return memory_; }

   private:
    window_manager& manager_;
    std::byte* memory_ = nullptr;
  };

  /// What one operation exposes.
  class exposure {
   public:
    exposure(window_manager& manager, communicator_state& comm)
        : manager_(manager), communicator_(comm) {
      manager_.exposures_.push_back(this);
    }
    exposure(const exposure&) = delete;
    exposure& operator=(const exposure&) = delete;
    ~exposure() {
      std::erase(manager_.exposures_, this);
      if (key_ == 0) return;
      if (completed_) {
        if (!key_revoked_) manager_.heap_->close_key(key_);
      } else {
        manager_.end_exposure(*this);
      }
    }

    /// Exposes `data` to a peer. Returns its offset in the shared heap, or 0 if it does not lie
    /// there or the peer has not mapped the heap.
    shm::heap_offset offset_for(int peer, const_bytes data) {
      if (manager_.heap_ == nullptr || manager_.is_forked_child()) return 0;
      const connection* const conn = manager_.connections_.find(peer);
      if (conn == nullptr || !conn->peer_maps_heap || conn->has_ended()) return 0;
      const shm::heap_offset offset = manager_.heap_->locate(data);
      if (offset != 0 && !exposes_block_of(data.data)) {
        exposed_[exposed_[0] != nullptr ? 1 : 0] = data.data;
      }
      return offset;
    }
    /// Exposes private memory to a peer that reads it by CMA. 0: the peer cannot, or a message is
    /// faster.
    shm::heap_offset address_for(int peer, const_bytes data, readers pattern) {
      if (data.size == 0 || !manager_.is_worth_reading(data.size, pattern) ||
          !manager_.has_peers() || !manager_.ensure_heap()) {
        return 0;
      }
      const connection* const conn = manager_.connections_.find(peer);
      // Both sides read or neither does: if one reads while the other one fills the ring buffer, it
      // takes longer than either way.
      if (conn == nullptr || !conn->peer_reads_memory || !conn->reads_peer_memory ||
          conn->has_ended()) {
        return 0;
      }
      if (manager_.is_forked_child()) return 0;
      return shm::private_memory | reinterpret_cast<std::uintptr_t>(data.data);
    }
    /// Exposes no more private memory to a peer, which failed to read some.
    void disable_reads(int peer) { manager_.connections_.get(peer).peer_reads_memory = false; }
    /// Returns the remote key; opens it at the first call. 0: too many keys are open.
    shm::remote_key remote_key() {
      if (key_ == 0) key_ = manager_.heap_->open_key();
      return key_;
    }
    /// All peers have reported that they are done. Throws if a peer was stopped in the memory.
    void complete() {
      if (key_revoked_) {
        throw error(errc::peer_failed, "a rank was stopped while it worked in this memory");
      }
      completed_ = true;
    }

   private:
    friend window_manager;

    // Whether something of the same block is exposed.
    bool exposes_block_of(const std::byte* data) const {
      for (const std::byte* const exposed : exposed_) {
        if (exposed != nullptr && manager_.heap_->is_same_block(exposed, data)) return true;
      }
      return false;
    }

    window_manager& manager_;
    communicator_state& communicator_;
    bool key_revoked_ = false;
    shm::remote_key key_ = 0;
    const std::byte* exposed_[2] = {};  // an address in each block
    bool completed_ = false;
  };

  /// A connection through shared memory has opened: passes the heap, if there is one.
  void opened(connection& conn);

  /// Maps the heap that a peer has passed and confirms it.
  void map_peer_heap(connection& conn, detail::descriptor heap);
  /// Returns the heap of a peer, or null if it is not mapped.
  shm::shared_heap_view* view_of(int peer) {
    connection* const conn = connections_.find(peer);
    return conn == nullptr ? nullptr : conn->peer_heap.get();
  }

 private:
  static constexpr time_point relocation_delay = 200 * milliseconds;
  // Allocating pages costs more than a bounce buffer saves, and many operations may be in flight.
  static constexpr int max_bounce_buffers = 8;

  // Whether this process is a forked child of the one that created the heap.
  bool is_forked_child() const { return heap_ != nullptr && !heap_->is_creator_process(); }

  bool has_peers() const { return !connections_.shared_memory_connections().empty(); }
  // Creates the heap at the first use. False: there is none.
  bool ensure_heap();

  // Whether this rank reads private memory of the peer by CMA.
  bool may_use_cma(connection& conn);
  // Whether reading `size` bytes by CMA is faster than sending them.
  bool is_worth_reading(std::size_t size, readers pattern) const;

  // Ends the exposure of an operation whose peers may still be inside. Returns once each peer has
  // left or died, or the blocks have been relocated because a peer was stopped inside.
  void end_exposure(const exposure& ended) noexcept;

  // Relocates a block because a peer was stopped inside. Other operations that expose the block
  // fail, since some of their results may lie in the old pages.
  bool relocate(const std::byte* block, int stopped_peer);

  engine& engine_;
  const world_info& info_;
  connection_table& connections_;
  tag_matcher& matcher_;
  std::shared_ptr<shm::shared_heap> heap_;
  bool may_create_heap_ = true;
  std::vector<exposure*> exposures_;
  std::vector<std::byte*> bounce_buffers_;  // those that are free
  int bounce_buffer_count_ = 0;
  bool logged_private_ = false;     // why memory is private
  bool logged_not_passed_ = false;  // why the heap cannot be passed
  bool logged_not_mapped_ = false;  // why a peer's heap cannot be mapped
};

}  // namespace colls::interprocess

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/window/window_manager.ipp>
#endif
