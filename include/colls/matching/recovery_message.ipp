// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The bytes of recovery messages: how they are written, and how they are read and checked.

#include <colls/base/compiler.hpp>
#include <colls/matching/recovery_message.hpp>

#include <cstring>

namespace colls {

namespace detail {

/// The beginning of the bytes of a recovery message. The lists follow it: the proved losses (4
/// bytes each), the broken links (8) and the lost ranks of a decision (8).
struct recovery_header {
  std::uint8_t type = 0;
  std::uint8_t operation = 0;
  std::uint8_t quorum = 0;
  std::uint8_t differs = 0;
  std::int32_t late = -1;
  std::uint64_t number = 0;
  std::uint64_t value = 0;
  std::uint32_t proved = 0;
  std::uint32_t broken = 0;
  // The decision that the message contains, if `has_decision` is 1.
  std::uint64_t facts = 0;
  std::uint64_t decided_value = 0;
  std::uint32_t lost = 0;
  std::uint8_t decided_operation = 0;
  std::uint8_t decided_quorum = 0;
  std::uint8_t decided_differs = 0;
  std::uint8_t has_decision = 0;
};
static_assert(sizeof(recovery_header) == 56 && std::is_trivially_copyable_v<recovery_header>);

/// Reads the request that a header contains. Returns false if it is none.
inline bool read_request(recovery_request& request, std::uint8_t operation, std::uint8_t quorum,
                         std::uint8_t differs, std::uint64_t value) {
  if (quorum > 1 || differs > 1) return false;
  request = {static_cast<collective>(operation), static_cast<colls::quorum>(quorum), differs == 1,
             value};
  return true;
}

/// Reads numbers of 4 bytes, one after the other.
class number_reader {
 public:
  explicit number_reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::int32_t next() {
    std::int32_t number = 0;
    std::memcpy(&number, bytes_.data(), sizeof number);
    bytes_ = bytes_.subspan(sizeof number);
    return number;
  }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace detail

COLLS_ONCE std::vector<std::byte> recovery_message::bytes() const {
  detail::recovery_header head;
  head.type = static_cast<std::uint8_t>(type);
  head.operation = static_cast<std::uint8_t>(request.operation);
  head.quorum = static_cast<std::uint8_t>(request.quorum);
  head.differs = request.differs ? 1 : 0;
  head.late = late;
  head.number = number;
  head.value = request.value;
  head.proved = static_cast<std::uint32_t>(view.proved().size());
  head.broken = static_cast<std::uint32_t>(view.broken().size());
  if (accepted) {
    const recovery_decision& decision = accepted->decision;
    head.facts = accepted->facts;
    head.decided_value = decision.request.value;
    head.lost = static_cast<std::uint32_t>(decision.lost.size());
    head.decided_operation = static_cast<std::uint8_t>(decision.request.operation);
    head.decided_quorum = static_cast<std::uint8_t>(decision.request.quorum);
    head.decided_differs = decision.request.differs ? 1 : 0;
    head.has_decision = 1;
  }
  std::vector<std::int32_t> numbers(view.proved().begin(), view.proved().end());
  for (const broken_link& link : view.broken()) {
    numbers.push_back(link.low);
    numbers.push_back(link.high);
  }
  if (accepted) {
    for (const lost_rank& each : accepted->decision.lost) {
      numbers.push_back(each.rank);
      numbers.push_back(each.proved ? 1 : 0);
    }
  }
  std::vector<std::byte> result(sizeof head + numbers.size() * sizeof(std::int32_t));
  std::memcpy(result.data(), &head, sizeof head);
  if (!numbers.empty()) {
    std::memcpy(result.data() + sizeof head, numbers.data(), numbers.size() * sizeof(std::int32_t));
  }
  return result;
}

COLLS_ONCE std::optional<recovery_message> recovery_message::parse(std::span<const std::byte> bytes,
                                                                   int size) {
  detail::recovery_header head;
  if (bytes.size() < sizeof head || bytes.size() > max_recovery_bytes) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof head);
  const std::uint64_t numbers =
      std::uint64_t{head.proved} + 2 * (std::uint64_t{head.broken} + head.lost);
  if (bytes.size() != sizeof head + numbers * sizeof(std::int32_t)) return std::nullopt;
  if (head.type < 1 || head.type > static_cast<std::uint8_t>(kind::departed)) return std::nullopt;
  if (head.late < -1 || head.late >= size || head.number == 0) return std::nullopt;
  if (head.has_decision > 1 || (head.has_decision == 0 && head.lost != 0)) return std::nullopt;

  recovery_message result;
  result.type = static_cast<kind>(head.type);
  result.late = head.late;
  result.number = head.number;
  if (!detail::read_request(result.request, head.operation, head.quorum, head.differs,
                            head.value)) {
    return std::nullopt;
  }
  const auto is_rank = [&](std::int32_t number) { return number >= 0 && number < size; };
  detail::number_reader reader(bytes.subspan(sizeof head));
  // The lists are in ascending order, so that each element is added at the end of its list.
  for (std::uint32_t i = 0; i < head.proved; ++i) {
    const std::int32_t rank = reader.next();
    const auto& known = result.view.proved();
    if (!is_rank(rank) || (!known.empty() && rank <= known.back())) return std::nullopt;
    result.view.add_proved(rank);
  }
  for (std::uint32_t i = 0; i < head.broken; ++i) {
    const std::int32_t low = reader.next();
    const std::int32_t high = reader.next();
    const auto& known = result.view.broken();
    if (!is_rank(low) || !is_rank(high) || low >= high) return std::nullopt;
    if (!known.empty() && !(known.back() < broken_link(low, high))) return std::nullopt;
    result.view.add_broken(low, high);
  }
  const bool needs_decision = result.type == kind::proposal || result.type == kind::decision;
  if (head.has_decision == 0) {
    return needs_decision ? std::nullopt : std::optional(std::move(result));
  }
  accepted_decision& accepted = result.accepted.emplace();
  accepted.facts = head.facts;
  if (!detail::read_request(accepted.decision.request, head.decided_operation, head.decided_quorum,
                            head.decided_differs, head.decided_value)) {
    return std::nullopt;
  }
  int previous = -1;
  for (std::uint32_t i = 0; i < head.lost; ++i) {
    const std::int32_t rank = reader.next();
    const std::int32_t proved = reader.next();
    if (!is_rank(rank) || rank <= previous || proved < 0 || proved > 1) return std::nullopt;
    accepted.decision.lost.push_back({rank, proved == 1});
    previous = rank;
  }
  return result;
}

}  // namespace colls
