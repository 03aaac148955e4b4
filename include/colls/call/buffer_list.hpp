// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// buffer_list: groups and lists of buffers and views, which one call reduces or moves.

#include <colls/call/view_access.hpp>

#include <iterator>
#include <tuple>
#include <type_traits>

namespace colls {

namespace detail {

/// The first type of a list that is not void, or void.
template <class... Types>
struct first_known : std::type_identity<void> {};
template <class First, class... Rest>
struct first_known<First, Rest...>
    : std::conditional_t<std::is_void_v<First>, first_known<Rest...>, std::type_identity<First>> {};

template <class Data>
constexpr bool is_writable() {
  if constexpr (viewable<Data>) {
    return !is_const_view<Data>();
  } else {
    return writable_range<Data>;
  }
}
template <class Memory, class Data>
constexpr void check_grouped() {
  if constexpr (viewable<Data>) {
    check_lasting_view<Data>();
  } else {
    check_range<Memory, Data>();
  }
}

}  // namespace detail

/// A group of buffers or strided views that have the same element type. `all_reduce(group{a, b,
/// c})` reduces the three buffers in one call. The group does not own the buffers. They must stay
/// alive until the operation has ended.
template <class... Ranges>
struct group {
  static_assert(sizeof...(Ranges) > 0 && (detail::is_writable<Ranges>() && ...),
                "colls: the call writes the buffers of a group, and one of them is const");
  static constexpr bool on_device =
      (std::is_same_v<memory_space_t<std::remove_cvref_t<Ranges>>, device_memory> && ...);
  static constexpr bool has_views = (viewable<Ranges> || ...);
  using memory = std::conditional_t<on_device, device_memory, host_memory>;
  explicit group(Ranges&&... buffers) : ranges(std::forward<Ranges>(buffers)...) {
    (detail::check_grouped<memory, Ranges&&>(), ...);
  }
  /// The type of the elements, or void if it is known at run time alone.
  using element_type = typename detail::first_known<detail::element_of<Ranges>...>::type;
  static_assert(((std::is_void_v<detail::element_of<Ranges>> ||
                  std::is_same_v<element_type, detail::element_of<Ranges>>) &&
                 ...),
                "colls: the buffers of a group must have the same element type");
  std::tuple<Ranges...> ranges;
};
template <class... Ranges>
group(Ranges&&...) -> group<Ranges...>;

namespace detail {

template <class List>
using listed_buffer = decltype(*std::begin(std::declval<std::remove_reference_t<List>&>()));

template <class List>
concept data_list = requires(std::remove_reference_t<List>& list) {
  std::begin(list);
  std::end(list);
};
/// Satisfied by a range of contiguous ranges, such as a std::vector of std::vectors or of spans.
template <class List>
concept buffer_list = data_list<List> && contiguous<std::remove_reference_t<listed_buffer<List>>>;
/// Satisfied by a list of buffers that can be reduced. A list of strings is none: it is more likely
/// a mistake than a sum of characters.
template <class List>
concept reducible_list = buffer_list<List> && !requires {
  typename std::remove_cvref_t<listed_buffer<List>>::traits_type;
};
/// Satisfied by a range of strided views or tensors.
template <class List>
concept view_list = data_list<List> && viewable<listed_buffer<List>>;
/// Satisfied by what calls of unknown lengths move, and by lists of it.
template <class Data>
concept block = viewable<Data> || readable_range<Data>;
template <class List>
concept block_list = data_list<List> && block<listed_buffer<List>>;

/// Returns the address of the first argument that is a view.
template <class First, class... Rest>
constexpr const auto* first_view(const First& first, const Rest&... rest) {
  if constexpr (viewable<First>) {
    return &first;
  } else {
    return first_view(rest...);
  }
}

/// The element type of the buffers of a list, or void if it is known at run time alone.
template <class List>
using list_element_t = element_of<listed_buffer<List>>;

template <class List>
constexpr void check_list() {
  using listed = listed_buffer<List>;
  constexpr bool is_kept = outlives_the_call<List> && std::is_lvalue_reference_v<listed>;
  static_assert(is_kept || std::ranges::enable_borrowed_range<std::remove_cvref_t<listed>> ||
                    (viewable<listed> && !view_owns<listed>()),
                "colls: the list is a temporary whose buffers would be destroyed before the "
                "operation ends: give it a name, or pass a list of std::spans");
}

}  // namespace detail

}  // namespace colls
