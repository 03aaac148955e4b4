// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// window_manager: manages the memory of a rank that its peers may access during an operation. This
// memory either lies in the shared heap of the rank (see shared_heap.hpp) or is private memory that
// peers read through the kernel (CMA, cross-memory attach).

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

/// The manager of three kinds of memory: the shared heap of this rank, the memory that operations
/// of this rank expose, and the heaps of peers that this rank has mapped. After an exposure has
/// ended, no peer writes to the exposed memory. A peer may still read from this memory, but it then
/// finds that the remote key is closed and discards the data.
class window_manager {
 public:
  window_manager(engine& driver, const world_info& info, connection_table& connections,
                 tag_matcher& matcher)
      : engine_(driver), info_(info), connections_(connections), matcher_(matcher) {}
  window_manager(const window_manager&) = delete;
  window_manager& operator=(const window_manager&) = delete;

  /// Allocates `size` bytes of zeroed memory that an operation can expose to the ranks of this
  /// host. Allocates private memory instead if memory cannot be shared with other ranks. Returns
  /// null if there is no memory.
  std::shared_ptr<std::byte> allocate(std::size_t size);

  /// Returns whether `data` lies in the shared heap.
  bool contains(const_bytes data) const { return heap_ != nullptr && heap_->locate(data) != 0; }

  /// A block of `size` bytes in the shared heap. An operation whose buffers lie outside the heap
  /// copies its input into this block, or its output out of it, and exposes the block instead of
  /// the buffers. `data()` returns null if no block is available, for example because all bounce
  /// buffers are in use. A bounce buffer must outlive the exposure of its memory.
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

  /// The memory that one operation exposes to its peers.
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
        if (!key_revoked_) manager_.heap_->guard().close_key(key_);
      } else {
        manager_.end_exposure(*this);
      }
    }

    /// Exposes `data` to `peer`. Returns the offset of `data` in the shared heap of this rank.
    /// Returns 0 if `data` does not lie in this heap or if `peer` cannot access the heap.
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
    /// Exposes `data`, which lies in private memory, so that `peer` can read it by CMA. `pattern`
    /// says which ranks read at the same time. Returns the address of `data` with the bit
    /// `private_memory` set. Returns 0 if `peer` cannot read the memory, or if sending `data` in a
    /// message is expected to be faster.
    shm::heap_offset address_for(int peer, const_bytes data, readers pattern) {
      if (data.size == 0 || !manager_.is_worth_reading(data.size, pattern) ||
          !manager_.has_peers() || !manager_.ensure_heap()) {
        return 0;
      }
      const connection* const conn = manager_.connections_.find(peer);
      // Two ranks use CMA only if each of them can read the memory of the other. If one rank read
      // by CMA while the other filled the ring buffer, they would take longer than if both used the
      // ring buffer.
      if (conn == nullptr || !conn->peer_reads_memory || !conn->reads_peer_memory ||
          conn->has_ended()) {
        return 0;
      }
      if (manager_.is_forked_child()) return 0;
      return shm::private_memory | reinterpret_cast<std::uintptr_t>(data.data);
    }
    /// Stops exposing private memory to `peer`. Called when `peer` has failed to read such memory.
    void disable_reads(int peer) { manager_.connections_.get(peer).peer_reads_memory = false; }
    /// Returns the remote key of this exposure. Peers that access the exposed memory check that the
    /// key is open. The first call opens the key. Returns 0 if too many keys are open.
    shm::remote_key remote_key() {
      if (key_ == 0) key_ = manager_.heap_->guard().open_key();
      return key_;
    }
    /// Completes the exposure. Must be called after all peers have reported that they no longer
    /// access the memory. Throws `error` if the key was revoked early, because a peer seemed to be
    /// stopped inside the heap while another operation exposed the same block.
    void complete() {
      if (key_revoked_) {
        throw error(errc::peer_failed, "a rank was stopped while it worked in this memory");
      }
      completed_ = true;
    }

   private:
    friend window_manager;

    // Returns whether this exposure already exposes memory in the block that contains `data`.
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
    const std::byte* exposed_[2] = {};  // one address in each exposed block
    bool completed_ = false;
  };

  /// Sends the file descriptor of this rank's shared heap to the peer of `conn`, so that the peer
  /// can map the heap. Does nothing if this rank has no heap. `conn` must be an open connection
  /// through shared memory.
  void opened(connection& conn);

  /// Maps the shared heap of the peer of `conn`. `heap` is the file descriptor that this peer has
  /// sent. On success, notifies the peer by a frame of the kind `mapped`.
  void map_peer_heap(connection& conn, detail::descriptor heap);
  /// Returns the view of a peer's heap, or null if this rank has not mapped that heap.
  shm::shared_heap_view* view_of(int peer) {
    connection* const conn = connections_.find(peer);
    return conn == nullptr ? nullptr : conn->peer_heap.get();
  }

 private:
  static constexpr time_point relocation_delay = 200 * milliseconds;
  // The largest number of bounce buffers. They are reused, because allocating pages costs more than
  // a bounce buffer saves. Their number is limited, because many operations may be in flight.
  static constexpr int max_bounce_buffers = 8;

  // Returns whether this process is a forked child of the process that created the heap.
  bool is_forked_child() const { return heap_ != nullptr && !heap_->is_creator_process(); }

  bool has_peers() const { return !connections_.shared_memory_connections().empty(); }
  // Returns whether this rank has a heap. The first call tries to create the heap.
  bool ensure_heap();

  // Returns whether this rank may read private memory of the peer by CMA. The answer depends on the
  // configuration and on the measured speed.
  bool may_use_cma(connection& conn);
  // Returns whether reading `size` bytes by CMA is faster than sending them in a message. `pattern`
  // says which ranks read at the same time.
  bool is_worth_reading(std::size_t size, readers pattern) const;

  // Ends the exposure of an operation that has not completed. Peers may still be accessing the
  // exposed memory. If this memory lies in the heap, waits until every peer has left the heap or
  // died. If a peer stays inside the heap for longer than `relocation_delay`, tries to move the
  // exposed blocks to new pages. Stops waiting if all blocks could be moved. Otherwise continues to
  // wait and tries again.
  void end_exposure(const exposure& ended) noexcept;

  // Moves a block of the heap to new pages, to which `stopped_peer` cannot write. Every other
  // operation that exposes the block fails, because the peers of such an operation may still write
  // results to the old pages. Returns false if the block cannot be moved.
  bool relocate(const std::byte* block, int stopped_peer);

  engine& engine_;
  const world_info& info_;
  connection_table& connections_;
  tag_matcher& matcher_;
  std::shared_ptr<shm::shared_heap> heap_;
  bool may_create_heap_ = true;
  std::vector<exposure*> exposures_;
  std::vector<std::byte*> bounce_buffers_;  // bounce buffers that are not in use
  int bounce_buffer_count_ = 0;
  bool logged_private_ = false;     // the reason why memory is private was logged
  bool logged_not_passed_ = false;  // the reason why the heap cannot be passed was logged
  bool logged_not_mapped_ = false;  // the reason why a peer's heap cannot be mapped was logged
};

}  // namespace colls::interprocess

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/window/window_manager.ipp>
#endif
