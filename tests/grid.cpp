// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/grid.hpp>

#include <colls/inproc.hpp>
#include <colls/simulated.hpp>
#include <colls/world.hpp>

#include "support/communicators.hpp"
#include "support/driven_threads.hpp"
#include "support/inproc_ranks.hpp"
#include "support/tcp_world.hpp"
#include "transport/suite.hpp"

#include <map>
#include <string>

// Grids of ranks, and collectives between neighbours.

namespace {

using colls::axis;
using colls::errc;
using colls::failure;
using colls::neighbour_graph;

struct simulated_ranks : colls::simulated_world {
  [[maybe_unused]] static constexpr bool ranks_can_die = false;
  using simulated_world::simulated_world;
  auto communicator_of(int rank) { return colls::simulated::join(*this, rank); }
};

template <class World>
class grid_ranks : public transport_suite::ranks<World> {
 public:
  using transport_suite::ranks<World>::ranks;
  using transport_type = typename transport_suite::ranks<World>::communicator::transport_type;
  using process_mesh = colls::process_mesh<transport_type>;

  std::vector<process_mesh> meshes(const std::vector<axis>& axes) {
    std::vector<std::optional<process_mesh>> made(this->comms.size());
    std::vector<colls::task<>> tasks;
    for (std::size_t i = 0; i < made.size(); ++i) {
      tasks.push_back(make(this->comms[i], axes, made[i]));
    }
    auto together = colls::when_all(std::move(tasks));
    colls::sync_wait(this->world, together);
    std::vector<process_mesh> result;
    for (auto& each : made) result.push_back(std::move(*each));
    return result;
  }

  using communicator = typename transport_suite::ranks<World>::communicator;
  static colls::task<> outcome_of(colls::task<> work, failure& why) {
    try {
      co_await work;
    } catch (const colls::error& thrown) {
      why = thrown.record();
    }
  }
  static colls::task<> discard(communicator& comm, const std::vector<axis>& axes) {
    auto making = colls::mesh(comm, axes);
    (void)co_await making;
  }
  /// Makes a mesh on each of the first ranks, with the axes `axes[rank]`, and returns how it ended.
  std::vector<failure> outcomes(const std::vector<std::vector<axis>>& axes) {
    std::vector<failure> why(axes.size());
    std::vector<colls::task<>> tasks;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      tasks.push_back(outcome_of(discard(this->comms[i], axes[i]), why[i]));
    }
    auto together = colls::when_all(std::move(tasks));
    colls::sync_wait(this->world, together);
    return why;
  }

 private:
  static colls::task<> make(communicator& comm, const std::vector<axis>& axes,
                            std::optional<process_mesh>& made) {
    auto making = colls::mesh(comm, axes);
    made.emplace(co_await making);
  }
};

template <class World>
void meshes_have_the_communicators_of_their_lines(const std::vector<std::vector<axis>>& grids) {
  for (const std::vector<axis>& axes : grids) {
    int size = 1;
    for (const axis& each : axes) size *= each.size != 0 ? each.size : 3;
    CAPTURE(size);
    grid_ranks<World> all(size);
    auto meshes = all.meshes(axes);
    for (int rank = 0; rank < size; ++rank) {
      CAPTURE(rank);
      auto& mesh = meshes[static_cast<std::size_t>(rank)];
      int rest = rank;
      int stride = 1;
      std::vector<int> neighbours;
      for (std::size_t i = axes.size(); i-- > 0;) {
        const char* const name = axes[i].name;
        const int length = axes[i].size != 0 ? axes[i].size : 3;
        const int coordinate = rest % length;
        rest /= length;
        CHECK(mesh.coordinate(name) == coordinate);
        CHECK(mesh.size(name) == length);
        CHECK(mesh.along(name).size() == length);
        CHECK(mesh.along(name).rank() == coordinate);
        for (int other = 0; other < length; ++other) {
          const int expected = rank + (other - coordinate) * stride;
          CHECK(mesh.along(name).world_rank(other) == expected);
          CHECK(mesh.neighbour(name, other - coordinate) == expected);
        }
        CHECK(mesh.neighbour(name, -coordinate - 1) == -1);
        CHECK(mesh.neighbour(name, length - coordinate) == -1);
        CHECK(mesh.neighbour(name, INT_MAX) == -1);
        CHECK(mesh.neighbour(name, INT_MIN) == -1);
        stride *= length;
      }
      CHECK_THROWS_AS(mesh.along("none"), colls::error);
    }
    // The communicators along one axis work at the same time.
    for (const axis& each : axes) {
      std::vector<int> sums(static_cast<std::size_t>(size), 1);
      std::vector<colls::operation<>> calls;
      for (std::size_t i = 0; i < sums.size(); ++i) {
        calls.push_back(meshes[i].along(each.name).all_reduce(std::span(&sums[i], 1)));
      }
      for (auto& call : calls) CHECK(all.outcome(call).code == errc{});
      for (const int sum : sums) CHECK(sum == meshes[0].size(each.name));
    }
  }
}

TEST_CASE("a mesh has the coordinates, the neighbours and the communicators of its grid") {
  meshes_have_the_communicators_of_their_lines<inproc_ranks>(
      {{axis("all", 1)},
       {axis("all", 5)},
       {axis("data", 2), axis("pipe", 3)},
       {axis("data", 0), axis("pipe", 2)},
       {axis("x", 2), axis("y", 1), axis("z", 0)},
       {axis("x", 2), axis("y", 3), axis("z", 2)}});
  meshes_have_the_communicators_of_their_lines<driven_threads>(
      {{axis("data", 2), axis("pipe", 3)}});
  meshes_have_the_communicators_of_their_lines<simulated_ranks>({{axis("x", 0), axis("y", 2)}});
  meshes_have_the_communicators_of_their_lines<tcp_world>({{axis("data", 2), axis("pipe", 2)}});
}

TEST_CASE(
    "training on a grid: gradients are summed along one axis, layers are passed along another") {
  colls::inproc::run(6, [](colls::inproc::communicator& world) -> colls::task<> {
    std::vector<float> gradients(3, 1.0f);
    auto m = co_await colls::mesh(world, colls::axis("data", 0), colls::axis("pipe", 2));
    co_await m.along("data").all_reduce(gradients);  // the ranks that differ in "data" alone
    const int next = m.neighbour("pipe", +1);        // a rank of world, or -1
    CHECK(gradients == std::vector<float>(3, 3.0f));
    CHECK(next == (world.rank() % 2 == 0 ? world.rank() + 1 : -1));
  });
}

TEST_CASE("axes that do not fit are refused on all ranks, and the communicator stays good") {
  grid_ranks<inproc_ranks> all(6);
  const std::vector<std::vector<axis>> wrong{
      {},
      {axis("x", 4)},
      {axis("x", 7)},
      {axis("x", 0), axis("y", 4)},
      {axis("x", 0), axis("y", 7)},
      {axis("x", 0), axis("y", 0)},
      {axis("x", -2), axis("y", -3)},
      {axis("x", 2), axis("x", 3)},
      {axis("", 6)},
      {axis(nullptr, 6)},
      {axis("x", INT_MAX), axis("y", INT_MAX)},
      {axis("x", INT_MIN), axis("y", INT_MAX), axis("z", INT_MAX), axis("w", 0)}};
  for (const std::vector<axis>& axes : wrong) {
    for (int rank = 0; rank < all.size(); ++rank) {
      auto making = colls::mesh(all[rank], axes);
      CHECK(all.outcome(making).code == errc::invalid_argument);
    }
  }
  std::vector<colls::operation<>> barriers;
  for (int rank = 0; rank < all.size(); ++rank) barriers.push_back(all[rank].barrier());
  for (auto& barrier : barriers) CHECK(all.outcome(barrier).code == errc{});

  grid_ranks<inproc_ranks> alone(1);
  auto none = colls::mesh(alone[0], std::vector<axis>());
  CHECK(alone.outcome(none).code == errc::invalid_argument);
  colls::inproc::communicator empty;
  auto nowhere = colls::mesh(empty, axis("x", 1));
  CHECK(alone.outcome(nowhere).code == errc::invalid_argument);
}

TEST_CASE("ranks that pass different axes get a mismatch") {
  using axes = std::vector<axis>;
  const std::pair<axes, axes> pairs[] = {
      {{axis("x", 4)}, {axis("x", 2), axis("y", 2)}},
      {{axis("x", 4)}, {axis("x", 4), axis("y", 1)}},
      {{axis("x", 4)}, {axis("y", 4)}},
      {{axis("x", 2), axis("y", 2)}, {axis("y", 2), axis("x", 2)}},
      {{axis("x", 2), axis("y", 2)}, {axis("x", 1), axis("y", 4)}},
      {{axis("x", 1), axis("y", 1), axis("z", 4)}, {axis("x", 1), axis("y", 4), axis("z", 1)}}};
  for (const auto& [most, other] : pairs) {
    grid_ranks<tcp_world> all(4);
    for (const failure& why : all.outcomes({other, most, most, most})) {
      CHECK(why.code == errc::mismatch);
    }
    all.expect_spares_work(4);
  }
}

TEST_CASE("axes that one rank alone has wrong end the mesh of the others at its next call") {
  grid_ranks<tcp_world> all(3);
  const std::vector<axis> good{axis("x", 3)};
  const auto refused = [&]() -> colls::task<> {
    auto making = colls::mesh(all[0], axis("x", 2));
    try {
      (void)co_await making;
    } catch (const colls::error& thrown) {
      CHECK(thrown.record().code == errc::invalid_argument);
    }
    auto barrier = all[0].barrier();
    co_await barrier;
  };
  std::vector<failure> why(3);
  std::vector<colls::task<>> tasks;
  tasks.push_back(grid_ranks<tcp_world>::outcome_of(refused(), why[0]));
  for (int rank = 1; rank < 3; ++rank) {
    tasks.push_back(grid_ranks<tcp_world>::outcome_of(all.discard(all[rank], good),
                                                      why[static_cast<std::size_t>(rank)]));
  }
  auto together = colls::when_all(std::move(tasks));
  colls::sync_wait(all.world, together);
  for (const failure& each : why) CHECK(each.code == errc::mismatch);
  all.expect_spares_work(3);
}

TEST_CASE("a rank that has died ends the mesh and the exchange of the others") {
  {
    grid_ranks<tcp_world> all(3);
    all.kill(2);
    const std::vector<axis> axes{axis("x", 3)};
    for (const failure& why : all.outcomes({axes, axes})) transport_suite::expect_death_of(2, why);
  }
  {
    grid_ranks<tcp_world> all(3);
    std::vector<int> data(4);
    const std::span<int> whole(data);
    const neighbour_graph last{{2}, {2}}, none;
    auto waiting = colls::neighbour_all_gather(all[0], whole.first(1), whole.subspan(1, 1), last);
    auto alone = colls::neighbour_all_gather(all[1], whole.first(1), whole.last(0), none);
    CHECK(all.outcome(alone).code == errc{});
    all.poll(20);
    all.kill(2);
    transport_suite::expect_death_of(2, all.outcome(waiting));
  }
}

/// The sum that identifies block `block` of what rank `from` sends.
int sent(int from, std::size_t block) { return 100 * from + static_cast<int>(block); }

template <class World>
void neighbours_exchange(int size, std::size_t length,
                         const std::vector<std::pair<int, int>>& edges) {
  CAPTURE(size);
  CAPTURE(length);
  grid_ranks<World> all(size);
  std::vector<neighbour_graph> graphs(static_cast<std::size_t>(size));
  for (const auto& [from, to] : edges) {
    graphs[static_cast<std::size_t>(from)].destinations.push_back(to);
    graphs[static_cast<std::size_t>(to)].sources.push_back(from);
  }
  for (const bool blocks : {false, true}) {
    std::vector<std::vector<int>> in, out;
    std::vector<colls::operation<>> calls;
    for (int rank = 0; rank < size; ++rank) {
      const neighbour_graph& graph = graphs[static_cast<std::size_t>(rank)];
      in.emplace_back();
      for (std::size_t i = 0; i < (blocks ? graph.destinations.size() : 1); ++i) {
        in.back().insert(in.back().end(), length, sent(rank, i));
      }
      out.emplace_back(graph.sources.size() * length);
    }
    for (int rank = 0; rank < size; ++rank) {
      const auto i = static_cast<std::size_t>(rank);
      calls.push_back(blocks ? colls::neighbour_all_to_all(all[rank], in[i], out[i], graphs[i])
                             : colls::neighbour_all_gather(all[rank], in[i], out[i], graphs[i]));
    }
    for (auto& call : calls) CHECK(all.outcome(call).code == errc{});
    std::map<std::pair<int, int>, std::size_t> seen;  // of each pair of ranks, the edges so far
    for (int rank = 0; rank < size; ++rank) {
      const neighbour_graph& graph = graphs[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < graph.sources.size(); ++i) {
        const int from = graph.sources[i];
        const auto& targets = graphs[static_cast<std::size_t>(from)].destinations;
        std::size_t nth = seen[{from, rank}]++;
        std::size_t block = 0;
        while (targets[block] != rank || nth-- != 0) ++block;
        for (std::size_t k = 0; k < length; ++k) {
          REQUIRE(out[static_cast<std::size_t>(rank)][i * length + k] ==
                  sent(from, blocks ? block : 0));
        }
      }
    }
  }
}

TEST_CASE("neighbours exchange blocks: rings, stars, repeated and own edges, none at all") {
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{50'000}}) {
    neighbours_exchange<inproc_ranks>(1, length, {});
    neighbours_exchange<inproc_ranks>(1, length, {{0, 0}, {0, 0}});
    neighbours_exchange<inproc_ranks>(4, length, {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
    neighbours_exchange<inproc_ranks>(5, length, {{0, 1}, {0, 2}, {0, 1}, {2, 2}, {1, 0}, {4, 0}});
    neighbours_exchange<driven_threads>(3, length, {{0, 1}, {0, 1}, {1, 2}, {2, 2}, {2, 0}});
    neighbours_exchange<simulated_ranks>(3, length, {{0, 1}, {0, 1}, {1, 2}, {2, 2}, {2, 0}});
    neighbours_exchange<shm_world>(3, length, {{0, 1}, {0, 1}, {1, 2}, {2, 2}, {2, 0}});
    neighbours_exchange<tcp_world>(4, length, {{0, 1}, {1, 0}, {0, 1}, {2, 2}, {1, 2}, {2, 0}});
  }
}

TEST_CASE("the neighbours of a mesh are a graph") {
  grid_ranks<inproc_ranks> all(6);
  auto meshes = all.meshes({axis("x", 2), axis("y", 3)});
  CHECK(meshes[1].graph().sources == std::vector<int>{4, 0, 2});
  CHECK(meshes[5].graph().destinations == std::vector<int>{2, 4});
}

TEST_CASE("wrong arguments of neighbours are refused, blocks that differ are a mismatch") {
  grid_ranks<tcp_world> all(2);
  std::vector<int> data(8);
  const std::span<int> whole(data);
  const auto refused = [&](std::span<int> in, std::span<int> out, const neighbour_graph& graph) {
    auto gather = colls::neighbour_all_gather(all[0], in, out, graph);
    return all.outcome(gather).code;
  };
  CHECK(refused(whole.first(2), whole.last(2), {{2}, {1}}) == errc::invalid_argument);
  CHECK(refused(whole.first(2), whole.last(2), {{1}, {-1}}) == errc::invalid_argument);
  CHECK(refused(whole.first(2), whole.last(3), {{1}, {1}}) == errc::invalid_argument);
  CHECK(refused(whole.first(2), whole.first(2), {{1}, {1}}) == errc::invalid_argument);
  CHECK(refused(whole.first(3), whole.subspan(2, 3), {{1}, {1}}) == errc::invalid_argument);
  CHECK(refused(whole.first(2), whole.last(2), {{0}, {1}}) == errc::invalid_argument);
  const std::span<int> huge(data.data(), std::size_t{1} << 60);
  CHECK(refused(huge, whole.first(0), {std::vector<int>(16, 1), {}}) == errc::invalid_argument);
  auto pinned =
      colls::neighbour_all_gather(all[0], whole.first(1), whole.last(1), neighbour_graph{{1}, {1}},
                                  {.algorithm = colls::algorithm::ring});
  CHECK(all.outcome(pinned).code == errc::invalid_argument);
  auto memory = all.spare(0).allocate<int>(1);
  const auto part = all.spare(0).register_buffer(memory);
  auto foreign =
      colls::neighbour_all_gather(all[0], part, whole.last(1), neighbour_graph{{1}, {1}});
  CHECK(all.outcome(foreign).code == errc::invalid_argument);
  auto odd = colls::neighbour_all_to_all(all[0], whole.first(3), whole.last(2),
                                         neighbour_graph{{1}, {1, 1}});
  CHECK(all.outcome(odd).code == errc::invalid_argument);
  const neighbour_graph other{{1}, {1}};
  const neighbour_graph self{{1}, {1}};
  auto shorter = colls::neighbour_all_gather(all[0], whole.first(1), whole.subspan(4, 1), other);
  auto longer = colls::neighbour_all_gather(all[1], whole.subspan(1, 2), whole.subspan(5, 2), self);
  CHECK(all.outcome(longer).code == errc{});  // it does not need the other
  auto call = colls::neighbour_all_gather(all[1], whole.subspan(1, 2), whole.subspan(5, 2), self);
  auto barrier = all[0].barrier();
  CHECK(all.outcome(shorter).code == errc::mismatch);
  CHECK(all.outcome(barrier).code == errc::mismatch);
  const errc late = all.outcome(call).code;
  CHECK((late == errc::mismatch || late == errc{}));
  all.expect_spares_work(2);
}

template <class World>
void graphs_that_disagree_end(std::size_t length) {
  CAPTURE(length);
  const neighbour_graph sends{{}, {1}}, receives{{0}, {}}, none;
  const colls::options limited{.timeout = std::chrono::milliseconds(100)};
  const std::vector<int> in(length);
  std::vector<int> out(length), nothing;
  {  // nothing receives the message, so its send ends with the deadline or, if it is short, at once
    grid_ranks<World> all(2);
    auto first = colls::neighbour_all_gather(all[0], in, nothing, sends, limited);
    auto second = colls::neighbour_all_gather(all[1], in, nothing, none, limited);
    CHECK(all.outcome(second).code == errc{});
    const errc code = all.outcome(first).code;
    CHECK((code == errc::timeout || (code == errc{} && length == 1)));
    all.expect_spares_work(2);
  }
  {  // nothing sends the message
    grid_ranks<World> all(2);
    auto first = colls::neighbour_all_gather(all[0], in, nothing, none, limited);
    auto second = colls::neighbour_all_gather(all[1], in, out, receives, limited);
    CHECK(all.outcome(first).code == errc{});
    CHECK(all.outcome(second).code == errc::timeout);
    all.expect_spares_work(2);
  }
}

TEST_CASE("graphs that disagree end, at the latest with the deadline") {
  for (const std::size_t length : {std::size_t{1}, std::size_t{1'000'000}}) {
    graphs_that_disagree_end<inproc_ranks>(length);
    graphs_that_disagree_end<tcp_world>(length);
  }
}

TEST_CASE("threads exchange blocks with the neighbours of a mesh") {
  colls::threads::run(4, [](colls::threads::communicator& world) -> colls::task<> {
    auto m = co_await colls::mesh(world, axis("x", 2), axis("y", 2));
    for (int i = 0; i < 100; ++i) {
      const std::vector<int> in{world.rank() + i};
      std::vector<int> out(m.graph().sources.size());
      auto exchange = colls::neighbour_all_gather(world, in, out, m.graph());
      co_await exchange;
      std::vector<int> expected;
      for (const int source : m.graph().sources) expected.push_back(source + i);
      CHECK(out == expected);
    }
  });
}

/// The part of one rank of a field of `sizes` elements that is distributed over a grid: its
/// elements with a halo, in the order of memory `order`.
struct part_of_field {
  static constexpr int outside = -1;

  part_of_field(std::vector<int> sizes, const std::vector<int>& axes, std::vector<int> place,
                int halo_width, std::vector<int> order)
      : global_sizes(std::move(sizes)), width(halo_width) {
    std::size_t elements = 1;
    extents.resize(global_sizes.size());
    strides.resize(global_sizes.size());
    for (std::size_t i = 0; i < global_sizes.size(); ++i) {
      const colls::partition parts(static_cast<std::size_t>(global_sizes[i]), axes[i]);
      first.push_back(static_cast<int>(parts.offset(place[i])));
      extents[i] = parts.count(place[i]) + 2 * static_cast<std::size_t>(width);
    }
    for (const int dimension : order) {
      const auto i = static_cast<std::size_t>(dimension);
      strides[i] = static_cast<std::ptrdiff_t>(elements);
      elements *= extents[i];
    }
    memory.assign(elements, outside);
    for_each([&](int& element, int expected, bool is_own) {
      if (is_own) element = expected;
    });
  }

  /// Calls `use(element, expected, is_own)` for all elements. `expected` is the number of the
  /// element in the whole field, or `outside`.
  template <class Use>
  void for_each(const Use& use) {
    std::vector<std::size_t> index(extents.size());
    for (std::size_t n = 0; n < memory.size(); ++n) {
      std::size_t rest = n;
      std::ptrdiff_t offset = 0;
      int number = 0;
      bool is_inside = true;
      bool is_own = true;
      for (std::size_t i = 0; i < extents.size(); ++i) {
        const auto at = static_cast<int>(rest % extents[i]);
        rest /= extents[i];
        offset += at * strides[i];
        const int global = first[i] + at - width;
        is_inside &= global >= 0 && global < global_sizes[i];
        is_own &= at >= width && at < static_cast<int>(extents[i]) - width;
        number = number * global_sizes[i] + global;
      }
      use(memory[static_cast<std::size_t>(offset)], is_inside ? number : outside, is_own);
    }
  }
  colls::strided_view<int> view() {
    return {memory.data(), std::span<const std::size_t>(extents),
            std::span<const std::ptrdiff_t>(strides)};
  }

  std::vector<int> global_sizes;
  int width;
  std::vector<int> first;
  std::vector<std::size_t> extents;
  std::vector<std::ptrdiff_t> strides;
  std::vector<int> memory;
};

template <class World>
void halos_hold_the_neighbours_elements(const std::vector<axis>& axes,
                                        const std::vector<int>& sizes, int width,
                                        const colls::options& opts = {}) {
  int ranks = 1;
  std::vector<int> lengths;
  std::vector<int> order;
  for (const axis& each : axes) {
    ranks *= each.size;
    order.push_back(static_cast<int>(lengths.size()));
    lengths.push_back(each.size);
  }
  CAPTURE(ranks);
  CAPTURE(width);
  grid_ranks<World> all(ranks);
  auto meshes = all.meshes(axes);
  std::vector<part_of_field> parts;
  std::vector<colls::task<>> tasks;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<int> place;
    for (const axis& each : axes) {
      place.push_back(meshes[static_cast<std::size_t>(rank)].coordinate(each.name));
    }
    parts.emplace_back(sizes, lengths, place, width, order);
    std::next_permutation(order.begin(), order.end());  // another layout on each rank
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    tasks.push_back(
        colls::exchange_halo(meshes[i], parts[i].view(), static_cast<std::size_t>(width), opts));
  }
  auto together = colls::when_all(std::move(tasks));
  colls::sync_wait(all.world, together);
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    CAPTURE(rank);
    parts[rank].for_each([](int element, int expected, bool) { REQUIRE(element == expected); });
  }
}

TEST_CASE("halos hold the elements of the neighbours, at corners too") {
  for (const int width : {0, 1, 2}) {
    halos_hold_the_neighbours_elements<inproc_ranks>({axis("x", 3)}, {10}, width);
    halos_hold_the_neighbours_elements<inproc_ranks>({axis("x", 1), axis("y", 1)}, {3, 4}, width);
    halos_hold_the_neighbours_elements<inproc_ranks>({axis("x", 3), axis("y", 2)}, {10, 7}, width);
    halos_hold_the_neighbours_elements<inproc_ranks>({axis("x", 2), axis("y", 3), axis("z", 2)},
                                                     {5, 8, 4}, width, {.segment = 16});
    halos_hold_the_neighbours_elements<tcp_world>({axis("x", 2), axis("y", 2)}, {9, 8}, width);
  }
  halos_hold_the_neighbours_elements<shm_world>({axis("x", 1), axis("y", 2)}, {40'000, 7}, 3);
}

TEST_CASE("each rank of a grid exchanges the border of its part of a field") {
  colls::inproc::run(4, [](colls::inproc::communicator& world) -> colls::task<> {
    constexpr std::size_t rows = 2;
    constexpr std::size_t columns = 3;
    std::vector<int> cells((rows + 2) * (columns + 2), world.rank());

    auto grid = co_await colls::mesh(world, axis("row", 2), axis("column", 2));
    const colls::strided_view field(cells.data(), {rows + 2, columns + 2}, {columns + 2, 1});
    co_await colls::exchange_halo(grid, field, 1);

    CHECK(cells[columns + 2 + columns + 1] ==
          (world.rank() % 2 == 0 ? world.rank() + 1 : world.rank()));
    CHECK(cells.back() == (world.rank() == 0 ? 3 : cells.back()));
  });
}

TEST_CASE("fields that do not fit the grid are refused") {
  grid_ranks<inproc_ranks> all(2);
  auto meshes = all.meshes({axis("x", 2), axis("y", 1)});
  std::vector<int> cells(100);
  const colls::strided_view flat(cells);
  const colls::strided_view narrow(cells.data(), {5, 6}, {6, 1});
  const colls::strided_view overlapping(cells.data(), {9, 9}, {1, 1});
  for (const auto& [field, width] :
       {std::pair{flat, std::size_t{1}}, std::pair{narrow, std::size_t{2}},
        std::pair{narrow, SIZE_MAX}, std::pair{overlapping, std::size_t{1}}}) {
    auto exchange = colls::exchange_halo(meshes[0], field, width);
    CHECK(all.outcome(exchange).code == errc::invalid_argument);
  }
  for (auto& barrier : all.start_all([](auto& comm) { return comm.barrier(); })) {
    CHECK(all.outcome(barrier).code == errc{});
  }
}

TEST_CASE("parts that differ are a mismatch") {
  for (const std::size_t other : {std::size_t{5}, std::size_t{6}}) {
    grid_ranks<tcp_world> all(2);
    auto meshes = all.meshes({axis("x", 2), axis("y", 1)});
    std::vector<int> cells(100);
    const colls::strided_view first(cells.data(), {6, 6}, {6, 1});
    const colls::strided_view second(cells.data() + 50, {6, other}, {6, 1});
    std::vector<failure> why(2);
    std::vector<colls::task<>> tasks;
    tasks.push_back(all.outcome_of(colls::exchange_halo(meshes[0], first, 1), why[0]));
    tasks.push_back(all.outcome_of(
        colls::exchange_halo(meshes[1], second, other == 6 ? std::size_t{2} : std::size_t{1}),
        why[1]));
    auto together = colls::when_all(std::move(tasks));
    colls::sync_wait(all.world, together);
    for (const failure& each : why) CHECK(each.code == errc::mismatch);
    all.expect_spares_work(2);
  }
}

TEST_CASE("pieces that differ in number are a mismatch, although their lengths are equal") {
  transport_suite::ranks<tcp_world> all(2);
  std::vector<int> in(64), out(64);
  const neighbour_graph other[] = {{{1}, {1}}, {{0}, {0}}};
  std::vector<colls::operation<>> calls;
  for (int rank = 0; rank < 2; ++rank) {
    const std::size_t count = rank == 0 ? 32 : 16;  // two pieces, or one
    const colls::strided_view from(in.data(), {count}, {2});
    const colls::strided_view to(out.data(), {count}, {2});
    calls.push_back(colls::neighbour_all_gather(all[rank], from, to, other[rank], {.segment = 64}));
  }
  for (auto& call : calls) CHECK(all.outcome(call).code == errc::mismatch);
  all.expect_spares_work(2);
}

/// The views of the neighbours' blocks have other layouts than those of this rank.
template <class World>
void neighbours_exchange_views(std::size_t length, const colls::options& opts = {}) {
  CAPTURE(length);
  grid_ranks<World> all(3);
  const std::vector<neighbour_graph> graphs{{{2, 0, 0}, {1, 1, 0, 0}}, {{0, 0}, {2}}, {{1}, {0}}};
  const auto columns = [](std::vector<int>& memory, std::size_t n, int rank) {
    const auto step = static_cast<std::ptrdiff_t>(rank + 1);
    memory.assign(n * static_cast<std::size_t>(step) + 1, -1);
    return colls::strided_view<int>(memory.data(), {n}, {step});
  };
  for (const bool blocks : {false, true}) {
    std::vector<std::vector<int>> in(3), out(3);
    std::vector<colls::operation<>> calls;
    for (int rank = 0; rank < 3; ++rank) {
      const auto i = static_cast<std::size_t>(rank);
      const std::size_t sends = blocks ? graphs[i].destinations.size() : 1;
      const auto from = columns(in[i], sends * length, rank);
      for (std::size_t k = 0; k < sends * length; ++k) {
        in[i][k * (i + 1)] = sent(rank, k / (length != 0 ? length : 1));
      }
      const auto to = columns(out[i], graphs[i].sources.size() * length, 2 - rank);
      calls.push_back(blocks ? colls::neighbour_all_to_all(all[rank], from, to, graphs[i], opts)
                             : colls::neighbour_all_gather(all[rank], from, to, graphs[i], opts));
    }
    for (auto& call : calls) CHECK(all.outcome(call).code == errc{});
    const std::vector<std::vector<int>> expected{
        blocks ? std::vector{sent(2, 0), sent(0, 2), sent(0, 3)}
               : std::vector{sent(2, 0), sent(0, 0), sent(0, 0)},
        blocks ? std::vector{sent(0, 0), sent(0, 1)} : std::vector{sent(0, 0), sent(0, 0)},
        {sent(1, 0)}};
    for (std::size_t rank = 0; rank < 3; ++rank) {
      for (std::size_t k = 0; k < expected[rank].size() * length; ++k) {
        REQUIRE(out[rank][k * (3 - rank)] == expected[rank][k / length]);
      }
    }
  }
}

TEST_CASE("neighbours exchange views") {
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{100}}) {
    neighbours_exchange_views<inproc_ranks>(length, {.segment = 64});
  }
  neighbours_exchange_views<tcp_world>(100'000);
}

TEST_CASE("very many edges between two ranks exchange views") {
  communicators all(2);
  constexpr std::size_t edges = 40'000;
  std::vector<int> in(2), out[2] = {std::vector<int>(2 * edges), std::vector<int>(2 * edges)};
  std::vector<colls::operation<>> calls;
  in[0] = 7;
  const neighbour_graph graphs[] = {{std::vector<int>(edges, 1), std::vector<int>(edges, 1)},
                                    {std::vector<int>(edges, 0), std::vector<int>(edges, 0)}};
  const colls::strided_view from(in.data(), {1}, {2});
  for (int rank = 0; rank < 2; ++rank) {
    const colls::strided_view to(out[rank].data(), {edges}, {2});
    calls.push_back(colls::neighbour_all_gather(all[rank], from, to, graphs[rank]));
  }
  for (auto& call : calls) all.wait(call);
  CHECK(out[1][2 * edges - 2] == 7);
}

}  // namespace
