// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// exchange_guard: the time in which ranks may exchange texts to make their transports.

#include <memory>
#include <utility>

namespace colls::detail {

/// Sets `pass_texts` of a `world_info` to null, because texts travel only while a transport is
/// made.
template <class Info>
class exchange_guard {
 public:
  explicit exchange_guard(std::shared_ptr<Info> info) : info_(std::move(info)) {}
  exchange_guard(const exchange_guard&) = delete;
  ~exchange_guard() { info_->pass_texts = nullptr; }

 private:
  std::shared_ptr<Info> info_;
};

}  // namespace colls::detail
