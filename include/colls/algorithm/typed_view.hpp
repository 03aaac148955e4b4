// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// typed_view: a function that returns a view of raw memory as a typed buffer, and functions that
// compute how many elements a piece of a buffer has and how many pieces a buffer has.

#include <colls/base/buffer.hpp>

namespace colls {

/// Returns a buffer of `count` elements at the address `memory`. The elements have the same type as
/// the elements of `data`.
template <buffer Data>
constexpr Data typed_view(const Data& data, void* memory, std::size_t count) {
  if constexpr (std::same_as<element_t<Data>, any_element>) {
    return Data(memory, count, data.element_size());
  } else {
    return Data{static_cast<element_t<Data>*>(memory), count};
  }
}

/// Returns the number of elements of `element` bytes each that fit into `bytes` bytes. Returns 1 if
/// not even one element fits.
constexpr std::size_t elements_in(std::size_t bytes, std::size_t element) {
  return element < bytes ? bytes / element : 1;
}
/// Returns the number of pieces into which `data` is divided if a piece may have at most `bytes`
/// bytes. If one element has more than `bytes` bytes, each piece is one element. Returns 1 if
/// `data` is empty.
template <buffer Data>
constexpr int pieces_of(std::size_t bytes, const Data& data) {
  const std::size_t step = elements_in(bytes, element_size(data));
  return data.size() > step ? static_cast<int>((data.size() + step - 1) / step) : 1;
}

}  // namespace colls
