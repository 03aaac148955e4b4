// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// tcp-floor: the best times of two processes over the kernel's loopback, with nothing but
// non-blocking calls in a loop.
//   exchange  each process sends N bytes to the other, and receives and drops as many
//   add       an all_reduce of N bytes: each process sends half of its vector, adds the half that
//             it receives to its other half, sends each sum once it is made, and receives the
//             other sums

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

void require(bool good, const char* call) {
  if (!good) throw std::runtime_error(std::string(call) + ": " + std::strerror(errno));
}

// Returns a connected pair of loopback sockets. Congestion control is set before they connect.
std::pair<int, int> connect_pair(const std::string& congestion) {
  const auto make_socket = [&] {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    require(fd >= 0, "socket");
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (!congestion.empty()) {
      require(::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion.data(),
                           static_cast<socklen_t>(congestion.size())) == 0,
              "congestion control");
    }
    return fd;
  };
  const int listener = make_socket();
  const int one = make_socket();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  require(::bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0, "bind");
  require(::listen(listener, 1) == 0, "listen");
  require(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0,
          "getsockname");
  require(::connect(one, reinterpret_cast<sockaddr*>(&address), size) == 0, "connect");
  const int other = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  require(other >= 0, "accept");
  const int on = 1;
  ::setsockopt(other, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::close(listener);
  return {one, other};
}

constexpr std::size_t piece = 256 * 1024;

// Sends or receives what is possible without blocking, and returns the number of bytes.
std::size_t send_some(int fd, const char* data, std::size_t size) {
  const ssize_t n = ::send(fd, data, std::min(size, piece), MSG_DONTWAIT | MSG_NOSIGNAL);
  require(n >= 0 || errno == EAGAIN, "send");
  return n > 0 ? static_cast<std::size_t>(n) : 0;
}

std::size_t recv_some(int fd, char* data, std::size_t size) {
  const ssize_t n = ::recv(fd, data, std::min(size, piece), MSG_DONTWAIT);
  require(n > 0 || (n < 0 && errno == EAGAIN), "recv");
  return n > 0 ? static_cast<std::size_t>(n) : 0;
}

// Sends and receives at the same time, in pieces that stay in the cache on their way through the
// kernel. All bytes are received into the same few pages.
void exchange(int fd, const std::vector<char>& out, std::size_t bytes, std::vector<char>& in) {
  std::size_t sent = 0;
  std::size_t received = 0;
  while (sent < bytes || received < bytes) {
    if (sent < bytes && sent <= received + 4 * piece) {
      sent += send_some(fd, out.data() + sent, bytes - sent);
    }
    if (received < bytes) {
      const std::size_t offset = received % in.size();
      received += recv_some(fd, in.data() + offset, std::min(in.size() - offset, bytes - received));
    }
  }
}

WIDEST void add(const float* a, const float* b, float* __restrict out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

// One rank's vectors. The rank sends the peer's half of `in_`, and then the sums of its own half.
// It adds what it receives in pieces.
class halves {
 public:
  halves(int rank, std::uint64_t bytes)
      : in_(bytes / sizeof(float), static_cast<float>(rank + 1)),
        out_(in_.size()),
        received_(piece / sizeof(float)),
        own_begin_(rank == 0 ? 0 : bytes / 2 / unit * unit),
        own_end_(rank == 0 ? bytes / 2 / unit * unit : bytes / unit * unit),
        peer_begin_(rank == 0 ? own_end_ : 0) {}

  void all_reduce(int fd) {
    const std::size_t own = own_end_ - own_begin_;
    const std::size_t all = in_.size() * unit;
    const std::size_t peers = all - own;
    std::size_t sent = 0;
    std::size_t received = 0;
    std::size_t added = 0;
    while (sent < all || received < all) {
      if (sent < peers) {
        sent += send_some(fd, bytes(in_) + peer_begin_ + sent, peers - sent);
      } else if (sent < peers + added) {
        sent += send_some(fd, bytes(out_) + own_begin_ + sent - peers, peers + added - sent);
      }
      if (received < own) {
        const std::size_t end = std::min(own, added + piece);
        received += recv_some(fd, bytes(received_) + (received - added), end - received);
        if (received < end) continue;
        const std::size_t first = (own_begin_ + added) / unit;
        add(in_.data() + first, received_.data(), out_.data() + first, (end - added) / unit);
        added = end;
      } else if (received < all) {
        received += recv_some(fd, bytes(out_) + peer_begin_ + received - own, all - received);
      }
    }
  }
  std::ptrdiff_t wrong() const {
    return std::ssize(out_) - std::count(out_.begin(), out_.end(), 3.0F);
  }

 private:
  static constexpr std::size_t unit = sizeof(float);
  static char* bytes(std::vector<float>& all) { return reinterpret_cast<char*>(all.data()); }

  std::vector<float> in_, out_, received_;
  std::size_t own_begin_, own_end_, peer_begin_;  // of the halves, in bytes
};

int measure(int rank, int fd, const bench::options& opts) {
  const bench::report output(opts, 2);
  if (rank == 0) output.head();
  for (const std::uint64_t bytes : opts.sizes(1)) {
    const std::vector<char> out(bytes, static_cast<char>('a' + rank));
    std::vector<char> in(std::min(bytes, piece));
    std::vector<char> other(1);
    const bool adds = opts.collective == "add";
    halves vectors(rank, adds ? bytes : 0);
    std::vector<double> seconds;
    const int iterations = opts.iterations_for(bytes);
    for (int k = -opts.warmup_for(bytes); k < iterations; ++k) {
      exchange(fd, out, 1, other);
      const auto began = clock_type::now();
      for (int i = 0; i < opts.batch; ++i) {
        adds ? vectors.all_reduce(fd) : exchange(fd, out, bytes, in);
      }
      const std::chrono::duration<double> took = clock_type::now() - began;
      if (k >= 0) seconds.push_back(took.count() / opts.batch);
    }
    const auto wrong =
        adds ? vectors.wrong()
             : std::ssize(in) - std::count(in.begin(), in.end(), static_cast<char>('b' - rank));
    std::vector<char> peer_times(seconds.size() * sizeof(double));
    std::vector<char> own_times(peer_times.size());
    std::memcpy(own_times.data(), seconds.data(), own_times.size());
    exchange(fd, own_times, own_times.size(), peer_times);
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      double took = 0;
      std::memcpy(&took, peer_times.data() + i * sizeof took, sizeof took);
      seconds[i] = std::max(seconds[i], took);
    }
    if (rank == 0) output.line(bytes, 1, seconds, 1, static_cast<std::uint64_t>(wrong));
    if (wrong != 0) return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Two processes exchange or add vectors over loopback with plain non-blocking calls.");
  bench::options opts;
  opts.library = "floor";
  opts.dtype = "byte";
  opts.op = "none";
  app.add_option("what", opts.collective)->required()->check(CLI::IsMember({"exchange", "add"}));
  bench::declare_sizes(app, opts);
  try {
    app.parse(argc, argv);
    const auto ends = connect_pair(opts.congestion);
    return bench::run_in_processes(
        2, [&](int rank) { return measure(rank, rank == 0 ? ends.first : ends.second, opts); });
  } catch (const CLI::ParseError& wrong) {
    return bench::report_parse_error(app, "tcp-floor", wrong);
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "tcp-floor: %s\n", failed.what());
    return 1;
  }
}
