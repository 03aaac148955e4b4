// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// ipc_memory: describes this rank's device buffers to other ranks, and maps the buffers that other
// ranks describe.

#include <colls/cuda/exportable_memory.hpp>

#include <algorithm>
#include <memory>
#include <vector>

namespace colls::cuda {

/// The description of a device buffer, which the buffer's owner sends to other ranks. These ranks
/// use the description to map the buffer. To map exportable memory, they also need a file
/// descriptor, which the owner sends separately.
struct remote_buffer {
  api::memory_handle handle;
  std::uint64_t address = 0;  // the address in the process that owns the buffer
  std::uint64_t size = 0;     // the size in bytes, or 0 if there is no buffer
  std::uint64_t allocation_base = 0;
  std::uint64_t allocation_size = 0;
  std::uint64_t allocation_number = 0;
  std::int64_t share_status = 0;   // why others cannot map the buffer, or 0 if they can
  std::int64_t is_exportable = 0;  // 1 if others map the buffer by a descriptor, not `handle`
};

/// A cache of the CUDA IPC handles of this rank's allocations. `describe` uses the cache to
/// describe buffers in these allocations to other ranks.
class handle_cache {
 public:
  remote_buffer describe(const_bytes data) {
    remote_buffer buffer;
    if (data.size == 0) return buffer;
    buffer.address = reinterpret_cast<std::uintptr_t>(data.data);
    buffer.size = data.size;
    api::allocation allocation;
    if (exportable_memory::find(data.data, allocation)) {
      buffer.is_exportable = 1;
    } else {
      buffer.share_status = api::find_allocation(data.data, allocation);
    }
    if (buffer.share_status != api::success) return buffer;
    buffer.allocation_base = reinterpret_cast<std::uintptr_t>(allocation.base);
    buffer.allocation_size = allocation.size;
    buffer.allocation_number = allocation.number;
    if (buffer.is_exportable != 0) return buffer;
    for (const entry& cached : entries_) {
      if (cached.number != allocation.number || cached.base != allocation.base) continue;
      buffer.handle = cached.handle;
      return buffer;
    }
    buffer.share_status = api::share(buffer.handle, allocation.base);
    if (buffer.share_status != api::success) return buffer;
    if (entries_.size() == max_entries) entries_.erase(entries_.begin());
    entries_.push_back({allocation.number, allocation.base, buffer.handle});
    return buffer;
  }

 private:
  static constexpr std::size_t max_entries = 64;
  struct entry {
    std::uint64_t number;
    const std::byte* base;
    api::memory_handle handle;
  };
  std::vector<entry> entries_;
};

/// A cache that maps allocations of other processes into this process. It keeps unused mappings.
/// Before `acquire` maps an allocation, it closes unused mappings in three cases. If an old mapping
/// of the same process's memory overlaps with the allocation, that process has freed the old
/// memory, and `acquire` closes the old mapping. If too many allocations are mapped, it closes the
/// unused mapping that was used least recently. If CUDA cannot open the allocation's IPC handle, it
/// closes all unused mappings of the same process's memory and tries again.
class mapped_memory {
 public:
  struct mapping {
    std::uint64_t process;  // the process that owns the memory, which may have several ranks
    remote_buffer buffer;
    void* base;
    int use_count;
    std::uint64_t last_use;
    mapped_physical physical{};  // only used for exportable memory
  };

  /// The status that `acquire` reports if exportable memory is not mapped yet and its descriptor
  /// has not arrived.
  static constexpr api::status needs_descriptor = api::not_ready;

  /// Returns a mapping of the allocation that contains `buffer`, a buffer of `process`. `device`
  /// can access the mapping until the caller passes it to `release`. `device` must be the thread's
  /// current device. `fd` is needed only for exportable memory. It is the descriptor of the
  /// allocation, or empty if the descriptor has not arrived. If the allocation cannot be mapped,
  /// returns null and sets `result` to the reason. Otherwise, the value of `result` is unspecified.
  mapping* acquire(std::uint64_t process, const remote_buffer& buffer,
                   const colls::detail::descriptor& fd, int device, api::status& result) {
    const std::uint64_t offset = buffer.address - buffer.allocation_base;
    result = api::invalid_value;
    if (offset > buffer.allocation_size || buffer.size > buffer.allocation_size - offset) {
      return nullptr;
    }
    for (const auto& known : mappings_) {
      if (known->process == process && known->buffer.allocation_base == buffer.allocation_base &&
          known->buffer.allocation_number == buffer.allocation_number &&
          known->buffer.is_exportable == buffer.is_exportable) {
        ++known->use_count;
        known->last_use = ++uses_;
        return known.get();
      }
    }
    result = needs_descriptor;
    if (buffer.is_exportable != 0 && !fd) return nullptr;
    const auto is_stale = [&](const std::unique_ptr<mapping>& known) {
      const remote_buffer& old = known->buffer;
      const bool is_disjoint =
          old.allocation_base + old.allocation_size <= buffer.allocation_base ||
          buffer.allocation_base + buffer.allocation_size <= old.allocation_base;
      return known->process == process && known->use_count == 0 && !is_disjoint;
    };
    close_if(is_stale);
    if (mappings_.size() >= max_mappings) {
      std::uint64_t oldest = UINT64_MAX;
      for (const auto& known : mappings_) {
        if (known->use_count == 0) oldest = std::min(oldest, known->last_use);
      }
      close_if([&](const std::unique_ptr<mapping>& known) { return known->last_use == oldest; });
    }
    auto opened = std::unique_ptr<mapping>(new mapping{process, buffer, nullptr, 1, ++uses_});
    if (buffer.is_exportable != 0) {
      physical_memory memory;
      result = memory.import(fd.get());
      if (result == api::success) {
        result = opened->physical.open(memory, buffer.allocation_size, device);
      }
      opened->base = opened->physical.data();
    } else {
      result = open(*opened);
    }
    if (result != api::success) return nullptr;
    mappings_.push_back(std::move(opened));
    return mappings_.back().get();
  }
  static void release(mapping& used) { --used.use_count; }

  /// Closes all mappings. None of them may be in use. The thread's current device must be the
  /// device that was passed to `acquire`.
  void close_all() {
    close_if([](const std::unique_ptr<mapping>&) { return true; });
  }

 private:
  static constexpr std::size_t max_mappings = 128;

  api::status open(mapping& opened) {
    api::status result = api::open(opened.base, opened.buffer.handle);
    if (result != api::success) {
      // The CUDA driver maps whole blocks of memory, and a block may contain several allocations.
      // The mapping fails if the owner has freed another allocation of the block but this process
      // still maps that allocation. Therefore this process closes its unused mappings of the
      // owner's memory before it tries again.
      const auto is_unused = [&](const std::unique_ptr<mapping>& known) {
        return known->process == opened.process && known->use_count == 0;
      };
      if (close_if(is_unused)) result = api::open(opened.base, opened.buffer.handle);
    }
    return result;
  }
  /// Closes all mappings for which `predicate(mapping)` returns true. Returns whether it has closed
  /// any mapping.
  template <class Predicate>
  bool close_if(const Predicate& predicate) {
    const std::size_t before = mappings_.size();
    const auto is_closed = [&](const std::unique_ptr<mapping>& known) {
      if (!predicate(known)) return false;
      if (known->buffer.is_exportable == 0) (void)api::close(known->base);
      return true;
    };
    mappings_.erase(std::remove_if(mappings_.begin(), mappings_.end(), is_closed), mappings_.end());
    return mappings_.size() != before;
  }

  std::vector<std::unique_ptr<mapping>> mappings_;
  std::uint64_t uses_ = 0;
};

}  // namespace colls::cuda
