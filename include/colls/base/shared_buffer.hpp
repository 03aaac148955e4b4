// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// shared_buffer: buffers in memory that the ranks of one host can share. registered_buffer: views
// of such buffers for calls on one communicator.

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

/// Allocates `size` bytes of memory that only this process can access, and sets them to zero.
/// Returns null if there is not enough memory.
inline std::shared_ptr<std::byte> allocate_private_memory(std::size_t size) {
  constexpr std::align_val_t line{64};
  auto* const block = static_cast<std::byte*>(::operator new(size, line, std::nothrow));
  if (block == nullptr) return nullptr;
  std::memset(block, 0, size);
  return {block, [](std::byte* memory) { ::operator delete(memory, line); }};
}

}  // namespace detail

template <supported_type T, class Memory = host_memory>
class registered_buffer;

/// A buffer of `size()` elements. `comm.allocate<T>(n)` returns such a buffer, in which all bytes
/// are zero. The buffer owns its memory and must outlive all operations on this memory. It can be
/// passed, as a whole or in part, to any call on any communicator. A buffer in host memory is a
/// range. If the memory belongs to a GPU, collective calls and GPU kernels can access the elements,
/// but code on the CPU cannot.
template <supported_type T, class Memory = host_memory>
class shared_buffer {
 public:
  using value_type = T;
  static constexpr bool is_host = std::is_same_v<Memory, host_memory>;

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
    requires is_host
  {
    return data();
  }
  T* end()
    requires is_host
  {
    return data() + count_;
  }
  const T* begin() const
    requires is_host
  {
    return data();
  }
  const T* end() const
    requires is_host
  {
    return data() + count_;
  }
  T& operator[](std::size_t i)
    requires is_host
  {
    return data()[i];
  }
  const T& operator[](std::size_t i) const
    requires is_host
  {
    return data()[i];
  }
  device_span<T> span()
    requires(!is_host)
  {
    return {data(), count_};
  }

 private:
  friend class registered_buffer<T, Memory>;

  std::shared_ptr<std::byte> memory_;
  std::size_t count_ = 0;
};

/// A view of elements of a `shared_buffer` for calls on one communicator.
/// `comm.register_buffer(memory)` returns such a view. The view can be copied and does not own the
/// memory. If the memory was freed, or if the view is passed to a call on another communicator, the
/// call fails with `invalid_argument` and sends nothing.
template <supported_type T, class Memory>
class registered_buffer {
 public:
  using value_type = T;
  static constexpr bool is_host = std::is_same_v<Memory, host_memory>;

  registered_buffer() = default;
  registered_buffer(const shared_buffer<T, Memory>& source, std::size_t first, std::size_t count,
                    const void* owner)
      : memory_(source.memory_),
        data_(const_cast<T*>(source.data()) + first),
        count_(count),
        owner_(owner) {}

  T* data() const { return data_; }
  std::size_t size() const { return count_; }
  T* begin() const
    requires is_host
  {
    return data_;
  }
  T* end() const
    requires is_host
  {
    return data_ + count_;
  }
  T& operator[](std::size_t i) const
    requires is_host
  {
    return data_[i];
  }

  /// Returns the communicator that accepts this view, as `usage_error` takes it.
  const void* owner() const { return owner_; }
  /// Returns the reason why a call on `communicator` cannot use this buffer, or null if it can.
  const char* usage_error(const void* communicator) const {
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
