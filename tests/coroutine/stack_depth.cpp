// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/coroutine/task.hpp>

#include <algorithm>

#include "../support/communicators.hpp"
#include "../support/stepper.hpp"

// A million awaits in a loop need a constant stack depth. These tests also run at -O0 and under
// ASan.

namespace {

using colls::task;

constexpr int million = 1'000'000;

/// Records how deep in the stack the callers of `note` were.
class depth {
 public:
  [[gnu::noinline]] void note() {
    const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    lowest_ = std::min(lowest_, here);
    highest_ = std::max(highest_, here);
  }
  std::size_t spread() const { return highest_ - lowest_; }

 private:
  std::uintptr_t lowest_ = UINTPTR_MAX;
  std::uintptr_t highest_ = 0;
};
constexpr std::size_t max_spread = 64 * 1024;

task<int> ready(depth& stack) {
  stack.note();
  co_return 1;
}
task<int> suspends(stepper& on, depth& stack) {
  co_await on.next();
  stack.note();
  co_return 1;
}
task<> fails(depth& stack) {
  stack.note();
  throw 1;
  co_return;
}

TEST_CASE("tasks that are ready, and tasks that suspend") {
  stepper on;
  depth stack;
  const auto loop = [&]() -> task<int> {
    int sum = 0;
    for (int i = 0; i < million; ++i) sum += co_await ready(stack);
    for (int i = 0; i < million; ++i) sum += co_await suspends(on, stack);
    co_return sum;
  };
  CHECK(colls::sync_wait(on, loop()) == 2 * million);
  CHECK(stack.spread() < max_spread);
}

TEST_CASE("when_all, and tasks that throw") {
  stepper on;
  depth stack;
  const auto loop = [&]() -> task<int> {
    int sum = 0;
    for (int i = 0; i < million / 4; ++i) {
      const auto both = co_await colls::when_all(suspends(on, stack), ready(stack));
      sum += std::get<0>(both) + std::get<1>(both);
    }
    for (int i = 0; i < million / 20; ++i) {
      try {
        co_await fails(stack);
      } catch (int thrown) {
        sum += thrown;
      }
    }
    co_return sum;
  };
  CHECK(colls::sync_wait(on, loop()) == million / 2 + million / 20);
  CHECK(stack.spread() < max_spread);
}

TEST_CASE("collectives of ranks that feed each other") {
  depth stack;
  colls::inproc::run(3, [&](colls::inproc::communicator& comm) -> task<> {
    int number = 1;
    for (int i = 0; i < million / 10; ++i) {
      co_await comm.broadcast(std::span(&number, 1), i % 3);
      stack.note();
    }
    CHECK(number == 1);
  });
  CHECK(stack.spread() < max_spread);
}

TEST_CASE("calls that all wait for the first one, and end together") {
  // When the first call ends, each of the others starts and ends at once.
  depth stack;
  communicators all(2);
  std::vector<colls::operation<>> kept;
  const auto note = [&](int, int) {
    stack.note();
    return 0;
  };
  std::vector<int> one(1);
  std::vector<int> two(1);
  for (int i = 0; i < million / 20; ++i) kept.push_back(all[0].all_reduce(one, note));
  for (int i = 0; i < million / 20; ++i) kept.push_back(all[1].all_reduce(two, note));
  for (auto& each : kept) all.wait(each);
  CHECK(stack.spread() < max_spread);
}

}  // namespace
