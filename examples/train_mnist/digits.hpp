// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Pictures of digits with their labels.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace mnist {

inline constexpr std::size_t side = 28;
inline constexpr std::size_t pixels_per_picture = side * side;

struct digits {
  std::vector<std::uint8_t> pixels;  // row by row, picture by picture; 0 is paper
  std::vector<std::uint8_t> labels;  // 0 to 9

  std::size_t size() const { return labels.size(); }
  std::span<const std::uint8_t> picture(std::size_t i) const {
    return std::span(pixels).subspan(i * pixels_per_picture, pixels_per_picture);
  }
};

}  // namespace mnist
