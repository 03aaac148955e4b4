// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Before the first step: the ranks find out whether they train the same thing, and take rank 0's
// values.

#include <colls/base/fingerprint.hpp>
#include <colls/call/communicator.hpp>

#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace colls::ddp {

/// Something on which the ranks have to agree: {"parameter", "fc.weight", "float [10, 128]"}.
struct fact {
  std::string kind;
  std::string name;
  std::string value;
  bool operator==(const fact&) const = default;
};

namespace detail {

inline std::string text_of(const std::vector<fact>& facts) {
  std::string text;
  for (const fact& each : facts) {
    text.append(each.kind).push_back('\0');
    text.append(each.name).push_back('\0');
    text.append(each.value).push_back('\0');
  }
  return text;
}

inline std::vector<fact> facts_of(const std::string& text) {
  std::vector<fact> facts;
  std::size_t at = 0;
  const auto word = [&] {
    const std::size_t begin = at;
    at = std::min(text.find('\0', begin), text.size());
    return text.substr(begin, at++ - begin);
  };
  while (at < text.size()) {
    fact next{word(), word(), word()};
    facts.push_back(std::move(next));
  }
  return facts;
}

/// The first thing in which rank `other` differs from rank 0.
inline failure difference(const std::vector<fact>& first, const std::vector<fact>& second,
                          int other) {
  failure why(errc::mismatch);
  why.culprit = other;
  std::size_t i = 0;
  while (i < first.size() && i < second.size() && first[i] == second[i]) ++i;
  if (i == second.size() || i == first.size()) {
    const bool missing = i == second.size();
    const fact& extra = missing ? first[i] : second[i];
    return why.say("rank %d has a %s '%s' that rank %d has not", missing ? 0 : other,
                   extra.kind.c_str(), extra.name.c_str(), missing ? other : 0);
  }
  const fact& mine = first[i];
  const fact& theirs = second[i];
  if (mine.kind == theirs.kind && mine.name == theirs.name) {
    return why.say("%s '%s' is %s on rank 0 and %s on rank %d", mine.kind.c_str(),
                   mine.name.c_str(), mine.value.c_str(), theirs.value.c_str(), other);
  }
  return why.say("rank 0 has the %s '%s' where rank %d has the %s '%s'", mine.kind.c_str(),
                 mine.name.c_str(), other, theirs.kind.c_str(), theirs.name.c_str());
}

}  // namespace detail

/// Ends well if all ranks have the same facts in the same order; else with one `mismatch` on all of
/// them, which names the first fact in which a rank differs from rank 0.
template <class Communicator>
task<> check_agreement(Communicator& comm, std::vector<fact> facts) {
  struct summary {
    std::uint64_t hash;
    std::uint64_t length;
    bool operator==(const summary&) const = default;
  };
  std::string text = detail::text_of(facts);
  summary mine[1] = {{0, text.size()}};
  for (const char letter : text) {
    mine[0].hash = mix(mine[0].hash, static_cast<unsigned char>(letter));
  }
  std::vector<summary> all(static_cast<std::size_t>(comm.size()));
  co_await comm.all_gather(mine, all);
  int other = 0;
  for (int rank = comm.size() - 1; rank > 0; --rank) {
    if (all[static_cast<std::size_t>(rank)] != all[0]) other = rank;
  }
  if (other == 0) co_return;

  std::string texts[2];
  for (int i = 0; i < 2; ++i) {
    const int root = i == 0 ? 0 : other;
    texts[i].resize(all[static_cast<std::size_t>(root)].length);
    if (comm.rank() == root) texts[i] = text;
    co_await comm.broadcast(texts[i], root);
  }
  throw error(detail::difference(detail::facts_of(texts[0]), detail::facts_of(texts[1]), other));
}

/// Afterwards every rank's pieces hold rank 0's; their sizes are the same on all ranks. Small ones
/// travel together.
template <class Communicator>
task<> take_from_first(Communicator& comm, std::vector<std::span<std::byte>> pieces) {
  constexpr std::size_t large = 64 * 1024;
  std::vector<std::byte> packed;
  for (const auto& piece : pieces) {
    if (piece.size() < large) packed.insert(packed.end(), piece.begin(), piece.end());
  }
  co_await comm.broadcast(packed, 0);
  std::size_t at = 0;
  for (const auto& piece : pieces) {
    if (piece.size() < large) {
      std::copy_n(packed.data() + at, piece.size(), piece.data());
      at += piece.size();
    } else {
      co_await comm.broadcast(piece, 0);
    }
  }
}

}  // namespace colls::ddp
