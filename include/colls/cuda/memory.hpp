// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// memory: owning buffers in device memory and in pinned host memory, and pools of such buffers.

#include <colls/cuda/check.hpp>

#include <utility>
#include <vector>

namespace colls::cuda {

namespace detail {

/// An array whose memory is allocated by `Allocate` and freed by `Free`, which are wrappers of CUDA
/// functions.
template <class T, api::status (*Allocate)(void*&, std::size_t), api::status (*Free)(void*)>
class owned {
 public:
  owned() = default;
  explicit owned(std::size_t count, const char* call) : count_(count) {
    if (count > static_cast<std::size_t>(PTRDIFF_MAX) / sizeof(T)) {
      throw error(errc::not_enough_memory, call);
    }
    if (count != 0) check(Allocate(memory_, count * sizeof(T)), call);
  }
  owned(owned&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  owned& operator=(owned&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~owned() {
    if (memory_ != nullptr) (void)Free(memory_);
  }

  T* data() const { return static_cast<T*>(memory_); }
  std::size_t size() const { return count_; }
  /// Gives up ownership, so that the memory is never freed.
  void release() { memory_ = nullptr; }

 private:
  void* memory_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace detail

/// An array of `count` elements with undefined values in the memory of the thread's current device.
template <class T>
class device_buffer : public detail::owned<T, api::allocate, api::release> {
 public:
  device_buffer() = default;
  explicit device_buffer(std::size_t count)
      : detail::owned<T, api::allocate, api::release>(count, "cudaMalloc") {}

  device_span<T> span() const { return {this->data(), this->size()}; }
};

/// An array of `count` elements with undefined values in page-locked host memory, which any device
/// can access. Allocating and freeing such memory is slow.
template <class T>
class pinned_buffer : public detail::owned<T, api::allocate_pinned, api::release_pinned> {
 public:
  pinned_buffer() = default;
  explicit pinned_buffer(std::size_t count)
      : detail::owned<T, api::allocate_pinned, api::release_pinned>(count, "cudaHostAlloc") {}
};

/// A registration of host memory with CUDA, so that streams can write to the memory. The
/// registration lasts for the lifetime of this object. The object converts to false if the
/// registration failed.
class host_registration {
 public:
  explicit host_registration(mutable_bytes bytes)
      : memory_(bytes.data),
        good_(bytes.size != 0 && api::pin(memory_, bytes.size) == api::success) {}
  host_registration(const host_registration&) = delete;
  ~host_registration() {
    if (good_) (void)api::unpin(memory_);
  }

  explicit operator bool() const { return good_; }

 private:
  void* memory_;
  bool good_;
};

/// A list of unused values. `take` removes a value from the list, and `give` adds one. `take`
/// prefers the value that `give` has added last. `take` also destroys old values, that is, values
/// that have been in the list for more than `max_age` calls of `take`. Therefore the list does not
/// keep many more values than the program has recently used at the same time.
template <class T>
class free_list {
 public:
  static constexpr std::uint64_t max_age = 1024;

  /// Removes from the list a value for which `fits(value)` is true, and returns this value. Returns
  /// `make()` if the list contains no such value. Also destroys every value that has been in the
  /// list for more than `max_age` calls and for which `can_destroy(value)` is true.
  template <class Fits, class CanDestroy, class Make>
  T take(const Fits& fits, const CanDestroy& can_destroy, const Make& make) {
    ++now_;
    for (auto it = entries_.begin(); it != entries_.end() && it->time + max_age < now_;) {
      if (!can_destroy(it->value)) {
        ++it;
        continue;
      }
      it = entries_.erase(it);
      --total_;
    }
    for (auto it = entries_.end(); it != entries_.begin();) {
      if (!fits((--it)->value)) continue;
      T value = std::move(it->value);
      entries_.erase(it);
      return value;
    }
    entries_.reserve(++total_);  // so that `give` never has to allocate
    return make();
  }
  void give(T&& used) noexcept { entries_.push_back({std::move(used), now_}); }
  template <class Use>
  void for_each(const Use& use) const {
    for (const entry& unused : entries_) use(unused.value);
  }

 private:
  struct entry {
    T value;
    std::uint64_t time;
  };
  std::vector<entry> entries_;  // the values that have been unused longest come first
  std::size_t total_ = 0;
  std::uint64_t now_ = 0;  // the number of calls of `take`
};

/// A pool of memory blocks whose sizes are powers of two. The template parameter `Buffer` selects
/// device memory or pinned memory. Only one thread may use the pool.
template <class Buffer>
class memory_pool {
 public:
  explicit memory_pool(int device) : device_(device) {}

  class block {
   public:
    block(memory_pool& pool, std::size_t bytes) : pool_(pool), memory_(pool.take(bytes)) {}
    block(const block&) = delete;
    ~block() { pool_.free_.give(std::move(memory_)); }
    std::byte* data() const { return memory_.data(); }

   private:
    memory_pool& pool_;
    Buffer memory_;
  };

 private:
  static constexpr std::size_t min_size = 4096;

  Buffer take(std::size_t bytes) {
    std::size_t size = min_size;
    while (size < bytes) size *= 2;
    const auto fits = [size](const Buffer& kept) { return kept.size() == size; };
    const auto can_destroy = [](const Buffer&) { return true; };
    const auto make = [this, size] {
      const on_device guard(device_);
      return Buffer(size);
    };
    return free_.take(fits, can_destroy, make);
  }

  int device_;
  free_list<Buffer> free_;
};
using pinned_pool = memory_pool<pinned_buffer<std::byte>>;
using device_pool = memory_pool<device_buffer<std::byte>>;

}  // namespace colls::cuda
