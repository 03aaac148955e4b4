// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What one rank writes to one of its outputs, cut into lines.

#include "sink.hpp"

#include <colls/driver/socket.hpp>

#include <deque>

namespace launcher {

/// What a carriage return has left visible of a line.
inline std::string_view visible(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  return line.substr(line.rfind('\r') + 1);
}

/// Reads a rank's pipe and hands whole lines to the sink, each behind the rank's prefix; a line
/// longer than 64 KiB comes in pieces. Keeps the last lines for the explanation of a failure.
class rank_output final : colls::engine::watcher {
 public:
  rank_output(colls::engine& on, colls::detail::descriptor pipe, sink& to, std::string prefix)
      : engine_(on), pipe_(std::move(pipe)), sink_(to), prefix_(std::move(prefix)) {
    resume();
  }
  rank_output(const rank_output&) = delete;
  rank_output& operator=(const rank_output&) = delete;
  ~rank_output() { pause(); }

  const std::deque<std::string>& last_lines() const { return last_; }

  /// The sink has room again or has broken: the rank then finds its pipe closed, as it would
  /// without a launcher.
  void sink_changed() {
    if (sink_.broken() != 0) {
      close();
    } else if (pipe_ && !sink_.full()) {
      resume();
    }
  }

  /// The rank has ended: takes what is still in the pipe. Others may go on writing to it.
  void drain() {
    for (int i = 0; i < 64 && pipe_ && read_once(); ++i) {
    }
    cut_last_line();
    sink_.settle();
  }

  /// Nobody is left who could write.
  void finish() {
    drain();
    close();
  }

 private:
  static constexpr std::size_t longest = 64 * 1024;
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
    // A few reads at a time, so that one busy rank does not keep the others waiting.
    for (int i = 0; i < 4 && pipe_ && read_once(); ++i) {
    }
    if (!pipe_) cut_last_line();
    if (sink_.terminal()) sink_.live(this, prefix_, visible(partial_));
    sink_.settle();
    if (pipe_ && sink_.full()) pause();
  }

  bool read_once() {
    char bytes[16 * 1024];
    const ssize_t size = ::read(pipe_.get(), bytes, sizeof bytes);
    if (size > 0) {
      take({bytes, static_cast<std::size_t>(size)});
      return true;
    }
    if (size == 0 || (errno != EAGAIN && errno != EINTR)) close();
    return false;
  }

  void take(std::string_view text) {
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
    while (partial_.size() >= longest) {
      emit(std::string_view(partial_).substr(0, longest));
      partial_.erase(0, longest);
    }
  }

  // How many bytes at the end of the unfinished line a terminal would still show.
  std::size_t visible_tail() const {
    const std::string_view shown = visible(partial_);
    return static_cast<std::size_t>(partial_.data() + partial_.size() - shown.data());
  }

  void cut_last_line() {
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
