// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// pipe_pointer: the pointer of a connection to its pipe. It saves the fastest pipe virtual calls.

#include <colls/transport/interprocess/carrier/shared_memory_pipe.hpp>

#include <memory>
#include <utility>

namespace colls::interprocess {

/// Owns a pipe. The calls that each message makes are direct and inlined if the pipe goes through
/// shared memory. Every other pipe makes a system call anyway, so its calls are virtual.
class pipe_pointer {
 public:
  pipe_pointer() = default;
  explicit pipe_pointer(std::unique_ptr<pipe> owned)
      : properties_(owned->properties()),
        direct_(dynamic_cast<shared_memory_pipe*>(owned.get())),
        pipe_(std::move(owned)) {}

  explicit operator bool() const { return pipe_ != nullptr; }
  pipe* operator->() const { return pipe_.get(); }

  const pipe_properties& properties() const { return properties_; }

  [[gnu::always_inline]] bool try_send(const header& frame, const_bytes message) {
    return direct_ != nullptr ? direct_->try_send(frame, message) : pipe_->try_send(frame, message);
  }
  [[gnu::always_inline]] bool try_receive(const header& expected, std::byte* out) {
    return direct_ != nullptr ? direct_->try_receive(expected, out)
                              : pipe_->try_receive(expected, out);
  }
  bool flush() { return direct_ != nullptr ? direct_->flush() : pipe_->flush(); }
  bool poll() { return direct_ != nullptr ? direct_->poll() : pipe_->poll(); }
  void wake_peer() { direct_ != nullptr ? direct_->wake_peer() : pipe_->wake_peer(); }

 private:
  pipe_properties properties_;
  shared_memory_pipe* direct_ = nullptr;
  std::unique_ptr<pipe> pipe_;
};

}  // namespace colls::interprocess
