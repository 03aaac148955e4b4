// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/base/strided_view.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <set>
#include <vector>
#if __has_include(<mdspan>) && __cplusplus > 202002L
#include <mdspan>
#endif

// Views of elements that are not contiguous, and the loops that pack and unpack them.

namespace {

using colls::any_view;
using colls::strided_layout;
using colls::strided_view;

template <std::size_t Size>
struct element {
  std::array<unsigned char, Size> bytes;
  friend bool operator==(const element&, const element&) = default;
};

/// A view with random extents and strides, and the addresses of its elements in row-major order.
template <class T>
struct random_view {
  explicit random_view(std::mt19937& random) {
    const int dimensions = static_cast<int>(random() % 5);
    std::vector<int> order(static_cast<std::size_t>(dimensions));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    extents.resize(order.size());
    strides.resize(order.size());
    std::ptrdiff_t length = 1;
    std::ptrdiff_t first = 0;
    for (const int i : order) {  // the dimension that varies fastest in memory comes first
      const auto dimension = static_cast<std::size_t>(i);
      extents[dimension] = random() % 12 == 0 ? 0 : 1 + random() % 5;
      const auto extent = static_cast<std::ptrdiff_t>(extents[dimension]);
      const std::ptrdiff_t distance = length + static_cast<std::ptrdiff_t>(random() % 3);
      const bool is_reversed = random() % 4 == 0;
      strides[dimension] = is_reversed ? -distance : distance;
      if (is_reversed && extent > 0) first += distance * (extent - 1);
      length = distance * std::max<std::ptrdiff_t>(extent, 1);
    }
    memory.resize(static_cast<std::size_t>(length) + 3);
    for (T& each : memory) {
      for (auto& byte : each.bytes) byte = static_cast<unsigned char>(random());
    }
    begin = memory.data() + first;
    std::vector<std::size_t> index(extents.size());
    if (std::find(extents.begin(), extents.end(), std::size_t{0}) != extents.end()) return;
    while (true) {
      std::ptrdiff_t offset = 0;
      for (std::size_t i = 0; i < index.size(); ++i) {
        offset += static_cast<std::ptrdiff_t>(index[i]) * strides[i];
      }
      addresses.push_back(begin + offset);
      std::size_t i = index.size();
      while (i > 0 && ++index[i - 1] == extents[i - 1]) index[--i] = 0;
      if (i == 0) break;
    }
  }
  strided_view<T> view() const { return {begin, std::span(extents), std::span(strides)}; }

  std::vector<std::size_t> extents;
  std::vector<std::ptrdiff_t> strides;
  std::vector<T> memory;
  T* begin;
  std::vector<T*> addresses;
};

template <class T>
void pack_and_unpack(std::mt19937& random) {
  for (int round = 0; round < 300; ++round) {
    random_view<T> made(random);
    const any_view view = made.view().erased();
    REQUIRE(view.problem() == nullptr);
    REQUIRE(view.size() == made.addresses.size());
    CHECK_FALSE(view.overlaps_itself());
    const std::size_t first = view.size() == 0 ? 0 : random() % view.size();
    const std::size_t count = random() % (view.size() - first + 1);
    std::vector<T> packed(count + 1);
    const T guard = packed.back();
    colls::pack(view, first, count, reinterpret_cast<std::byte*>(packed.data()));
    for (std::size_t i = 0; i < count; ++i) CHECK(packed[i] == *made.addresses[first + i]);
    CHECK(packed.back() == guard);

    std::vector<T> expected = made.memory;
    for (std::size_t i = 0; i < count; ++i) {
      for (auto& byte : packed[i].bytes) byte = static_cast<unsigned char>(byte + 1);
      expected[static_cast<std::size_t>(made.addresses[first + i] - made.memory.data())] =
          packed[i];
    }
    colls::unpack(view, first, count, reinterpret_cast<const std::byte*>(packed.data()));
    CHECK(made.memory == expected);  // the elements between those of the view, too
  }
}

TEST_CASE("packed elements are those of a loop over the indices, and come back") {
  std::mt19937 random(1);
  pack_and_unpack<element<1>>(random);
  pack_and_unpack<element<2>>(random);
  pack_and_unpack<element<3>>(random);
  pack_and_unpack<element<4>>(random);
  pack_and_unpack<element<8>>(random);
  pack_and_unpack<element<16>>(random);
  pack_and_unpack<element<24>>(random);
}

TEST_CASE("any bytes of the packed elements can be packed and come back") {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    random_view<element<3>> made(random);
    const any_view view = made.view().erased();
    std::vector<std::byte> all(3 * view.size() + 1);
    colls::pack(view, 0, view.size(), all.data());
    const std::size_t first = random() % all.size();
    const std::size_t count = random() % (all.size() - first);
    std::vector<std::byte> part(count + 1, std::byte{77});
    colls::pack_bytes(view, first, count, part.data());
    CHECK(std::equal(part.begin(), part.end() - 1, all.data() + first));
    CHECK(part.back() == std::byte{77});

    for (std::size_t i = 0; i < count; ++i) all[first + i] = part[i] = std::byte{5};
    colls::unpack_bytes(view, first, count, part.data());
    std::vector<std::byte> again(all.size());
    colls::pack(view, 0, view.size(), again.data());
    CHECK(again == all);
  }
}

TEST_CASE("a view without gaps is contiguous, whatever its dimensions") {
  std::vector<int> data(24);
  CHECK(strided_view(data).erased().is_contiguous());
  CHECK(strided_view(data.data(), {2, 3, 4}, {12, 4, 1}).erased().is_contiguous());
  CHECK(strided_view(data.data(), {2, 1, 12}, {12, 99, 1}).erased().is_contiguous());
  CHECK(strided_view(data.data(), {}, {}).erased().is_contiguous());
  CHECK(strided_view(data.data(), {}, {}).size() == 1);
  CHECK_FALSE(strided_view(data.data(), {4, 3}, {1, 4}).erased().is_contiguous());
  CHECK_FALSE(strided_view(data.data(), {2, 3}, {12, 4}).erased().is_contiguous());
  CHECK(strided_view(data.data(), {0, 3}, {3, 1}).size() == 0);
}

TEST_CASE("views whose elements share memory are found") {
  std::vector<int> data(100);
  const auto overlaps = [&](std::initializer_list<std::size_t> extents,
                            std::initializer_list<std::ptrdiff_t> strides) {
    return strided_view(data.data() + 50, extents, strides).erased().overlaps_itself();
  };
  CHECK(overlaps({2}, {0}));
  CHECK(overlaps({3, 4}, {3, 1}));
  CHECK(overlaps({3, 4}, {-3, 1}));
  CHECK(overlaps({2, 2}, {1, 1}));
  CHECK_FALSE(overlaps({1, 4}, {0, 1}));
  CHECK_FALSE(overlaps({0, 4}, {0, 1}));
  CHECK_FALSE(overlaps({3, 4}, {4, 1}));
  CHECK_FALSE(overlaps({3, 4}, {-4, 1}));
  CHECK_FALSE(overlaps({4, 3}, {1, 4}));
}

TEST_CASE("views that share elements are found if one has no stride that the other lacks") {
  std::vector<int> data(1000);
  const auto view = [&](std::ptrdiff_t first, std::initializer_list<std::size_t> extents,
                        std::initializer_list<std::ptrdiff_t> strides) {
    return strided_view(data.data() + 500 + first, extents, strides).erased();
  };
  const auto share = [](const any_view& a, const any_view& b) {
    CHECK(a.shares_elements(b) == b.shares_elements(a));
    return a.shares_elements(b);
  };
  CHECK_FALSE(share(view(0, {10}, {2}), view(1, {10}, {2})));  // two columns
  CHECK(share(view(0, {10}, {2}), view(2, {10}, {2})));
  CHECK(share(view(0, {10}, {2}), view(18, {10}, {2})));
  CHECK_FALSE(share(view(0, {10}, {2}), view(20, {10}, {2})));
  CHECK(share(view(0, {10}, {-2}), view(-18, {10}, {-2})));
  CHECK_FALSE(share(view(0, {10}, {-2}), view(-19, {10}, {-2})));
  CHECK_FALSE(share(view(0, {5, 3}, {10, 1}), view(3, {5, 3}, {10, 1})));  // two blocks
  CHECK(share(view(0, {5, 3}, {10, 1}), view(2, {5, 3}, {10, 1})));
  CHECK(share(view(0, {5, 3}, {10, 1}), view(40, {5, 3}, {10, 1})));
  CHECK_FALSE(share(view(0, {5, 3}, {10, 1}), view(43, {2, 3}, {10, 1})));
  CHECK(share(view(0, {5, 3}, {-10, 1}), view(2, {5, 3}, {-10, 1})));
  CHECK_FALSE(share(view(0, {0}, {1}), view(0, {5}, {1})));
  // All pairs of blocks of a matrix, compared with their elements.
  for (std::ptrdiff_t first = -33; first <= 33; ++first) {
    const any_view a = view(0, {3, 2}, {10, 3});
    const any_view b = view(first, {2, 3}, {10, 3});
    bool expected = false;
    for (std::size_t i = 0; i < a.size(); ++i) {
      for (std::size_t k = 0; k < b.size(); ++k) expected |= a.address(i) == b.address(k);
    }
    CAPTURE(first);
    CHECK(share(a, b) == expected);
  }
}

TEST_CASE("views that share elements, beside a comparison of all elements") {
  std::vector<char> data(4000);
  std::mt19937 random(1);
  const auto draw = [&](int most) {
    return static_cast<int>(random() % static_cast<unsigned>(most));
  };
  int shared = 0;
  for (int run = 0; run < 20'000; ++run) {
    constexpr std::ptrdiff_t all_strides[] = {40, 8, 1};
    const auto make = [&](std::size_t element) {
      strided_layout layout;
      for (const std::ptrdiff_t stride : all_strides) {
        if (draw(3) == 0) continue;
        layout.extents[layout.dimensions] = static_cast<std::size_t>(1 + draw(12));
        layout.strides[layout.dimensions++] =
            stride * static_cast<std::ptrdiff_t>(element) * (draw(2) == 0 ? 1 : -1);
      }
      return any_view(data.data() + 2000 + draw(100), element, layout);
    };
    const std::size_t element = 1 + random() % 4;
    const any_view a = make(element);
    const any_view b = make(element);
    std::set<const std::byte*> own;
    for (std::size_t i = 0; i < a.size(); ++i) {
      for (std::size_t k = 0; k < element; ++k) own.insert(a.address(i) + k);
    }
    bool expected = false;
    for (std::size_t i = 0; i < b.size(); ++i) {
      for (std::size_t k = 0; k < element; ++k) expected |= own.contains(b.address(i) + k);
    }
    CAPTURE(run);
    CHECK(a.shares_elements(b) == b.shares_elements(a));
    // A view alone may have lost a stride that two of its dimensions had together.
    if (a.shares_elements(b)) CHECK(expected);
    if (expected && (a.is_contiguous() || b.is_contiguous())) CHECK(a.shares_elements(b));
    shared += a.shares_elements(b) ? 1 : 0;
  }
  CHECK(shared > 5000);
}

TEST_CASE("views that no memory can hold have a problem") {
  int data[9] = {};
  const auto problem = [&](std::initializer_list<std::size_t> extents,
                           std::initializer_list<std::ptrdiff_t> strides) {
    return strided_view(data, extents, strides).erased().problem() != nullptr;
  };
  CHECK(problem({SIZE_MAX}, {1}));
  CHECK(problem({SIZE_MAX / 2, 4}, {1, 1}));
  CHECK(problem({std::size_t{1} << 40, std::size_t{1} << 40}, {1, 1}));
  CHECK(problem({2}, {PTRDIFF_MAX}));
  CHECK(problem({3}, {PTRDIFF_MIN / 4}));
  CHECK(problem({2, 2}, {PTRDIFF_MAX / 4, PTRDIFF_MAX / 4}));
  CHECK(problem({std::size_t{1} << 61}, {0}));  // each element lies in memory
  CHECK(problem({2}, {1, 1}));
  CHECK(problem({1, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1}));
  CHECK_FALSE(problem({1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1}));
  CHECK_FALSE(problem({0, SIZE_MAX}, {1, 1}));
  CHECK(strided_view(data).slice(0, 3, 7).erased().problem() != nullptr);
  CHECK(strided_view(data).slice(1, 0, 1).erased().problem() != nullptr);
  CHECK(strided_view(data).slice(0, 9, 0).erased().problem() == nullptr);
  CHECK(strided_view(data).transposed().erased().problem() != nullptr);
}

template <class T>
std::vector<std::remove_const_t<T>> elements(const strided_view<T>& view) {
  std::vector<std::remove_const_t<T>> packed(view.size());
  colls::pack(view.erased(), 0, view.size(), reinterpret_cast<std::byte*>(packed.data()));
  return packed;
}

TEST_CASE("slices and transposed views have the elements that a matrix has") {
  int matrix[3][4];
  for (int i = 0; i < 12; ++i) matrix[i / 4][i % 4] = i;
  const strided_view all(&matrix[0][0], {3, 4}, {4, 1});
  CHECK(elements(all.slice(0, 1, 1)) == std::vector{4, 5, 6, 7});
  CHECK(elements(all.slice(1, 2, 2)) == std::vector{2, 3, 6, 7, 10, 11});
  CHECK(elements(all.slice(1, 2, 2).slice(0, 2, 1)) == std::vector{10, 11});
  CHECK(elements(all.transposed()) == std::vector{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11});
  CHECK(all.extent(1) == 4);
  CHECK(all.transposed().extent(1) == 3);
}

/// Has the members of std::mdspan that a strided view needs.
struct own_mdspan {
  using element_type = const int;
  static constexpr std::size_t rank() { return 2; }
  unsigned extent(std::size_t i) const { return i == 0 ? 2 : 3; }
  unsigned stride(std::size_t i) const { return i == 0 ? 1 : 2; }
  const int* data_handle() const { return data; }
  const int* data;
};

TEST_CASE("a view is made of std::mdspan") {
  const int data[] = {0, 1, 2, 3, 4, 5};
  const strided_view<const int> view(own_mdspan{data});
  CHECK(elements(view) == std::vector{0, 2, 4, 1, 3, 5});
  CHECK(view.extent(0) == 2);
  CHECK(view.extent(1) == 3);
#ifdef __cpp_lib_mdspan
  const std::mdspan<const int, std::extents<int, 2, 3>, std::layout_left> standard(data);
  const strided_view of_standard(standard);
  CHECK(elements(of_standard) == elements(view));
#endif
}

}  // namespace
