// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The network model of the simulation: the cost of messages between simulated ranks, and the
// network links that messages share.

#include <colls/transport/simulated/event_queue.hpp>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace colls::simulated {

namespace detail {

/// Parses all of `text` as a number, and stores the number in `number`. Returns false if `text` is
/// not a number.
template <class Number>
bool parse_number(std::string_view text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [stop, bad] = std::from_chars(text.data(), end, number);
  return bad == std::errc() && stop == end;
}

/// Removes the part of `text` before the first `separator`, and the separator itself. Returns the
/// removed part.
inline std::string_view next_part(std::string_view& text, char separator) {
  const std::size_t end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return part;
}

}  // namespace detail

/// The network topology. Its text forms are:
/// - `flat`: no links are shared.
/// - `nodes:8`: 8 ranks share a machine and its network card. Messages inside a machine are four
///   times as fast as messages between machines.
/// - `fat_tree:16:4`: each leaf switch connects 16 ranks and has 4 uplinks, one to each spine
///   switch. The destination rank of a message selects the spine switch. `fat_tree:16` means
///   `fat_tree:16:16`.
/// - `torus:8x8x4`: a torus with one rank at each point. A message travels along one dimension
///   after another. Along each dimension it travels in the shorter direction.
struct topology {
  enum class shape : std::uint8_t { flat, nodes, fat_tree, torus };

  shape kind = shape::flat;
  int group = 1;  // the number of ranks of a machine or leaf switch
  int uplinks = 1;
  int extent[3] = {1, 1, 1};

  /// Parses the text form. Throws std::invalid_argument with a message for the user.
  static topology parse(std::string_view text) {
    const std::string input(text);
    const auto parse_error = [&] {
      return std::invalid_argument("no topology is written '" + input +
                                   "': flat, nodes:8, fat_tree:16, fat_tree:16:4, torus:8x8x4");
    };
    const auto number = [&](std::string_view digits) {
      int value = 0;
      if (!detail::parse_number(digits, value) || value < 1) throw parse_error();
      return value;
    };
    topology result;
    const std::string_view name = detail::next_part(text, ':');
    if (name == "flat" && input == "flat") return result;
    if (name == "nodes") {
      result.kind = shape::nodes;
      result.group = number(text);
    } else if (name == "fat_tree") {
      result.kind = shape::fat_tree;
      result.group = result.uplinks = number(detail::next_part(text, ':'));
      if (!text.empty() || input.back() == ':') result.uplinks = number(text);
    } else if (name == "torus") {
      result.kind = shape::torus;
      for (int& points : result.extent) {
        points = number(detail::next_part(text, 'x'));
        if (text.empty()) break;
      }
      if (!text.empty() || input.back() == 'x') throw parse_error();
    } else {
      throw parse_error();
    }
    return result;
  }
};

/// The parameters of the network, which follow the LogGP model. A rank sends its messages one after
/// another. Sending a message takes the overhead plus the size of the message divided by the
/// bandwidth. The bytes of a message then need the time `latency_us` to reach the receiver. The
/// receiver accepts messages one after another, and accepting a message takes the overhead. Links
/// are full duplex. The bytes of a message are pipelined through all links of its route, and wait
/// at links that are busy. If a route has several links inside the network, each of them except the
/// first adds a tenth of `latency_us` to the transfer time.
struct network_settings {
  double latency_us = 1;
  double overhead_us = 0.1;
  double bandwidth = 12.5;  // the bandwidth of every link in GB/s
  topology wiring;
};

/// A network of a given topology. It computes the costs and routes of messages without any state
/// per rank.
class network {
 public:
  network(const network_settings& settings, int ranks) : wiring_(settings.wiring), ranks_(ranks) {
    const auto time = [](double us) {
      if (!(us >= 0) || us > 1e9) throw std::invalid_argument("a time is negative or too long");
      return static_cast<ticks>(std::llround(us * 1e6));
    };
    if (!(settings.bandwidth >= 1e-6)) {
      throw std::invalid_argument("the bandwidth must be 0.000001 GB/s or more");
    }
    latency_ = time(settings.latency_us);
    overhead_ = time(settings.overhead_us);
    per_byte_ = 1000 / settings.bandwidth;
    hop_ = latency_ / 10;
    switch (wiring_.kind) {
      case topology::shape::flat:
        break;
      case topology::shape::nodes:
        links_ = 2 * groups();
        break;
      case topology::shape::fat_tree:
        links_ = 2 * groups() * wiring_.uplinks;
        break;
      case topology::shape::torus:
        if (std::int64_t{wiring_.extent[0]} * wiring_.extent[1] * wiring_.extent[2] != ranks) {
          throw std::invalid_argument(
              "the torus has another number of points than there are ranks");
        }
        links_ = 6 * std::int64_t{ranks};
    }
  }

  /// Returns the number of links inside the network. The ports of the ranks, which connect each
  /// rank to the network, are not counted.
  std::size_t links() const { return static_cast<std::size_t>(links_); }
  ticks overhead() const { return overhead_; }
  ticks hop() const { return hop_; }
  /// Returns the index of the machine on which a rank runs.
  int node_of(int rank) const {
    return wiring_.kind == topology::shape::nodes ? rank / wiring_.group : rank;
  }
  ticks latency(int source, int dest) const { return near(source, dest) ? latency_ / 4 : latency_; }
  /// Returns the transfer time of `size` bytes at a rank's port.
  ticks port_time(std::size_t size) const {
    return duration(wiring_.kind == topology::shape::nodes ? per_byte_ / 4 : per_byte_, size);
  }
  /// Returns the transfer time of `size` bytes on a link inside the network.
  ticks link_time(std::size_t size) const { return duration(per_byte_, size); }

  /// Returns the number of links inside the network on the route from `source` to `dest`.
  int hops(int source, int dest) const {
    switch (wiring_.kind) {
      case topology::shape::flat:
        return 0;
      case topology::shape::nodes:
        return near(source, dest) ? 0 : 2;
      case topology::shape::fat_tree:
        return group(source) == group(dest) ? 0 : 2;
      case topology::shape::torus: {
        int count = 0;
        for (int d = 0; d < 3; ++d) count += std::abs(distance(source, dest, d));
        return count;
      }
    }
    return 0;
  }
  /// Returns the index of the `i`-th link on the route from `source` to `dest`. `i` must be less
  /// than `hops(source, dest)`.
  std::size_t link(int source, int dest, int i) const {
    switch (wiring_.kind) {
      case topology::shape::nodes:
        return index(2 * group(i == 0 ? source : dest) + i);
      case topology::shape::fat_tree: {
        const int spine = dest % wiring_.uplinks;
        return index(2 * (std::int64_t{group(i == 0 ? source : dest)} * wiring_.uplinks + spine) +
                     i);
      }
      default:
        return torus_link(source, dest, i);
    }
  }

 private:
  // The longest transfer time in ticks (almost three hours). It is longer than all usual deadlines.
  // Hundreds of such times can be added without overflow.
  static constexpr double max_ticks = 1e16;

  static std::size_t index(std::int64_t number) { return static_cast<std::size_t>(number); }
  static ticks duration(double per_byte, std::size_t size) {
    const double time = per_byte * static_cast<double>(size) + 0.5;
    return static_cast<ticks>(time < max_ticks ? time : max_ticks);
  }
  std::int64_t groups() const { return (std::int64_t{ranks_} + wiring_.group - 1) / wiring_.group; }
  int group(int rank) const { return rank / wiring_.group; }
  bool near(int source, int dest) const {
    return wiring_.kind == topology::shape::nodes && group(source) == group(dest);
  }

  int stride(int d) const {
    return d == 0 ? 1 : d == 1 ? wiring_.extent[0] : wiring_.extent[0] * wiring_.extent[1];
  }
  int coordinate(int rank, int d) const { return rank / stride(d) % wiring_.extent[d]; }
  // Returns the number of steps from `source` to `dest` along dimension `d` in the shorter
  // direction. The number is negative if the steps go towards lower coordinates. If both directions
  // take the same number of steps, returns the positive number.
  int distance(int source, int dest, int d) const {
    const int points = wiring_.extent[d];
    const int up = (coordinate(dest, d) - coordinate(source, d) + points) % points;
    return 2 * up <= points ? up : up - points;
  }
  std::size_t torus_link(int source, int dest, int i) const {
    int point = source;
    for (int d = 0;; ++d) {
      const int steps = distance(source, dest, d);
      const int direction = steps < 0 ? -1 : 1;
      const int passed = i < std::abs(steps) ? i : std::abs(steps);
      const int start = coordinate(point, d);
      const int end = (start + direction * passed + wiring_.extent[d]) % wiring_.extent[d];
      point += (end - start) * stride(d);
      i -= passed;
      if (passed < std::abs(steps))
        return index(6 * std::int64_t{point} + 2 * d + (steps < 0 ? 1 : 0));
    }
  }

  topology wiring_;
  int ranks_;
  ticks latency_;
  ticks overhead_;
  ticks hop_;
  double per_byte_;  // in picoseconds
  std::int64_t links_ = 0;
};

}  // namespace colls::simulated
