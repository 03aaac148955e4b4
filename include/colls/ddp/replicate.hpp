// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// replicate: functions that check that all ranks train the same model, and that copy the initial
// values of the model from rank 0 to all ranks.

#include <colls/base/fingerprint.hpp>
#include <colls/call/communicator.hpp>

#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace colls::ddp {

/// A property that must be equal on all ranks, such as
/// {"parameter", "fc.weight", "float [10, 128]"}.
struct fact {
  std::string kind;
  std::string name;
  std::string value;
  bool operator==(const fact&) const = default;
};

namespace detail {

inline std::string text_of(const std::vector<fact>& facts) {
  std::string text;
  for (const fact& item : facts) {
    text.append(item.kind).push_back('\0');
    text.append(item.name).push_back('\0');
    text.append(item.value).push_back('\0');
  }
  return text;
}

inline std::vector<fact> facts_of(const std::string& text) {
  std::vector<fact> facts;
  std::size_t position = 0;
  const auto next_field = [&] {
    const std::size_t begin = position;
    position = std::min(text.find('\0', begin), text.size());
    return text.substr(begin, position++ - begin);
  };
  while (position < text.size()) {
    fact next{next_field(), next_field(), next_field()};
    facts.push_back(std::move(next));
  }
  return facts;
}

/// Returns an error that describes the first difference between the facts of rank 0 (`first`) and
/// those of rank `other` (`second`).
inline failure difference(const std::vector<fact>& first, const std::vector<fact>& second,
                          int other) {
  failure reason(errc::mismatch);
  reason.culprit = other;
  std::size_t i = 0;
  while (i < first.size() && i < second.size() && first[i] == second[i]) ++i;
  if (i == second.size() || i == first.size()) {
    const bool missing = i == second.size();
    const fact& extra = missing ? first[i] : second[i];
    return reason.set_detail("rank %d has a %s '%s' that rank %d has not", missing ? 0 : other,
                             extra.kind.c_str(), extra.name.c_str(), missing ? other : 0);
  }
  const fact& expected = first[i];
  const fact& actual = second[i];
  if (expected.kind == actual.kind && expected.name == actual.name) {
    return reason.set_detail("%s '%s' is %s on rank 0 and %s on rank %d", expected.kind.c_str(),
                             expected.name.c_str(), expected.value.c_str(), actual.value.c_str(),
                             other);
  }
  return reason.set_detail("rank 0 has the %s '%s' where rank %d has the %s '%s'",
                           expected.kind.c_str(), expected.name.c_str(), other, actual.kind.c_str(),
                           actual.name.c_str());
}

}  // namespace detail

/// Checks that all ranks pass the same facts in the same order. If they do not, throws
/// `errc::mismatch` with the same text on every rank. The text describes the first difference
/// between the facts of rank 0 and those of the lowest rank whose facts differ from them.
template <class Communicator>
task<> check_agreement(Communicator& comm, std::vector<fact> facts) {
  struct summary {
    std::uint64_t hash;
    std::uint64_t length;
    bool operator==(const summary&) const = default;
  };
  std::string text = detail::text_of(facts);
  summary expected[1] = {{0, text.size()}};
  for (const char letter : text) {
    expected[0].hash = mix(expected[0].hash, static_cast<unsigned char>(letter));
  }
  std::vector<summary> all(static_cast<std::size_t>(comm.size()));
  co_await comm.all_gather(expected, all);
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

/// Copies the contents of `pieces` from rank 0 to all other ranks. The number and the sizes of the
/// pieces must be equal on all ranks. One broadcast sends all small pieces together.
template <class Communicator>
task<> broadcast_pieces(Communicator& comm, std::vector<std::span<std::byte>> pieces) {
  constexpr std::size_t large = 64 * 1024;
  std::vector<std::byte> packed;
  for (const auto& piece : pieces) {
    if (piece.size() < large) packed.insert(packed.end(), piece.begin(), piece.end());
  }
  co_await comm.broadcast(packed, 0);
  std::size_t position = 0;
  for (const auto& piece : pieces) {
    if (piece.size() < large) {
      std::copy_n(packed.data() + position, piece.size(), piece.data());
      position += piece.size();
    } else {
      co_await comm.broadcast(piece, 0);
    }
  }
}

}  // namespace colls::ddp
