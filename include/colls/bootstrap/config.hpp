// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// colls::config: the parameters with which a process joins a world, such as its rank and the
// address at which the ranks meet.

#include <colls/base/clock.hpp>
#include <colls/base/error.hpp>
#include <colls/bootstrap/fixed_string.hpp>

#include <cstdlib>
#include <string>
#include <type_traits>

namespace colls {

/// The parameters with which a process joins a world. `environment()` reads them from the
/// environment variables of the launcher. A program can also set them, as in
/// `colls::config{.rank = 1, .size = 3, .address = "tcp://10.0.0.1:29500"}`. The members `size`,
/// `address`, `secret`, `job`, `insecure`, `transport` and `checksum` must be equal on all ranks.
/// The type is trivially copyable, because g++ 12 miscompiles other aggregates in co_await
/// expressions.
struct config {
  int rank = -1;
  int size = -1;
  /// The index of this rank among the ranks of its node. The members `local_rank`, `local_size`,
  /// `node` and `nodes` are optional, and -1 means that the value is not given. When the process
  /// joins the world, it always computes its local size, its node and the number of nodes itself.
  /// It uses a given `local_rank` only if this rank fits the computed values. From `nodes` and
  /// `local_size` it learns before whether all ranks run on one host.
  int local_rank = -1;
  int local_size = -1;
  int node = -1;
  int nodes = -1;
  /// The address at which the ranks meet. With `tcp://host:port` or `tcp://[::1]:port`, rank 0
  /// opens the store (the key-value service through which ranks find each other) at this address.
  /// `file:///path` names a file on one machine or on a shared file system. `pmi://fd` names the
  /// descriptor by which this process reaches its process manager (PMI_FD), and `pmix://` stands
  /// for a process manager that speaks PMIx: rank 0 passes the address of the store, and a secret,
  /// through the key-value space of the job. `env://` stands for the address that the environment
  /// variables of the launcher give. The address may be empty if `size` is 1.
  fixed_string<1024> address = {};
  /// The secret of the job. Every process must prove that it knows the secret. The secret may be
  /// empty if `insecure` is set. The secret may also be empty if `address` is a `file://`, `pmi://`
  /// or `pmix://` address, or if the ranks belong to one user and meet at a loopback address. In
  /// these cases, rank 0 generates a secret.
  fixed_string<1024> secret = {};
  fixed_string<256> job = {};  // the name of the job; distinguishes jobs that use the same port
  /// How often the launcher has started all ranks again, and how often it may (0 if it may not, or
  /// if that is not known). The first number is part of the job's name, so no process of an earlier
  /// start can join.
  int restarts = 0;
  int max_restarts = 0;
  /// How often the world has taken in replacements of lost ranks (see `communicator::repair`).
  int generation = 0;
  /// The number of this process among the replacements that the launcher has started, counted from
  /// 1, or 0 if it is none. A replacement gets its rank when the other ranks repair the world.
  int replacement = 0;
  /// The address at which the launcher answers calls of `repair`, as tcp://host:port. It is empty
  /// if the launcher starts no replacements.
  fixed_string<128> launcher = {};
  time_span join_timeout = time_span::from_nanoseconds(300 * seconds);  // how long joining may take
  time_span timeout =
      time_span::from_nanoseconds(600 * seconds);  // how long an operation may go without progress
  bool insecure = false;
  fixed_string<64> source = "config";  // the origin of these values, for error messages
  /// The congestion control algorithm of TCP connections, such as `reno`. The operating system must
  /// permit this process to use the algorithm. If the text is empty, the operating system chooses
  /// an algorithm.
  fixed_string<16> congestion = {};
  /// The transport by which ranks exchange messages. With `hybrid` or an empty text, ranks use
  /// shared memory inside a host and TCP between hosts. With `tcp`, they use only TCP. With `shm`,
  /// they use only shared memory, and an operation fails if two ranks that need a connection cannot
  /// share memory.
  fixed_string<16> transport = {};
  /// The network interfaces at whose addresses ranks listen, as NCCL_SOCKET_IFNAME states them:
  /// `eth,ib` stands for interfaces whose names begin with one of these texts, `=eth0` for this one
  /// alone, and `^docker` for all others. If the text is empty, a rank listens at the address by
  /// which it reaches the store.
  fixed_string<128> socket_ifname = {};
  /// The use of cross-memory attach (process_vm_readv), by which this rank can read the private
  /// memory of other ranks of its host. With `always`, this rank uses such reads wherever the
  /// kernel permits them. With `never`, it does not use them. If the text is empty, this rank
  /// measures the speed of such reads. It uses them only where it expects them to be at least as
  /// fast as messages.
  fixed_string<8> reads = {};
  /// Whether frames (the units of the wire protocol) have CRC32C checksums on sockets, in shared
  /// memory and on connections to the store. Data that a rank reads or writes directly in the
  /// memory of another rank has no checksum.
  bool checksum = false;
  port_list ports = {};   // ports to try in this order; if empty, the port in `address` is used
  bool served = false;    // whether a launcher hosts the store at `address`
  bool own_file = false;  // whether only this job uses the file that `address` names
  int store_fd = -1;      // on rank 0, a socket that already listens at `address`, or -1

  /// Returns the config of a world whose only rank is this process.
  static config single() {
    config result;
    result.rank = 0;
    result.size = 1;
    result.source = "config::single()";
    return result;
  }
};
static_assert(std::is_trivially_copyable_v<config>);

namespace detail {

/// The parts of `config::address`.
struct store_address {
  enum class kind { environment, tcp, file, pmi } kind = kind::tcp;
  std::string host;
  int port = 0;
  std::string path;
  int descriptor = -1;  // of the process manager, or -1 if it speaks PMIx
};

/// Returns the decimal number in `text`, or -1 if `text` is not a number or the number exceeds
/// `max`.
inline long parse_number(const std::string& text, long max) {
  if (text.empty() || text.size() > 10) return -1;
  for (const char c : text) {
    if (c < '0' || c > '9') return -1;
  }
  const long value = std::strtol(text.c_str(), nullptr, 10);
  return value <= max ? value : -1;
}

inline store_address parse_address(std::string_view text) {
  const std::string address(text);
  store_address result;
  if (address == "env://") {
    result.kind = store_address::kind::environment;
    return result;
  }
  if (address.starts_with("file://")) {
    result.kind = store_address::kind::file;
    result.path = address.substr(7);
    if (!result.path.starts_with("/")) {
      raise(errc::join_failed, "the address '%s' needs an absolute path: file:///path",
            address.c_str());
    }
    return result;
  }
  if (address == "pmix://") {
    result.kind = store_address::kind::pmi;
    return result;
  }
  if (address.starts_with("pmi://")) {
    result.kind = store_address::kind::pmi;
    result.descriptor = static_cast<int>(parse_number(address.substr(6), 1 << 30));
    if (result.descriptor < 0) {
      raise(errc::join_failed, "the address '%s' has no descriptor: pmi://fd", address.c_str());
    }
    return result;
  }
  if (!address.starts_with("tcp://")) {
    raise(errc::join_failed,
          "the address '%s' is none of tcp://host:port, tcp://[::1]:port, file:///path, pmi://fd, "
          "pmix://, env://",
          address.c_str());
  }
  const std::string rest = address.substr(6);
  const std::size_t colon = rest.rfind(':');
  if (colon == std::string::npos) {
    raise(errc::join_failed, "the address '%s' has no port: tcp://host:port", address.c_str());
  }
  result.host = rest.substr(0, colon);
  if (result.host.starts_with("[") && result.host.ends_with("]")) {
    result.host = result.host.substr(1, result.host.size() - 2);
  } else if (result.host.find(':') != std::string::npos) {
    raise(errc::join_failed,
          "the address '%s' needs brackets round its IPv6 part: tcp://[::1]:port", address.c_str());
  }
  if (result.host.find_first_of("[]") != std::string::npos) {
    raise(errc::join_failed, "the address '%s' has brackets without an IPv6 address",
          address.c_str());
  }
  const long port = parse_number(rest.substr(colon + 1), 65535);
  if (result.host.empty() || port < 0) {
    raise(errc::join_failed, "the address '%s' has no host or no port: tcp://host:port",
          address.c_str());
  }
  result.port = static_cast<int>(port);
  return result;
}

/// Returns `host:port`, with brackets around an IPv6 address. `host` may already have the brackets.
inline std::string host_and_port(const std::string& host, int port) {
  const bool needs_brackets = host.find(':') != std::string::npos && !host.starts_with("[");
  return (needs_brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

}  // namespace detail

}  // namespace colls
