// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Calls on device memory that are refused before a byte is sent, with a user as in
// device_calls.hpp.

#include <colls/cuda/memory.hpp>

#include "device_calls.hpp"

namespace device_calls {

/// An invalid argument, and the code with which the call that has it ends.
struct refusal {
  const char* what;
  colls::errc code;
};

/// Makes calls that must be refused on all ranks, and then a valid one. Returns those that do not
/// end with invalid_argument.
template <class User, class Communicator>
colls::task<std::vector<refusal>> refusals(User& by, Communicator& gpu) {
  constexpr std::size_t n = 100;
  constexpr std::size_t beyond = std::size_t{1} << 37;  // more than a device has
  auto good = by.holding(numbers(gpu.rank(), n));
  std::vector<number> host(n);
  const colls::cuda::pinned_buffer<number> pinned(n);
  number* freed = nullptr;
  co_await gpu.barrier();  // freeing waits for kernels, which may wait for other ranks
  {
    const colls::cuda::device_buffer<number> gone(std::size_t{1} << 20);
    freed = gone.data();
  }
  co_await gpu.barrier();
  auto* const askew = reinterpret_cast<number*>(reinterpret_cast<std::byte*>(good.data()) + 4);
  const auto of = [](number* data, std::size_t count) { return colls::device_span(data, count); };
  const auto reducing = [&gpu](colls::device_span<number> data, const colls::options& how) {
    return [&gpu, data, how] { return gpu.all_reduce(data, how); };
  };
  std::vector<refusal> all;
  const auto whole = of(good.data(), n);
  const colls::options how = by.on_stream();
  const struct {
    const char* what;
    colls::device_span<number> data;
  } buffers[] = {{"host memory", of(host.data(), n)},
                 {"pinned memory", of(pinned.data(), n)},
                 {"freed memory", of(freed, n)},
                 {"an element that is not aligned", of(askew, n - 1)},
                 {"too many elements", of(good.data(), beyond)},
                 {"as many as there are bytes", of(good.data(), SIZE_MAX)}};
  for (const auto& wrong : buffers) {
    const colls::errc alone = co_await code_of(reducing(wrong.data, how));
    all.push_back({wrong.what, alone});
    const auto data = wrong.data;
    const auto grouping = [&gpu, whole, data, &how] {
      return gpu.all_reduce(colls::group{whole, data}, colls::plus(), how);
    };
    const colls::errc in_group = co_await code_of(grouping);
    all.push_back({wrong.what, in_group});
    const auto moving = [&gpu, data, &how] { return gpu.broadcast(data, 0, how); };
    const colls::errc moved = co_await code_of(moving);
    all.push_back({wrong.what, moved});
  }
  const auto out_of_place = [&gpu, whole, &host, of, &how] {
    return gpu.all_reduce(whole, of(host.data(), n), colls::plus(), how);
  };
  const colls::errc of_out = co_await code_of(out_of_place);
  all.push_back({"an output in host memory", of_out});

  by.capture(true);
  const colls::errc captured = co_await code_of(reducing(whole, how));
  const auto sending = [&gpu, whole, &how] { return gpu.send(whole, 0, 3, how); };
  const colls::errc sent = co_await code_of(sending);
  by.capture(false);
  all.push_back({"a stream that is captured", captured});
  all.push_back({"a message of a stream that is captured", sent});
  std::erase_if(all,
                [](const refusal& each) { return each.code == colls::errc::invalid_argument; });

  co_await gpu.all_reduce(good.span(), how);
  co_await by.expect("a call after those that were refused", good, sums(gpu.size(), n));
  co_return all;
}

}  // namespace device_calls
