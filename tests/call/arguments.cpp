// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/call/arguments.hpp>

#include "../support/communicators.hpp"

#include <array>
#include <deque>
#include <list>

// Which types are accepted as data. Invalid calls, which are refused before anything is sent.

namespace {

using colls::errc;
using colls::operation;
using colls::inproc::communicator;

template <class Range>
constexpr bool can_read = colls::readable_range<Range>;
template <class Range>
constexpr bool can_write = colls::writable_range<Range>;

static_assert(can_write<std::vector<int>&> && can_read<const std::vector<int>&>);
static_assert(!can_write<const std::vector<int>&> && !can_write<std::span<const int>>);
static_assert(can_write<std::span<float>> && can_write<std::array<double, 3>&> &&
              can_write<int (&)[4]>);
static_assert(can_read<std::string&> && can_write<std::string&>);
static_assert(!can_read<std::list<int>&> && !can_read<std::deque<int>&> && !can_read<int*&> &&
              !can_read<std::vector<bool>&> && !can_read<int&> && !can_read<colls::plus&> &&
              !can_read<colls::options&> && !can_read<colls::none_t>);
static_assert(std::is_same_v<colls::range_element_t<const std::vector<int>&>, int>);
static_assert(std::is_same_v<colls::range_element_t<std::span<const float>>, float>);

TEST_CASE("ranges overlap exactly, in part, or not at all") {
  int data[10] = {};
  const auto piece = [&](std::size_t offset, std::size_t count) {
    return colls::any_buffer(data + offset, count, sizeof(int));
  };
  using colls::detail::overlap_partially;
  CHECK_FALSE(overlap_partially(piece(0, 10), piece(0, 10)));
  CHECK_FALSE(overlap_partially(piece(0, 5), piece(5, 5)));
  CHECK_FALSE(overlap_partially(piece(5, 5), piece(0, 5)));
  CHECK_FALSE(overlap_partially(piece(2, 0), piece(0, 10)));
  CHECK_FALSE(overlap_partially(colls::any_buffer(), colls::any_buffer()));
  CHECK(overlap_partially(piece(0, 5), piece(4, 5)));
  CHECK(overlap_partially(piece(4, 5), piece(0, 5)));
  CHECK(overlap_partially(piece(0, 5), piece(0, 4)));
  CHECK(overlap_partially(piece(3, 2), piece(0, 10)));
}

/// Checks that `call` is refused with this text, takes no sequence number and sends nothing: the
/// communicator's next calls work, although no other rank made this call.
template <class Call>
void check_refused(communicators& all, const char* words, const Call& call) {
  CAPTURE(words);
  auto refused = call(all[1]);
  REQUIRE(refused.done());
  const colls::failure why = failure_of(all, refused);
  CHECK(why.code == errc::invalid_argument);
  CHECK(std::string(why.detail) == words);
  CHECK(why.observer == 1);
  CHECK(why.operation != colls::collective::none);
  CHECK(why.sequence == 0);
  CHECK(why.refused);
  all.check_good();
}

TEST_CASE("an invalid call is invalid_argument on its caller and nothing else happens") {
  communicators all(3);
  std::vector<int> six(6);
  std::vector<int> two(2);
  std::vector<int> seven(7);
  std::vector<int> none_left;
  const std::span<int> data(seven);
  const std::vector<std::size_t> counts{1, 2, 3};
  const std::vector<int> negative{1, -2, 3};
  const std::vector<std::size_t> huge{1, SIZE_MAX, 1};
  const std::vector<std::size_t> large{1, SIZE_MAX / 8, 1};

  const auto refused = [&](const char* words, const auto& call) {
    check_refused(all, words, call);
  };

  for (const int root : {-1, 3, INT32_MAX, INT32_MIN}) {
    const std::string words = "root " + std::to_string(root) + " is not in 0..2";
    refused(words.c_str(), [&](communicator& c) { return c.broadcast(six, root); });
    refused(words.c_str(), [&](communicator& c) { return c.reduce(six, root); });
    refused(words.c_str(), [&](communicator& c) { return c.reduce(six, colls::none, root); });
    refused(words.c_str(), [&](communicator& c) { return c.gather(two, six, root); });
    refused(words.c_str(), [&](communicator& c) { return c.scatter(six, two, root); });
    refused(words.c_str(), [&](communicator& c) { return c.gather_v(two, six, counts, root); });
    refused(words.c_str(), [&](communicator& c) { return c.scatter_v(six, counts, two, root); });
  }

  const std::span<int> absurd(six.data(), SIZE_MAX - 2);
  const char* const too_large =
      "a buffer has 18446744073709551613 elements, more than memory can hold";
  refused(too_large, [&](communicator& c) { return c.all_reduce(absurd); });
  refused(too_large, [&](communicator& c) { return c.all_reduce(colls::group{two, absurd}); });
  refused(too_large, [&](communicator& c) { return c.reduce(absurd, 0); });
  refused(too_large, [&](communicator& c) { return c.reduce_scatter(six, absurd); });
  refused(too_large, [&](communicator& c) { return c.scan(absurd); });
  refused(too_large, [&](communicator& c) { return c.broadcast(absurd, 0); });
  refused(too_large, [&](communicator& c) { return c.all_gather(absurd, six); });
  refused(too_large, [&](communicator& c) { return c.gather(absurd, six, 0); });
  refused(too_large, [&](communicator& c) { return c.scatter(absurd, two, 0); });
  refused(too_large, [&](communicator& c) { return c.all_to_all(absurd, absurd); });
  refused(too_large, [&](communicator& c) { return c.send(absurd, 0); });
  refused(too_large, [&](communicator& c) { return c.recv(absurd, 0); });
  refused(too_large, [&](communicator& c) { return c.send_recv(two, 0, absurd, 0); });

  refused("in has 2 elements, out has 6", [&](communicator& c) { return c.all_reduce(two, six); });
  refused("in has 6 elements, out has 2", [&](communicator& c) { return c.reduce(six, two, 1); });
  refused("in has 6 elements, out has 0",
          [&](communicator& c) { return c.reduce(six, colls::none, 1); });
  refused("in has 7 elements, the shares of 3 ranks are 6",
          [&](communicator& c) { return c.reduce_scatter(seven, two); });
  refused("in has 7 elements, the shares of 3 ranks are 6",
          [&](communicator& c) { return c.reduce_scatter_v(seven, two, counts); });
  refused("out has 7 elements, this rank's share is 2",
          [&](communicator& c) { return c.reduce_scatter_v(six, seven, counts); });
  refused("out has 7 elements, the blocks of 3 ranks are 6",
          [&](communicator& c) { return c.all_gather(two, seven); });
  refused("out has 7 elements, the blocks of 3 ranks are 6",
          [&](communicator& c) { return c.all_gather_v(two, seven, counts); });
  refused("in has 7 elements, this rank's block is 2",
          [&](communicator& c) { return c.all_gather_v(seven, six, counts); });
  refused("the root's buffer has 7 elements, all shares are 6",
          [&](communicator& c) { return c.gather(two, seven, 1); });
  refused("the root's buffer has 0 elements, all shares are 6",
          [&](communicator& c) { return c.gather(two, colls::none, 1); });
  refused("the buffer has 7 elements, this rank's share is 2",
          [&](communicator& c) { return c.gather_v(seven, six, counts, 0); });
  refused("the root's buffer has 7 elements, all shares are 6",
          [&](communicator& c) { return c.scatter(seven, two, 1); });
  refused("the root's buffer has 0 elements, all shares are 6",
          [&](communicator& c) { return c.scatter(colls::none, two, 1); });
  refused("the buffer has 7 elements, this rank's share is 2",
          [&](communicator& c) { return c.scatter_v(six, counts, seven, 0); });
  refused("in has 7 elements, no multiple of 3 ranks",
          [&](communicator& c) { return c.all_to_all(seven, seven); });
  refused("in has 6 elements, out has 7",
          [&](communicator& c) { return c.all_to_all(six, seven); });
  refused("in has 7 elements, the send counts are 6",
          [&](communicator& c) { return c.all_to_all_v(seven, counts, six, counts); });
  refused("out has 7 elements, the receive counts are 6",
          [&](communicator& c) { return c.all_to_all_v(six, counts, seven, counts); });
  refused("this rank sends 2 elements to itself and receives 3", [&](communicator& c) {
    return c.all_to_all_v(six, counts, seven, std::vector{3, 3, 1});
  });
  refused("in place, both lists of counts are equal",
          [&](communicator& c) { return c.all_to_all_v(six, counts, six, std::vector{3, 2, 1}); });

  refused("there are 2 counts for 3 ranks",
          [&](communicator& c) { return c.all_gather_v(two, six, two); });
  refused("there are 0 counts for 3 ranks",
          [&](communicator& c) { return c.gather_v(two, six, none_left, 0); });
  refused("there are 6 counts for 3 ranks",
          [&](communicator& c) { return c.scatter_v(six, six, two, 0); });
  refused("there are 7 counts for 3 ranks",
          [&](communicator& c) { return c.reduce_scatter_v(six, two, seven); });
  refused("there are 2 counts for 3 ranks",
          [&](communicator& c) { return c.all_to_all_v(six, counts, six, two); });
  const char* const invalid_count = "a count is negative or too large";
  refused(invalid_count, [&](communicator& c) { return c.all_gather_v(two, six, negative); });
  refused(invalid_count, [&](communicator& c) { return c.gather_v(two, six, huge, 0); });
  refused(invalid_count, [&](communicator& c) { return c.scatter_v(six, large, two, 0); });
  refused(invalid_count,
          [&](communicator& c) { return c.reduce_scatter_v(two, two, std::vector{-1, 2, 1}); });
  refused(invalid_count,
          [&](communicator& c) { return c.all_to_all_v(two, negative, two, negative); });

  const char* const overlap = "in and out overlap in part";
  refused(overlap,
          [&](communicator& c) { return c.all_reduce(data.first(4), data.subspan(1, 4)); });
  refused(overlap, [&](communicator& c) { return c.reduce(data.first(4), data.subspan(3, 4), 1); });
  refused(overlap,
          [&](communicator& c) { return c.reduce_scatter(data.first(6), data.subspan(5, 2)); });
  refused(overlap, [&](communicator& c) { return c.reduce_scatter(data.first(6), data.first(2)); });
  refused(overlap,
          [&](communicator& c) { return c.all_gather(data.subspan(1, 2), data.first(6)); });
  refused(overlap, [&](communicator& c) { return c.gather(data.first(2), data.first(6), 1); });
  refused(overlap,
          [&](communicator& c) { return c.scatter(data.first(6), data.subspan(5, 2), 1); });
  refused(overlap,
          [&](communicator& c) { return c.all_to_all(data.first(6), data.subspan(1, 6)); });
  refused("two buffers of the group overlap",
          [&](communicator& c) { return c.all_reduce(colls::group{six, two, six}); });
  std::span<int> head = data.first(4);
  std::span<int> tail = data.subspan(3, 4);
  refused("two buffers of the group overlap",
          [&](communicator& c) { return c.all_reduce(colls::group{head, tail}); });

  refused("tag -1 is negative", [&](communicator& c) { return c.send(six, 0, -1); });
  refused("tag -7 is negative", [&](communicator& c) { return c.recv(six, 0, -7); });
  refused("tag -1 is negative", [&](communicator& c) { return c.send_recv(six, 0, two, 0, -1); });
  refused("rank 3 is not in 0..2", [&](communicator& c) { return c.send(six, 3); });
  refused("rank -1 is not in 0..2", [&](communicator& c) { return c.send(six, -1); });
  refused("rank -1 is not in 0..2", [&](communicator& c) { return c.recv(six, -1); });
  refused("rank 3 is not in 0..2", [&](communicator& c) { return c.send_recv(six, 3, two, 0); });
  refused("rank 3 is not in 0..2", [&](communicator& c) { return c.send_recv(six, 0, two, 3); });
  refused("what is sent and what is received are one buffer",
          [&](communicator& c) { return c.send_recv(six, 0, six, 0); });
  refused("the two buffers overlap in part",
          [&](communicator& c) { return c.send_recv(head, 0, tail, 0); });

  refused("rank 3 is not in 0..2", [&](communicator& c) { return c.group(std::vector{0, 3}); });
  refused("rank -1 is not in 0..2", [&](communicator& c) { return c.group(std::vector{-1}); });
  refused("rank 1 is listed twice", [&](communicator& c) { return c.group(std::vector{1, 0, 1}); });
}

TEST_CASE("an error names the call that was made") {
  communicators all(2);
  std::vector<int> data(3);
  std::vector<int> other(3);
  const auto wrong = all[0].send_recv(data, 2, other, 1);
  CHECK(to_text(wrong.reason()).starts_with("colls: rank 0: send_recv failed: invalid_argument"));
  const auto group = all[0].group(std::vector{2});
  CHECK(to_text(group.reason()).starts_with("colls: rank 0: group failed: invalid_argument"));
  auto twin = all[0].dup();
  auto half = all[1].split(0);
  const colls::failure why = failure_of(all, twin);
  CHECK(why.operation == colls::collective::dup);
  CHECK(failure_of(all, half).operation == colls::collective::split);
  CHECK(std::string(why.detail).find("called dup") != std::string::npos);
  CHECK(std::string(why.detail).find("called split; they differ") != std::string::npos);
}

TEST_CASE("a refused call is thrown at its await, and can be dropped") {
  communicators all(2);
  std::vector<int> data(3);
  {
    operation<> dropped = all[0].broadcast(data, 9);
  }
  colls::inproc::run(1, [&](communicator& comm) -> colls::task<> {
    std::string caught;
    try {
      co_await comm.broadcast(data, 1);
    } catch (const std::system_error& thrown) {
      CHECK(thrown.code() == std::errc::invalid_argument);
      caught = thrown.what();
    }
    CHECK(caught ==
          "colls: rank 0: broadcast failed: invalid_argument: root 1 is not in 0..0. Hint: nothing "
          "was sent and the communicator is still good");
  });
  all.check_good();
}

}  // namespace

TEST_CASE("a registered buffer belongs to one communicator, and is valid while its memory exists") {
  communicators all(2);
  auto memory = all[1].allocate<int>(10);
  auto other_memory = all[0].allocate<int>(10);
  const auto mine = all[1].register_buffer(memory, 2, 6);
  const auto others = all[0].register_buffer(other_memory, 2, 6);
  CHECK((mine.data() == memory.data() + 2 && mine.size() == 6));
  CHECK(all[1].register_buffer(memory).size() == 10);
  for (const auto& [first, count] : {std::pair<std::size_t, std::size_t>{0, 11},
                                     {11, 0},
                                     {5, 6},
                                     {1, SIZE_MAX},
                                     {SIZE_MAX, 2}}) {
    errc seen{};
    try {
      (void)all[1].register_buffer(memory, first, count);
    } catch (const colls::error& thrown) {
      seen = thrown.record().code;
    }
    CHECK(seen == errc::invalid_argument);
  }
  CHECK_THROWS_WITH_AS((void)all[1].register_buffer(memory, 11, 0),
                       "colls: rank 1: invalid_argument: register_buffer: 0 elements from 11 on, "
                       "of a buffer that has 10",
                       colls::error);
  CHECK_THROWS_WITH_AS((void)all[1].allocate<int>(std::size_t{1} << 62),
                       "colls: rank 1: not_enough_memory: allocate: 4611686018427387904 elements "
                       "of 4 bytes. Hint: memory could not be allocated",
                       colls::error);

  std::fill(memory.begin(), memory.end(), 3);
  std::fill(other_memory.begin(), other_memory.end(), 4);
  auto here = all[1].all_reduce(mine);
  auto there = all[0].all_reduce(others);
  all.wait(here);
  all.wait(there);
  CHECK((mine[0] == 7 && mine[5] == 7 && memory[1] == 3 && memory[8] == 3 && others[5] == 7));
  std::vector<int> here_too(3, 1);
  std::vector<int> there_too(3, 2);
  auto grouped_here = all[1].all_reduce(colls::group{mine, here_too});
  auto grouped_there = all[0].all_reduce(colls::group{others, std::span(there_too)});
  all.wait(grouped_here);
  all.wait(grouped_there);
  CHECK((mine[0] == 14 && others[5] == 14 && here_too[2] == 3 && there_too[0] == 3));

  std::vector<int> six(6);
  std::vector<int> twelve(12);
  const auto refused = [&](const char* words, const auto& buffer) {
    check_refused(all, words, [&](communicator& c) { return c.all_reduce(buffer); });
    check_refused(all, words, [&](communicator& c) { return c.all_reduce(six, buffer); });
    check_refused(all, words,
                  [&](communicator& c) { return c.all_reduce(colls::group{buffer, twelve}); });
    check_refused(all, words,
                  [&](communicator& c) { return c.all_reduce(colls::group{twelve, six, buffer}); });
    check_refused(all, words, [&](communicator& c) { return c.reduce(buffer, 0); });
    check_refused(all, words, [&](communicator& c) { return c.reduce_scatter(twelve, buffer); });
    check_refused(all, words, [&](communicator& c) { return c.scan(buffer); });
    check_refused(all, words, [&](communicator& c) { return c.broadcast(buffer, 0); });
    check_refused(all, words, [&](communicator& c) { return c.all_gather(buffer, twelve); });
    check_refused(all, words, [&](communicator& c) { return c.gather(buffer, twelve, 0); });
    check_refused(all, words, [&](communicator& c) { return c.scatter(twelve, buffer, 0); });
    check_refused(all, words, [&](communicator& c) { return c.all_to_all(six, buffer); });
    check_refused(all, words, [&](communicator& c) { return c.send(buffer, 0); });
    check_refused(all, words, [&](communicator& c) { return c.recv(buffer, 0); });
  };
  refused("a buffer was registered with another communicator: register it with this one", others);
  refused("a buffer was registered with another communicator: register it with this one",
          colls::registered_buffer<int>());
  // Wrong sizes are refused, as for any other buffer.
  check_refused(all, "in has 6 elements, out has 12",
                [&](communicator& c) { return c.all_reduce(mine, twelve); });
  memory = {};
  refused("the memory of a registered buffer was freed: keep it while calls use it", mine);
}
