// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A transport of the user's own: the processes of one host, connected by socketpairs.
// docs/adding_a_transport.md explains each part.

#include <colls/os/fd_mailbox.hpp>
#include <colls/transport.hpp>

#include <poll.h>
#include <sys/socket.h>

#include <charconv>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace my {

using colls::detail::descriptor;

/// A pipe through one end of a socketpair. It moves bytes; `stream_pipe` makes frames of them.
class socketpair_pipe final : public colls::interprocess::stream_pipe<socketpair_pipe>,
                              colls::engine::watcher {
 public:
  socketpair_pipe(colls::engine& driver, descriptor socket, bool has_checksums)
      : stream_pipe(has_checksums), engine_(driver), socket_(std::move(socket)) {}
  ~socketpair_pipe() override { close(false); }

  void close(bool observes_peer) override {
    if (std::exchange(is_open_, false)) engine_.unwatch(socket_.get(), *this);
    if (observes_peer) {
      shut_writing();  // the socket shows when the peer exits
    } else {
      socket_ = {};
    }
  }
  void shut_writing() override { (void)::shutdown(socket_.get(), SHUT_WR); }  // fails if it is shut

  bool has_peer_exited() const override {
    pollfd state{socket_.get(), 0, 0};
    return ::poll(&state, 1, 0) == 1 && (state.revents & POLLHUP) != 0;
  }
  void report_arrivals(bool enabled) override {
    reports_arrivals_ = enabled;
    update_events();
  }

 private:
  friend stream_pipe<socketpair_pipe>;

  // ---- called by stream_pipe

  void start() override {
    stream_pipe::start();
    engine_.watch(socket_.get(), EPOLLIN, *this);
    is_open_ = true;
  }
  bool is_open() const { return is_open_; }
  void wait_writable(bool wanted) {
    waits_for_room_ = wanted;
    update_events();
  }
  ssize_t write_bytes(iovec* parts, int count, std::size_t) {
    const msghdr message = message_of(parts, count);
    return ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  ssize_t read_bytes(iovec* parts, int count) {
    msghdr message = message_of(parts, count);
    return ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
  }

  static msghdr message_of(iovec* parts, int count) {
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = static_cast<std::size_t>(count);
    return message;
  }

  // ---- called by the engine

  void ready(std::uint32_t) override {
    poll();   // reads frames
    flush();  // writes those that wait for room, and the answers
  }
  void update_events() {
    if (!is_open_) return;
    std::uint32_t events = 0;
    if (reports_arrivals_) events |= EPOLLIN;
    if (waits_for_room_) events |= EPOLLOUT;
    engine_.rewatch(socket_.get(), events, *this);
  }

  colls::engine& engine_;
  descriptor socket_;
  bool is_open_ = false;
  bool reports_arrivals_ = true;
  bool waits_for_room_ = false;
};

/// Makes a socketpair.
inline std::pair<descriptor, descriptor> make_socketpair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
    throw colls::error(colls::errc::too_many_files, "no socketpair can be made");
  }
  return {descriptor(ends[0]), descriptor(ends[1])};
}

/// The carrier of socketpairs. It has one end of a socketpair for each peer, and opens all pipes as
/// soon as it starts. Nothing is ever dialled.
class socketpair_carrier final : public colls::interprocess::carrier {
 public:
  /// `ends[r]` leads to rank r. The end of this rank is empty.
  socketpair_carrier(colls::engine& driver, std::vector<descriptor> ends, bool has_checksums)
      : engine_(driver), ends_(std::move(ends)), has_checksums_(has_checksums) {}

  void start(owner& user) override {
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      if (!ends_[i]) continue;
      const int peer = static_cast<int>(i);
      user.set_address(peer, "a socketpair");
      user.opened(peer, make_pipe(std::move(ends_[i])));
    }
  }
  void stop_listening() override {}

  /// Called if a peer has no pipe. Such a peer cannot be reached any more.
  colls::task<bool> dial(colls::interprocess::dial_attempt& attempt) override {
    attempt.error = std::make_error_code(std::errc::connection_refused);
    co_return true;
  }
  std::pair<std::unique_ptr<colls::interprocess::pipe>, std::unique_ptr<colls::interprocess::pipe>>
  open_to_self() override {
    auto ends = make_socketpair();
    return {make_pipe(std::move(ends.first)), make_pipe(std::move(ends.second))};
  }

 private:
  std::unique_ptr<colls::interprocess::pipe> make_pipe(descriptor end) {
    return std::make_unique<socketpair_pipe>(engine_, std::move(end), has_checksums_);
  }

  colls::engine& engine_;
  std::vector<descriptor> ends_;
  bool has_checksums_;
};

/// The transport of one rank. Everything but the motion of bytes comes from `transport_base`.
class socketpair_transport final : public colls::transport_base {
 public:
  static constexpr const char* name = "socketpair";

  /// `ends[r]` is connected to rank r of the world.
  socketpair_transport(std::shared_ptr<colls::engine> driver,
                       std::shared_ptr<colls::world_info> info, std::vector<descriptor> ends)
      : transport_base(driver, info, carriers(*driver, *info, std::move(ends))) {
    start_carriers();
  }

  /// Makes the transport of this rank. Each rank makes a socketpair with each higher rank, and
  /// passes one end to the mailbox of that rank.
  static colls::task<std::shared_ptr<socketpair_transport>> make(
      std::shared_ptr<colls::engine> driver, std::shared_ptr<colls::world_info> info) {
    const int rank = info->rank;
    for (int peer = 0; peer < info->size; ++peer) {
      if (info->node_of[index(peer)] != info->node) {
        fail(colls::errc::unreachable, peer, "it runs on another host");
      }
    }
    colls::fd_mailbox mailbox;
    auto naming = info->exchange(std::to_string(mailbox.name()));
    const std::vector<std::string> names = co_await naming;
    std::vector<descriptor> ends(index(info->size));
    for (int peer = rank + 1; peer < info->size; ++peer) {
      auto [own, other] = make_socketpair();
      if (!colls::fd_mailbox::send(number(names[index(peer)]), label_of(rank), other.get())) {
        fail(colls::errc::unreachable, peer, "its mailbox takes no descriptor");
      }
      ends[index(peer)] = std::move(own);
    }
    // After this exchange all descriptors have been sent.
    auto sending = info->exchange("sent");
    (void)co_await sending;
    for (int peer = 0; peer < rank; ++peer) {
      ends[index(peer)] = mailbox.take(label_of(peer));
      if (!is_stream_socket(ends[index(peer)].get())) {
        fail(colls::errc::protocol_error, peer, "it has sent no socketpair");
      }
    }
    co_return std::make_shared<socketpair_transport>(std::move(driver), std::move(info),
                                                     std::move(ends));
  }

 private:
  static std::vector<std::unique_ptr<colls::interprocess::carrier>> carriers(
      colls::engine& driver, const colls::world_info& info, std::vector<descriptor> ends) {
    std::vector<std::unique_ptr<colls::interprocess::carrier>> all;
    all.push_back(std::make_unique<socketpair_carrier>(driver, std::move(ends), info.cfg.checksum));
    return all;
  }
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  static colls::fd_label label_of(int sender) { return {0, static_cast<std::uint64_t>(sender)}; }
  /// Returns the number in a text from a peer, or 0, which names no mailbox.
  static std::uint64_t number(const std::string& text) {
    std::uint64_t value = 0;
    const auto end = text.data() + text.size();
    return std::from_chars(text.data(), end, value).ptr == end ? value : 0;
  }
  static bool is_stream_socket(int fd) {
    int type = 0;
    socklen_t size = sizeof type;
    return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
  }
  [[noreturn]] static void fail(colls::errc code, int peer, const char* fault) {
    colls::failure reason(code);
    reason.culprit = peer;
    throw colls::error(reason.set_detail("no socketpair to rank %d: %s", peer, fault));
  }
};

}  // namespace my
