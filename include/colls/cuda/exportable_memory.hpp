// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// passable: device memory that other processes get hold of by a descriptor. Each of them keeps it
// as long as it has it mapped, whether its owner has freed it or not.

#include <colls/cuda/check.hpp>
#include <colls/os/descriptor.hpp>

#include <fcntl.h>

#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace colls::cuda {

/// A handle of memory of a device; dropped with it.
class physical_memory {
 public:
  physical_memory() = default;
  physical_memory(const physical_memory&) = delete;
  ~physical_memory() {
    if (has_) (void)api::drop_physical(it_);
  }
  api::status make(std::size_t bytes, int device) {
    return held(api::make_physical(it_, bytes, device));
  }
  api::status import(int file) { return held(api::import_physical(it_, file)); }
  api::physical get() const { return it_; }

 private:
  api::status held(api::status how) {
    has_ = how == api::success;
    return how;
  }

  api::physical it_;
  bool has_ = false;
};

/// Such memory in this process's addresses. It needs no handle.
class mapped_physical {
 public:
  mapped_physical() = default;
  mapped_physical(const mapped_physical&) = delete;
  ~mapped_physical() {
    if (is_mapped_) (void)api::unmap(at_, size_);
    if (at_ != nullptr) (void)api::unreserve(at_, size_);
  }

  /// For `device` to work in.
  api::status open(const physical_memory& memory, std::size_t size, int device) {
    size_ = size;
    api::status how = api::reserve(at_, size);
    if (how != api::success) at_ = nullptr;
    if (how == api::success) how = api::map(at_, size, memory.get());
    is_mapped_ = how == api::success;
    return is_mapped_ ? api::let_in(device, at_, size) : how;
  }
  /// The other devices of this process that reach that one; adds them.
  api::status let_in_others(std::vector<int>& devices) {
    const int device = devices.front();
    int count = 0;
    api::status how = api::count_devices(count);
    for (int other = 0; other < count && how == api::success; ++other) {
      bool can = false;
      if (other != device) how = api::can_reach(can, other, device);
      if (how != api::success || !can) continue;
      how = api::let_in(other, at_, size_);
      devices.push_back(other);
    }
    return how;
  }
  std::byte* data() const { return static_cast<std::byte*>(at_); }
  std::size_t size() const { return size_; }

 private:
  void* at_ = nullptr;
  std::size_t size_ = 0;
  bool is_mapped_ = false;
};

/// Memory of a device that its process can pass to others. Of any thread.
class passable_memory {
 public:
  /// Whose streams work in it; users' do until it is freed.
  enum class work : std::uint8_t { of_users, of_colls };

  /// At least `size` bytes, undefined; freed with the last owner, after what users' streams do
  /// until then. Null: `why` says why not.
  static std::shared_ptr<std::byte> allocate(std::size_t size, int device, work who,
                                             api::status& why) {
    auto made = std::make_shared<passable_memory>();
    why = made->make(size, device);
    if (why != api::success) return nullptr;
    made->who_ = who;
    registry& all = known();
    const std::lock_guard lock(all.guard);
    made->number_ = ++all.made;
    const auto at = reinterpret_cast<std::uintptr_t>(made->place_.data());
    all.at.emplace(at, made.get());
    made->address_ = at;
    return {made, made->place_.data()};
  }
  passable_memory() = default;
  passable_memory(const passable_memory&) = delete;
  ~passable_memory() {
    if (address_ == 0) return;
    {
      registry& all = known();
      const std::lock_guard lock(all.guard);
      all.at.erase(address_);
    }
    if (who_ == work::of_colls) return;
    int before = devices_.front();
    (void)api::current_device(before);
    for (const int device : devices_) {
      bool works = false;
      if (api::is_in_use(works, device) == api::success && !works) continue;
      (void)api::use_device(device);
      (void)api::synchronize_device();
    }
    return_to(before);
  }

  /// Which of it `at` is in.
  static bool find(const void* at, api::allocation& found) {
    registry& all = known();
    const std::lock_guard lock(all.guard);
    const auto wanted = reinterpret_cast<std::uintptr_t>(at);
    auto after = all.at.upper_bound(wanted);
    if (after == all.at.begin()) return false;
    const passable_memory& near = *(--after)->second;
    if (wanted - near.address_ >= near.place_.size()) return false;
    found = {near.place_.data(), near.place_.size(), near.number_};
    return true;
  }
  /// `use(file)` with a descriptor of what lies at `base`, for that long; not where that has been
  /// freed, or the system gives none.
  template <class Use>
  static void with_descriptor(std::uint64_t base, std::uint64_t number, const Use& use) {
    registry& all = known();
    const std::lock_guard lock(all.guard);
    const auto found = all.at.find(base);
    if (found == all.at.end() || found->second->number_ != number) return;
    int file = -1;
    if (api::export_physical(file, found->second->memory_.get()) != api::success) return;
    const colls::detail::descriptor passed(file);
    (void)::fcntl(file, F_SETFD, FD_CLOEXEC);  // whatever the driver has made of it
    use(file);
  }

 private:
  struct registry {
    std::mutex guard;
    std::map<std::uintptr_t, passable_memory*> at;
    std::uint64_t made = 0;
  };
  static registry& known() {
    static registry& all = *new registry;  // memory may outlive whatever else is static
    return all;
  }

  api::status make(std::size_t size, int device) {
    devices_ = {device};
    std::size_t unit = 0;
    api::status how = api::find_unit(unit, device);
    if (how != api::success) return how;
    const std::size_t whole = (size / unit + (size % unit != 0 ? 1 : 0)) * unit;
    how = memory_.make(whole, device);
    if (how == api::success) how = place_.open(memory_, whole, device);
    return how == api::success ? place_.let_in_others(devices_) : how;
  }

  work who_ = work::of_users;
  std::vector<int> devices_;  // that may work there, its own first
  std::uint64_t number_ = 0;
  std::uintptr_t address_ = 0;
  physical_memory memory_;  // for descriptors, of which it has none between times
  mapped_physical place_;
};

}  // namespace colls::cuda
