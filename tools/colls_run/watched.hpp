// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A descriptor that is watched while it may be read or written, and a function to call then.

#include <colls/driver/engine.hpp>

#include <functional>
#include <utility>

namespace launcher {

class watched final : colls::engine::watcher {
 public:
  watched(colls::engine& on, int descriptor, std::uint32_t events, std::function<void()> call)
      : engine_(on), descriptor_(descriptor), events_(events), call_(std::move(call)) {}
  ~watched() { enable(false); }
  watched(const watched&) = delete;
  watched& operator=(const watched&) = delete;

  int descriptor() const { return descriptor_; }

  void enable(bool wanted = true) {
    if (wanted == enabled_) return;
    enabled_ = wanted;
    if (wanted) {
      engine_.watch(descriptor_, events_, *this);
    } else {
      engine_.unwatch(descriptor_, *this);
    }
  }

 private:
  void ready(std::uint32_t) override { call_(); }

  colls::engine& engine_;
  int descriptor_;
  std::uint32_t events_;
  std::function<void()> call_;
  bool enabled_ = false;
};

}  // namespace launcher
