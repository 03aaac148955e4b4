// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// function_ref: a reference to a callable. The type of the reference does not depend on the type of
// the callable. A coroutine that takes a function_ref is therefore compiled once for all callables.

#include <memory>
#include <type_traits>
#include <utility>

namespace colls {

template <class Signature>
class function_ref;

/// A reference to a callable with the given signature, like std::function_ref of C++26 (P0792). The
/// callable must outlive the reference. The class is trivially destructible, because g++ 12
/// destroys some temporaries of a `co_await` expression twice.
template <class Result, class... Args>
class function_ref<Result(Args...)> {
 public:
  template <class Function>
    requires(!std::is_same_v<std::remove_cvref_t<Function>, function_ref> &&
             std::is_invocable_r_v<Result, Function&, Args...>)
  function_ref(Function&& function) noexcept
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(function)))),
        call_([](void* object, Args... args) -> Result {
          using pointer = std::add_pointer_t<Function>;
          return (*static_cast<pointer>(object))(std::forward<Args>(args)...);
        }) {}

  Result operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  Result (*call_)(void*, Args...);
};

}  // namespace colls
