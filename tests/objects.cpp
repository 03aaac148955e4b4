// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/half.hpp>
#include <colls/objects.hpp>

#include <colls/inproc.hpp>
#include <colls/world.hpp>

#include "support/driven_threads.hpp"
#include "support/inproc_ranks.hpp"
#include "support/soak.hpp"
#include "support/tcp_world.hpp"
#include "transport/suite.hpp"

#include <malloc.h>

#include <complex>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>

// Values of any type that can be serialised.

namespace {

using colls::errc;

struct point {
  int x, y;
  friend bool operator==(const point&, const point&) = default;
};
struct user {
  std::string name;
  std::map<int, point> places;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, places);
  }
  friend bool operator==(const user&, const user&) = default;
};
struct tree {
  int value = 0;
  std::vector<tree> children;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(value, children);
  }
  friend bool operator==(const tree&, const tree&) = default;
};
struct list {
  std::unique_ptr<list> next;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(next);
  }
};
struct nothing {
  template <class Archive>
  void serialize(Archive&) {}
  friend bool operator==(const nothing&, const nothing&) = default;
};
enum class color : short { red, green };

/// Throws when it is written, when it is read, or never.
struct fragile {
  enum when { never, written, read, without_memory };
  int breaks = never;
  template <class Archive>
  void save(Archive& archive) const {
    if (breaks == written) throw std::runtime_error("it cannot be written");
    archive(breaks);
  }
  template <class Archive>
  void load(Archive& archive) {
    archive(breaks);
    if (breaks == read) throw std::runtime_error("it cannot be read");
    if (breaks == without_memory) throw std::bad_alloc();
  }
};

/// A type that is not default constructible and has a serializer of its own.
struct celsius {
  explicit celsius(double degrees) : value(degrees) {}
  double value;
};

}  // namespace

template <>
struct colls::serializer<celsius> {
  static void write(const celsius& temperature, std::vector<std::byte>& bytes) {
    serializer<double>::write(temperature.value, bytes);
  }
  static celsius read(std::span<const std::byte> bytes) {
    return celsius(serializer<double>::read(bytes));
  }
};

namespace {

template <class T>
void expect_round_trip(const T& value) {
  std::vector<std::byte> bytes;
  colls::serializer<T>::write(value, bytes);
  CHECK(colls::serializer<T>::read(bytes) == value);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK_THROWS(colls::serializer<T>::read(std::span(bytes).first(size)));
  }
  bytes.push_back({});
  CHECK_THROWS(colls::serializer<T>::read(bytes));
}

TEST_CASE("objects of many types are made of their bytes, and of no other number of bytes") {
  expect_round_trip(std::string("text"));
  expect_round_trip(std::vector<std::string>{"a", "", "bc"});
  expect_round_trip(std::map<std::string, std::vector<double>>{{"a", {1, 2}}, {"b", {}}});
  expect_round_trip(std::tuple<int, std::string, std::optional<float>>{1, "x", 2.0f});
  expect_round_trip(std::optional<int>());
  expect_round_trip(std::variant<int, std::string>("v"));
  expect_round_trip(user{"name", {{1, {2, 3}}}});
  expect_round_trip(tree{1, {{2, {}}, {3, {{4, {}}}}}});
  expect_round_trip(std::vector<point>{{1, 2}, {3, 4}});
  expect_round_trip(std::vector<nothing>(100));  // its elements have no bytes
  expect_round_trip(std::vector<bool>{true, false, true});
  expect_round_trip(std::array<short, 3>{1, 2, 3});
  expect_round_trip(std::complex<double>(1, 2));
  expect_round_trip(colls::bfloat16(1.5f));
  expect_round_trip(color::green);
  expect_round_trip(-0.5);
}

TEST_CASE("a bool in hostile bytes is true or false") {
  std::vector<std::byte> bytes{std::byte{1}};
  CHECK(colls::serializer<bool>::read(bytes));
  bytes[0] = std::byte{2};
  CHECK_THROWS_WITH(colls::serializer<bool>::read(bytes), "a bool is neither true nor false");
}

TEST_CASE("a length in hostile bytes allocates nothing") {
  std::vector<std::byte> bytes(64);
  for (const std::uint64_t count : {std::uint64_t{65}, std::uint64_t{1} << 40, UINT64_MAX}) {
    std::memcpy(bytes.data(), &count, sizeof count);
    CHECK_THROWS_WITH(colls::serializer<std::vector<double>>::read(bytes),
                      "a container has more elements than its object has bytes");
    CHECK_THROWS(colls::serializer<std::string>::read(bytes));
    CHECK_THROWS(colls::serializer<std::vector<nothing>>::read(bytes));
  }
}

TEST_CASE("an object that refers to itself too often is refused, written or read") {
  list first;
  list* last = &first;
  for (int i = 0; i < 2000; ++i) {
    last->next = std::make_unique<list>();
    last = last->next.get();
  }
  std::vector<std::byte> bytes;
  CHECK_THROWS_WITH(colls::serializer<list>::write(first, bytes), "an object is nested too deep");
  bytes.assign(5000, std::byte{1});
  CHECK_THROWS_WITH(colls::serializer<list>::read(bytes), "an object is nested too deep");
  while (first.next != nullptr) first.next = std::move(first.next->next);
}

template <class World>
class object_ranks : public transport_suite::ranks<World> {
 public:
  using transport_suite::ranks<World>::ranks;

  template <class Operation>
  auto wait(Operation operation) {
    return colls::sync_wait(this->world, operation);
  }
};

std::string text_of(int rank, std::size_t length) {
  return std::string(static_cast<std::size_t>(rank) * length, static_cast<char>('a' + rank));
}

template <class World>
void every_call_moves_objects() {
  for (const int size : {1, 2, 3, 5}) {
    CAPTURE(size);
    object_ranks<World> all(size);
    const int last = size - 1;
    for (const std::size_t length : {std::size_t{1}, std::size_t{100'000}}) {
      std::vector<std::string> texts;
      for (int rank = 0; rank < size; ++rank) texts.push_back(text_of(rank, length));
      const auto own = [&](auto& comm) { return texts[static_cast<std::size_t>(comm.rank())]; };
      for (auto& call : all.start_all([&](auto& comm) {
             return colls::broadcast(comm, own(comm), last);  // the value does not stay alive
           })) {
        CHECK(all.wait(std::move(call)) == texts.back());
      }
      for (auto& call :
           all.start_all([&](auto& comm) { return colls::all_gather(comm, own(comm)); })) {
        CHECK(all.wait(std::move(call)) == texts);
      }
      int rank = 0;
      for (auto& call :
           all.start_all([&](auto& comm) { return colls::gather(comm, own(comm), last); })) {
        CHECK(all.wait(std::move(call)) == (rank++ == last ? texts : std::vector<std::string>()));
      }
      rank = 0;
      for (auto& call : all.start_all([&](auto& comm) {
             return colls::scatter(comm, comm.rank() == last ? texts : std::vector<std::string>(),
                                   last);
           })) {
        CHECK(all.wait(std::move(call)) == texts[static_cast<std::size_t>(rank++)]);
      }
      std::string joined;
      for (const std::string& text : texts) joined += text;
      for (auto& call : all.start_all(
               [&](auto& comm) { return colls::all_reduce(comm, own(comm), std::plus<>()); })) {
        CHECK(all.wait(std::move(call)) == joined);
      }
      if (size == 1) continue;
      auto sending = colls::send(all[1], user{texts[1], {{7, {8, 9}}}}, 0, 3);
      const user got = all.wait(colls::recv<user>(all[0], colls::any_source, colls::any_tag));
      CHECK(got == user{texts[1], {{7, {8, 9}}}});
      all.wait(std::move(sending));
    }
    for (auto& call : all.start_all(
             [](auto& comm) { return colls::all_gather(comm, celsius(comm.rank() + 0.5)); })) {
      CHECK(all.wait(std::move(call)).back().value == last + 0.5);
    }
  }
}

TEST_CASE_TEMPLATE("every call moves objects", World, inproc_ranks, driven_threads, shm_world,
                   tcp_world) {
  every_call_moves_objects<World>();
}

/// Makes one call on the last rank, another one on all other ranks, and requires that all fail with
/// `code` and that the others stay good.
template <class OfLast, class OfOthers>
void expect_failure(errc code, int culprit, const OfLast& of_last, const OfOthers& of_others) {
  object_ranks<tcp_world> all(3);
  auto last = of_last(all[2]);
  std::vector<decltype(of_others(all[0]))> others;
  for (int rank = 0; rank < 2; ++rank) others.push_back(of_others(all[rank]));
  for (auto& other : others) {
    colls::failure why = all.outcome(other);
    if (why.code == errc{}) {  // a root that had nothing to receive
      auto next = all[static_cast<int>(&other - others.data())].barrier();
      why = all.outcome(next);
    }
    CAPTURE(std::string(why.detail));
    CHECK(why.code == code);
    if (culprit >= 0) CHECK(why.culprit == culprit);
  }
  CHECK(all.outcome(last).code == code);
  all.expect_spares_work(3);
}

TEST_CASE("names of all ranks, settings of one, and lists of any length") {
  colls::inproc::run(3, [](colls::inproc::communicator& world) -> colls::task<> {
    const std::string name = "rank " + std::to_string(world.rank());
    const std::vector<std::string> names = co_await colls::all_gather(world, name);
    const std::map<std::string, int> own_settings{{"epochs", 3}};
    const auto settings = co_await colls::broadcast(world, own_settings, 0);
    CHECK(names == std::vector<std::string>{"rank 0", "rank 1", "rank 2"});
    CHECK(settings.at("epochs") == 3);
    double sum = 0;
    std::vector<double> own(static_cast<std::size_t>(world.rank()), 0.5);
    const auto all = co_await world.all_gather_v(own);
    for (const double value : all.block(2)) sum += value;
    CHECK(sum == 1.0);
  });
}

TEST_CASE("an object that throws while it is written or read ends the call on all ranks") {
  const auto gather_of = [](int when) {
    return [when](auto& comm) { return colls::all_gather(comm, fragile{when}); };
  };
  expect_failure(errc::user_op_failed, 2, gather_of(fragile::written), gather_of(fragile::never));
  expect_failure(errc::user_op_failed, -1, gather_of(fragile::read), gather_of(fragile::never));
  expect_failure(errc::not_enough_memory, -1, gather_of(fragile::without_memory),
                 gather_of(fragile::never));
  const auto broadcast_of = [](int when) {
    return [when](auto& comm) { return colls::broadcast(comm, fragile{when}, 2); };
  };
  expect_failure(errc::user_op_failed, 2, broadcast_of(fragile::written), broadcast_of(0));
  const auto scatter_of = [](int when) {
    return [when](auto& comm) {
      return colls::scatter(comm, std::vector<fragile>(3, fragile{when}), 2);
    };
  };
  expect_failure(errc::user_op_failed, 2, scatter_of(fragile::written), scatter_of(0));
  const auto add = [](int, int) -> int { throw std::runtime_error("it cannot be added"); };
  const auto sum = [&](auto& comm) { return colls::all_reduce(comm, 1, add); };
  expect_failure(errc::user_op_failed, -1, sum, sum);
}

TEST_CASE(
    "a closed communicator takes no object, and is not revoked for others by one that throws") {
  object_ranks<inproc_ranks> all(2);
  auto closing = all[1].close();
  CHECK(all.outcome(closing).code == errc{});
  auto sending = colls::send(all[1], fragile{fragile::written}, 0);
  CHECK(all.outcome(sending).code == errc::closed);
  auto gathering = colls::all_gather(all[1], fragile{fragile::written});
  CHECK(all.outcome(gathering).code == errc::closed);
  CHECK(all[0].failed() == nullptr);
}

TEST_CASE("an object of which little has arrived takes little memory") {
  ::mallopt(M_PERTURB, 0);  // which MALLOC_PERTURB_ sets: malloc would write to all memory
  transport_suite::ranks<tcp_world> all(2);
  const std::size_t before = soak::resident_bytes();
  const char one = 1;
  const colls::strided_view claimed(&one, {std::size_t{1} << 30}, {0});
  auto receives = colls::recv<std::string>(all[1], 0, 5);
  {
    auto sends = all[0].send(claimed, 1, 5);
    all.poll(20);  // the receiver has the length
    CHECK(soak::resident_bytes() < before + (std::size_t{256} << 20));
  }
  CHECK(all.outcome(receives).code == errc::cancelled);
}

TEST_CASE("ranks whose objects differ in type get a mismatch") {
  const auto text = [](auto& comm) { return colls::all_gather(comm, std::string("a")); };
  expect_failure(errc::mismatch, -1, [](auto& comm) { return colls::all_gather(comm, 1); }, text);
  expect_failure(
      errc::mismatch, -1,
      [](auto& comm) { return colls::all_reduce(comm, std::string("a"), std::plus<>()); }, text);
  expect_failure(errc::mismatch, -1, [](auto& comm) { return comm.barrier(); }, text);
}

TEST_CASE("a mismatch names the types of the objects") {
  object_ranks<tcp_world> all(2);
  auto number = colls::all_gather(all[0], 1);
  auto numbers = colls::all_gather(all[1], std::vector<double>(3));
  const colls::failure reasons[] = {all.outcome(number), all.outcome(numbers)};
  for (const colls::failure& reason : reasons) {
    const std::string why = reason.detail;
    CHECK(why.find("rank 0 called all_gather of objects of type int") != std::string::npos);
    CHECK(why.find("of objects of type std::vector<double") != std::string::npos);
    CHECK(why.find("they differ in type") != std::string::npos);
  }
}

TEST_CASE("objects that are sent: failures of one message, and of the communicator") {
  object_ranks<tcp_world> all(2);
  std::vector<char> in(100);
  auto number = colls::send(all[1], 17, 0);
  auto wrong_type = colls::recv<std::string>(all[0], 1);
  colls::failure why = all.outcome(wrong_type);
  CHECK(why.code == errc::mismatch);
  CHECK(why.culprit == 1);
  CHECK(all.outcome(number).code == errc{});
  const std::vector<char> no_object(3);
  auto bytes = all[1].send(no_object, 0);
  auto of_no_object = colls::recv<std::string>(all[0], 1);
  CHECK(all.outcome(of_no_object).code == errc::mismatch);
  CHECK(all.outcome(bytes).code == errc{});
  auto refused = colls::send(all[0], 1, 2);
  CHECK(all.outcome(refused).code == errc::invalid_argument);
  auto no_tag = colls::recv<int>(all[0], 1, -1);
  CHECK(all.outcome(no_tag).code == errc::invalid_argument);
  auto fewer = colls::scatter(all[0], std::vector<int>{1}, 0);
  CHECK(all.outcome(fewer).code == errc::invalid_argument);
  auto no_root = colls::broadcast(all[0], 1, 2);
  CHECK(all.outcome(no_root).code == errc::invalid_argument);
  {
    auto dropped = colls::recv<int>(all[0], 1);
  }
  auto good = colls::send(all[1], std::string("good"), 0);
  CHECK(all.wait(colls::recv<std::string>(all[0], 1)) == "good");
  all.wait(std::move(good));

  // An object that cannot be read ends the communicator on both ranks.
  auto sent = colls::send(all[1], fragile{fragile::read}, 0);
  auto unreadable = colls::recv<fragile>(all[0], 1);
  why = all.outcome(unreadable);
  CHECK(why.code == errc::user_op_failed);
  CHECK(why.culprit == 0);
  auto barrier = all[1].barrier();
  CHECK(all.outcome(barrier).code == errc::user_op_failed);
  auto unwritable = colls::send(all.spare(0), fragile{fragile::written}, 1);
  why = all.outcome(unwritable);
  CHECK(why.code == errc::user_op_failed);
  CHECK(std::string(why.detail).find("it cannot be written") != std::string::npos);
  auto waits = colls::recv<int>(all.spare(1), 0);
  CHECK(all.outcome(waits).code == errc::user_op_failed);
}

}  // namespace
