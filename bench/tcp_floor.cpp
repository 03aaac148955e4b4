// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// tcp-floor: what two processes and the kernel's loopback can do at best, by non-blocking calls in
// a loop and nothing else.
//   exchange  each sends the other N bytes and reads as many, which it drops
//   add       an all_reduce of N bytes: each sends half of its vector, adds the half that comes to
//             the rest of it, sends the sums as they arise, and reads the other's

#include "colls_bench/command_line.hpp"
#include "colls_bench/processes.hpp"
#include "colls_bench/report.hpp"
#include "colls_bench/widest.hpp"

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

// What goes or comes at once, if anything.
std::size_t sent_now(int fd, const char* from, std::size_t most) {
  const ssize_t n = ::send(fd, from, std::min(most, piece), MSG_DONTWAIT | MSG_NOSIGNAL);
  need(n >= 0 || errno == EAGAIN, "send");
  return n > 0 ? static_cast<std::size_t>(n) : 0;
}

std::size_t read_now(int fd, char* to, std::size_t most) {
  const ssize_t n = ::recv(fd, to, std::min(most, piece), MSG_DONTWAIT);
  need(n > 0 || (n < 0 && errno == EAGAIN), "recv");
  return n > 0 ? static_cast<std::size_t>(n) : 0;
}

// Both directions at once, in pieces that stay in the cache on their way through the kernel; what
// comes is read into the same few pages again and again.
void exchange(int fd, const std::vector<char>& out, std::size_t bytes, std::vector<char>& in) {
  std::size_t sent = 0;
  std::size_t received = 0;
  while (sent < bytes || received < bytes) {
    if (sent < bytes && sent <= received + 4 * piece) {
      sent += sent_now(fd, out.data() + sent, bytes - sent);
    }
    if (received < bytes) {
      const std::size_t at = received % in.size();
      received += read_now(fd, in.data() + at, std::min(in.size() - at, bytes - received));
    }
  }
}

WIDEST void add(const float* a, const float* b, float* __restrict to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = a[i] + b[i];
}

// One rank's vectors. Sent are the other's half of `in`, then the sums; what comes is added in
// pieces.
class halves {
 public:
  halves(int rank, std::uint64_t bytes)
      : in_(bytes / sizeof(float), static_cast<float>(rank + 1)),
        out_(in_.size()),
        came_(piece / sizeof(float)),
        mine_(rank == 0 ? 0 : bytes / 2 / unit * unit),
        mine_end_(rank == 0 ? bytes / 2 / unit * unit : bytes / unit * unit),
        theirs_(rank == 0 ? mine_end_ : 0) {}

  void all_reduce(int fd) {
    const std::size_t ours = mine_end_ - mine_;
    const std::size_t all = in_.size() * unit;
    const std::size_t others = all - ours;
    std::size_t sent = 0;
    std::size_t received = 0;
    std::size_t added = 0;
    while (sent < all || received < all) {
      if (sent < others) {
        sent += sent_now(fd, bytes(in_) + theirs_ + sent, others - sent);
      } else if (sent < others + added) {
        sent += sent_now(fd, bytes(out_) + mine_ + sent - others, others + added - sent);
      }
      if (received < ours) {
        const std::size_t end = std::min(ours, added + piece);
        received += read_now(fd, bytes(came_) + (received - added), end - received);
        if (received < end) continue;
        const std::size_t first = (mine_ + added) / unit;
        add(in_.data() + first, came_.data(), out_.data() + first, (end - added) / unit);
        added = end;
      } else if (received < all) {
        received += read_now(fd, bytes(out_) + theirs_ + received - ours, all - received);
      }
    }
  }
  std::ptrdiff_t wrong() const {
    return std::ssize(out_) - std::count(out_.begin(), out_.end(), 3.0F);
  }

 private:
  static constexpr std::size_t unit = sizeof(float);
  static char* bytes(std::vector<float>& all) { return reinterpret_cast<char*>(all.data()); }

  std::vector<float> in_, out_, came_;
  std::size_t mine_, mine_end_, theirs_;  // where halves begin, in bytes
};

int measure(int rank, int fd, const bench::options& how) {
  const bench::report to(how, 2);
  if (rank == 0) to.head();
  for (const std::uint64_t bytes : how.sizes(1)) {
    const std::vector<char> out(bytes, static_cast<char>('a' + rank));
    std::vector<char> in(std::min(bytes, piece));
    std::vector<char> other(1);
    const bool adds = how.collective == "add";
    halves vectors(rank, adds ? bytes : 0);
    std::vector<double> seconds;
    const int iterations = how.iterations_for(bytes);
    for (int k = -how.warmup_for(bytes); k < iterations; ++k) {
      exchange(fd, out, 1, other);
      const auto began = clock_type::now();
      for (int i = 0; i < how.batch; ++i) {
        adds ? vectors.all_reduce(fd) : exchange(fd, out, bytes, in);
      }
      const std::chrono::duration<double> took = clock_type::now() - began;
      if (k >= 0) seconds.push_back(took.count() / how.batch);
    }
    const auto wrong =
        adds ? vectors.wrong()
             : std::ssize(in) - std::count(in.begin(), in.end(), static_cast<char>('b' - rank));
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
      "Two processes exchange or add vectors over loopback with plain non-blocking calls.");
  bench::options how;
  how.library = "floor";
  how.dtype = "byte";
  how.op = "none";
  app.add_option("what", how.collective)->required()->check(CLI::IsMember({"exchange", "add"}));
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
