// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/base/node_map.hpp>

#include <doctest/doctest.h>

using colls::node_map;

TEST_CASE("ranks are counted by host, in the order of their ranks") {
  const int hosts[] = {7, 3, 7, 7, 3, 0};
  const node_map map(6, [&](int rank) { return hosts[rank]; });
  CHECK(map.nodes() == 3);
  CHECK(map.min_node_size() == 1);
  CHECK(map.max_node_size() == 3);
  const int ranks_of[] = {3, 2, 1};
  const int first[] = {0, 1, 5};
  for (int node = 0; node < 3; ++node) {
    CAPTURE(node);
    CHECK(map.node_size(node) == ranks_of[node]);
    CHECK(map.node_ranks(node)[0] == first[node]);
    CHECK(map.ranks_with_local_rank(0)[node] == first[node]);
  }
  CHECK(map.node_ranks(0)[1] == 2);
  CHECK(map.node_ranks(0)[2] == 3);
  CHECK(map.node_ranks(1)[1] == 4);
  CHECK((map.position_of(3).node == 0 && map.position_of(3).local_rank == 2));
  CHECK((map.position_of(5).node == 2 && map.position_of(5).local_rank == 0));
}

TEST_CASE("on equal nodes every rank has a counterpart on each node") {
  const node_map map(12, [](int rank) { return rank % 4; });
  CHECK(map.nodes() == 4);
  CHECK(map.min_node_size() == 3);
  CHECK(map.max_node_size() == 3);
  for (int local = 0; local < 3; ++local) {
    for (int node = 0; node < 4; ++node) {
      CHECK(map.ranks_with_local_rank(local)[node] == 4 * local + node);
    }
  }
}

TEST_CASE("a single rank is one node") {
  const node_map map(1, [](int) { return 5; });
  CHECK(map.nodes() == 1);
  CHECK(map.node_size(0) == 1);
  CHECK(map.ranks_with_local_rank(0)[0] == 0);
}
