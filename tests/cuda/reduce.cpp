// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/cuda/reduce.cuh>

#include <colls/cuda/memory.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <complex>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <ostream>
#include <random>
#include <vector>

#include "../stand_in/cuda.hpp"

// Runs the body of the kernel on the CPU, thread after thread. tests/cuda/device.cu shows that it
// compiles for a GPU.

namespace {

using colls::cuda::detail::fold;
using colls::cuda::detail::pack_size;
using colls::cuda::detail::stages;

struct vec3 {
  float x, y, z;
};
struct add3 {
  vec3 operator()(const vec3& a, const vec3& b) const { return {a.x + b.x, a.y + b.y, a.z + b.z}; }
};
/// Count, mean and sum of squares: an operation whose rounding depends on the order.
struct welford {
  double count, mean, squares;
};
struct merge {
  welford operator()(const welford& a, const welford& b) const {
    const double n = a.count + b.count;
    const double delta = b.mean - a.mean;
    return {n, a.mean + delta * b.count / n,
            a.squares + b.squares + delta * delta * a.count * b.count / n};
  }
};
struct odd {
  unsigned char bytes[5];
};
struct last_wins {
  odd operator()(const odd& a, const odd& b) const {
    odd made = b;
    made.bytes[0] = static_cast<unsigned char>(a.bytes[0] * 3 + b.bytes[0]);
    return made;
  }
};
struct large {
  double values[10];
};
struct first_plus_half {
  large operator()(const large& a, const large& b) const {
    large made = a;
    for (int i = 0; i < 10; ++i) made.values[i] += b.values[i] / 2;
    return made;
  }
};
/// Trivially copyable, though it has no default constructor and no assignment.
struct constant {
  explicit constant(int v) : value(v) {}
  constant(const constant&) = default;
  const int value;
};
struct add_constants {
  constant operator()(const constant& a, const constant& b) const {
    return constant(a.value * 5 + b.value);
  }
};

static_assert(pack_size<char> == 16 && pack_size<colls::float16> == 8 && pack_size<double> == 2);
static_assert(pack_size<vec3> == 4 && pack_size<welford> == 2 && pack_size<odd> == 0);
static_assert(pack_size<large> == 0 && pack_size<std::complex<double>> == 1);

template <class T>
inline constexpr bool is_value_index = false;
template <class T>
inline constexpr bool is_value_index<colls::value_index<T>> = true;

template <class T>
T drawn(std::mt19937& random) {
  const int number = static_cast<int>(random() % 201) - 100;
  if constexpr (std::is_same_v<T, vec3>) {
    const auto f = static_cast<float>(number);
    return {f / 7, f / 3, f};
  } else if constexpr (std::is_same_v<T, welford>) {
    return {1.0 + number % 3 * number % 3, number / 7.0, number * number / 3.0};
  } else if constexpr (std::is_same_v<T, odd>) {
    const auto c = static_cast<unsigned char>(number);
    return {{c, 1, c, 3, c}};
  } else if constexpr (std::is_same_v<T, large>) {
    large made{};
    for (int i = 0; i < 10; ++i) made.values[i] = number / (1.0 + i);
    return made;
  } else if constexpr (std::is_same_v<T, constant>) {
    return constant(number);
  } else if constexpr (std::is_same_v<T, std::complex<double>>) {
    return {number / 3.0, 1.0 / (number + 0.5)};
  } else if constexpr (std::is_same_v<T, std::complex<float>>) {
    const auto f = static_cast<float>(number);
    return {f / 3, 1 / (f + 0.5f)};
  } else if constexpr (std::is_same_v<T, bool>) {
    return number % 3 != 0;
  } else if constexpr (is_value_index<T>) {
    return {static_cast<decltype(T::value)>(number % 5), static_cast<std::int64_t>(random() % 7)};
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(number) / static_cast<T>(7);
  } else if constexpr (colls::half_type<T>) {
    return T(static_cast<float>(number) / 7.0f);
  } else {
    return static_cast<T>(number);
  }
}

/// Elements at an offset in an aligned block, between guard bytes that must not change.
template <class T>
class elements {
 public:
  elements(std::size_t count, std::size_t shift, std::mt19937& random)
      : memory_((count + 16) * sizeof(T) + 128), count_(count) {
    void* at = memory_.data();
    std::size_t room = memory_.size();
    std::align(64, 1, at, room);
    data_ = static_cast<std::byte*>(at) + 64 + shift * sizeof(T);
    std::memset(memory_.data(), 0x5a, memory_.size());
    for (std::size_t i = 0; i < count; ++i) new (data_ + i * sizeof(T)) T(drawn<T>(random));
  }
  T* data() { return reinterpret_cast<T*>(data_); }
  bool is_guarded() const {
    const std::byte guard{0x5a};
    for (const std::byte* at = memory_.data(); at < data_; ++at) {
      if (*at != guard) return false;
    }
    for (const std::byte* at = data_ + count_ * sizeof(T); at < memory_.data() + memory_.size();
         ++at) {
      if (*at != guard) return false;
    }
    return true;
  }

 private:
  std::vector<std::byte> memory_;
  std::size_t count_;
  std::byte* data_;
};

template <class T, class Op, std::size_t Inputs>
void run_case(std::size_t count, std::size_t shift, bool same_shift, std::size_t threads,
              bool twice, int in_place, const Op& op, std::mt19937& random) {
  using compute = colls::default_accumulate_t<Op, T>;
  std::vector<elements<T>> in;
  std::array<const T*, Inputs> inputs;
  for (std::size_t i = 0; i < Inputs; ++i) {
    in.emplace_back(count, same_shift ? shift : (shift + i) % 4, random);
  }
  for (std::size_t i = 0; i < Inputs; ++i) inputs[i] = in[i].data();
  elements<T> out(count, shift, random);
  elements<T> second(count, shift, random);
  const stages also{true, 3};

  std::vector<std::byte> want(count * sizeof(T));
  for (std::size_t i = 0; i < count; ++i) {
    const auto taken = [&](const T& x) {
      if constexpr (colls::detail::prepares<Op, compute>) {
        return static_cast<compute>(op.prepare(static_cast<compute>(x)));
      } else {
        return static_cast<compute>(x);
      }
    };
    std::optional<compute> sum(taken(inputs[0][i]));
    for (std::size_t k = 1; k < Inputs; ++k) {
      const compute next(op(*sum, taken(inputs[k][i])));
      sum.reset();
      sum.emplace(next);
    }
    if constexpr (colls::detail::finishes<Op, compute>) {
      sum.emplace(op.finish(*sum, 3));
    }
    new (want.data() + i * sizeof(T)) T(static_cast<T>(*sum));
  }

  T* const target =
      in_place < 0 ? out.data() : in[static_cast<std::size_t>(in_place) % Inputs].data();
  fold<T, compute, Op, Inputs> kernel{target, twice ? second.data() : nullptr, {}, count, op, also};
  for (std::size_t i = 0; i < Inputs; ++i) kernel.in[i] = inputs[i];
  for (std::size_t thread = threads; thread-- > 0;) kernel(thread, threads);
  const auto same = [&](const T* got) {
    return count == 0 ||
           std::memcmp(static_cast<const void*>(got), want.data(), count * sizeof(T)) == 0;
  };
  REQUIRE(same(target));
  if (twice) REQUIRE(same(second.data()));
  REQUIRE(out.is_guarded());
  REQUIRE(second.is_guarded());
  for (const elements<T>& each : in) REQUIRE(each.is_guarded());
}

template <class T, class Op, std::size_t Inputs>
void run_cases(const Op& op) {
  std::mt19937 random(static_cast<unsigned>(Inputs));
  for (std::size_t count = 0; count <= 67; ++count) {
    run_case<T, Op, Inputs>(count, count % 5, true, 1 + count % 3, count % 2 != 0, -1, op, random);
  }
  for (const std::size_t count : {100u, 1001u, 4099u}) {
    for (std::size_t shift = 0; shift < 4; ++shift) {
      for (const std::size_t threads : {1u, 7u, 64u}) {
        run_case<T, Op, Inputs>(count, shift, true, threads, false, -1, op, random);
        run_case<T, Op, Inputs>(count, shift, false, threads, true, -1, op, random);
        run_case<T, Op, Inputs>(count, shift, true, threads, true, static_cast<int>(shift), op,
                                random);
      }
    }
  }
}
template <class T, class Op>
void run_some(const Op& op) {
  run_cases<T, Op, 2>(op);
  run_cases<T, Op, 3>(op);
}
template <class T, class Op>
void run_all(const Op& op) {
  run_cases<T, Op, 1>(op);
  run_cases<T, Op, 2>(op);
  run_cases<T, Op, 3>(op);
  run_cases<T, Op, 8>(op);
}

TEST_CASE("built-in types and operations, every size, alignment and number of inputs") {
  run_all<std::int8_t>(colls::plus());
  run_all<std::uint16_t>(colls::bit_xor());
  run_all<std::int32_t>(colls::minimum());
  run_all<std::int64_t>(colls::average());
  run_all<float>(colls::plus());
  run_all<float>(colls::pre_multiplied_sum<float>(0.3f));
  run_all<double>(colls::maximum());
  run_all<std::complex<double>>(colls::multiplies());
}

TEST_CASE("the other operations and types, with two and three inputs") {
  run_some<std::uint8_t>(colls::bit_and());
  run_some<std::uint32_t>(colls::bit_or());
  run_some<std::int32_t>(colls::logical_and());
  run_some<bool>(colls::logical_or());
  run_some<colls::value_index<double>>(colls::min_loc());
  run_some<colls::value_index<std::int64_t>>(colls::max_loc());
  run_some<double>(colls::multiplies());
  run_some<std::uint64_t>(colls::multiplies());
  run_some<std::int16_t>(colls::plus());
  run_some<std::complex<float>>(colls::plus());
}

TEST_CASE("more pairs of type and operation, with two inputs") {
  run_cases<float, colls::average, 2>({});
  run_cases<colls::float16, colls::maximum, 2>({});
  run_cases<colls::bfloat16, colls::multiplies, 2>({});
  run_cases<colls::bfloat16, colls::pre_multiplied_sum<float>, 2>(
      colls::pre_multiplied_sum<float>(0.3f));
  run_cases<std::complex<float>, colls::average, 2>({});
}

TEST_CASE("halves are summed in float and rounded once") {
  run_all<colls::float16>(colls::plus());
  run_all<colls::bfloat16>(colls::average());
  run_all<colls::bfloat16>(colls::minimum());
}

TEST_CASE("structs and operations of users, in rank order") {
  run_all<vec3>(add3());
  run_all<welford>(merge());
  run_all<odd>(last_wins());
  run_all<large>(first_plus_half());
  run_all<constant>(add_constants());
  int factor = 1;
  factor += 2;
  const auto lambda = [factor](int a, int b) { return factor * a - b; };
  run_all<int>(lambda);
}

TEST_CASE("4 to 7 inputs") {
  run_cases<float, colls::plus, 4>({});
  run_cases<float, colls::plus, 5>({});
  run_cases<colls::bfloat16, colls::plus, 6>({});
  run_cases<float, colls::plus, 7>({});
}

TEST_CASE("a reduction runs on its stream, after the work that the stream had before") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    stand_in::boot({.seed = seed, .eager_percent = seed % 2 == 0 ? 0 : 50});
    colls::cuda::device_buffer<float> a(5000);
    colls::cuda::device_buffer<float> b(5000);
    colls::cuda::device_buffer<float> out(5000);
    void* const stream = stand_in::make_stream();
    for (float* each : {a.data(), b.data()}) {
      stand_in::enqueue(
          stream,
          [](void* to) {
            std::iota(static_cast<float*>(to), static_cast<float*>(to) + 5000, 0.0f);
          },
          each);
    }
    reduce_into(out.span(), std::array<const float*, 2>{a.data(), b.data()}, colls::plus(),
                {stream}, b.data());
    stand_in::synchronize(stream);
    CHECK(out.data()[4999] == 9998);
    CHECK(b.data()[1234] == 2468);
  }
}

TEST_CASE("a launch has threads for all packs, and no more than the device runs at a time") {
  stand_in::boot({});
  int processors = 0;
  REQUIRE(colls::cuda::api::count_processors(0, processors) == 0);
  const std::size_t most = static_cast<std::size_t>(processors) * 8 * 256;
  void* const stream = stand_in::make_stream();
  const auto threads_for = [stream](std::size_t packs, std::size_t more) {
    const std::size_t count = packs * pack_size<float> + more;
    const colls::cuda::device_buffer<float> data(count);
    std::fill_n(data.data(), count, 21.0f);
    reduce_into(data.span(), std::array<const float*, 2>{data.data(), data.data()}, colls::plus(),
                {stream});
    stand_in::synchronize(stream);
    CHECK(std::count(data.data(), data.data() + count, 42.0f) == static_cast<long>(count));
    return stand_in::launched_threads();
  };
  CHECK(threads_for(0, 1) == 256);
  CHECK(threads_for(256, 0) == 256);
  CHECK(threads_for(256, 1) == 512);
  CHECK(threads_for(most - 256, 0) == most - 256);
  CHECK(threads_for(most, 0) == most);
  CHECK(threads_for(most, 1) == most);
  CHECK(threads_for(3 * most + 5, 2) == most);
}

/// A half of another library, as CUDA's halves are under nvcc (tests/cuda/device.cu).
struct others_half {
  std::uint16_t bits;
};

}  // namespace

template <>
struct colls::detail::counterpart<others_half> {
  using type = colls::float16;
};

namespace {

static_assert(colls::type_id<others_half>() == colls::type_id<colls::float16>());

TEST_CASE("halves of another library are halves: sums in float, rounded once") {
  stand_in::boot({});
  const auto bits = [](float x) { return others_half{colls::float16(x).bits()}; };
  colls::cuda::device_buffer<others_half> in(4);
  colls::cuda::device_buffer<others_half> out(1);
  const float addends[] = {2048, 1, 1, 1};  // in halves 2048 + 1 is 2048
  for (std::size_t i = 0; i < 4; ++i) in.data()[i] = bits(addends[i]);
  const others_half* const one = in.data();
  const std::array<const others_half*, 4> all{one, one + 1, one + 2, one + 3};
  void* const stream = stand_in::make_stream();
  reduce_into(out.span(), all, colls::plus(), {stream});
  stand_in::synchronize(stream);
  CHECK(out.data()->bits == bits(2052).bits);
  const auto second = [](const others_half&, const others_half& b) { return b; };
  reduce_into(out.span(), all, second, {stream});
  stand_in::synchronize(stream);
  CHECK(out.data()->bits == bits(1).bits);
}

TEST_CASE("wrong buffers are refused before anything is launched") {
  stand_in::boot({.devices = 2});
  colls::cuda::device_buffer<int> data(100);
  const auto code_of = [&](int* out, const int* in, int* second) {
    try {
      reduce_into(colls::device_span(out, 10), std::array<const int*, 1>{in}, colls::plus(), {},
                  second);
    } catch (const colls::error& thrown) {
      return static_cast<colls::errc>(thrown.code().value());
    }
    return colls::errc{};
  };
  int* const good = data.data();
  auto* const crooked = reinterpret_cast<int*>(reinterpret_cast<char*>(good) + 2);
  using colls::errc;
  CHECK(code_of(crooked, good + 50, nullptr) == errc::invalid_argument);
  CHECK(code_of(good, crooked + 20, nullptr) == errc::invalid_argument);
  CHECK(code_of(good, good + 50, crooked + 20) == errc::invalid_argument);
  CHECK(code_of(good, good + 5, nullptr) == errc::invalid_argument);
  CHECK(code_of(good, good + 50, good + 9) == errc::invalid_argument);
  CHECK(code_of(good, good + 50, good + 41) == errc::invalid_argument);
  std::vector<int> of_host(20);
  int* freed = nullptr;
  {
    const colls::cuda::device_buffer<int> gone(20);
    freed = gone.data();
  }
  std::optional<colls::cuda::device_buffer<int>> elsewhere;
  {
    const colls::cuda::on_device there(1);
    elsewhere.emplace(20);
  }
  for (int* const wrong : {of_host.data(), freed, elsewhere->data(), good + 91}) {
    CHECK(code_of(wrong, good, nullptr) == errc::invalid_argument);
    CHECK(code_of(good, wrong, nullptr) == errc::invalid_argument);
    CHECK(code_of(good, good + 50, wrong) == errc::invalid_argument);
  }
  CHECK(stand_in::calls("launch") == 0);
  CHECK(code_of(good, good + 50, good + 50) == errc{});
  CHECK(code_of(good, good, good) == errc{});
  CHECK(stand_in::calls("launch") == 2);
}

}  // namespace
