// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// tcp-floor: what two processes and the kernel's loopback can do at best. Each sends the other N
// bytes and reads as many, with non-blocking calls in a loop, and nothing else: an all_reduce of N
// bytes between two ranks has to move as much, and to add besides.

#include "colls_bench/command_line.hpp"
#include "colls_bench/processes.hpp"
#include "colls_bench/report.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>

namespace {

using clock_type = std::chrono::steady_clock;

void need(bool good, const char* what) {
  if (!good) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

// A connected pair of loopback sockets; congestion control is set before they connect.
std::pair<int, int> connected(const std::string& congestion) {
  const auto made = [&] {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    need(fd >= 0, "socket");
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (!congestion.empty()) {
      need(::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion.data(),
                        static_cast<socklen_t>(congestion.size())) == 0,
           "congestion control");
    }
    return fd;
  };
  const int door = made();
  const int one = made();
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  need(::bind(door, reinterpret_cast<sockaddr*>(&at), size) == 0, "bind");
  need(::listen(door, 1) == 0, "listen");
  need(::getsockname(door, reinterpret_cast<sockaddr*>(&at), &size) == 0, "getsockname");
  need(::connect(one, reinterpret_cast<sockaddr*>(&at), size) == 0, "connect");
  const int other = ::accept4(door, nullptr, nullptr, SOCK_CLOEXEC);
  need(other >= 0, "accept");
  const int on = 1;
  ::setsockopt(other, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::close(door);
  return {one, other};
}

constexpr std::size_t piece = 256 * 1024;

// Both directions at once, in pieces that stay in the cache on their way through the kernel; what
// comes is read into the same few pages again and again.
void exchange(int fd, const std::vector<char>& out, std::size_t bytes, std::vector<char>& in) {
  std::size_t sent = 0;
  std::size_t received = 0;
  while (sent < bytes || received < bytes) {
    if (sent < bytes && sent <= received + 4 * piece) {
      const std::size_t most = std::min(piece, bytes - sent);
      const ssize_t n = ::send(fd, out.data() + sent, most, MSG_DONTWAIT | MSG_NOSIGNAL);
      need(n >= 0 || errno == EAGAIN, "send");
      if (n > 0) sent += static_cast<std::size_t>(n);
    }
    if (received < bytes) {
      const std::size_t at = received % in.size();
      const std::size_t most = std::min(in.size() - at, bytes - received);
      const ssize_t n = ::recv(fd, in.data() + at, most, MSG_DONTWAIT);
      need(n > 0 || (n < 0 && errno == EAGAIN), "recv");
      if (n > 0) received += static_cast<std::size_t>(n);
    }
  }
}

int measure(int rank, int fd, const bench::options& how) {
  const bench::report to(how, 2);
  if (rank == 0) to.head();
  for (const std::uint64_t bytes : how.sizes(1)) {
    const std::vector<char> out(bytes, static_cast<char>('a' + rank));
    std::vector<char> in(std::min(bytes, piece));
    std::vector<char> other(1);
    std::vector<double> seconds;
    const int iterations = how.iterations_for(bytes);
    for (int k = -how.warmup_for(bytes); k < iterations; ++k) {
      exchange(fd, out, 1, other);
      const auto began = clock_type::now();
      for (int i = 0; i < how.batch; ++i) exchange(fd, out, bytes, in);
      const std::chrono::duration<double> took = clock_type::now() - began;
      if (k >= 0) seconds.push_back(took.count() / how.batch);
    }
    const auto wrong =
        std::ssize(in) - std::count(in.begin(), in.end(), static_cast<char>('b' - rank));
    std::vector<char> theirs(seconds.size() * sizeof(double));
    std::vector<char> ours(theirs.size());
    std::memcpy(ours.data(), seconds.data(), ours.size());
    exchange(fd, ours, ours.size(), theirs);
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      double took = 0;
      std::memcpy(&took, theirs.data() + i * sizeof took, sizeof took);
      seconds[i] = std::max(seconds[i], took);
    }
    if (rank == 0) to.line(bytes, 1, seconds, 1, static_cast<std::uint64_t>(wrong));
    if (wrong != 0) return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Two processes send each other N bytes over loopback with plain non-blocking calls.");
  bench::options how;
  how.library = "floor";
  how.collective = "exchange";
  how.dtype = "byte";
  how.op = "none";
  bench::declare_sizes(app, how);
  try {
    app.parse(argc, argv);
    const auto ends = connected(how.congestion);
    return bench::in_processes(
        2, [&](int rank) { return measure(rank, rank == 0 ? ends.first : ends.second, how); });
  } catch (const CLI::ParseError& wrong) {
    return bench::refused(app, "tcp-floor", wrong);
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "tcp-floor: %s\n", failed.what());
    return 1;
  }
}
