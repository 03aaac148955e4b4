// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/inproc.hpp>

#include "../support/communicators.hpp"
#include "../support/counted_memory.hpp"

#include <map>
#include <new>
#include <string>
#include <vector>

// Messages whose length or tag the receiver does not know. tests/transport/suite.hpp has what every
// transport does with them.

namespace {

using colls::errc;
using colls::inproc::communicator;

TEST_CASE("a coordinator takes what workers send, whatever its kind and length") {
  constexpr int row = 1, report = 2;
  std::map<int, std::vector<double>> rows;
  std::string text;
  colls::inproc::run(4, [&](communicator& comm) -> colls::task<> {
    if (comm.rank() > 1) {
      const std::vector<double> numbers(static_cast<std::size_t>(comm.rank()), comm.rank());
      co_await comm.send(numbers, 0, row);
    } else if (comm.rank() == 1) {
      const std::string said = "three workers";
      co_await comm.send(said, 0, report);
    } else {
      for (int i = 1; i < comm.size(); ++i) {
        auto message = co_await comm.probe(colls::any_source, colls::any_tag);
        if (message.tag() == row) {
          rows[message.source()] = co_await message.recv_vector<double>();
        } else {
          text.resize(message.bytes());
          co_await message.recv(text);
        }
      }
    }
  });
  CHECK(text == "three workers");
  CHECK(rows[2] == std::vector<double>(2, 2.0));
  CHECK(rows[3] == std::vector<double>(3, 3.0));
}

TEST_CASE("a probed message outlives its operation, its communicator and being moved") {
  communicators all(2);
  const std::vector<int> out{1, 2, 3};
  std::vector<int> in(3);
  auto first = all[1].send(out, 0, 4);
  auto second = all[1].send(out, 0, 5);
  std::optional<colls::probed_message<colls::inproc_transport>> kept;
  {
    auto probing = all[0].probe(1, 5);
    kept.emplace(all.wait(probing));
  }
  auto other = all.wait(all[0].probe(1, 4));
  *kept = std::move(other);  // discards the message with tag 5
  CHECK(kept->tag() == 4);
  communicator moved = std::move(all[0]);
  const colls::received got = all.wait(kept->recv(in));
  CHECK(got.tag == 4);
  CHECK(in == out);
  all.wait(first);
  all.wait(second);
  auto third = all[1].send(out, 0, 6);
  kept.emplace(all.wait(moved.probe(1, 6)));
  moved = {};
  auto refused = kept->recv(in);
  const colls::failure why = failure_of(all, refused);
  CHECK(why.code == errc::cancelled);
  CHECK(says(why, "the communicator has ended"));
}

#if !defined(SANITIZED)
TEST_CASE("without memory for a message its receive fails, and its sender is told") {
  int refused = 0;
  for (std::size_t n = 1; n < 30; ++n) {
    CAPTURE(n);
    communicators all(2);
    const std::vector<char> out(1 << 20);
    auto send = all[1].send(out, 0);
    all.settle();
    errc code{};
    refused_allocation = n;
    try {
      auto receive = all[0].recv_vector<char>(1);
      refused_allocation = 0;
      code = failure_of(all, receive).code;
    } catch (const std::bad_alloc&) {  // for the call itself: the message stays on the list
      refused_allocation = 0;
      CHECK(all.wait(all[0].recv_vector<char>(1)) == out);
    }
    refused_allocation = 0;
    const errc sent = failure_of(all, send).code;
    CHECK((code == errc{} || code == errc::not_enough_memory));
    CHECK((sent == errc::cancelled) == (code == errc::not_enough_memory));
    refused += sent == errc::cancelled ? 1 : 0;
    all.check_good();
  }
  CHECK(refused > 0);
}
#endif

TEST_CASE("a receive of unknown length takes no message that is longer than 1 GiB by default") {
  communicators all(2);
  const char byte = 0;
  auto send = all[1].send(std::span(&byte, (std::size_t{1} << 30) + 1), 0);  // nothing reads it
  auto receive = all[0].recv_vector<char>(1);
  const colls::failure why = failure_of(all, receive);
  CHECK(why.code == errc::truncated);
  CHECK(says(why, "1073741825 bytes"));
  all.wait(send);
}

}  // namespace
