// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of launcher_store.hpp: the texts in the store, and the place of a replacement.

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/environment_variables.hpp>
#include <colls/bootstrap/launcher_store.hpp>

#include <unistd.h>

#include <algorithm>
#include <sstream>

namespace colls {

namespace detail {

/// The number of ranks that a world may have, as a limit for numbers from other processes.
inline constexpr int max_world_size = 1 << 20;

/// Reads a list of ranks, which begins with its length. Returns false if it is malformed.
inline bool read_ranks(std::istream& in, int least, std::vector<int>& ranks) {
  int count = 0;
  if (!(in >> count) || count < 1 || count > max_world_size) return false;
  for (int i = 0; i < count; ++i) {
    int rank = 0;
    if (!(in >> rank) || rank < least || rank >= max_world_size) return false;
    ranks.push_back(rank);
  }
  return true;
}

inline void write_ranks(std::ostream& out, const std::vector<int>& ranks) {
  out << ranks.size();
  for (const int rank : ranks) out << ' ' << rank;
}

inline bool is_at_end(std::istream& in) { return (in >> std::ws).eof(); }

}  // namespace detail

COLLS_ONCE std::string repair_request::text() const {
  std::ostringstream out;
  out << at_least << ' ' << wait << ' ';
  detail::write_ranks(out, left);
  out << ' ' << detail::draw_secret();
  return out.str();
}

COLLS_ONCE std::optional<repair_request> repair_request::parse(const std::string& text) {
  std::istringstream in(text);
  repair_request result;
  std::string nonce;
  if (!(in >> result.at_least >> result.wait) || result.at_least < 0 || result.wait < 0 ||
      !detail::read_ranks(in, 0, result.left) || !(in >> nonce) || !detail::is_at_end(in)) {
    return std::nullopt;
  }
  const bool is_ascending = std::adjacent_find(result.left.begin(), result.left.end(),
                                               std::greater_equal<>()) == result.left.end();
  return is_ascending ? std::optional(std::move(result)) : std::nullopt;
}

COLLS_ONCE int next_world::rank_of(int previous) const {
  const auto found = std::find(previous_ranks.begin(), previous_ranks.end(), previous);
  return found == previous_ranks.end() ? -1 : static_cast<int>(found - previous_ranks.begin());
}

COLLS_ONCE std::string next_world::text() const {
  std::ostringstream out;
  out << number << ' ' << generation << ' ' << store << ' ';
  detail::write_ranks(out, previous_ranks);
  return out.str();
}

COLLS_ONCE std::optional<next_world> next_world::parse(const std::string& text) {
  std::istringstream in(text);
  next_world result;
  if (!(in >> result.number >> result.generation >> result.store) || result.number < 1 ||
      result.generation < 1 || !result.store.starts_with("tcp://") || result.store.size() > 255 ||
      !detail::read_ranks(in, -1, result.previous_ranks) || !detail::is_at_end(in)) {
    return std::nullopt;
  }
  return result;
}

namespace detail {

COLLS_ONCE void apply(const next_world& next, config& cfg) {
  cfg.size = next.size();
  cfg.generation = next.generation;
  cfg.address = next.store;
  cfg.served = true;
  // The launcher has given these for the first world.
  cfg.local_rank = cfg.local_size = cfg.node = cfg.nodes = -1;
}

COLLS_ONCE hello make_launcher_hello(const std::string& job, bool checksum) {
  hello result;
  result.purpose = connection_purpose::store;
  result.job = hash_of(job + "/launcher");
  result.rank = -1;
  result.world = max_launchers;
  result.checksum = checksum;
  return result;
}

COLLS_ONCE task<std::shared_ptr<tcp_store>> dial_launcher(engine& driver, const config& cfg,
                                                          secret key, time_point deadline) {
  const store_address address = parse_address(cfg.launcher);
  const hello local = make_launcher_hello(restarted_job(cfg.job.str(), cfg.restarts), cfg.checksum);
  const port_list ports{address.port};
  auto dialing = dial_store(driver, address, ports, local, key, deadline, cfg.timeout.count());
  co_return co_await dialing;
}

COLLS_ONCE task<placement> take_place(engine& driver, config cfg, int attempt) {
  const secret key(cfg.secret, cfg.insecure);
  const time_point deadline = cfg.join_timeout.after(driver.now());
  auto dialing = dial_launcher(driver, cfg, key, deadline);
  const std::shared_ptr<tcp_store> launcher = co_await dialing;
  const std::string own = std::to_string(::getpid());
  const std::string stored =
      co_await launcher->compare_set(arrival_key(cfg.replacement, attempt), {}, own, deadline);
  if (stored != own) {
    raise(errc::rank_taken, "process %.20s is the launcher's replacement %d", stored.c_str(),
          cfg.replacement);
  }
  log_info("replacement %d waits until the other ranks repair the world", cfg.replacement);
  // The others may not call `repair` for a long time. If they never do, the launcher ends this
  // process.
  const std::string place = co_await launcher->get(place_key(cfg.replacement, attempt), never - 1);
  co_await launcher->leave(driver.now() + seconds);
  const std::size_t space = std::min(place.find(' '), place.size());
  const auto next = next_world::parse(place.substr(space));
  cfg.rank = static_cast<int>(parse_number(place.substr(0, space), max_world_size));
  if (!next || cfg.rank < 0 || cfg.rank >= next->size()) {
    raise(errc::protocol_error, "the launcher gave replacement %d the place '%.60s'",
          cfg.replacement, place.c_str());
  }
  apply(*next, cfg);
  co_return placement{cfg, next->number};
}

}  // namespace detail

}  // namespace colls
