// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// network: what a message costs between two simulated ranks, and which links it shares with others.

#include <colls/transport/simulated/event_queue.hpp>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace colls::simulated {

namespace detail {

/// The number that `text` is, whole; false if it is none.
template <class Number>
bool parse_number(std::string_view text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [stop, bad] = std::from_chars(text.data(), end, number);
  return bad == std::errc() && stop == end;
}

/// What stands before the next `separator`, which is taken off `text`.
inline std::string_view next_part(std::string_view& text, char separator) {
  const std::size_t end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return part;
}

}  // namespace detail

/// How the ranks are wired. By text: `flat`; `nodes:8` (8 ranks share a host and its network card;
/// inside a host messages are four times as quick); `fat_tree:16` or `fat_tree:16:4` (leaf switches
/// of 16 ranks with 16, or 4, links up, one to each spine switch; a message goes by the spine that
/// its receiver's number gives); `torus:8x8x4` (one rank at each point, dimension by dimension, the
/// shorter way around).
struct topology {
  enum class shape : std::uint8_t { flat, nodes, fat_tree, torus };

  shape kind = shape::flat;
  int group = 1;  // ranks of a node, of a leaf switch
  int uplinks = 1;
  int extent[3] = {1, 1, 1};

  /// Throws std::invalid_argument with a sentence for the user.
  static topology parse(std::string_view text) {
    const std::string all(text);
    const auto wrong = [&] {
      return std::invalid_argument("no topology is written '" + all +
                                   "': flat, nodes:8, fat_tree:16, fat_tree:16:4, torus:8x8x4");
    };
    const auto number = [&](std::string_view digits) {
      int found = 0;
      if (!detail::parse_number(digits, found) || found < 1) throw wrong();
      return found;
    };
    topology made;
    const std::string_view name = detail::next_part(text, ':');
    if (name == "flat" && all == "flat") return made;
    if (name == "nodes") {
      made.kind = shape::nodes;
      made.group = number(text);
    } else if (name == "fat_tree") {
      made.kind = shape::fat_tree;
      made.group = made.uplinks = number(detail::next_part(text, ':'));
      if (!text.empty() || all.back() == ':') made.uplinks = number(text);
    } else if (name == "torus") {
      made.kind = shape::torus;
      for (int& points : made.extent) {
        points = number(detail::next_part(text, 'x'));
        if (text.empty()) break;
      }
      if (!text.empty() || all.back() == 'x') throw wrong();
    } else {
      throw wrong();
    }
    return made;
  }
};

/// LogGP: a rank's messages leave one after another, each `overhead` + bytes / `bandwidth`; then
/// comes the latency; they are taken in one after another, each `overhead`. Links are full duplex;
/// the bytes of a message follow each other through all links of its way, and wait at a link that
/// is taken. A switch after the first, or a hop after the first, costs a tenth of the latency.
struct network_settings {
  double latency_us = 1;
  double overhead_us = 0.1;
  double bandwidth = 12.5;  // GB/s of every link
  topology wiring;
};

/// Answers in O(1), of any number of ranks.
class network {
 public:
  network(const network_settings& how, int ranks) : wiring_(how.wiring), ranks_(ranks) {
    const auto time = [](double us) {
      if (!(us >= 0) || us > 1e9) throw std::invalid_argument("a time is negative or too long");
      return static_cast<ticks>(std::llround(us * 1e6));
    };
    if (!(how.bandwidth >= 1e-6)) {
      throw std::invalid_argument("the bandwidth must be 0.000001 GB/s or more");
    }
    latency_ = time(how.latency_us);
    overhead_ = time(how.overhead_us);
    per_byte_ = 1000 / how.bandwidth;
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

  /// The links inside of the network, besides each rank's way out and way in.
  std::size_t links() const { return static_cast<std::size_t>(links_); }
  ticks overhead() const { return overhead_; }
  ticks hop() const { return hop_; }
  /// Ranks of one node are near: they share a host.
  int node_of(int rank) const {
    return wiring_.kind == topology::shape::nodes ? rank / wiring_.group : rank;
  }
  ticks latency(int from, int to) const { return near(from, to) ? latency_ / 4 : latency_; }
  /// How long `size` bytes take on a rank's own way out or in, and on a link inside.
  ticks port_time(std::size_t size) const {
    return duration(wiring_.kind == topology::shape::nodes ? per_byte_ / 4 : per_byte_, size);
  }
  ticks link_time(std::size_t size) const { return duration(per_byte_, size); }

  /// The links inside on the way from rank to rank, in order: `link(.., i)` for i < `hops(..)`.
  int hops(int from, int to) const {
    switch (wiring_.kind) {
      case topology::shape::flat:
        return 0;
      case topology::shape::nodes:
        return near(from, to) ? 0 : 2;
      case topology::shape::fat_tree:
        return group(from) == group(to) ? 0 : 2;
      case topology::shape::torus: {
        int all = 0;
        for (int d = 0; d < 3; ++d) all += std::abs(distance(from, to, d));
        return all;
      }
    }
    return 0;
  }
  std::size_t link(int from, int to, int i) const {
    switch (wiring_.kind) {
      case topology::shape::nodes:
        return index(2 * group(i == 0 ? from : to) + i);
      case topology::shape::fat_tree: {
        const int spine = to % wiring_.uplinks;
        return index(2 * (std::int64_t{group(i == 0 ? from : to)} * wiring_.uplinks + spine) + i);
      }
      default:
        return torus_link(from, to, i);
    }
  }

 private:
  static constexpr double longest =
      1e16;  // beyond all deadlines, and many of them are a time still

  static std::size_t index(std::int64_t number) { return static_cast<std::size_t>(number); }
  static ticks duration(double per_byte, std::size_t size) {
    const double time = per_byte * static_cast<double>(size) + 0.5;
    return static_cast<ticks>(time < longest ? time : longest);
  }
  std::int64_t groups() const { return (std::int64_t{ranks_} + wiring_.group - 1) / wiring_.group; }
  int group(int rank) const { return rank / wiring_.group; }
  bool near(int from, int to) const {
    return wiring_.kind == topology::shape::nodes && group(from) == group(to);
  }

  int stride(int d) const {
    return d == 0 ? 1 : d == 1 ? wiring_.extent[0] : wiring_.extent[0] * wiring_.extent[1];
  }
  int coordinate(int rank, int d) const { return rank / stride(d) % wiring_.extent[d]; }
  // Steps along dimension d, the shorter way; up if both are equally long.
  int distance(int from, int to, int d) const {
    const int points = wiring_.extent[d];
    const int up = (coordinate(to, d) - coordinate(from, d) + points) % points;
    return 2 * up <= points ? up : up - points;
  }
  std::size_t torus_link(int from, int to, int i) const {
    int at = from;
    for (int d = 0;; ++d) {
      const int steps = distance(from, to, d);
      const int direction = steps < 0 ? -1 : 1;
      const int taken = i < std::abs(steps) ? i : std::abs(steps);
      const int here = coordinate(at, d);
      const int there = (here + direction * taken + wiring_.extent[d]) % wiring_.extent[d];
      at += (there - here) * stride(d);
      i -= taken;
      if (taken < std::abs(steps)) return index(6 * std::int64_t{at} + 2 * d + (steps < 0 ? 1 : 0));
    }
  }

  topology wiring_;
  int ranks_;
  ticks latency_;
  ticks overhead_;
  ticks hop_;
  double per_byte_;  // picoseconds
  std::int64_t links_ = 0;
};

}  // namespace colls::simulated
