// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// element_type: the types of elements that collectives accept. A number identifies each type. Ranks
// compare these numbers to check that all of them call a collective with the same element type.

#include <colls/base/half.hpp>

#include <concepts>
#include <cstddef>

namespace colls {

/// A value and its index. This is the element type of the operations `min_loc` and `max_loc`.
template <class T>
struct value_index {
  T value;
  std::int64_t index;

  friend constexpr bool operator==(const value_index&, const value_index&) = default;
};

namespace detail {

template <class T>
concept range_like = requires(T& t) {
  t.begin();
  t.end();
} || requires(T& t) {
  t.data();
  t.size();
};

/// The type of colls with the same representation and meaning as T. For the CUDA types `__half` and
/// `__nv_bfloat16`, this type is float16 or bfloat16 (see <colls/cuda/half.cuh>). For all other
/// types, it is T itself.
template <class T>
struct counterpart {
  using type = T;
};
template <class T>
using counterpart_t = typename counterpart<T>::type;

template <class T>
concept number = std::is_arithmetic_v<T> || half_type<T>;

/// True for each type std::complex<T>. The test depends only on the structure of the type, so that
/// this header need not include <complex>, which is large.
template <class T>
inline constexpr bool is_complex = false;
template <template <class> class Complex, std::floating_point T>
inline constexpr bool is_complex<Complex<T>> =
    sizeof(Complex<T>) == 2 * sizeof(T) && requires(const Complex<T>& z) {
      { z.real() } -> std::same_as<T>;
      { z.imag() } -> std::same_as<T>;
    };
template <class T>
concept complex_number = is_complex<T>;

template <class T>
inline constexpr bool is_value_index = false;
template <class T>
inline constexpr bool is_value_index<value_index<T>> = true;

/// A type with the member `static constexpr const char* name`. A type with a non-static member
/// `name` does not satisfy this concept.
template <class T>
concept named = std::convertible_to<decltype(T::name), const char*> &&
                requires { typename std::bool_constant<(T::name[0] != 0)>; };

/// A 32-bit FNV-1a hash of numbers and texts. The hash does not depend on the compiler.
class name_hash {
 public:
  constexpr name_hash& add(std::uint64_t number) {
    for (int i = 0; i < 8; ++i) add_byte(static_cast<std::uint32_t>(number >> (8 * i)) & 0xffu);
    return *this;
  }
  constexpr name_hash& add(const char* text) {
    for (; *text != 0; ++text) add_byte(static_cast<unsigned char>(*text));
    return *this;
  }
  /// Returns the number that identifies a user-defined type or operation. The number is the hash
  /// with its highest bit set to 1. It differs from the numbers of all built-in types and
  /// operations, because their highest bit is 0.
  constexpr std::uint32_t user_id() const { return hash_ | 0x8000'0000u; }

 private:
  constexpr void add_byte(std::uint32_t byte) { hash_ = (hash_ ^ byte) * 16777619u; }

  std::uint32_t hash_ = 2166136261u;
};

/// The kind of a built-in type. The number of a built-in type consists of its kind and its size in
/// bytes.
enum class type_kind : std::uint32_t {
  boolean = 1,
  signed_integer,
  unsigned_integer,
  ieee_float,
  brain_float,
  ieee_complex,
  extended_float,
  extended_complex,
};
inline constexpr std::uint32_t value_index_flag = 0x10000;

constexpr std::uint32_t id_of(type_kind kind, std::size_t size) {
  return static_cast<std::uint32_t>(kind) << 8 | static_cast<std::uint32_t>(size);
}

/// True if T has the 80-bit floating-point format of the x87, whose significand has 64 bits. The
/// size of T is not a sufficient test, because the 128-bit format of IEEE 754 can have the same
/// size.
template <class T>
inline constexpr bool is_extended = std::numeric_limits<T>::digits == 64;

}  // namespace detail

/// An element type that collectives accept. This is any arithmetic type, std::complex, float16,
/// bfloat16, and any other trivially copyable type that is not a pointer, array, range or span.
template <class T>
concept supported_type =
    std::is_object_v<T> && std::same_as<T, std::remove_cv_t<T>> &&
    std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> && !std::is_member_pointer_v<T> &&
    !std::is_null_pointer_v<T> && !std::is_array_v<T> && !detail::range_like<T>;

/// Returns the number that identifies T in the fingerprint of a call. Ranks compare fingerprints to
/// check that all of them make the same call. The number does not depend on the compiler. Built-in
/// types have fixed numbers. `long` and `long long` have the same number if they have the same
/// size. An enumeration has the number of its underlying type. The number of any other type is a
/// hash of its size and its alignment. If the type has a `static constexpr const char* name`, the
/// hash includes this name.
template <supported_type T>
constexpr std::uint32_t type_id() {
  using detail::id_of;
  using detail::type_kind;
  if constexpr (!std::is_same_v<T, detail::counterpart_t<T>>) {
    return type_id<detail::counterpart_t<T>>();
  } else if constexpr (std::is_same_v<T, bool>) {
    return id_of(type_kind::boolean, sizeof(T));
  } else if constexpr (std::is_enum_v<T>) {
    return type_id<std::underlying_type_t<T>>();
  } else if constexpr (std::is_integral_v<T>) {
    return id_of(std::is_signed_v<T> ? type_kind::signed_integer : type_kind::unsigned_integer,
                 sizeof(T));
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return id_of(type_kind::brain_float, sizeof(T));
  } else if constexpr (detail::number<T>) {
    return id_of(detail::is_extended<T> ? type_kind::extended_float : type_kind::ieee_float,
                 sizeof(T));
  } else if constexpr (detail::complex_number<T>) {
    return id_of(detail::is_extended<decltype(T().real())> ? type_kind::extended_complex
                                                           : type_kind::ieee_complex,
                 sizeof(T));
  } else if constexpr (detail::is_value_index<T>) {
    return detail::value_index_flag | type_id<decltype(T::value)>();
  } else {
    detail::name_hash hash;
    hash.add(sizeof(T)).add(alignof(T));
    if constexpr (detail::named<T>) hash.add(static_cast<const char*>(T::name));
    return hash.user_id();
  }
}

/// Returns the name of the type whose number is `id`, as it appears in command lines, error
/// messages and JSON. Returns "user type" if the type is not built in.
constexpr const char* type_name(std::uint32_t id) {
  using detail::id_of;
  using detail::type_kind;
  switch (id) {
    case id_of(type_kind::boolean, 1):
      return "bool";
    case id_of(type_kind::signed_integer, 1):
      return "int8";
    case id_of(type_kind::signed_integer, 2):
      return "int16";
    case id_of(type_kind::signed_integer, 4):
      return "int32";
    case id_of(type_kind::signed_integer, 8):
      return "int64";
    case id_of(type_kind::signed_integer, 16):
      return "int128";
    case id_of(type_kind::unsigned_integer, 1):
      return "uint8";
    case id_of(type_kind::unsigned_integer, 2):
      return "uint16";
    case id_of(type_kind::unsigned_integer, 4):
      return "uint32";
    case id_of(type_kind::unsigned_integer, 8):
      return "uint64";
    case id_of(type_kind::unsigned_integer, 16):
      return "uint128";
    case id_of(type_kind::ieee_float, 2):
      return "float16";
    case id_of(type_kind::ieee_float, 4):
      return "float";
    case id_of(type_kind::ieee_float, 8):
      return "double";
    case id_of(type_kind::ieee_float, 16):
      return "float128";
    case id_of(type_kind::brain_float, 2):
      return "bfloat16";
    case id_of(type_kind::ieee_complex, 8):
      return "complex_float";
    case id_of(type_kind::ieee_complex, 16):
      return "complex_double";
    case id_of(type_kind::ieee_complex, 32):
      return "complex_float128";
    case id_of(type_kind::extended_float, 12):
    case id_of(type_kind::extended_float, 16):
      return "long_double";
    case id_of(type_kind::extended_complex, 24):
    case id_of(type_kind::extended_complex, 32):
      return "complex_long_double";
  }
  return id < 2 * detail::value_index_flag && id > detail::value_index_flag ? "value_index"
                                                                            : "user type";
}

namespace detail {

/// Returns true if `id` is the number of a type that is not built in.
constexpr bool is_user_type(std::uint32_t id) { return (id & 0x8000'0000u) != 0; }

}  // namespace detail

}  // namespace colls
