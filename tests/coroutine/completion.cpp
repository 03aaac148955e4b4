// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/coroutine/completion.hpp>

#include <doctest/doctest.h>
#include <memory>
#include <vector>

#include "../support/stepper.hpp"

namespace {

using colls::completion;
using colls::run_queue;

static_assert(colls::startable<stepper::turn>);
static_assert(!colls::startable<int>);

struct noted : completion {
  noted(run_queue& queue, std::vector<int>& list, int id)
      : completion([](completion& self) noexcept { static_cast<noted&>(self).note(); }, &queue),
        order(list),
        number(id) {}
  void note() {
    order.push_back(number);
    if (next != nullptr) next->post();
  }
  std::vector<int>& order;
  int number;
  completion* next = nullptr;
};

TEST_CASE("completions run in the order in which they were posted, once each") {
  run_queue queue;
  std::vector<int> order;
  noted one(queue, order, 1);
  noted two(queue, order, 2);
  noted three(queue, order, 3);
  CHECK_FALSE(queue.run());
  two.post();
  one.post();
  two.post();
  CHECK(two.posted());
  two.next = &three;
  CHECK(queue.run());
  CHECK(order == std::vector<int>{2, 1, 3});
  CHECK(queue.empty());
  CHECK_FALSE(two.posted());
  one.post();
  one.withdraw();
  one.withdraw();
  CHECK_FALSE(queue.run());
}

TEST_CASE("a completion that is destroyed leaves its queue, and a queue its completions") {
  std::vector<int> order;
  auto queue = std::make_unique<run_queue>();
  noted one(*queue, order, 1);
  noted three(*queue, order, 3);
  one.post();
  {
    noted two(*queue, order, 2);
    two.post();
  }
  three.post();
  queue->run();
  CHECK(order == std::vector<int>{1, 3});
  one.post();
  queue.reset();
  CHECK_FALSE(one.posted());
}

TEST_CASE("two completions that post each other do not occupy the driver forever") {
  run_queue queue;
  std::vector<int> order;
  noted one(queue, order, 1);
  noted two(queue, order, 2);
  one.next = &two;
  two.next = &one;
  one.post();
  CHECK(queue.run(10));
  CHECK(order.size() == 10);
  CHECK_FALSE(queue.empty());
}

TEST_CASE("every run polls the watched conditions, until they hold") {
  struct condition : colls::polled_condition {
    bool poll() noexcept override {
      ++polls;
      if (!holds) return false;
      waiter->post();
      return true;
    }
    bool holds = false;
    int polls = 0;
    completion* waiter = nullptr;
  };
  run_queue queue;
  std::vector<int> order;
  noted one(queue, order, 1);
  noted two(queue, order, 2);
  condition first;
  condition second;
  first.waiter = &one;
  second.waiter = &two;
  CHECK_FALSE(queue.is_watching());
  queue.watch(first);
  queue.watch(second);
  CHECK_FALSE(queue.run());
  CHECK(first.polls == 1);
  CHECK(second.polls == 1);
  first.holds = true;
  CHECK(queue.run());
  CHECK(order == std::vector<int>{1});
  CHECK(queue.is_watching());
  CHECK_FALSE(queue.run());
  CHECK(first.polls == 2);
  CHECK(second.polls == 3);
  {
    condition gone;
    queue.watch(gone);
  }
  queue.watch(first);
  queue.unwatch(second);
  CHECK(queue.run());
  CHECK_FALSE(queue.is_watching());
  CHECK(order == std::vector<int>{1, 1});
}

}  // namespace
