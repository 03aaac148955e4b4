// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// kernels: colls' sums, in one thread, beside loops that read and write as many bytes and compute
// next to nothing. Four inputs are added up in pieces of the cache's size, as `direct` does it, and
// one after another. What is compared runs in turn. Prints Markdown.

#include "colls_bench/widest.hpp"

#include <colls/half.hpp>
#include <colls/reduce.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <span>
#include <vector>

namespace {

using word = std::uint64_t;

WIDEST void stream_two(word* __restrict out, const word* a, const word* b, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = a[i] ^ b[i];
}
WIDEST void stream_four(word* __restrict out, const word* a, const word* b, const word* c,
                        const word* d, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = a[i] ^ b[i] ^ c[i] ^ d[i];
}

/// A sum and its inputs, `bytes` each.
class vectors {
 public:
  explicit vectors(std::size_t bytes) : words_(bytes / sizeof(word)), memory_(5 * (words_ + gap)) {}
  std::size_t words() const { return words_; }
  word* operator[](std::size_t i) { return memory_.data() + i * (words_ + gap); }

 private:
  static constexpr std::size_t gap = 136;  // vectors do not lie at equal places of the cache's sets
  std::size_t words_;
  std::vector<word> memory_;
};

colls::any_buffer part(word* vector, std::size_t element, std::size_t at, std::size_t n) {
  return colls::any_buffer(vector, at + n, element).subspan(at, n);
}

/// sum = in[1] + ... + in[k], in pieces of `step` elements.
void add_up(vectors& in, std::size_t k, const colls::any_op& op, std::size_t element,
            std::size_t step) {
  const std::size_t count = in.words() * sizeof(word) / element;
  for (std::size_t at = 0; at < count; at += step) {
    const std::size_t n = std::min(step, count - at);
    const void* parts[4];
    for (std::size_t i = 0; i < k; ++i) parts[i] = part(in[i + 1], element, at, n).data();
    colls::reduce_into(part(in[0], element, at, n), std::span(parts, k), op);
  }
}

/// The same, one input after another.
void add_in_turn(vectors& in, std::size_t k, const colls::any_op& op, std::size_t element) {
  const std::size_t count = in.words() * sizeof(word) / element;
  op(in[0], in[1], in[2], count);
  for (std::size_t i = 3; i <= k; ++i) op(in[0], in[0], in[i], count);
}

/// The least time of each, in seconds; they run in turn.
std::vector<double> least(std::span<const std::function<void()>> all, std::size_t bytes) {
  std::vector<double> found(all.size(), 1e9);
  const int rounds =
      static_cast<int>(std::clamp<std::size_t>((std::size_t{1} << 31) / bytes, 9, 400));
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto began = std::chrono::steady_clock::now();
      all[i]();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
      found[i] = std::min(found[i], took.count());
    }
  }
  return found;
}

template <class T>
void rows(const char* type) {
  constexpr colls::plus plus;
  const colls::any_op op = colls::erase<T>(plus, colls::wire::storage).op;
  constexpr std::size_t piece = 16 * 1024 / sizeof(T);
  constexpr std::size_t sizes[] = {64, 256, 1024, 16 * 1024, 128 * 1024};
  for (const std::size_t kib : sizes) {
    vectors in(kib * 1024);
    const std::function<void()> all[] = {
        [&] { stream_two(in[0], in[1], in[2], in.words()); },
        [&] { add_in_turn(in, 2, op, sizeof(T)); },
        [&] { stream_four(in[0], in[1], in[2], in[3], in[4], in.words()); },
        [&] { add_up(in, 4, op, sizeof(T), piece); },
        [&] { add_in_turn(in, 4, op, sizeof(T)); },
    };
    const std::vector<double> took = least(all, kib * 1024);
    const double gb = static_cast<double>(kib) * 1024 / 1e9;
    fmt::print("| {} | {} KiB | {:.1f} | {:.1f} | {:.2f} | {:.1f} | {:.1f} | {:.2f} | {:.2f} |\n",
               type, kib, 3 * gb / took[0], 3 * gb / took[1], took[0] / took[1], 5 * gb / took[2],
               5 * gb / took[3], took[2] / took[3], took[4] / took[3]);
  }
}

}  // namespace

int main() {
  fmt::print(
      "| plus, one thread | a vector | two inputs: loop GB/s | colls GB/s | ratio | four: loop "
      "GB/s |"
      " colls GB/s | ratio | beside one after another |\n|---|---|---|---|---|---|---|---|---|\n");
  rows<float>("float");
  rows<colls::bfloat16>("bfloat16");
  rows<std::int32_t>("int32");
}
