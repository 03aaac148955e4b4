// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What is typed at the terminal, carried to rank 0: as a background process group, the rank itself
// would be stopped when it reads.

#include "watched.hpp"

#include <colls/driver/socket.hpp>

#include <string>

namespace launcher {

class terminal_input {
 public:
  /// `to` is the writing end of rank 0's standard input.
  terminal_input(colls::engine& on, colls::detail::descriptor to)
      : to_(std::move(to)),
        typed_(on, 0, EPOLLIN, [this] { read(); }),
        room_(on, to_.get(), EPOLLOUT, [this] { write(); }) {
    resume();
  }

  /// The launcher may have come to the foreground.
  void resume() {
    if (to_ && waiting_.empty()) typed_.enable();
  }

 private:
  void read() {
    typed_.enable(false);
    // In the background reading would stop the launcher; SIGCONT brings us back here.
    if (::tcgetpgrp(0) != ::getpgrp()) return;
    char bytes[4096];
    const ssize_t size = ::read(0, bytes, sizeof bytes);
    if (size > 0) {
      waiting_.assign(bytes, static_cast<std::size_t>(size));
      write();
    } else if (size == 0 || (errno != EINTR && errno != EAGAIN)) {
      end();
    } else {
      typed_.enable();
    }
  }

  void write() {
    const ssize_t wrote = ::write(to_.get(), waiting_.data(), waiting_.size());
    if (wrote < 0 && errno != EAGAIN) return end();
    if (wrote > 0) waiting_.erase(0, static_cast<std::size_t>(wrote));
    room_.enable(!waiting_.empty());
    typed_.enable(waiting_.empty());
  }

  void end() {
    typed_.enable(false);
    room_.enable(false);
    to_ = {};
  }

  colls::detail::descriptor to_;
  watched typed_;
  watched room_;
  std::string waiting_;
};

}  // namespace launcher
