// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Where the ranks' output goes: whole lines, never a blocking write, one live line on a terminal.

#include <colls/driver/engine.hpp>

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <cerrno>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

namespace launcher {

/// As much of the text as fits into `columns`. Escape sequences and the later bytes of a UTF-8
/// character take no room and are kept whole.
inline std::string_view fit(std::string_view text, std::size_t columns) {
  bool escape = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (escape) {
      escape = c == '[' || !((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'));
    } else if (c == '\x1b') {
      escape = true;
    } else if ((c & 0xC0) != 0x80 && columns-- == 0) {
      return text.substr(0, i);
    }
  }
  return text;
}

/// One of the launcher's own outputs. Who reads it slowly holds up the ranks, never the launcher.
class sink final : colls::engine::watcher {
 public:
  sink(colls::engine& on, int descriptor) : engine_(on), descriptor_(descriptor) {
    struct stat about{};
    const bool is_file = ::fstat(descriptor, &about) == 0 && S_ISREG(about.st_mode);
    // What a pipe with room takes without blocking.
    piece_ = is_file ? std::numeric_limits<std::size_t>::max() : 4096;
    terminal_ = ::isatty(descriptor) != 0;
  }
  ~sink() { watch(false); }
  sink(const sink&) = delete;
  sink& operator=(const sink&) = delete;

  bool terminal() const { return terminal_; }
  bool full() const { return left() > high_water; }
  bool empty() const { return left() == 0; }
  /// The errno of a failed write; nothing is written after it. 0: good.
  int broken() const { return broken_; }
  /// Called when there is room again, and when the sink breaks.
  void on_change(std::function<void()> call) { on_change_ = std::move(call); }

  void line(std::string_view prefix, std::string_view text) {
    if (std::exchange(live_shown_, false)) queue_ += "\r\x1b[K";
    queue_.append(prefix).append(text).push_back('\n');
  }

  /// Shows an unfinished line in the last row of the terminal, until `owner` ends or changes it.
  void live(const void* owner, std::string_view prefix, std::string_view text) {
    if (text.empty() && owner != live_owner_) return;
    live_owner_ = owner;
    live_.assign(prefix).append(text);
    if (text.empty()) live_.clear();
    live_changed_ = true;
  }

  /// Ends a group of calls: brings the live line back and writes what can be written.
  void settle() {
    if (live_changed_ || (!live_shown_ && !live_.empty())) {
      if (live_shown_) queue_ += "\r\x1b[K";
      queue_ += fit(live_, columns());
      live_shown_ = !live_.empty();
      live_changed_ = false;
    }
    flush();
  }

 private:
  static constexpr std::size_t high_water = 1 << 20;

  std::size_t left() const { return queue_.size() - written_; }

  std::size_t columns() const {
    winsize size{};
    const bool known = ::ioctl(descriptor_, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    return known ? size.ws_col - 1U : 79U;
  }

  void flush() {
    const bool was_full = full();
    while (left() > 0 && broken_ == 0) {
      pollfd room{descriptor_, POLLOUT, 0};
      ssize_t wrote = -1;
      if (::poll(&room, 1, 0) == 0) {
        errno = EAGAIN;
      } else {
        wrote = ::write(descriptor_, queue_.data() + written_, std::min(left(), piece_));
      }
      if (wrote >= 0) {
        written_ += static_cast<std::size_t>(wrote);
      } else if (errno == EAGAIN) {
        break;
      } else if (errno != EINTR) {
        broken_ = errno;
      }
    }
    if (broken_ != 0 || left() == 0) {
      queue_.clear();
      written_ = 0;
    } else if (written_ > high_water) {
      queue_.erase(0, std::exchange(written_, 0));
    }
    watch(left() > 0);
    if (on_change_ && (broken_ != 0 || (was_full && !full()))) on_change_();
  }

  void watch(bool wanted) {
    if (wanted == watched_) return;
    watched_ = wanted;
    if (wanted) {
      engine_.watch(descriptor_, EPOLLOUT, *this);
    } else {
      engine_.unwatch(descriptor_, *this);
    }
  }

  void ready(std::uint32_t) override { flush(); }

  colls::engine& engine_;
  int descriptor_;
  std::size_t piece_;
  bool terminal_;
  bool watched_ = false;
  int broken_ = 0;
  std::string queue_;
  std::size_t written_ = 0;
  std::string live_;
  const void* live_owner_ = nullptr;
  bool live_shown_ = false;
  bool live_changed_ = false;
  std::function<void()> on_change_;
};

}  // namespace launcher
