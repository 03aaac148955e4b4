// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/base/function_ref.hpp>

#include <doctest/doctest.h>

#include <memory>
#include <type_traits>

using colls::function_ref;

static_assert(std::is_trivially_destructible_v<function_ref<void()>>);
static_assert(std::is_trivially_copyable_v<function_ref<void()>>);
static_assert(!std::is_constructible_v<function_ref<int(int)>, void (*)(int)>);
static_assert(!std::is_constructible_v<function_ref<void(int*)>, void (&)(double)>);

TEST_CASE("a function_ref calls the callable that it refers to") {
  int sum = 0;
  auto add = [&sum](int x) { return sum += x; };
  const function_ref<int(int)> ref(add);
  CHECK(ref(2) == 2);
  const function_ref<int(int)> copy = ref;
  CHECK(copy(3) == 5);
  CHECK(sum == 5);
}

TEST_CASE("a function_ref does not copy its callable, and keeps const") {
  struct counter {
    int calls = 0;
    int operator()() { return ++calls; }
    int operator()() const { return -1; }
  };
  counter own;
  const counter fixed;
  CHECK(function_ref<int()>(own)() == 1);
  CHECK(function_ref<int()>(own)() == 2);
  CHECK(function_ref<int()>(fixed)() == -1);
  CHECK(own.calls == 2);
}

TEST_CASE("arguments and results are forwarded") {
  const auto take = [](std::unique_ptr<int> value) { return value; };
  const function_ref<std::unique_ptr<int>(std::unique_ptr<int>)> ref(take);
  CHECK(*ref(std::make_unique<int>(7)) == 7);
}
