// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Forwards the terminal's input to rank 0. The rank is in a background process group, so the kernel
// would stop it if it read from the terminal itself.

#include "watched_descriptor.hpp"

#include <colls/driver/socket.hpp>

#include <string>

namespace launcher {

class terminal_input {
 public:
  /// `pipe` is the writing end of rank 0's standard input.
  terminal_input(colls::engine& driver, colls::detail::descriptor pipe)
      : pipe_(std::move(pipe)),
        terminal_watch_(driver, 0, EPOLLIN, [this] { read(); }),
        pipe_watch_(driver, pipe_.get(), EPOLLOUT, [this] { write(); }) {
    resume();
  }

  /// Reads again: the launcher may have come to the foreground.
  void resume() {
    if (pipe_ && pending_.empty()) terminal_watch_.enable();
  }

 private:
  void read() {
    terminal_watch_.enable(false);
    // In the background a read would stop the launcher. SIGCONT calls `resume`.
    if (::tcgetpgrp(0) != ::getpgrp()) return;
    char bytes[4096];
    const ssize_t size = ::read(0, bytes, sizeof bytes);
    if (size > 0) {
      pending_.assign(bytes, static_cast<std::size_t>(size));
      write();
    } else if (size == 0 || (errno != EINTR && errno != EAGAIN)) {
      end();
    } else {
      terminal_watch_.enable();
    }
  }

  void write() {
    const ssize_t wrote = ::write(pipe_.get(), pending_.data(), pending_.size());
    if (wrote < 0 && errno != EAGAIN) return end();
    if (wrote > 0) pending_.erase(0, static_cast<std::size_t>(wrote));
    pipe_watch_.enable(!pending_.empty());
    terminal_watch_.enable(pending_.empty());
  }

  void end() {
    terminal_watch_.enable(false);
    pipe_watch_.enable(false);
    pipe_ = {};
  }

  colls::detail::descriptor pipe_;
  watched_descriptor terminal_watch_;
  watched_descriptor pipe_watch_;
  std::string pending_;
};

}  // namespace launcher
