// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// view_access: how calls access strided views, and what converts to a strided view, such as
// tensors.

#include <colls/base/element_type.hpp>
#include <colls/base/strided_view.hpp>
#include <colls/call/arguments.hpp>

#include <type_traits>

namespace colls {

/// A strided view or a tensor without its element type, as `view_access` returns it.
struct erased_view {
  any_view view;
  std::uint32_t type = 0;         // the id of the element type
  const char* problem = nullptr;  // why no call can use the data, or null
};

/// How calls access arguments of type `View` as strided views. A header that supports the tensors
/// of a library specialises this template. A specialisation has the static member functions
/// `erase(view)`, which returns an `erased_view`, and `with_element(view, f)`, which returns the
/// result of `f(std::type_identity<T>())` for the element type `T`. If a temporary of the type may
/// own its elements, it has the constant `owns`, which is true.
template <class View>
struct view_access;
template <class T>
struct view_access<strided_view<T>> {
  using element = std::remove_const_t<T>;
  static_assert(
      supported_type<element>,
      "colls: elements must be arithmetic, float16, bfloat16, std::complex or a trivially "
      "copyable struct that is no pointer, range or span");
  static constexpr bool is_const = std::is_const_v<T>;

  static erased_view erase(const strided_view<T>& view) {
    return {view.erased(), type_id<element>(), nullptr};
  }
  template <class Function>
  static auto with_element(const strided_view<T>&, const Function& function) {
    return function(std::type_identity<element>());
  }
};

/// Satisfied by a type that calls access as a strided view.
template <class View>
concept viewable = requires { sizeof(view_access<std::remove_cvref_t<View>>); };

namespace detail {

template <class Data>
concept data_argument = viewable<Data> || readable_range<Data>;
template <class Data>
concept optional_argument = data_argument<Data> || is_none<Data>;
/// Satisfied by the arguments of a call of which one is viewable. The others may be contiguous.
template <class... Data>
concept view_arguments = (viewable<Data> || ...) && (optional_argument<Data> && ...);

template <class Data>
constexpr bool is_const_view() {
  if constexpr (requires { view_access<std::remove_cvref_t<Data>>::is_const; }) {
    return view_access<std::remove_cvref_t<Data>>::is_const;
  } else {
    return false;
  }
}

template <class Data>
constexpr bool view_owns() {
  return requires { requires view_access<std::remove_cvref_t<Data>>::owns; };
}

/// The element type of an argument, or void if it is known at run time alone.
template <class Data>
constexpr auto identify_element() {
  using data = std::remove_cvref_t<Data>;
  if constexpr (viewable<Data>) {
    if constexpr (requires { typename data::element_type; }) {
      return std::type_identity<std::remove_const_t<typename data::element_type>>();
    } else {
      return std::type_identity<void>();
    }
  } else if constexpr (is_none<Data>) {
    return std::type_identity<void>();
  } else {
    return std::type_identity<range_element_t<Data>>();
  }
}
template <class Data>
using element_of = typename decltype(identify_element<Data>())::type;

template <class In, class Out>
constexpr void check_same_element() {
  using in = element_of<In>;
  using out = element_of<Out>;
  static_assert(std::is_void_v<in> || std::is_void_v<out> || std::is_same_v<in, out>,
                "colls: both buffers must have the same element type");
}

template <class Data>
constexpr void check_lasting_view() {
  static_assert(std::is_lvalue_reference_v<Data&&> || !view_owns<Data>(),
                "colls: the data is a temporary that may be destroyed before the operation ends: "
                "give it a name");
}

/// Returns `data`, which a call writes.
template <class Data>
Data&& written(Data&& data) {
  static_assert(!is_const_view<Data>(),
                "colls: the elements of this view are const, and the call writes them");
  if constexpr (readable_range<Data> && !viewable<Data>) {
    static_assert(writable_range<Data>, "colls: this buffer is const, and the call writes it");
  }
  return std::forward<Data>(data);
}
/// Returns the argument `data` of a call on the communicator `owner` without its element type. If
/// the call cannot use it, makes `check` fail.
template <class Memory, class Data>
erased_view erase_argument(checks& check, const void* owner, Data&& data) {
  static_assert(
      std::is_same_v<Memory, host_memory>,
      "colls: strided views are in host memory, and this communicator moves device memory");
  erased_view result;
  if constexpr (viewable<Data>) {
    check_lasting_view<Data>();
    result = view_access<std::remove_cvref_t<Data>>::erase(data);
  } else if constexpr (!is_none<Data>) {
    const any_buffer buffer = to_usable_buffer<host_memory>(owner, std::forward<Data>(data));
    check.check_size(buffer);
    if (!check.failed()) result = {buffer, type_id<range_element_t<Data>>(), nullptr};
  }
  if (result.problem != nullptr) check.require(false, "%s", result.problem);
  return result;
}

}  // namespace detail

}  // namespace colls
