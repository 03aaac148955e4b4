// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// exportable_memory: device memory that other processes can map through a file descriptor. The
// memory exists as long as any process has it mapped, even after its owner has freed it.

#include <colls/cuda/check.hpp>
#include <colls/os/descriptor.hpp>

#include <fcntl.h>

#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace colls::cuda {

/// A handle to physical device memory. The destructor releases the handle.
class physical_memory {
 public:
  physical_memory() = default;
  physical_memory(const physical_memory&) = delete;
  ~physical_memory() {
    if (has_handle_) (void)api::drop_physical(handle_);
  }
  api::status create(std::size_t bytes, int device) {
    return keep_if(api::make_physical(handle_, bytes, device));
  }
  api::status import(int fd) { return keep_if(api::import_physical(handle_, fd)); }
  api::physical get() const { return handle_; }

 private:
  api::status keep_if(api::status result) {
    has_handle_ = result == api::success;
    return result;
  }

  api::physical handle_;
  bool has_handle_ = false;
};

/// A mapping of physical device memory into the address space of this process. The mapping stays
/// valid after the handle to the memory has been released.
class mapped_physical {
 public:
  mapped_physical() = default;
  mapped_physical(const mapped_physical&) = delete;
  ~mapped_physical() {
    if (is_mapped_) (void)api::unmap(base_, size_);
    if (base_ != nullptr) (void)api::unreserve(base_, size_);
  }

  /// Maps `memory`, which has `size` bytes, and lets `device` access the mapping.
  api::status open(const physical_memory& memory, std::size_t size, int device) {
    size_ = size;
    api::status result = api::reserve(base_, size);
    if (result != api::success) base_ = nullptr;
    if (result == api::success) result = api::map(base_, size, memory.get());
    is_mapped_ = result == api::success;
    return is_mapped_ ? api::set_access(device, base_, size) : result;
  }
  /// Lets other devices of this process access this mapping. `devices` must contain one device,
  /// namely the device that contains the mapped memory. This function gives access to every other
  /// device that can access the memory of that device, and appends these devices to `devices`.
  api::status set_access_of_peers(std::vector<int>& devices) {
    const int device = devices.front();
    int count = 0;
    api::status result = api::count_devices(count);
    for (int other = 0; other < count && result == api::success; ++other) {
      bool can = false;
      if (other != device) result = api::can_access_peer(can, other, device);
      if (result != api::success || !can) continue;
      result = api::set_access(other, base_, size_);
      devices.push_back(other);
    }
    return result;
  }
  std::byte* data() const { return static_cast<std::byte*>(base_); }
  std::size_t size() const { return size_; }

 private:
  void* base_ = nullptr;
  std::size_t size_ = 0;
  bool is_mapped_ = false;
};

/// Device memory that this process can export to other processes. All functions are thread-safe.
class exportable_memory {
 public:
  /// The streams that use the memory: streams of the user, or only streams of colls. When the last
  /// pointer to the memory is destroyed, the user's streams may still be using the memory, but the
  /// streams of colls have already stopped using it.
  enum class usage : std::uint8_t { user_streams, own_streams };

  /// Allocates at least `size` bytes in the memory of `device`, with undefined contents. The memory
  /// is freed when the last copy of the returned pointer is destroyed. If `kind` is `user_streams`,
  /// the memory is freed only after all devices that can access it have done their current work.
  /// Sets `result` to the status of the allocation. Returns null if the allocation fails.
  static std::shared_ptr<std::byte> allocate(std::size_t size, int device, usage kind,
                                             api::status& result) {
    auto memory = std::make_shared<exportable_memory>();
    result = memory->make(size, device);
    if (result != api::success) return nullptr;
    memory->usage_ = kind;
    registry& all = instances();
    const std::lock_guard lock(all.mutex);
    memory->number_ = ++all.last_number;
    const auto address = reinterpret_cast<std::uintptr_t>(memory->mapping_.data());
    all.by_address.emplace(address, memory.get());
    memory->address_ = address;
    return {memory, memory->mapping_.data()};
  }
  exportable_memory() = default;
  exportable_memory(const exportable_memory&) = delete;
  ~exportable_memory() {
    if (address_ == 0) return;
    {
      registry& all = instances();
      const std::lock_guard lock(all.mutex);
      all.by_address.erase(address_);
    }
    if (usage_ == usage::own_streams) return;
    int before = devices_.front();
    (void)api::current_device(before);
    for (const int device : devices_) {
      bool works = false;
      if (api::is_in_use(works, device) == api::success && !works) continue;
      (void)api::use_device(device);
      (void)api::synchronize_device();
    }
    restore_device(before);
  }

  /// Sets `allocation` to the exportable allocation that contains `pointer`. Returns false if there
  /// is no such allocation.
  static bool find(const void* pointer, api::allocation& allocation) {
    registry& all = instances();
    const std::lock_guard lock(all.mutex);
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    auto next = all.by_address.upper_bound(address);
    if (next == all.by_address.begin()) return false;
    const exportable_memory& candidate = *(--next)->second;
    if (address - candidate.address_ >= candidate.mapping_.size()) return false;
    allocation = {candidate.mapping_.data(), candidate.mapping_.size(), candidate.number_};
    return true;
  }
  /// Creates a file descriptor of an allocation, calls `use(fd)`, and then closes the descriptor.
  /// `base` and `number` are the address and the number of the allocation, as `find` reports them.
  /// Does nothing if this allocation has been freed, or if CUDA cannot create the descriptor.
  template <class Use>
  static void use_descriptor(std::uint64_t base, std::uint64_t number, const Use& use) {
    registry& all = instances();
    const std::lock_guard lock(all.mutex);
    const auto found = all.by_address.find(base);
    if (found == all.by_address.end() || found->second->number_ != number) return;
    int fd = -1;
    if (api::export_physical(fd, found->second->memory_.get()) != api::success) return;
    const colls::detail::descriptor closing(fd);
    (void)::fcntl(fd, F_SETFD, FD_CLOEXEC);  // the CUDA driver may not have set the flag
    use(fd);
  }

 private:
  struct registry {
    std::mutex mutex;
    std::map<std::uintptr_t, exportable_memory*> by_address;
    std::uint64_t last_number = 0;
  };
  static registry& instances() {
    static registry& all = *new registry;  // leaked, because memory may outlive static objects
    return all;
  }

  api::status make(std::size_t size, int device) {
    devices_ = {device};
    std::size_t unit = 0;
    api::status result = api::find_granularity(unit, device);
    if (result != api::success) return result;
    const std::size_t rounded = (size / unit + (size % unit != 0 ? 1 : 0)) * unit;
    result = memory_.create(rounded, device);
    if (result == api::success) result = mapping_.open(memory_, rounded, device);
    return result == api::success ? mapping_.set_access_of_peers(devices_) : result;
  }

  usage usage_ = usage::user_streams;
  std::vector<int> devices_;  // all devices that may access the memory; the first one contains it
  std::uint64_t number_ = 0;
  std::uintptr_t address_ = 0;
  physical_memory memory_;  // kept, so that `use_descriptor` can export the memory
  mapped_physical mapping_;
};

}  // namespace colls::cuda
