// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// launcher_store: the store by which a launcher that replaces lost ranks talks with the ranks.
//
// One of the ranks that are left of a world writes a request to it, and gets the next world as the
// answer. A replacement says there that it has come, and gets its place in a next world.

#include <colls/bootstrap/dial.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace colls {

/// What the ranks that are left of a world ask of the launcher.
struct repair_request {
  std::vector<int> left;  // the ranks that are left, in ascending order
  int at_least = 0;     // the least size of the next world, or 0 for as many ranks as at the start
  time_point wait = 0;  // how long to wait for replacements

  /// Returns a text that no other request has.
  std::string text() const;
  static std::optional<repair_request> parse(const std::string& text);
};

/// The world that follows one of which ranks were lost.
struct next_world {
  int number = 0;      // counts the worlds of a job, also those that do not form; the first has 0
  int generation = 0;  // see `communicator::generation`
  std::string store;   // the address of its store, as tcp://host:port
  /// For each of its ranks the rank in the world before, or -1 for a replacement.
  std::vector<int> previous_ranks;

  int size() const { return static_cast<int>(previous_ranks.size()); }
  /// Returns the rank that `previous` of the world before has in this world, or -1.
  int rank_of(int previous) const;

  std::string text() const;
  static std::optional<next_world> parse(const std::string& text);
};

namespace detail {

// ---- the keys of the launcher's store

/// A request of the ranks of the world with the number `world`. Its requests are numbered from 1.
inline std::string repair_key(int world, int request) {
  return "repair/" + std::to_string(world) + '/' + std::to_string(request);
}
/// The answer to a request: `next_world::text`, `unchanged_answer`, `lost_answer`, or a reason
/// after `refused_prefix`.
inline std::string repair_answer_key(int world, int request) {
  return repair_key(world, request) + "/answer";
}
inline constexpr std::string_view refused_prefix = "no ";
/// The answer if no replacement waits, and none is needed.
inline constexpr std::string_view unchanged_answer = "unchanged";
/// The answer if a rank that was left has ended meanwhile.
inline constexpr std::string_view lost_answer = "lost";
/// How often a replacement waits for a place. It waits again if the world of its place does not
/// form.
inline constexpr int max_places = 100;
/// Set when the replacement with this number waits for its place, for the time `attempt`, counted
/// from 1.
inline std::string arrival_key(int replacement, int attempt) {
  return "replacement/" + std::to_string(replacement) + '/' + std::to_string(attempt);
}
/// The place of a replacement: its rank, a space, and `next_world::text`.
inline std::string place_key(int replacement, int attempt) {
  return arrival_key(replacement, attempt) + "/place";
}

// ---- the keys of the store of a world

/// How many replacements wait, each time with another number, counted from 1.
inline std::string waiting_key(int number) { return "colls/waiting/" + std::to_string(number); }

/// Makes `cfg`, whose rank is set, the config of a rank of the world `next`.
void apply(const next_world& next, config& cfg);

/// How many launchers may connect to the store in a job. They are the ranks of this store: its
/// server notices that one has gone.
inline constexpr int max_launchers = 1 << 20;

/// Returns the HELLO of connections to the launcher's store, for a process that is no launcher.
hello make_launcher_hello(const std::string& job, bool checksum);

/// Connects to the store that the launcher serves for repairs. `key` is the secret of the job.
task<std::shared_ptr<tcp_store>> dial_launcher(engine& driver, const config& cfg, secret key,
                                               time_point deadline);

/// The place of a replacement.
struct placement {
  config cfg;
  int world = 0;  // its number, see `next_world`
};

/// Waits until the launcher gives a place in a world to the replacement that `cfg` describes.
/// `attempt` counts the places of this replacement from 1.
task<placement> take_place(engine& driver, config cfg, int attempt);

}  // namespace detail

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/launcher_store.ipp>
#endif
