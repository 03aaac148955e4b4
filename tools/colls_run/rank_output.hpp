// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Reads one output of one rank and splits it into lines.

#include "sink.hpp"

#include <colls/driver/socket.hpp>

#include <deque>

namespace launcher {

/// The part of a line that is visible on a terminal: what follows its last carriage return.
inline std::string_view visible(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  return line.substr(line.rfind('\r') + 1);
}

/// Reads a rank's pipe and passes complete lines to the sink, each after the rank's prefix. A line
/// longer than 64 KiB is split. Keeps the last lines for the explanation of a failure.
class rank_output final : colls::engine::watcher {
 public:
  rank_output(colls::engine& driver, colls::detail::descriptor pipe, sink& destination,
              std::string prefix)
      : engine_(driver), pipe_(std::move(pipe)), sink_(destination), prefix_(std::move(prefix)) {
    resume();
  }
  rank_output(const rank_output&) = delete;
  rank_output& operator=(const rank_output&) = delete;
  ~rank_output() { pause(); }

  const std::deque<std::string>& last_lines() const { return last_; }
  void forget_last_lines() { last_.clear(); }

  /// Called when the sink has room again, or is broken. If it is broken, the rank finds its pipe
  /// closed, as it would without a launcher.
  void sink_changed() {
    if (sink_.broken() != 0) {
      close();
    } else if (pipe_ && !sink_.full()) {
      resume();
    }
  }

  /// The rank has ended: reads what is still in the pipe. Its descendants may continue to write.
  void drain() {
    for (int i = 0; i < 64 && pipe_ && read_once(); ++i) {
    }
    end_last_line();
    sink_.update();
  }

  /// No process is left that could write to the pipe.
  void finish() {
    drain();
    close();
  }

 private:
  static constexpr std::size_t max_line_size = 64 * 1024;
  static constexpr std::size_t kept_lines = 5;
  static constexpr std::size_t kept_bytes = 400;

  void resume() {
    if (!std::exchange(watched_, true)) engine_.watch(pipe_.get(), EPOLLIN, *this);
  }
  void pause() {
    if (std::exchange(watched_, false)) engine_.unwatch(pipe_.get(), *this);
  }
  void close() {
    pause();
    pipe_ = {};
  }

  void ready(std::uint32_t) override {
    // A few reads at a time, so that a rank that writes much does not delay the others.
    for (int i = 0; i < 4 && pipe_ && read_once(); ++i) {
    }
    if (!pipe_) end_last_line();
    if (sink_.terminal()) sink_.live(this, prefix_, visible(partial_));
    sink_.update();
    if (pipe_ && sink_.full()) pause();
  }

  bool read_once() {
    char bytes[16 * 1024];
    const ssize_t size = ::read(pipe_.get(), bytes, sizeof bytes);
    if (size > 0) {
      split_lines({bytes, static_cast<std::size_t>(size)});
      return true;
    }
    if (size == 0 || (errno != EAGAIN && errno != EINTR)) close();
    return false;
  }

  void split_lines(std::string_view text) {
    for (auto end = text.find('\n'); end != text.npos; end = text.find('\n')) {
      if (partial_.empty()) {
        emit(text.substr(0, end));
      } else {
        partial_.append(text.substr(0, end));
        emit(partial_);
        partial_.clear();
      }
      text.remove_prefix(end + 1);
    }
    partial_.append(text);
    if (sink_.terminal()) partial_.erase(0, partial_.size() - visible_tail());
    while (partial_.size() >= max_line_size) {
      emit(std::string_view(partial_).substr(0, max_line_size));
      partial_.erase(0, max_line_size);
    }
  }

  // The number of bytes at the end of the unfinished line that a terminal would still show.
  std::size_t visible_tail() const {
    const std::string_view shown = visible(partial_);
    return static_cast<std::size_t>(partial_.data() + partial_.size() - shown.data());
  }

  void end_last_line() {
    if (!partial_.empty()) emit(std::exchange(partial_, {}));
  }

  void emit(std::string_view line) {
    if (sink_.terminal()) {
      sink_.live(this, {}, {});
      line = visible(line);
    }
    sink_.line(prefix_, line);
    last_.emplace_back(visible(line).substr(0, kept_bytes));
    if (last_.size() > kept_lines) last_.pop_front();
  }

  colls::engine& engine_;
  colls::detail::descriptor pipe_;
  sink& sink_;
  std::string prefix_;
  std::string partial_;
  std::deque<std::string> last_;
  bool watched_ = false;
};

}  // namespace launcher
