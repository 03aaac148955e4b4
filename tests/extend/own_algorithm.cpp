// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Tests algorithms of the user's own: the star of docs/adding_an_algorithm.md on every transport,
// and what the library promises about any such algorithm.

#include <colls/simulated.hpp>
#include <colls/transport/threads/thread_transport.hpp>

#include "../conformance/movements.hpp"
#include "../conformance/reductions.hpp"
#include "../support/communicators.hpp"
#include "../support/tcp_world.hpp"
#include "star.hpp"

namespace {

using colls::collective;
using colls::errc;

/// The cost of the star in closed form.
std::optional<closed_forms::cost> star_cost(const closed_forms::call& query) {
  const auto others = static_cast<std::uint64_t>(query.ranks() - 1);
  return closed_forms::cost{2 * others, 2 * others * query.bytes(), others > 0 ? 2U : 0U};
}

template <class World>
void star_conforms() {
  using channel = typename conformance::team<World>::channel;
  const std::array rows{colls::detail::entry_of<my::star, channel>};
  conformance::reductions<World>::all_reduce(rows, star_cost);
}

TEST_CASE("the star conforms over inproc") { star_conforms<colls::inproc_world>(); }
TEST_CASE("the star conforms over sockets") { star_conforms<tcp_world>(); }
TEST_CASE("the star conforms over shared memory") { star_conforms<shm_world>(); }

TEST_CASE("on a simulated network the star costs what its closed form says") {
  for (int p = 1; p <= 65; ++p) {
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{100'000}}) {
      CAPTURE(p);
      CAPTURE(n);
      colls::simulated_world::settings settings;
      settings.phantom = true;
      colls::simulated_world world(p, settings);
      std::vector<colls::simulated::communicator> comms;
      for (int rank = 0; rank < p; ++rank) comms.push_back(colls::simulated::join(world, rank));
      world.run_until([&] { return world.is_quiescent(); });
      world.reset_counters();
      std::vector<std::vector<float>> data(comms.size(), std::vector<float>(n));
      std::vector<colls::operation<>> sums;
      for (std::size_t rank = 0; rank < comms.size(); ++rank) {
        sums.push_back(comms[rank].all_reduce<my::star>(data[rank]));
      }
      while (world.poll()) {
      }
      for (auto& sum : sums) REQUIRE(sum.underlying_call().is_done());
      const auto want = star_cost({colls::partition(n, p), sizeof(float)});
      CHECK(world.messages() == want->messages);
      CHECK(world.bytes() == want->bytes);
      CHECK(world.rounds() == want->rounds);
    }
  }
}

/// Rank r's input: r + 1 in each element.
std::vector<std::vector<int>> inputs(int ranks, std::size_t n) {
  std::vector<std::vector<int>> all;
  for (int rank = 0; rank < ranks; ++rank) all.emplace_back(n, rank + 1);
  return all;
}

TEST_CASE("a communicator runs the star beside the algorithms of colls") {
  communicators all(5);
  for (const std::size_t n : {std::size_t{0}, std::size_t{7}, std::size_t{50'000}}) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      auto data = inputs(5, n);
      std::vector<std::vector<int>> out(5, std::vector<int>(n));
      const auto in = [&](colls::inproc::communicator& comm) -> auto& {
        return data[static_cast<std::size_t>(comm.rank())];
      };
      all.all([&](auto& comm) {
        return comm.template all_reduce<my::star>(in(comm),
                                                  out[static_cast<std::size_t>(comm.rank())]);
      });
      CHECK(out == std::vector(5, std::vector<int>(n, 15)));
      all.all([&](auto& comm) { return comm.all_reduce(in(comm)); });
      CHECK(data == out);
      all.all([&](auto& comm) { return comm.template all_reduce<my::star>(in(comm)); });
      CHECK(data == std::vector(5, std::vector<int>(n, 75)));
      std::vector<std::vector<int>> more(5, std::vector<int>(3, 1));
      all.all([&](auto& comm) {
        return comm.template all_reduce<my::star>(
            colls::group(in(comm), more[static_cast<std::size_t>(comm.rank())]), colls::maximum{});
      });
      CHECK(more == std::vector(5, std::vector<int>(3, 1)));
    }
  }
  all.check_good();
}

TEST_CASE("the star is priced, never chosen, and has no name among the options") {
  communicators all(4);
  const colls::explanation price = all[1].explain<my::star>(8000);
  REQUIRE(price.predictions.size() == 1);
  CHECK(price.predictions[0].cost.messages == 6);
  CHECK(price.predictions[0].cost.bytes == 6 * 8000);
  CHECK(price.predictions[0].cost.time > 0);
  CHECK(to_text(price).find("all_reduce of 8000 B over 4 ranks: star\n  star ") == 0);
  for (std::uint64_t bytes = 8; bytes < 1 << 24; bytes *= 8) {
    const colls::explanation choice = all[0].explain(collective::all_reduce, bytes);
    CHECK(choice.chosen.id != colls::algorithm::custom);
  }
  CHECK(!colls::algorithm_of("star"));
  CHECK(!colls::algorithm_of("custom"));
  std::vector<int> data(4);
  auto refused = all[0].all_reduce(data, {.algorithm = colls::algorithm::custom});
  const colls::failure why = failure_of(all, refused);
  CHECK(why.code == errc::not_applicable);
  CHECK(std::string(why.detail).find("template argument") != std::string::npos);
  all.check_good();
}

/// A star of another name.
struct sun_algorithm : my::star_algorithm {
  static constexpr const char* name = "sun";
};
inline constexpr sun_algorithm sun;

/// A second algorithm of the name "star", which does nothing.
struct idle_algorithm : my::star_algorithm {
  template <colls::channel Channel>
  static colls::task<> run(Channel net, colls::any_buffer in, colls::any_buffer out,
                           colls::any_op) {
    net.copy(bytes(out), bytes(in));
    co_return;
  }
};
inline constexpr idle_algorithm idle;

/// An algorithm that sums in an order of its own.
struct unordered_algorithm : my::star_algorithm {
  static constexpr const char* name = "unordered";
  static constexpr colls::order reduction_order = colls::order::any;
};
inline constexpr unordered_algorithm unordered;

TEST_CASE("ranks that pin algorithms of different names get a mismatch that names both") {
  communicators all(3);
  auto data = inputs(3, 4);
  std::vector<colls::operation<>> sums;
  sums.push_back(all[0].all_reduce<my::star>(data[0]));
  sums.push_back(all[1].all_reduce<sun>(data[1]));
  sums.push_back(all[2].all_reduce<my::star>(data[2]));
  for (auto& sum : sums) {
    const colls::failure why = failure_of(all, sum);
    CAPTURE(std::string(why.detail));
    CHECK(why.code == errc::mismatch);
    CHECK(std::string(why.detail).find("star") != std::string::npos);
    CHECK(std::string(why.detail).find("sun") != std::string::npos);
    CHECK(std::string(why.detail).find("algorithm") != std::string::npos);
  }
}

TEST_CASE("a rank that pins its own algorithm does not match one that pins an algorithm of colls") {
  communicators all(2);
  auto data = inputs(2, 4);
  auto one = all[0].all_reduce<my::star>(data[0]);
  auto other = all[1].all_reduce<colls::algorithm::linear>(data[1]);
  for (auto* const sum : {&one, &other}) {
    const colls::failure why = failure_of(all, *sum);
    CHECK(why.code == errc::mismatch);
    CHECK(std::string(why.detail).find("star") != std::string::npos);
    CHECK(std::string(why.detail).find("linear") != std::string::npos);
  }
}

/// An all_gather of the user's own.
struct gather_algorithm : colls::collective_algorithm<collective::all_gather> {
  static constexpr const char* name = "own_gather";

  template <colls::channel Channel>
  static colls::task<> run(Channel net, colls::any_buffer in, colls::any_buffer out,
                           colls::partition parts) {
    return colls::linear::all_gather.run(net, in, out, parts);
  }
  static constexpr auto cost(const colls::loggp_model& model, const colls::algorithm_choice&) {
    return model.mesh(model.chunk_bytes());
  }
};
inline constexpr gather_algorithm own_gather;

TEST_CASE("an all_gather of the user's own conforms") {
  using moves = conformance::movements<colls::inproc_world>;
  const std::array rows{colls::detail::entry_of<own_gather, moves::channel>};
  moves::all_gather(rows, [](const closed_forms::call& query) {
    const auto others = static_cast<std::uint64_t>(query.ranks() - 1);
    const auto ranks = static_cast<std::uint64_t>(query.ranks());
    return std::optional(
        closed_forms::cost{ranks * others, others * query.bytes(), others > 0 ? 1U : 0U});
  });
}

TEST_CASE("of equal names and different counts only the counts are reported") {
  communicators all(2);
  std::vector<int> in(2);
  std::vector<int> out(3);
  auto one = all[0].all_gather_v<own_gather>(in, out, std::vector{2, 1});
  auto other = all[1].all_gather_v<own_gather>(in, out, std::vector{1, 2});
  for (auto* const call : {&one, &other}) {
    const colls::failure why = failure_of(all, *call);
    CAPTURE(std::string(why.detail));
    CHECK(why.code == errc::mismatch);
    CHECK(std::string(why.detail).find("own_gather") != std::string::npos);
    CHECK(std::string(why.detail).find("they differ in count") != std::string::npos);
    CHECK(std::string(why.detail).find("unknown") == std::string::npos);
  }
}

TEST_CASE("two algorithms of one name in one program are not taken for each other") {
  communicators all(3);
  for (int repeat = 0; repeat < 3; ++repeat) {
    auto data = inputs(3, 4);
    const auto own = [&](auto& comm) -> auto& {
      return data[static_cast<std::size_t>(comm.rank())];
    };
    all.all([&](auto& comm) { return comm.template all_reduce<my::star>(own(comm)); });
    CHECK(data == std::vector(3, std::vector<int>(4, 6)));
    data = inputs(3, 4);
    all.all([&](auto& comm) { return comm.template all_reduce<idle>(own(comm)); });
    CHECK(data == inputs(3, 4));
  }
}

TEST_CASE("an algorithm of the user's own is refused where it does not keep the order") {
  communicators all(2);
  std::vector<float> data(4);
  auto refused = all[0].all_reduce<unordered>(data, {.order = colls::order::rank});
  const colls::failure why = failure_of(all, refused);
  CHECK(why.code == errc::not_applicable);
  CHECK(std::string(why.detail).find("unordered") != std::string::npos);
  std::vector<float> other(4);
  auto one = all[0].all_reduce<my::star>(data, {.order = colls::order::rank});
  auto two = all[1].all_reduce<my::star>(other, {.order = colls::order::rank});
  all.wait(one);
  all.wait(two);
}

}  // namespace
