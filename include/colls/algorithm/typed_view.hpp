// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// typed_view: treats working memory as a buffer of the type that an algorithm was given, and
// divides buffers into pieces.

#include <colls/base/buffer.hpp>

namespace colls {

/// Returns a buffer at `memory` with `count` elements of the type of `data`'s elements.
template <buffer Data>
constexpr Data typed_view(const Data& data, void* memory, std::size_t count) {
  if constexpr (std::same_as<element_t<Data>, any_element>) {
    return Data(memory, count, data.element_size());
  } else {
    return Data{static_cast<element_t<Data>*>(memory), count};
  }
}

/// Returns the number of elements that fit into a piece of `bytes` bytes, but at least one.
constexpr std::size_t elements_in(std::size_t bytes, std::size_t element) {
  return element < bytes ? bytes / element : 1;
}
/// Returns the number of pieces of at most `bytes` bytes into which `data` is divided, at least
/// one.
template <buffer Data>
constexpr int pieces_of(std::size_t bytes, const Data& data) {
  const std::size_t step = elements_in(bytes, element_size(data));
  return data.size() > step ? static_cast<int>((data.size() + step - 1) / step) : 1;
}

}  // namespace colls
