// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/base/fingerprint.hpp>

#include "../support/communicators.hpp"

#include <chrono>
#include <functional>

// Calls that differ between ranks fail on all of them, and the errors name both sides.

namespace {

using colls::algorithm;
using colls::errc;
using colls::fingerprint;
using colls::operation;
using colls::options;
using colls::inproc::communicator;

TEST_CASE("every field of a fingerprint changes its hash and is named") {
  using field = std::pair<const char*, void (*)(fingerprint&)>;
  const field fields[] = {
      {"collective", [](fingerprint& f) { f.operation = colls::collective::scan; }},
      {"count", [](fingerprint& f) { f.count = 4; }},
      {"count", [](fingerprint& f) { f.shape = 9; }},
      {"type", [](fingerprint& f) { f.type = colls::type_id<double>(); }},
      {"type", [](fingerprint& f) { f.element_size = 8; }},
      {"op", [](fingerprint& f) { f.op = colls::op_id(colls::maximum{}); }},
      {"root", [](fingerprint& f) { f.root = 1; }},
      {"algorithm", [](fingerprint& f) { f.algorithm = algorithm::ring; }},
      {"accumulate type", [](fingerprint& f) { f.accumulate = 7; }},
      {"accumulate type", [](fingerprint& f) { f.wire = colls::wire::storage; }},
      {"segment", [](fingerprint& f) { f.segment = 64; }},
      {"segment", [](fingerprint& f) { f.lanes = 2; }},
      {"radix", [](fingerprint& f) { f.radix = 3; }},
      {"order", [](fingerprint& f) { f.order = colls::order::rank; }},
  };
  fingerprint one;
  one.operation = colls::collective::all_reduce;
  one.type = colls::type_id<float>();
  one.element_size = 4;
  one.count = 3;
  one.op = colls::op_id(colls::plus{});
  CHECK(hash_of(one) == hash_of(fingerprint(one)));
  CHECK(hash_of(fingerprint()) != 0);
  for (const auto& [name, change] : fields) {
    CAPTURE(std::string(name));
    fingerprint other = one;
    change(other);
    CHECK_FALSE(other == one);
    CHECK(hash_of(other) != hash_of(one));
    colls::failure why;
    colls::detail::describe_mismatch(why, 2, one, 5, other);
    CHECK(says(why, "rank 2 called all_reduce of 3 x float, plus, rank 5 called "));
    CHECK(says(why, std::string("; they differ in ") + name));
  }
}

struct small {
  int x;
};
struct pair {
  int x, y;
};
struct named_op {
  static constexpr const char* name = "mine";
  int operator()(int a, int b) const { return a + b; }
};

std::vector<int> ints(100);
std::vector<int> more(100);
std::vector<int> wide(300);
std::vector<float> floats(100);
std::vector<small> smalls(50);
std::vector<pair> pairs(50);
const std::vector<int> counts[] = {{10, 20, 70}, {10, 30, 60}};
std::vector<int> ten(10), twenty(20), thirty(30);

using call_function = std::function<operation<>(communicator&)>;
struct mismatch {
  const char* difference;
  call_function odd;     // the call of one rank
  call_function others;  // the call of the other ranks
};

const mismatch matrix[] = {
    {"count", [](auto& c) { return c.all_reduce(std::span(ints).first(99)); },
     [](auto& c) { return c.all_reduce(ints); }},
    {"count", [](auto& c) { return c.broadcast(std::span(ints).first(9), 0); },
     [](auto& c) { return c.broadcast(ints, 0); }},
    {"count",
     [](auto& c) { return c.all_gather(std::span(ints).first(50), std::span(wide).first(150)); },
     [](auto& c) { return c.all_gather(ints, wide); }},
    {"count",
     [](auto& c) {
       return c.all_gather_v(c.rank() == 0   ? ten
                             : c.rank() == 1 ? thirty
                                             : std::span(ints).first(60),
                             more, counts[1]);
     },
     [](auto& c) {
       return c.all_gather_v(c.rank() == 0   ? std::span(ten)
                             : c.rank() == 1 ? std::span(twenty)
                                             : std::span(ints).first(70),
                             more, counts[0]);
     }},
    {"count", [](auto& c) { return c.all_reduce(colls::group{ten, twenty}); },
     [](auto& c) { return c.all_reduce(colls::group{twenty, ten}); }},
    {"collective", [](auto& c) { return c.barrier(); }, [](auto& c) { return c.all_reduce(ints); }},
    {"collective", [](auto& c) { return c.exscan(ints); }, [](auto& c) { return c.scan(ints); }},
    {"type", [](auto& c) { return c.all_reduce(floats); },
     [](auto& c) { return c.all_reduce(ints); }},
    {"type", [](auto& c) { return c.broadcast(smalls, 0); },
     [](auto& c) { return c.broadcast(pairs, 0); }},
    {"collective",
     [](auto& c) { return c.all_to_all(std::span(ints).first(99), std::span(ints).first(99)); },
     [](auto& c) { return c.all_reduce(floats, colls::maximum{}, {.segment = 64}); }},
    {"op", [](auto& c) { return c.all_reduce(ints, colls::maximum{}); },
     [](auto& c) { return c.all_reduce(ints); }},
    {"op", [](auto& c) { return c.all_reduce(ints, named_op{}); },
     [](auto& c) { return c.all_reduce(ints, [](int a, int b) { return a + b; }); }},
    {"root", [](auto& c) { return c.broadcast(ints, 2); },
     [](auto& c) { return c.broadcast(ints, 0); }},
    {"root", [](auto& c) { return c.reduce(ints, 1); }, [](auto& c) { return c.reduce(ints, 0); }},
    {"root", [](auto& c) { return c.gather(ints, wide, 1); },
     [](auto& c) { return c.gather(ints, wide, 2); }},
    {"root", [](auto& c) { return c.scatter(wide, ints, 2); },
     [](auto& c) { return c.scatter(wide, ints, 1); }},
    {"algorithm", [](auto& c) { return c.all_reduce(ints, {.algorithm = algorithm::ring}); },
     [](auto& c) { return c.all_reduce(ints, {.algorithm = algorithm::recursive_doubling}); }},
    {"algorithm", [](auto& c) { return c.barrier({.algorithm = algorithm::linear}); },
     [](auto& c) { return c.barrier({.algorithm = algorithm::dissemination}); }},
    {"segment", [](auto& c) { return c.all_reduce(ints, {.segment = 64}); },
     [](auto& c) { return c.all_reduce(ints, {.segment = 128}); }},
    {"radix",
     [](auto& c) { return c.barrier({.algorithm = algorithm::dissemination, .radix = 2}); },
     [](auto& c) { return c.barrier({.algorithm = algorithm::dissemination, .radix = 3}); }},
    {"order", [](auto& c) { return c.all_reduce(ints, {.algorithm = algorithm::linear}); },
     [](auto& c) {
       return c.all_reduce(ints, {.algorithm = algorithm::linear, .order = colls::order::rank});
     }},
};

/// The failure of a rank's call, or of its next call if this one had completed before.
colls::failure call_or_next_failure(communicators& all, int rank, operation<>& called) {
  const colls::failure why = failure_of(all, called);
  if (why.code != errc{}) return why;
  operation<> later = all[rank].barrier();
  return failure_of(all, later);
}

TEST_CASE("every difference is a mismatch on all ranks and names both sides") {
  for (const mismatch& each : matrix) {
    CAPTURE(std::string(each.difference));
    for (int odd = 0; odd < 3; ++odd) {
      CAPTURE(odd);
      // The odd rank calls first, in rank order, or last.
      for (const int position : {-1, 0, 3}) {
        CAPTURE(position);
        communicators all(3);
        std::vector<std::unique_ptr<operation<>>> kept(3);
        const auto call = [&](int rank) {
          const auto& start = rank == odd ? each.odd : each.others;
          kept[static_cast<std::size_t>(rank)] = std::make_unique<operation<>>(start(all[rank]));
        };
        if (position == -1) call(odd);
        for (int rank = 0; rank < 3; ++rank) {
          if (rank != odd || position == 0) call(rank);
        }
        if (position == 3) call(odd);
        std::string sentence;
        for (int rank = 0; rank < 3; ++rank) {
          CAPTURE(rank);
          const colls::failure why =
              call_or_next_failure(all, rank, *kept[static_cast<std::size_t>(rank)]);
          CAPTURE(std::string(why.detail));
          CHECK(why.code == errc::mismatch);
          CHECK(why.observer == rank);
          CHECK(says(why, "rank " + std::to_string(odd) + " called "));
          CHECK(says(why, std::string("; they differ in ") + each.difference));
          // The failure of a later call begins with the call in which the difference was found.
          const std::string detail = why.detail;
          const std::string same = detail.substr(detail.find("rank "));
          if (sentence.empty()) sentence = same;
          CHECK(sentence == same);
        }
      }
    }
  }
}

TEST_CASE("two calls in another order, and one that is left out") {
  for (const bool left_out : {false, true}) {
    communicators all(2);
    std::vector<int> data(10);
    std::vector<operation<>> kept;
    kept.push_back(all[0].all_reduce(ints));
    kept.push_back(all[0].broadcast(more, 0));
    kept.push_back(all[1].broadcast(data, 0));
    if (!left_out) kept.push_back(all[1].all_reduce(ints));
    for (auto& each : kept) {
      const colls::failure why = failure_of(all, each);
      CHECK(why.code == errc::mismatch);
      CHECK(says(why, "rank 0 called all_reduce of 100"));
      CHECK(says(why, "rank 1 called broadcast of 10"));
    }
  }
}

TEST_CASE("two ranks that both only receive announce themselves") {
  communicators all(2);
  const colls::time_point began = all.world().now();
  operation<> zero = all[0].broadcast(ints, 1);
  operation<> one = all[1].broadcast(more, 0);
  const colls::failure why = failure_of(all, zero);
  CHECK(why.code == errc::mismatch);
  CHECK(says(why, "root 1"));
  CHECK(says(why, "root 0"));
  CHECK(failure_of(all, one).code == errc::mismatch);
  const colls::time_point took = all.world().now() - began;
  CHECK(took > 90 * colls::milliseconds);
}

/// Drives the world for a while.
void poll_for(communicators& all, colls::time_point time) {
  const colls::time_point until = all.world().now() + time;
  while (all.world().now() < until) {
    if (!all.world().poll()) all.world().idle(1);
  }
}

TEST_CASE(
    "a mismatch of a late rank is found, also if the rank waits for another rank than the first") {
  communicators all(3);
  const options opts{.algorithm = algorithm::linear, .timeout = std::chrono::seconds(20)};
  operation<> two =
      all[2].reduce(ints, 2, opts);  // announces itself to rank 0, which has not called
  poll_for(all, 150 * colls::milliseconds);
  operation<> zero = all[0].reduce(more, 0, opts);  // announces itself to rank 1
  poll_for(all, 150 * colls::milliseconds);
  const operation<> one = all[1].reduce(ints, 0, opts);
  CHECK(failure_of(all, zero).code == errc::mismatch);
  CHECK(failure_of(all, two).code == errc::mismatch);
}

TEST_CASE("a call that had to wait for its turn announces itself too") {
  communicators all(2);
  std::vector<operation<>> kept;
  std::vector<int> small(1);
  // These are more calls than run at once, and the first ones wait longer than the time after which
  // a call is announced.
  for (int i = 0; i < 100; ++i) kept.push_back(all[0].broadcast(small, 1));
  kept.push_back(all[0].broadcast(ints, 1));
  poll_for(all, 150 * colls::milliseconds);
  std::vector<int> other(1);
  for (int i = 0; i < 100; ++i) kept.push_back(all[1].broadcast(other, 1));
  kept.push_back(all[1].broadcast(more, 0));
  int failed = 0;
  for (auto& each : kept) {
    const errc got = failure_of(all, each).code;
    CHECK((got == errc{} || got == errc::mismatch));
    failed += got == errc::mismatch ? 1 : 0;
  }
  CHECK(failed == 2);
}

TEST_CASE("counts that differ between two ranks of all_to_all_v are found at their message") {
  communicators all(3);
  std::vector<operation<>> kept;
  const std::vector<int> equal{10, 10, 10};
  const std::vector<int> odd{9, 10, 10};
  kept.push_back(all[0].all_to_all_v(thirty, equal, std::span(ints).first(30), equal));
  kept.push_back(all[1].all_to_all_v(thirty, equal, std::span(more).first(30), equal));
  kept.push_back(all[2].all_to_all_v(thirty, equal, std::span(wide).first(29), odd));
  for (auto& each : kept) {
    const colls::failure why = failure_of(all, each);
    if (why.code != errc{}) CHECK(why.code == errc::mismatch);
  }
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(all[rank].failed() != nullptr);
    CHECK(std::string(all[rank].failed()->detail) ==
          "rank 0 sent 40 bytes where rank 2 expects 36");
  }
}

TEST_CASE("an error stays in its communicator") {
  communicators all(2);
  std::vector<operation<communicator>> dups;
  for (int rank = 0; rank < 2; ++rank) dups.push_back(all[rank].dup());
  communicator zero = all.wait(dups[0]);
  communicator one = all.wait(dups[1]);
  operation<> first = zero.all_reduce(ints);
  operation<> second = one.all_reduce(floats);
  CHECK(failure_of(all, first).code == errc::mismatch);
  CHECK(failure_of(all, second).code == errc::mismatch);
  all.check_good();
}

}  // namespace

TEST_CASE("lengths that differ in an all_to_all_v by bruck end all ranks") {
  communicators all(3);
  std::vector<std::unique_ptr<operation<>>> kept(3);
  std::vector<std::vector<int>> in(3), out(3);
  for (int rank = 0; rank < 3; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    // Rank 0 sends three elements more than rank 2 expects.
    const std::vector<std::size_t> sends{10, 10, std::size_t{rank == 0 ? 13u : 10u}};
    const std::vector<std::size_t> receives{10, 10, 10};
    in[r].resize(rank == 0 ? 33 : 30, rank);
    out[r].resize(30);
    kept[r] = std::make_unique<operation<>>(
        all[rank].all_to_all_v(in[r], sends, out[r], receives, {.algorithm = algorithm::bruck}));
  }
  for (int rank = 0; rank < 3; ++rank) {
    CAPTURE(rank);
    const colls::failure why =
        call_or_next_failure(all, rank, *kept[static_cast<std::size_t>(rank)]);
    CHECK(why.code == errc::mismatch);
    CHECK(says(why, "rank 0 sends 52 bytes, rank 2 expects 40 of it"));
  }
}
