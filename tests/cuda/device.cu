// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Tests colls/cuda with the CUDA toolkit: it compiles, a machine without a GPU or driver gets an
// error of colls, and on a GPU the kernels compute what the CPU computes.

#include <colls/cuda/reduce.cuh>
#include <colls/cuda/stream.hpp>
#include <colls/inproc.hpp>

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <vector>

namespace {

struct best {
  float value;
  int where;
  unsigned votes;
};
struct better {
  __host__ __device__ best operator()(const best& a, const best& b) const {
    best made = b.value > a.value ? b : a;
    made.votes = a.votes + b.votes;
    return made;
  }
};

/// A user's operation that takes CUDA's halves is called with them.
struct product {
  __host__ __device__ __half operator()(__half a, __half b) const {
    return colls::cuda::to_cuda(colls::cuda::from_cuda(a) * colls::cuda::from_cuda(b));
  }
};

float number(std::size_t i) {
  return static_cast<float>(static_cast<int>(i * 2654435761u % 2001) - 1000) / 7.0f;
}
template <class T>
T drawn(std::size_t i) {
  if constexpr (std::is_same_v<T, best>) {
    return {number(i), static_cast<int>(i), 1};
  } else if constexpr (std::is_same_v<T, __half>) {
    return colls::cuda::to_cuda(colls::float16(number(i)));
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return colls::cuda::to_cuda(colls::bfloat16(number(i)));
  } else {
    return static_cast<T>(number(i));
  }
}

/// Compares the kernel's result with that of its body on the CPU.
template <class T, std::size_t Inputs, class Op>
colls::task<> compare(const char* what, std::size_t count, std::size_t shift, Op op, int& wrong) {
  colls::cuda::stream on(0);
  std::array<std::vector<T>, Inputs> host;
  std::vector<colls::cuda::device_buffer<T>> device;
  std::array<const T*, Inputs> on_device;
  colls::cuda::pinned_buffer<T> pinned(count);
  for (std::size_t i = 0; i < Inputs; ++i) {
    device.emplace_back(count + shift);
    for (std::size_t k = 0; k < count; ++k) {
      host[i].push_back(drawn<T>(7 * k + i));
      pinned.data()[k] = host[i][k];
    }
    on_device[i] = device[i].data() + shift;
    on.copy(device[i].data() + shift, pinned.data(), count * sizeof(T));
    co_await on.reached();
  }
  colls::cuda::device_buffer<T> out(count + shift);
  reduce_into(colls::device_span(out.data() + shift, count), on_device, op, on.ref());
  on.copy(pinned.data(), out.data() + shift, count * sizeof(T));
  co_await on.reached();

  using element = colls::detail::combined_as<T, Op>;
  using compute = colls::default_accumulate_t<Op, element>;
  const auto as_elements = [](auto* data) { return reinterpret_cast<element*>(data); };
  std::vector<T> want(count);
  colls::cuda::detail::fold<element, compute, Op, Inputs> body{
      as_elements(want.data()), nullptr, {}, count, op, {}};
  for (std::size_t i = 0; i < Inputs; ++i) body.in[i] = as_elements(host[i].data());
  body(0, 1);
  const bool same = std::memcmp(pinned.data(), want.data(), count * sizeof(T)) == 0;
  std::printf("%s %s, %zu inputs of %zu\n", same ? "ok   " : "WRONG", what, Inputs, count);
  wrong += same ? 0 : 1;
}

colls::task<> compare_all(std::size_t largest, int& wrong) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, largest}) {
    for (const std::size_t shift : {0ul, 3ul}) {
      co_await compare<float, 2>("float plus", count, shift, colls::plus(), wrong);
      co_await compare<colls::bfloat16, 3>("bfloat16 plus", count, shift, colls::plus(), wrong);
      co_await compare<colls::float16, 4>("float16 plus", count, shift, colls::plus(), wrong);
      co_await compare<__half, 4>("__half plus", count, shift, colls::plus(), wrong);
      co_await compare<__nv_bfloat16, 3>("__nv_bfloat16 plus", count, shift, colls::plus(), wrong);
      co_await compare<__half, 2>("__half, user's operation", count, shift, product(), wrong);
      co_await compare<best, 8>("a struct, user's operation", count, shift, better(), wrong);
      const auto twice = [] __host__ __device__(int a, int b) { return 2 * a - b; };
      co_await compare<int, 2>("int, lambda", count, shift, twice, wrong);
    }
  }
}

/// CUDA's halves count as those of colls where types are compared and where NCCL reduces them.
static_assert(colls::type_id<__half>() == colls::type_id<colls::float16>());
static_assert(colls::type_id<__nv_bfloat16>() == colls::type_id<colls::bfloat16>());
using colls::detail::combined_as;
static_assert(std::is_same_v<combined_as<__half, colls::plus>, colls::float16>);
static_assert(std::is_same_v<combined_as<__nv_bfloat16, colls::average>, colls::bfloat16>);
static_assert(std::is_same_v<combined_as<__half, product>, __half>);

/// Whether a query of a busy stream keeps the user's last error if CUDA's own query keeps it.
bool leaves_users_error(int devices) {
  namespace api = colls::cuda::api;
  const colls::cuda::stream busy(0);
  const auto sleep = [](void*) { ::usleep(100'000); };
  colls::cuda::check(api::call(sleep, nullptr, busy.ref()), "cudaLaunchHostFunc");
  const auto after = [&](auto query) {
    (void)cudaSetDevice(devices);  // fails: there is no device of that number
    const bool at_work = query() == cudaErrorNotReady;
    return at_work ? cudaGetLastError() : cudaErrorUnknown;
  };
  const cudaError_t by_cuda = after([&] { return cudaStreamQuery(api::native(busy.ref())); });
  const cudaError_t left = after([&] { return api::query(busy.ref()); });
  return left == (by_cuda == cudaErrorNotReady ? cudaSuccess : by_cuda);
}

}  // namespace

/// An argument, `quick`, selects small sizes, for compute-sanitizer.
int main(int, char** arguments) {
  int count = 0;
  try {
    count = colls::cuda::devices();
  } catch (const colls::error& none) {
    if (none.code() != colls::errc::no_device) return 1;
    std::printf("%s\n", none.what());
  }
  if (count == 0) {
    try {
      const colls::cuda::stream stream(0);
      return 1;
    } catch (const colls::error& none) {
      return none.code() == colls::errc::no_device ? 0 : 1;
    }
  }
  int wrong = 0;
  // An error that colls handles or reports does not remain for the user's cudaGetLastError.
  const bool refused = colls::cuda::api::use_device(count) == colls::cuda::api::invalid_device;
  wrong += refused && cudaGetLastError() == cudaSuccess ? 0 : 1;
  const bool leaves = leaves_users_error(count);
  std::printf("%s the user's own error\n", leaves ? "ok   " : "WRONG");
  wrong += leaves ? 0 : 1;
  colls::inproc_world alone(1);
  colls::sync_wait(alone, compare_all(arguments[1] != nullptr ? 100'003 : 10'000'019, wrong));
  std::printf("%d wrong\n", wrong);
  return wrong == 0 ? 0 : 1;
}
