// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// lender: memory of a rank in which its peers may work while an operation lasts.

#include <colls/base/shared_buffer.hpp>
#include <colls/bootstrap/world_info.hpp>
#include <colls/channel/transport.hpp>
#include <colls/transport/interprocess/connection_table.hpp>

#include <sched.h>
#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

namespace colls::tcp {

/// This rank's arena, what its operations lend of it, and the arenas that peers let it see. Once a
/// loan is gone nobody writes to what it lent, and nobody uses what he still reads there.
class lender {
 public:
  lender(engine& on, const membership& who, links& all, match& with)
      : engine_(on), who_(who), links_(all), match_(with) {}
  lender(const lender&) = delete;
  lender& operator=(const lender&) = delete;

  /// `size` bytes of zeros in which the ranks of this host may work while an operation on them
  /// lasts; where there are none, or no memory can be shared, this process's own. Null: there is no
  /// memory.
  std::shared_ptr<std::byte> allocate(std::size_t size);

  /// Whether peers may work there.
  bool has(const_bytes data) const { return arena_ != nullptr && arena_->locate(data) != 0; }

  /// Memory to work in that peers may see: up to `size` bytes, as long as it lives; null: there is
  /// none, or others use all there may be. Destroyed after what was lent of it.
  class desk {
   public:
    static constexpr std::size_t size = 2 * 1024 * 1024;

    explicit desk(lender& of) : lender_(of) {
      if (lender_.is_child()) return;
      if (!lender_.desks_.empty()) {
        memory_ = lender_.desks_.back();
        lender_.desks_.pop_back();
      } else if (lender_.desks_made_ < most_desks && !lender_.links_.rings().empty() &&
                 lender_.has_arena()) {
        lender_.desks_.reserve(most_desks);  // so that giving it back cannot fail
        memory_ = lender_.arena_->allocate(size);
        if (memory_ != nullptr) ++lender_.desks_made_;
      }
    }
    desk(const desk&) = delete;
    desk& operator=(const desk&) = delete;
    ~desk() {
      if (memory_ != nullptr) lender_.desks_.push_back(memory_);
    }
    std::byte* data() const { return memory_; }

   private:
    lender& lender_;
    std::byte* memory_ = nullptr;
  };

  /// What one operation lends.
  class loan {
   public:
    loan(lender& of, communicator_state& on) : lender_(of), communicator_(on) {
      lender_.loans_.push_back(this);
    }
    loan(const loan&) = delete;
    loan& operator=(const loan&) = delete;
    ~loan() {
      std::erase(lender_.loans_, this);
      if (ticket_ == 0) return;
      if (settled_) {
        if (!spoiled_) lender_.arena_->close(ticket_);
      } else {
        lender_.take_back(*this);
      }
    }

    shm::place place_for(int peer, const_bytes data) {
      if (lender_.arena_ == nullptr || lender_.is_child()) return 0;
      const link* const to = lender_.links_.known(peer);
      if (to == nullptr || !to->is_seen || to->ended()) return 0;
      const shm::place found = lender_.arena_->locate(data);
      if (found != 0 && !has_lent(data.data)) lent_[lent_[0] != nullptr ? 1 : 0] = data.data;
      return found;
    }
    /// What lies in memory of this rank's own, for a peer that reads it there. 0: that one cannot,
    /// or a message is quicker.
    shm::place address_for(int peer, const_bytes data, readers by) {
      if (data.size == 0 || !lender_.is_worth_reading(data.size, by) ||
          lender_.links_.rings().empty() || !lender_.has_arena())
        return 0;
      const link* const to = lender_.links_.known(peer);
      // Both or none: to read while the other one fills the ring takes longer than either.
      if (to == nullptr || !to->is_read || !to->reads_peer || to->ended()) return 0;
      if (lender_.is_child()) return 0;
      return shm::own_memory | reinterpret_cast<std::uintptr_t>(data.data);
    }
    /// The peer could not read something: it is lent nothing of that kind again.
    void unread(int peer) { lender_.links_.at(peer).is_read = false; }
    /// 0: too many operations lend.
    shm::ticket ticket() {
      if (ticket_ == 0) ticket_ = lender_.arena_->open();
      return ticket_;
    }
    void settle() {
      if (spoiled_) {
        throw error(errc::peer_failed, "a rank was stopped while it worked in this memory");
      }
      settled_ = true;
    }

   private:
    friend lender;

    // Something of the same block.
    bool has_lent(const std::byte* data) const {
      for (const std::byte* const lent : lent_) {
        if (lent != nullptr && lender_.arena_->same_block(lent, data)) return true;
      }
      return false;
    }

    lender& lender_;
    communicator_state& communicator_;
    bool spoiled_ = false;  // its ticket is closed
    shm::ticket ticket_ = 0;
    const std::byte* lent_[2] = {};  // of each block
    bool settled_ = false;
  };

  /// A link to a peer on this host has opened.
  void opened(link& to);

  /// The peer lets this rank see its arena.
  void see(link& from, detail::descriptor arena);
  shm::arena_view* view_of(int peer) {
    link* const from = links_.known(peer);
    return from == nullptr ? nullptr : from->view.get();
  }

 private:
  static constexpr time_point patience = 200 * milliseconds;
  // New pages cost more than a desk saves, and many operations may be under way.
  static constexpr int most_desks = 8;

  // Of the process whose arena this is: its parent lends there.
  bool is_child() const { return arena_ != nullptr && !arena_->is_made_here(); }

  // Made at the first use.
  bool has_arena();

  // Whether this rank reads what the peer has in memory of its own.
  bool may_read(link& from);
  // Whether peers who may read so much here had better do so.
  bool is_worth_reading(std::size_t size, readers by) const;

  // An operation has ended, and peers may be in its buffers. Returns once each has left them or has
  // died, or once the buffers have been moved away from one that was stopped there.
  void take_back(const loan& ended) noexcept;

  // Moves a block away from a peer that was stopped there. Other operations that lend it end: they
  // have results in its old pages, and their readers would find those empty.
  bool retire(const std::byte* block, int stopped);

  engine& engine_;
  const membership& who_;
  links& links_;
  match& match_;
  std::shared_ptr<shm::arena> arena_;
  bool may_make_ = true;
  std::vector<loan*> loans_;
  std::vector<std::byte*> desks_;  // that nobody uses
  int desks_made_ = 0;
  bool told_of_own_ = false;      // why it is this rank's alone
  bool told_of_passing_ = false;  // why others cannot have it
  bool told_of_theirs_ = false;   // why it cannot be seen
};

}  // namespace colls::tcp

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/window/window_manager.ipp>
#endif
