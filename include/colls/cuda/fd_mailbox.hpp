// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// hatch: where the other ranks of this host pass a rank descriptors. Whoever passes one waits for
// nobody: it lies there until it is taken.

#include <colls/os/descriptor.hpp>

#include <fcntl.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <vector>

namespace colls::cuda {

/// Of which memory a descriptor is: a number that the process of that id gave it.
struct hatch_label {
  std::uint64_t process = 0;
  std::uint64_t number = 0;
  friend bool operator==(const hatch_label&, const hatch_label&) = default;
};

/// A local socket with a name that the system drew, for processes of this user.
class hatch {
 public:
  hatch() : socket_(open_socket()) {
    sockaddr_un own{};
    own.sun_family = AF_UNIX;
    socklen_t size = sizeof own.sun_family;
    auto* const address = reinterpret_cast<sockaddr*>(&own);
    if (!socket_ || ::bind(socket_.get(), address, size) != 0 ||
        ::listen(socket_.get(), most_waiting) != 0) {
      return;
    }
    size = sizeof own;
    if (::getsockname(socket_.get(), address, &size) != 0) return;
    const std::size_t length = size - before_name;
    if (size > before_name && length <= sizeof name_) {
      std::memcpy(&name_, own.sun_path + 1, length);
    }
  }
  hatch(const hatch&) = delete;

  /// How others find it; 0: not at all.
  std::uint64_t name() const { return name_; }

  /// False: it has not come there (another network namespace or user, too many descriptors).
  static bool pass(std::uint64_t name, const hatch_label& label, int file) {
    sockaddr_un there{};
    there.sun_family = AF_UNIX;
    std::memcpy(there.sun_path + 1, &name, sizeof name);
    const auto length = static_cast<socklen_t>(::strnlen(there.sun_path + 1, sizeof name));
    const colls::detail::descriptor to = open_socket();
    return to && length != 0 &&
           ::connect(to.get(), reinterpret_cast<const sockaddr*>(&there), before_name + length) ==
               0 &&
           colls::detail::is_own_user(to.get()) &&
           colls::detail::send_with_descriptor(to.get(), &label, sizeof label, file);
  }

  /// A descriptor of that name, if one has come: one of those that came.
  colls::detail::descriptor take(const hatch_label& wanted) {
    let_in();
    const auto found = std::find_if(letters_.begin(), letters_.end(),
                                    [&](const letter& each) { return each.label == wanted; });
    if (found == letters_.end()) return {};
    colls::detail::descriptor taken = std::move(found->file);
    letters_.erase(found);
    return taken;
  }

 private:
  static constexpr socklen_t before_name = offsetof(sockaddr_un, sun_path) + 1;
  // Of what comes the last ones are kept: nobody can use up this process's descriptors.
  static constexpr std::size_t most_letters = 1024;
  static constexpr std::size_t most_guests = 64;
  static constexpr int most_waiting = 1024;

  struct letter {
    hatch_label label;
    colls::detail::descriptor file;
  };

  static colls::detail::descriptor open_socket() {
    return colls::detail::descriptor(
        ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  }
  /// All that waited there when this began: whoever comes again and again keeps nobody here.
  void let_in() {
    std::erase_if(guests_, [this](const auto& guest) { return has_spoken(guest); });
    for (int come = 0; come < most_waiting; ++come) {
      colls::detail::descriptor guest(
          ::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!guest) break;
      if (!colls::detail::is_own_user(guest.get()) || has_spoken(guest)) continue;
      keep(guests_, std::move(guest), most_guests);
    }
  }
  /// False: it may be about to.
  bool has_spoken(const colls::detail::descriptor& guest) {
    letter come;
    const ssize_t got =
        colls::detail::take_with_descriptor(guest.get(), &come.label, sizeof come.label, come.file);
    if (got < 0 && errno == EAGAIN) return false;
    if (got == sizeof come.label && come.file) keep(letters_, std::move(come), most_letters);
    return true;
  }
  template <class T>
  static void keep(std::vector<T>& all, T&& one, std::size_t most) {
    if (all.size() == most) all.erase(all.begin());
    all.push_back(std::move(one));
  }

  colls::detail::descriptor socket_;
  std::uint64_t name_ = 0;
  std::vector<colls::detail::descriptor> guests_;
  std::vector<letter> letters_;
};

}  // namespace colls::cuda
