// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// shared_buffer: elements in memory that ranks of one host may share.

#include <colls/base/buffer.hpp>
#include <colls/base/element_type.hpp>

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace colls {

namespace detail {

inline constexpr char registered_and_freed[] =
    "the memory of a registered buffer was freed: keep it while calls use it";
inline constexpr char registered_elsewhere[] =
    "a buffer was registered with another communicator: register it with this one";

/// `size` bytes of zeros of this process alone; null: there is no memory.
inline std::shared_ptr<std::byte> own_memory(std::size_t size) {
  constexpr std::align_val_t line{64};
  auto* const made = static_cast<std::byte*>(::operator new(size, line, std::nothrow));
  if (made == nullptr) return nullptr;
  std::memset(made, 0, size);
  return {made, [](std::byte* memory) { ::operator delete(memory, line); }};
}

}  // namespace detail

template <supported_type T, class Memory = host_memory>
class registered_buffer;

/// What `comm.allocate<T>(n)` gives: `size()` elements, all zero bytes at first. A range like any
/// other: give it, or a part of it, to any call on any communicator. It lives as long as this
/// object, which is kept until the operations on it have ended. Of a device's memory it is for
/// calls and kernels: this process cannot look into it.
template <supported_type T, class Memory = host_memory>
class shared_buffer {
 public:
  using value_type = T;
  static constexpr bool is_hosts = std::is_same_v<Memory, host_memory>;

  shared_buffer() = default;
  shared_buffer(std::shared_ptr<std::byte> memory, std::size_t count)
      : memory_(std::move(memory)), count_(count) {}
  shared_buffer(shared_buffer&& other) noexcept
      : memory_(std::move(other.memory_)), count_(std::exchange(other.count_, 0)) {}
  shared_buffer& operator=(shared_buffer&& other) noexcept {
    memory_ = std::move(other.memory_);
    count_ = std::exchange(other.count_, 0);
    return *this;
  }

  T* data() { return reinterpret_cast<T*>(memory_.get()); }
  const T* data() const { return reinterpret_cast<const T*>(memory_.get()); }
  std::size_t size() const { return count_; }
  T* begin()
    requires is_hosts
  {
    return data();
  }
  T* end()
    requires is_hosts
  {
    return data() + count_;
  }
  const T* begin() const
    requires is_hosts
  {
    return data();
  }
  const T* end() const
    requires is_hosts
  {
    return data() + count_;
  }
  T& operator[](std::size_t i)
    requires is_hosts
  {
    return data()[i];
  }
  const T& operator[](std::size_t i) const
    requires is_hosts
  {
    return data()[i];
  }
  device_span<T> span()
    requires(!is_hosts)
  {
    return {data(), count_};
  }

 private:
  friend class registered_buffer<T, Memory>;

  std::shared_ptr<std::byte> memory_;
  std::size_t count_ = 0;
};

/// What `comm.register_buffer(memory)` gives: elements of memory from `allocate` for calls on that
/// communicator. Copied freely; it does not keep the memory. A call with one whose memory was
/// freed, or on another communicator, is `invalid_argument` and sends nothing.
template <supported_type T, class Memory>
class registered_buffer {
 public:
  using value_type = T;
  static constexpr bool is_hosts = std::is_same_v<Memory, host_memory>;

  registered_buffer() = default;
  registered_buffer(const shared_buffer<T, Memory>& of, std::size_t first, std::size_t count,
                    const void* owner)
      : memory_(of.memory_),
        data_(const_cast<T*>(of.data()) + first),
        count_(count),
        owner_(owner) {}

  T* data() const { return data_; }
  std::size_t size() const { return count_; }
  T* begin() const
    requires is_hosts
  {
    return data_;
  }
  T* end() const
    requires is_hosts
  {
    return data_ + count_;
  }
  T& operator[](std::size_t i) const
    requires is_hosts
  {
    return data_[i];
  }

  /// Null: a call of that communicator may use it.
  const char* wrong_with(const void* communicator) const {
    if (owner_ != communicator) return detail::registered_elsewhere;
    return memory_.expired() ? detail::registered_and_freed : nullptr;
  }

 private:
  std::weak_ptr<std::byte> memory_;
  T* data_ = nullptr;
  std::size_t count_ = 0;
  const void* owner_ = nullptr;
};

template <class T, class Memory>
struct memory_space<shared_buffer<T, Memory>> {
  using type = Memory;
};
template <class T, class Memory>
struct memory_space<registered_buffer<T, Memory>> {
  using type = Memory;
};

namespace detail {

template <class Range>
inline constexpr bool is_registered = false;
template <class T, class Memory>
inline constexpr bool is_registered<registered_buffer<T, Memory>> = true;

}  // namespace detail

}  // namespace colls
