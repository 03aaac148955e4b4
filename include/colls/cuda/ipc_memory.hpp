// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Device memory of other ranks in this process's addresses, and this rank's in words for them.

#include <colls/cuda/exportable_memory.hpp>

#include <algorithm>
#include <memory>
#include <vector>

namespace colls::cuda {

/// A buffer as its rank tells others of it.
struct lent_buffer {
  api::memory_handle shared;
  std::uint64_t at = 0;    // in that rank's process
  std::uint64_t size = 0;  // bytes; 0: there is none
  std::uint64_t base = 0;  // of its allocation
  std::uint64_t whole = 0;
  std::uint64_t number = 0;      // of its allocation
  std::int64_t refusal = 0;      // why no other process can open it; 0: it can
  std::int64_t is_passable = 0;  // 1: others get its descriptor, there is no handle
};

/// What this rank tells others of its memory. An allocation's handle is asked for once.
class shared_memory {
 public:
  lent_buffer lend(const_bytes data) {
    lent_buffer made;
    if (data.size == 0) return made;
    made.at = reinterpret_cast<std::uintptr_t>(data.data);
    made.size = data.size;
    api::allocation found;
    if (passable_memory::find(data.data, found)) {
      made.is_passable = 1;
    } else {
      made.refusal = api::find_allocation(data.data, found);
    }
    if (made.refusal != api::success) return made;
    made.base = reinterpret_cast<std::uintptr_t>(found.base);
    made.whole = found.size;
    made.number = found.number;
    if (made.is_passable != 0) return made;
    for (const known& each : known_) {
      if (each.number != found.number || each.base != found.base) continue;
      made.shared = each.shared;
      return made;
    }
    made.refusal = api::share(made.shared, found.base);
    if (made.refusal != api::success) return made;
    if (known_.size() == most) known_.erase(known_.begin());
    known_.push_back({found.number, found.base, made.shared});
    return made;
  }

 private:
  static constexpr std::size_t most = 64;
  struct known {
    std::uint64_t number;
    const std::byte* base;
    api::memory_handle shared;
  };
  std::vector<known> known_;
};

/// Memory of other processes that this rank has opened. It stays open for the next call, until its
/// owner tells of another allocation in its place, or another one cannot be opened, or much else
/// was opened since.
class mapped_memory {
 public:
  struct piece {
    std::uint64_t process;  // whose it is: several of its ranks may lend the same
    lent_buffer of;
    void* base;
    int uses;
    std::uint64_t last;
    mapped_physical place{};  // of passable memory
  };

  /// What `take` says of passable memory that has not been mapped, without its descriptor.
  static constexpr api::status lacking = api::not_ready;

  /// The allocation of what a rank of `process` lends, for the thread's current device, until it is
  /// given back. Null: `why` says why not. `file` is the descriptor of passable memory, if it is
  /// there.
  piece* take(std::uint64_t process, const lent_buffer& lent, const colls::detail::descriptor& file,
              int device, api::status& why) {
    const std::uint64_t before = lent.at - lent.base;
    why = api::invalid_value;
    if (before > lent.whole || lent.size > lent.whole - before) return nullptr;
    for (const auto& each : pieces_) {
      if (each->process == process && each->of.base == lent.base &&
          each->of.number == lent.number && each->of.is_passable == lent.is_passable) {
        ++each->uses;
        each->last = ++taken_;
        return each.get();
      }
    }
    why = lacking;
    if (lent.is_passable != 0 && !file) return nullptr;
    const auto is_stale = [&](const std::unique_ptr<piece>& each) {
      const bool elsewhere =
          each->of.base + each->of.whole <= lent.base || lent.base + lent.whole <= each->of.base;
      return each->process == process && each->uses == 0 && !elsewhere;
    };
    close_those(is_stale);
    if (pieces_.size() >= most) {
      std::uint64_t oldest = UINT64_MAX;
      for (const auto& each : pieces_) {
        if (each->uses == 0) oldest = std::min(oldest, each->last);
      }
      close_those([&](const std::unique_ptr<piece>& each) { return each->last == oldest; });
    }
    auto made = std::unique_ptr<piece>(new piece{process, lent, nullptr, 1, ++taken_});
    if (lent.is_passable != 0) {
      physical_memory memory;
      why = memory.import(file.get());
      if (why == api::success) why = made->place.open(memory, lent.whole, device);
      made->base = made->place.data();
    } else {
      why = open(*made);
    }
    if (why != api::success) return nullptr;
    pieces_.push_back(std::move(made));
    return pieces_.back().get();
  }
  static void give_back(piece& taken) { --taken.uses; }

  /// For that device, once no operation uses any of it.
  void close_all() {
    close_those([](const std::unique_ptr<piece>&) { return true; });
  }

 private:
  static constexpr std::size_t most = 128;

  api::status open(piece& made) {
    api::status why = api::open(made.base, made.of.shared);
    if (why != api::success) {
      // The driver maps by blocks of its own: what was freed may have been in the same one.
      const auto is_spare = [&](const std::unique_ptr<piece>& each) {
        return each->process == made.process && each->uses == 0;
      };
      if (close_those(is_spare)) why = api::open(made.base, made.of.shared);
    }
    return why;
  }
  /// Whether there were any.
  template <class Pick>
  bool close_those(const Pick& pick) {
    const std::size_t before = pieces_.size();
    const auto is_closed = [&](const std::unique_ptr<piece>& each) {
      if (!pick(each)) return false;
      if (each->of.is_passable == 0) (void)api::close(each->base);
      return true;
    };
    pieces_.erase(std::remove_if(pieces_.begin(), pieces_.end(), is_closed), pieces_.end());
    return pieces_.size() != before;
  }

  std::vector<std::unique_ptr<piece>> pieces_;
  std::uint64_t taken_ = 0;
};

}  // namespace colls::cuda
