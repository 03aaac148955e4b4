// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Memory of a device and pinned memory of the host, freed when their owner goes.

#include <colls/cuda/check.hpp>

#include <utility>
#include <vector>

namespace colls::cuda {

namespace detail {

/// Elements that a call of CUDA allocated and another one frees.
template <class T, api::status (*Take)(void*&, std::size_t), api::status (*Give)(void*)>
class owned {
 public:
  owned() = default;
  explicit owned(std::size_t count, const char* call) : count_(count) {
    if (count > static_cast<std::size_t>(PTRDIFF_MAX) / sizeof(T)) {
      throw error(errc::not_enough_memory, call);
    }
    if (count != 0) check(Take(memory_, count * sizeof(T)), call);
  }
  owned(owned&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  owned& operator=(owned&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~owned() {
    if (memory_ != nullptr) (void)Give(memory_);
  }

  T* data() const { return static_cast<T*>(memory_); }
  std::size_t size() const { return count_; }
  /// Nobody frees it.
  void leave() { memory_ = nullptr; }

 private:
  void* memory_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace detail

/// `count` elements in the memory of the thread's current device; what they hold is undefined.
template <class T>
class device_buffer : public detail::owned<T, api::allocate, api::release> {
 public:
  device_buffer() = default;
  explicit device_buffer(std::size_t count)
      : detail::owned<T, api::allocate, api::release>(count, "cudaMalloc") {}

  device_span<T> span() const { return {this->data(), this->size()}; }
};

/// `count` elements of page-locked memory of the host, which copies of any device reach by
/// themselves; what they hold is undefined. Taking and freeing it takes long.
template <class T>
class pinned_buffer : public detail::owned<T, api::allocate_pinned, api::release_pinned> {
 public:
  pinned_buffer() = default;
  explicit pinned_buffer(std::size_t count)
      : detail::owned<T, api::allocate_pinned, api::release_pinned>(count, "cudaHostAlloc") {}
};

/// Memory of the host that streams may write as long as this lives, if CUDA lets them.
class pinning {
 public:
  explicit pinning(mutable_bytes what)
      : memory_(what.data), good_(what.size != 0 && api::pin(memory_, what.size) == api::success) {}
  pinning(const pinning&) = delete;
  ~pinning() {
    if (good_) (void)api::unpin(memory_);
  }

  explicit operator bool() const { return good_; }

 private:
  void* memory_;
  bool good_;
};

/// What is kept for the next use: the last given is taken first, and what has lain unused while
/// `patience` others were taken goes, if it may. So no more stays than was lately in use at a time.
template <class T>
class spares {
 public:
  static constexpr std::uint64_t patience = 1024;

  /// One that `fits(it)`, else `make()`. `may_go(it)`: whether the one that lay longest may be
  /// destroyed now.
  template <class Fits, class MayGo, class Make>
  T take(const Fits& fits, const MayGo& may_go, const Make& make) {
    ++taken_;
    for (auto at = kept_.begin(); at != kept_.end() && at->since + patience < taken_;) {
      if (!may_go(at->what)) {
        ++at;
        continue;
      }
      at = kept_.erase(at);
      --made_;
    }
    for (auto at = kept_.end(); at != kept_.begin();) {
      if (!fits((--at)->what)) continue;
      T found = std::move(at->what);
      kept_.erase(at);
      return found;
    }
    kept_.reserve(++made_);  // so that giving it back cannot fail
    return make();
  }
  void give(T&& used) noexcept { kept_.push_back({std::move(used), taken_}); }
  template <class Use>
  void each(const Use& use) const {
    for (const spare& one : kept_) use(one.what);
  }

 private:
  struct spare {
    T what;
    std::uint64_t since;
  };
  std::vector<spare> kept_;  // the one that lay longest first
  std::size_t made_ = 0;
  std::uint64_t taken_ = 0;
};

/// Memory that is used again: blocks of powers of two bytes, of a device or pinned by it. For one
/// thread.
template <class Buffer>
class memory_pool {
 public:
  explicit memory_pool(int device) : device_(device) {}

  class block {
   public:
    block(memory_pool& of, std::size_t bytes) : pool_(of), memory_(of.take(bytes)) {}
    block(const block&) = delete;
    ~block() { pool_.free_.give(std::move(memory_)); }
    std::byte* data() const { return memory_.data(); }

   private:
    memory_pool& pool_;
    Buffer memory_;
  };

 private:
  static constexpr std::size_t smallest = 4096;

  Buffer take(std::size_t bytes) {
    std::size_t size = smallest;
    while (size < bytes) size *= 2;
    const auto fits = [size](const Buffer& kept) { return kept.size() == size; };
    const auto may_go = [](const Buffer&) { return true; };
    const auto make = [this, size] {
      const on_device guard(device_);
      return Buffer(size);
    };
    return free_.take(fits, may_go, make);
  }

  int device_;
  spares<Buffer> free_;
};
using pinned_pool = memory_pool<pinned_buffer<std::byte>>;
using device_pool = memory_pool<device_buffer<std::byte>>;

}  // namespace colls::cuda
