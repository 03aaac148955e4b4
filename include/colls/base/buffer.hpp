// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// buffer: the types of buffers that calls and algorithms take. The type of a buffer determines
// whether the buffer lies in the memory of the CPU or of a GPU. Transports treat buffers as bytes.

#include <colls/base/algorithm_names.hpp>

#include <concepts>
#include <span>
#include <type_traits>

namespace colls {

/// Tag types for memory spaces: the memory of the CPU and the memory of a GPU.
struct host_memory {};
struct device_memory {};

/// The memory into which a receive may write: a pointer and a size in bytes. This type is not a
/// std::span, because compilers load a span from a coroutine frame with one 16-byte load. If the
/// pointer and the size have been stored by separate instructions, store forwarding to this load
/// fails and the load stalls.
struct mutable_bytes {
  std::byte* data = nullptr;
  std::size_t size = 0;
};

/// The memory from which a send may read: a pointer and a size in bytes.
struct const_bytes {
  const std::byte* data = nullptr;
  std::size_t size = 0;

  constexpr const_bytes() = default;
  constexpr const_bytes(const std::byte* first, std::size_t bytes) : data(first), size(bytes) {}
  constexpr const_bytes(mutable_bytes other) : data(other.data), size(other.size) {}
};

/// A reference to a CUDA stream. The member `handle` is the stream's `cudaStream_t`. It has the
/// type `void*`, so that this header need not include a CUDA header.
struct stream_ref {
  void* handle = nullptr;
};

/// A view of `count` elements in the memory of a GPU. The view does not own the elements.
template <class T>
struct device_span {
  using element_type = T;

  T* pointer = nullptr;
  std::size_t count = 0;

  constexpr T* data() const { return pointer; }
  constexpr std::size_t size() const { return count; }
  constexpr device_span subspan(std::size_t offset, std::size_t n) const {
    return {pointer + offset, n};
  }
};
template <class T>
device_span(T*, std::size_t) -> device_span<T>;

}  // namespace colls

template <class T>
inline constexpr bool std::ranges::enable_borrowed_range<colls::device_span<T>> = true;

namespace colls {

/// The element type of an `any_buffer`. It stands for an erased type of which only the size is
/// known.
struct any_element {};

/// A buffer in the memory of the CPU whose element type is erased. Communicators pass buffers to
/// algorithms in this form, so that each algorithm is compiled only once per transport.
class any_buffer {
 public:
  using element_type = any_element;

  constexpr any_buffer() = default;
  constexpr any_buffer(void* data, std::size_t count, std::size_t element_size)
      : data_(data), count_(count), element_size_(element_size) {}

  constexpr void* data() const { return data_; }
  constexpr std::size_t size() const { return count_; }
  constexpr std::size_t element_size() const { return element_size_; }
  constexpr any_buffer subspan(std::size_t offset, std::size_t n) const {
    return {data_ == nullptr ? nullptr : static_cast<std::byte*>(data_) + offset * element_size_, n,
            element_size_};
  }

 private:
  void* data_ = nullptr;
  std::size_t count_ = 0;
  std::size_t element_size_ = 1;
};

template <class Buffer>
using element_t = typename Buffer::element_type;

/// A type that algorithms accept as a buffer. The elements of a buffer are contiguous in memory.
/// `subspan` returns a part of a buffer as a buffer of the same type.
template <class Buffer>
concept buffer = requires(const Buffer& data, std::size_t n) {
  typename Buffer::element_type;
  { data.size() } -> std::convertible_to<std::size_t>;
  { data.subspan(n, n) } -> std::convertible_to<Buffer>;
  data.data();
};

/// The memory space of the buffers of type `Buffer`.
template <class Buffer>
struct memory_space {
  using type = host_memory;
};
template <class T>
struct memory_space<device_span<T>> {
  using type = device_memory;
};
template <class Buffer>
using memory_space_t = typename memory_space<Buffer>::type;

/// The memory space in which a transport expects the buffers of calls. Transports for the memory of
/// a GPU specialise this template.
template <class Transport>
struct transport_memory {
  using type = host_memory;
};
template <class Transport>
using transport_memory_t = typename transport_memory<Transport>::type;

/// Returns the size in bytes of one element of a buffer.
template <class Buffer>
constexpr std::size_t element_size(const Buffer& data) {
  if constexpr (std::same_as<element_t<Buffer>, any_element>) {
    return data.element_size();
  } else {
    return sizeof(element_t<Buffer>);
  }
}

/// Returns the memory of a buffer as an address and a size in bytes.
template <buffer Buffer>
mutable_bytes bytes(const Buffer& data) {
  return {
      static_cast<std::byte*>(const_cast<void*>(static_cast<const volatile void*>(data.data()))),
      data.size() * element_size(data)};
}

/// A buffer that is divided into one chunk per rank. `chunks{data, parts}[r]` is the chunk of rank
/// r, and the partition `parts` determines the position and the length of this chunk. If `ranks` is
/// a range of ranks, `chunks{data, parts}[ranks]` is one buffer that contains the chunks of all
/// these ranks. `data` may lack the chunks of the first ranks. In this case, the third argument of
/// the constructor is the first rank that has a chunk in `data`.
template <buffer Data, class Partition>
class chunks {
 public:
  chunks(Data data, Partition parts, int first = 0)
      : data_(data), parts_(parts), start_(first == 0 ? 0 : parts.offset(first)) {}

  Data operator[](int rank) const {
    return data_.subspan(parts_.offset(rank) - start_, parts_.count(rank));
  }
  template <class Ranks>
    requires requires(const Ranks& ranks) { ranks.first < ranks.last; }
  Data operator[](const Ranks& ranks) const {
    const std::size_t offset = parts_.offset(ranks.first);
    return data_.subspan(offset - start_, parts_.offset(ranks.last) - offset);
  }

 private:
  Data data_;
  Partition parts_;
  std::size_t start_;
};

}  // namespace colls
