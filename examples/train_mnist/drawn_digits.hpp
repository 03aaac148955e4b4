// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Draws digits for users without MNIST's files: strokes of random slant, width and shape.

#include "digits.hpp"

#include <colls/ddp/sampler.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace mnist {

struct point {
  double x, y;  // from 0 to 1, y downwards
};
using stroke = std::vector<point>;

/// An arc of an ellipse, clockwise from angle `begin` to `end` (in degrees, 0 is on the right).
inline stroke arc(point middle, double rx, double ry, double begin, double end) {
  stroke points;
  const int pieces = std::max(4, static_cast<int>(std::abs(end - begin) / 20));
  for (int i = 0; i <= pieces; ++i) {
    const double angle = (begin + (end - begin) * i / pieces) * std::numbers::pi / 180;
    points.push_back({middle.x + rx * std::cos(angle), middle.y + ry * std::sin(angle)});
  }
  return points;
}

inline stroke concatenate(stroke one, const stroke& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

/// The strokes of a digit in one of its handwritten forms; `variant` is any number.
inline std::vector<stroke> strokes_of(int digit, std::uint64_t variant) {
  const bool other = variant % 2 == 1;
  switch (digit) {
    case 0:
      return {arc({.5, .5}, .26, .4, -100, 260)};
    case 1:
      return {other ? stroke{{.5, .1}, {.5, .9}} : stroke{{.34, .28}, {.54, .1}, {.54, .9}}};
    case 2:
      return {concatenate(arc({.5, .32}, .25, .22, -170, 30), {{.25, .9}, {.78, .88}})};
    case 3:
      return {concatenate(arc({.46, .3}, .24, .2, -150, 80), arc({.46, .7}, .27, .21, -80, 150))};
    case 4:
      if (other) return {{{.28, .12}, {.24, .55}, {.76, .55}}, {{.72, .12}, {.7, .9}}};
      return {{{.62, .1}, {.2, .64}, {.84, .64}}, {{.64, .36}, {.62, .92}}};
    case 5:
      return {{{.76, .12}, {.34, .12}},
              concatenate({{.34, .12}, {.3, .45}}, arc({.48, .66}, .27, .23, -130, 145))};
    case 6:
      return {concatenate({{.66, .1}, {.4, .32}}, arc({.5, .67}, .24, .22, -170, 200))};
    case 7: {
      std::vector<stroke> seven{{{.22, .14}, {.78, .14}, {.42, .9}}};
      if (other) seven.push_back({{.4, .52}, {.74, .5}});
      return seven;
    }
    case 8:
      return {arc({.5, .3}, .2, .19, 90, 450), arc({.5, .7}, .25, .21, -90, 270)};
    default:
      return {concatenate(arc({.5, .32}, .23, .22, 0, 360),
                          other ? stroke{{.72, .5}, {.66, .9}} : arc({.42, .5}, .3, .4, 0, 100))};
  }
}

/// Draws the line from a to b, in units of pixels.
inline void draw_line(std::span<std::uint8_t> picture, point a, point b, double half_width) {
  const double edge = half_width + 1;
  const auto clamp = [](double position) {
    return static_cast<std::size_t>(std::clamp(position, 0.0, static_cast<double>(side - 1)));
  };
  const double dx = b.x - a.x, dy = b.y - a.y, length2 = dx * dx + dy * dy;
  for (std::size_t y = clamp(std::min(a.y, b.y) - edge); y <= clamp(std::max(a.y, b.y) + edge);
       ++y) {
    for (std::size_t x = clamp(std::min(a.x, b.x) - edge); x <= clamp(std::max(a.x, b.x) + edge);
         ++x) {
      const double px = static_cast<double>(x) - a.x, py = static_cast<double>(y) - a.y;
      const double along = length2 > 0 ? std::clamp((px * dx + py * dy) / length2, 0.0, 1.0) : 0.0;
      const double distance = std::hypot(px - along * dx, py - along * dy);
      const double ink = std::clamp(half_width + 0.5 - distance, 0.0, 1.0) * 255;
      std::uint8_t& pixel = picture[y * side + x];
      pixel = std::max(pixel, static_cast<std::uint8_t>(ink));
    }
  }
}

inline void draw_digit(std::span<std::uint8_t> picture, int digit,
                       colls::ddp::random_bits& random) {
  const auto between = [&](double low, double high) { return low + (high - low) * random.unit(); };
  const double turn = between(-.25, .25), lean = between(-.3, .3);
  const double wide = between(14, 21), tall = between(17, 23), half_width = between(.6, 1.7);
  const point middle{between(12, 16), between(12, 16)};
  const double cosine = std::cos(turn), sine = std::sin(turn);
  for (const stroke& line : strokes_of(digit, random.next())) {
    stroke placed;
    for (const point& position : line) {
      const double y = (position.y - .5) * tall + between(-.5, .5);
      const double x = (position.x - .5) * wide - lean * y + between(-.5, .5);
      placed.push_back({middle.x + cosine * x - sine * y, middle.y + sine * x + cosine * y});
    }
    for (std::size_t i = 1; i < placed.size(); ++i) {
      draw_line(picture, placed[i - 1], placed[i], half_width);
    }
  }
  for (std::uint8_t& pixel : picture) {  // noise
    const double noisy = pixel * between(.8, 1) + (random.next() % 16 == 0 ? between(0, 70) : 0);
    pixel = static_cast<std::uint8_t>(std::min(noisy, 255.0));
  }
}

/// Draws `count` pictures of random digits. The same seed gives the same pictures.
inline digits draw_digits(std::size_t count, std::uint64_t seed) {
  digits all;
  all.pixels.resize(count * pixels_per_picture);
  for (std::size_t i = 0; i < count; ++i) {
    colls::ddp::random_bits random(seed, i);
    all.labels.push_back(static_cast<std::uint8_t>(random.below(10)));
    draw_digit(std::span(all.pixels).subspan(i * pixels_per_picture, pixels_per_picture),
               all.labels[i], random);
  }
  return all;
}

}  // namespace mnist
