// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// archive: the archives of cereal by which objects become bytes and bytes become objects. The bytes
// are little-endian and have no type information.
//
// The bytes may come from a peer that cannot be trusted. Therefore the memory that a reader
// allocates is bounded by the number of bytes that it reads, times the size of an element: all
// containers together cannot have more elements than there are bytes. A writer adds bytes if the
// elements of an object need less than a byte each.

#include <colls/base/element_type.hpp>

#include <cereal/archives/binary.hpp>
#include <cereal/cereal.hpp>
#include <cereal/types/array.hpp>
#include <cereal/types/bitset.hpp>
#include <cereal/types/chrono.hpp>
#include <cereal/types/common.hpp>
#include <cereal/types/complex.hpp>
#include <cereal/types/deque.hpp>
#include <cereal/types/forward_list.hpp>
#include <cereal/types/list.hpp>
#include <cereal/types/map.hpp>
#include <cereal/types/memory.hpp>
#include <cereal/types/optional.hpp>
#include <cereal/types/set.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/tuple.hpp>
#include <cereal/types/unordered_map.hpp>
#include <cereal/types/unordered_set.hpp>
#include <cereal/types/utility.hpp>
#include <cereal/types/variant.hpp>
#include <cereal/types/vector.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

namespace colls::detail {

/// Counts how deep the object is nested that an archive is in. Objects that refer to objects of the
/// same type could otherwise overflow the stack.
class nesting {
 public:
  void enter() {
    if (++depth_ > max_depth) throw cereal::Exception("an object is nested too deep");
  }
  void leave() { --depth_; }

 private:
  static constexpr int max_depth = 1000;
  int depth_ = 0;
};

class object_writer : public cereal::OutputArchive<object_writer, cereal::AllowEmptyClassElision>,
                      public nesting {
 public:
  explicit object_writer(std::vector<std::byte>& bytes)
      : OutputArchive(this), bytes_(bytes), begin_(bytes.size()) {}

  void append(const void* data, std::size_t size) {
    const auto* const first = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), first, first + size);
  }
  void add_elements(std::size_t count) { elements_ += count; }
  /// Called after the last object was written.
  void finish() {
    if (bytes_.size() - begin_ < elements_) bytes_.resize(begin_ + elements_);
  }

 private:
  std::vector<std::byte>& bytes_;
  std::size_t begin_;
  std::size_t elements_ = 0;  // of all containers
};

class object_reader : public cereal::InputArchive<object_reader, cereal::AllowEmptyClassElision>,
                      public nesting {
 public:
  explicit object_reader(std::span<const std::byte> bytes)
      : InputArchive(this), rest_(bytes), elements_left_(bytes.size()), size_(bytes.size()) {}

  void take(void* data, std::size_t size) {
    if (size > rest_.size()) throw cereal::Exception("the bytes of an object end too early");
    if (size != 0) std::memcpy(data, rest_.data(), size);
    rest_ = rest_.subspan(size);
  }
  void take_elements(std::size_t count) {
    if (count > elements_left_) {
      throw cereal::Exception("a container has more elements than its object has bytes");
    }
    elements_left_ -= count;
  }
  /// Called after the last object was read. Throws if bytes are left that no writer would write.
  void finish() const {
    const std::size_t elements = size_ - elements_left_;
    if (!rest_.empty() && elements < size_) {
      throw cereal::Exception("more bytes came than the object has");
    }
  }

 private:
  std::span<const std::byte> rest_;
  std::size_t elements_left_;
  std::size_t size_;
};

/// Satisfied by structs that calls take as elements and that have no serialisation of their own:
/// their bytes are copied.
template <class T>
concept copied_as_bytes =
    std::is_class_v<T> && supported_type<T> && std::is_default_constructible_v<T> &&
    std::is_copy_assignable_v<T> &&
    !cereal::traits::is_output_serializable<T, cereal::BinaryOutputArchive>::value;

// ---- what cereal calls, found by the namespace of the archive

template <class T>
  requires std::is_arithmetic_v<T>
void save(object_writer& archive, const T& value) {
  archive.append(&value, sizeof value);
}
template <class T>
  requires std::is_arithmetic_v<T>
void load(object_reader& archive, T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    std::uint8_t byte = 0;
    archive.take(&byte, sizeof byte);
    if (byte > 1) throw cereal::Exception("a bool is neither true nor false");
    value = byte == 1;
  } else {
    archive.take(&value, sizeof value);
  }
}
// cereal reads a second pointer to an object without a check of its type, so shared pointers in the
// bytes of a peer could be of any type.
template <class T>
void save(object_writer& archive, const std::shared_ptr<T>& pointer) = delete;
template <class T>
void load(object_reader& archive, std::shared_ptr<T>& pointer) = delete;
template <copied_as_bytes T>
void save(object_writer& archive, const T& value) {
  archive.append(&value, sizeof value);
}
template <copied_as_bytes T>
void load(object_reader& archive, T& value) {
  archive.take(&value, sizeof value);
}
template <class T>
void save(object_writer& archive, const cereal::BinaryData<T>& data) {
  archive.append(data.data, static_cast<std::size_t>(data.size));
}
template <class T>
void load(object_reader& archive, cereal::BinaryData<T>& data) {
  archive.take(data.data, static_cast<std::size_t>(data.size));
}
template <class T>
void save(object_writer& archive, const cereal::SizeTag<T>& tag) {
  const auto count = static_cast<std::uint64_t>(tag.size);
  archive.add_elements(count);
  archive.append(&count, sizeof count);
}
template <class T>
void load(object_reader& archive, cereal::SizeTag<T>& tag) {
  std::uint64_t count = 0;
  archive.take(&count, sizeof count);
  archive.take_elements(count);
  tag.size = static_cast<std::remove_reference_t<T>>(count);
}
template <class Archive>
concept object_archive =
    std::is_same_v<Archive, object_writer> || std::is_same_v<Archive, object_reader>;
template <object_archive Archive, class T>
void serialize(Archive& archive, cereal::NameValuePair<T>& pair) {
  archive(pair.value);
}
template <object_archive Archive, class T>
void prologue(Archive& archive, const T&) {
  archive.enter();
}
template <object_archive Archive, class T>
void epilogue(Archive& archive, const T&) {
  archive.leave();
}

}  // namespace colls::detail

CEREAL_SETUP_ARCHIVE_TRAITS(colls::detail::object_reader, colls::detail::object_writer)
