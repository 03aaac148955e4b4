// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Who this process is in its world, and where that world meets.

#include <colls/base/clock.hpp>
#include <colls/base/error.hpp>
#include <colls/bootstrap/fixed_string.hpp>

#include <cstdlib>
#include <string>
#include <type_traits>

namespace colls {

/// What joining needs to know. `environment()` fills it from the launcher's variables; a program
/// may as well write `colls::config{.rank = 1, .size = 3, .address = "tcp://10.0.0.1:29500"}`.
/// Equal on all ranks: size, address, secret, job, insecure, transport, checksum. Trivially
/// copyable: g++ 12 breaks other aggregates that are written inside a co_await expression.
struct config {
  int rank = -1;
  int size = -1;
  int local_rank = -1;  // the launcher's words, or -1: who shares a host is found out
  int local_size = -1;
  int node = -1;
  int nodes = -1;
  /// `tcp://host:port` or `tcp://[::1]:port`: rank 0 serves there. `file:///path`: on one host or a
  /// shared file system. `env://`: as the launcher's variables say. Empty with size 1.
  fixed_text<1024> address = {};
  /// Every process of the job proves that it knows it. May be empty where ranks of one user meet on
  /// loopback (rank 0 draws one then), and with `insecure`.
  fixed_text<1024> secret = {};
  fixed_text<256> job = {};                               // keeps jobs apart that meet at one port
  time_span join_timeout = time_span::of(300 * seconds);  // how long joining may take
  time_span timeout = time_span::of(600 * seconds);       // an operation, without a byte
  bool insecure = false;
  fixed_text<64> source = "config";  // who said all this
  /// Congestion control of links over TCP (`reno`), which the system has to grant; empty: the
  /// system's.
  fixed_text<16> congestion = {};
  /// `hybrid` (or empty): shared memory inside a host, TCP between hosts. `tcp`: TCP alone. `shm`:
  /// shared memory, or an error.
  fixed_text<8> transport = {};
  /// Whether this rank reads what other ranks of its host have in memory of their own, by the
  /// kernel: `always` or `never`, where it may; empty: where that is fast enough.
  fixed_text<8> reads = {};
  /// Whether what travels has checksums (CRC32C): frames on sockets, in shared memory and on the
  /// store's connections, not memory that is read or written in place.
  bool checksum = false;
  port_list ports = {};   // tried in this order instead of the port in `address`
  bool served = false;    // a launcher serves the store at `address`
  bool own_file = false;  // the file in `address` belongs to this job alone
  int store_fd = -1;      // rank 0: a socket that listens at `address` already

  /// A world of this process alone.
  static config single() {
    config alone;
    alone.rank = 0;
    alone.size = 1;
    alone.source = "config::single()";
    return alone;
  }
};
static_assert(std::is_trivially_copyable_v<config>);

namespace detail {

/// A `config::address`, taken apart.
struct meeting_place {
  enum class kind { environment, tcp, file } kind = kind::tcp;
  std::string host;
  int port = 0;
  std::string path;
};

/// The number that `text` is, whole and within the limits, or -1.
inline long parse_number(const std::string& text, long most) {
  if (text.empty() || text.size() > 10) return -1;
  for (const char c : text) {
    if (c < '0' || c > '9') return -1;
  }
  const long value = std::strtol(text.c_str(), nullptr, 10);
  return value <= most ? value : -1;
}

inline meeting_place parse_address(std::string_view given) {
  const std::string address(given);
  meeting_place place;
  if (address == "env://") {
    place.kind = meeting_place::kind::environment;
    return place;
  }
  if (address.starts_with("file://")) {
    place.kind = meeting_place::kind::file;
    place.path = address.substr(7);
    if (!place.path.starts_with("/")) {
      raise(errc::join_failed, "the address '%s' needs an absolute path: file:///path",
            address.c_str());
    }
    return place;
  }
  if (!address.starts_with("tcp://")) {
    raise(errc::join_failed,
          "the address '%s' is none of tcp://host:port, tcp://[::1]:port, file:///path, env://",
          address.c_str());
  }
  const std::string rest = address.substr(6);
  const std::size_t colon = rest.rfind(':');
  if (colon == std::string::npos) {
    raise(errc::join_failed, "the address '%s' has no port: tcp://host:port", address.c_str());
  }
  place.host = rest.substr(0, colon);
  if (place.host.starts_with("[") && place.host.ends_with("]")) {
    place.host = place.host.substr(1, place.host.size() - 2);
  } else if (place.host.find(':') != std::string::npos) {
    raise(errc::join_failed,
          "the address '%s' needs brackets round its IPv6 part: tcp://[::1]:port", address.c_str());
  }
  if (place.host.find_first_of("[]") != std::string::npos) {
    raise(errc::join_failed, "the address '%s' has brackets that are no IPv6 address's",
          address.c_str());
  }
  const long port = parse_number(rest.substr(colon + 1), 65535);
  if (place.host.empty() || port < 0) {
    raise(errc::join_failed, "the address '%s' has no host or no port: tcp://host:port",
          address.c_str());
  }
  place.port = static_cast<int>(port);
  return place;
}

/// host:port as it is written in addresses and messages; the host may have its brackets already.
inline std::string host_and_port(const std::string& host, int port) {
  const bool six = host.find(':') != std::string::npos && !host.starts_with("[");
  return (six ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

}  // namespace detail

}  // namespace colls
