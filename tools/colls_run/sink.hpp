// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Writes the ranks' output: complete lines, never a blocking write, one live line on a terminal.

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

/// Returns as much of the text as fits into `columns`. Escape sequences, and the bytes of a UTF-8
/// character after its first, take no room and are not split.
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

/// One of the launcher's own outputs. A slow reader delays the ranks, but never the launcher.
class sink final : colls::engine::watcher {
 public:
  sink(colls::engine& driver, int descriptor) : engine_(driver), descriptor_(descriptor) {
    struct stat status{};
    const bool is_file = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
    // A pipe that has room takes so many bytes without blocking.
    max_write_ = is_file ? std::numeric_limits<std::size_t>::max() : 4096;
    terminal_ = ::isatty(descriptor) != 0;
  }
  ~sink() { watch(false); }
  sink(const sink&) = delete;
  sink& operator=(const sink&) = delete;

  bool terminal() const { return terminal_; }
  bool full() const { return unwritten() > high_water; }
  bool empty() const { return unwritten() == 0; }
  /// The errno of a failed write, after which nothing is written any more; 0: no failure.
  int broken() const { return broken_; }
  /// Sets the function that is called when there is room again, and when a write fails.
  void on_change(std::function<void()> callback) { on_change_ = std::move(callback); }

  void line(std::string_view prefix, std::string_view text) {
    if (std::exchange(live_shown_, false)) queue_ += "\r\x1b[K";
    queue_.append(prefix).append(text).push_back('\n');
  }

  /// Shows an unfinished line in the last row of the terminal until `owner` completes or changes
  /// it.
  void live(const void* owner, std::string_view prefix, std::string_view text) {
    if (text.empty() && owner != live_owner_) return;
    live_owner_ = owner;
    live_.assign(prefix).append(text);
    if (text.empty()) live_.clear();
    live_changed_ = true;
  }

  /// Ends a group of calls: shows the live line again and writes as much as possible.
  void update() {
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

  std::size_t unwritten() const { return queue_.size() - written_; }

  std::size_t columns() const {
    winsize size{};
    const bool known = ::ioctl(descriptor_, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    return known ? size.ws_col - 1U : 79U;
  }

  void flush() {
    const bool was_full = full();
    while (unwritten() > 0 && broken_ == 0) {
      pollfd room{descriptor_, POLLOUT, 0};
      ssize_t wrote = -1;
      if (::poll(&room, 1, 0) == 0) {
        errno = EAGAIN;
      } else {
        wrote = ::write(descriptor_, queue_.data() + written_, std::min(unwritten(), max_write_));
      }
      if (wrote >= 0) {
        written_ += static_cast<std::size_t>(wrote);
      } else if (errno == EAGAIN) {
        break;
      } else if (errno != EINTR) {
        broken_ = errno;
      }
    }
    if (broken_ != 0 || unwritten() == 0) {
      queue_.clear();
      written_ = 0;
    } else if (written_ > high_water) {
      queue_.erase(0, std::exchange(written_, 0));
    }
    watch(unwritten() > 0);
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
  std::size_t max_write_;
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
