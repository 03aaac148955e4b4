// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/ddp/bucket_plan.hpp>

#include <doctest/doctest.h>

#include <vector>

namespace {

using colls::ddp::bucket_plan;
using sizes = std::vector<std::size_t>;

std::vector<sizes> members(const bucket_plan& plan) {
  std::vector<sizes> all;
  for (const auto& bucket : plan.buckets()) all.push_back(bucket.parameters);
  return all;
}

TEST_CASE("a bucket is full once it has reached its cap; the first one has a cap of its own") {
  const sizes counts{4, 3, 5, 2, 1, 9, 1};
  const bucket_plan plan(counts, bucket_plan::reverse_order(counts.size()), 2, 6);
  CHECK(members(plan) == std::vector<sizes>{{6, 5}, {4, 3, 2}, {1, 0}});
  CHECK(plan.buckets()[0].elements == 10);
  CHECK(plan.buckets()[1].elements == 8);
  CHECK(plan.buckets()[2].elements == 7);
}

TEST_CASE("gradients lie one after the other in the order of their bucket") {
  const sizes counts{4, 3, 5, 2};
  const bucket_plan plan(counts, {2, 0, 3, 1}, 5, 6);
  CHECK(members(plan) == std::vector<sizes>{{2}, {0, 3}, {1}});
  CHECK(plan[2].bucket == 0);
  CHECK(plan[2].offset == 0);
  CHECK(plan[0].bucket == 1);
  CHECK(plan[0].offset == 0);
  CHECK(plan[3].bucket == 1);
  CHECK(plan[3].offset == 4);
  CHECK(plan[1].bucket == 2);
  CHECK(plan.order() == sizes{2, 0, 3, 1});
}

TEST_CASE("there are no empty buckets, and parameters without elements have a location") {
  CHECK(bucket_plan({}, {}, 1, 1).buckets().empty());
  const sizes counts{0, 3, 0};
  const bucket_plan plan(counts, {0, 1, 2}, 3, 3);
  CHECK(members(plan) == std::vector<sizes>{{0, 1}, {2}});
  CHECK(plan.buckets()[1].elements == 0);
  // With a cap of 0 every parameter has a bucket of its own.
  CHECK(members(bucket_plan(counts, {2, 1, 0}, 0, 0)) == std::vector<sizes>{{2}, {1}, {0}});
}

TEST_CASE("the guess is the reverse of the order in which parameters were registered") {
  CHECK(bucket_plan::reverse_order(4) == sizes{3, 2, 1, 0});
  CHECK(bucket_plan::reverse_order(0).empty());
}

TEST_CASE("an order that does not name every parameter once is refused") {
  const sizes counts{1, 1, 1};
  for (const sizes& order : {sizes{0, 1}, sizes{0, 1, 1}, sizes{0, 1, 3}, sizes{0, 1, 2, 2}}) {
    CHECK_THROWS_AS(bucket_plan(counts, order, 1, 1), colls::error);
  }
}

}  // namespace
