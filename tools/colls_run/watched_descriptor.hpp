// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A descriptor that the engine watches while enabled, with a function to call when it is ready.

#include <colls/driver/engine.hpp>

#include <functional>
#include <utility>

namespace launcher {

class watched_descriptor final : colls::engine::watcher {
 public:
  watched_descriptor(colls::engine& driver, int descriptor, std::uint32_t events,
                     std::function<void()> callback)
      : engine_(driver), descriptor_(descriptor), events_(events), callback_(std::move(callback)) {}
  ~watched_descriptor() { enable(false); }
  watched_descriptor(const watched_descriptor&) = delete;
  watched_descriptor& operator=(const watched_descriptor&) = delete;

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
  void ready(std::uint32_t) override { callback_(); }

  colls::engine& engine_;
  int descriptor_;
  std::uint32_t events_;
  std::function<void()> callback_;
  bool enabled_ = false;
};

}  // namespace launcher
