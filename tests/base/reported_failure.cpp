// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/base/reported_failure.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace colls;

std::optional<reported_failure> parsed(const failure& why, int size = 4) {
  return reported_failure::parse(std::as_bytes(std::span(reported_failure::bytes_of(why))), size);
}

}  // namespace

TEST_CASE("a failure arrives as it was sent") {
  failure why(errc::mismatch, "rank 1 called something else");
  why.culprit = 1;
  why.observer = 3;
  why.waited_for = 2;
  why.communicator = 9;
  why.operation = collective::all_reduce;
  why.sequence = 42;
  const auto received = parsed(why);
  REQUIRE(received);
  CHECK(to_text(*received) == to_text(why));
  CHECK(received->reason().communicator == 9);
}

TEST_CASE("a failure without a reason is no failure") {
  for (const int code : {0, -1, static_cast<int>(colls::detail::last_errc) + 1, INT32_MAX}) {
    CAPTURE(code);
    failure why(static_cast<errc>(code));
    CHECK(!parsed(why));
    CHECK(reported_failure(why).reason().code == errc::protocol_error);
  }
  const failure good(errc::closed);
  const auto bytes = std::as_bytes(std::span(reported_failure::bytes_of(good)));
  CHECK(!reported_failure::parse(bytes.first(bytes.size() - 1), 4));
  CHECK(!reported_failure::parse({}, 4));
}

TEST_CASE("a parsed failure names only ranks of the world, and its texts are one line") {
  failure why(errc::peer_failed);
  why.culprit = 4;
  why.observer = INT32_MIN;
  why.waited_for = 3;
  why.refused = true;
  std::memset(why.address, 'a', sizeof why.address);
  std::memset(why.detail, '\n', sizeof why.detail);
  const auto safe = parsed(why);
  REQUIRE(safe);
  CHECK(safe->reason().culprit == -1);
  CHECK(safe->reason().observer == -1);
  CHECK(safe->reason().waited_for == 3);
  CHECK(!safe->reason().refused);
  CHECK(std::string(safe->reason().address) == std::string(sizeof why.address - 1, 'a'));
  CHECK(std::string(safe->reason().detail) == std::string(sizeof why.detail - 1, ' '));
}

TEST_CASE("random bytes are no failure, or one with a reason") {
  std::mt19937 random(3);
  std::vector<std::byte> bytes(sizeof(failure));
  for (int times = 0; times < 2000; ++times) {
    for (std::byte& each : bytes) each = static_cast<std::byte>(random());
    if (times % 2 == 0) std::memset(bytes.data(), 0, sizeof(errc));
    if (times % 4 == 0) bytes[0] = static_cast<std::byte>(random() % 40);
    const auto report = reported_failure::parse(bytes, 4);
    if (!report) continue;
    CHECK(error(*report).code().value() != 0);
    CHECK(std::string(error(*report).what()).find("unknown error") == std::string::npos);
  }
}
