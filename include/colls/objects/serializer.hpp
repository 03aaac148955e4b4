// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// serializer: how an object becomes bytes and is made of them.

#include <colls/objects/archive.hpp>

#include <span>
#include <type_traits>
#include <vector>

namespace colls {

/// How the calls of <colls/objects.hpp> write and read an object of type `T`. By default, `T` is
/// written by the serialisation library cereal: arithmetic types, enumerations, structs that
/// collectives take as elements, the strings, containers, pairs, tuples, optionals, variants and
/// unique pointers of the standard library, and any type with a member function
///
///     template <class Archive> void serialize(Archive& archive) { archive(first, second); }
///
/// or one of the other functions that cereal knows. A program can specialise this template for a
/// type of its own. `read` must not trust the bytes, which a peer has sent. Both may throw.
template <class T>
struct serializer {
  /// Appends the bytes of `value` to `bytes`.
  static void write(const T& value, std::vector<std::byte>& bytes) {
    constexpr bool can_write =
        cereal::traits::is_output_serializable<T, detail::object_writer>::value;
    static_assert(can_write,
                  "colls: this type cannot be serialised: give it a member `template <class "
                  "Archive> void serialize(Archive& archive) { archive(a, b); }`, or specialise "
                  "colls::serializer");
    if constexpr (can_write) {
      detail::object_writer archive(bytes);
      archive(value);
      archive.finish();
    }
  }
  /// Returns the value whose bytes `write` has appended.
  static T read(std::span<const std::byte> bytes) {
    constexpr bool can_read =
        cereal::traits::is_input_serializable<T, detail::object_reader>::value;
    static_assert(std::is_default_constructible_v<T>,
                  "colls: an object that a rank receives is default constructed first: give its "
                  "type a default constructor, or specialise colls::serializer");
    if constexpr (can_read && std::is_default_constructible_v<T>) {
      detail::object_reader archive(bytes);
      T value{};
      archive(value);
      archive.finish();
      return value;
    }
  }
};

}  // namespace colls
