// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/base/intrusive_list.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace {

struct element {
  int number = 0;
  colls::list_links<element> links;
  colls::list_links<element> others;
};
using list = colls::intrusive_list<element, &element::links>;
using other_list = colls::intrusive_list<element, &element::others>;

template <class List>
std::vector<int> numbers(const List& all) {
  std::vector<int> result;
  for (const element* each = all.front(); each != nullptr; each = List::next(*each)) {
    result.push_back(each->number);
  }
  std::vector<int> visited;
  all.for_each([&](const element& each) { visited.push_back(each.number); });
  CHECK(visited == result);
  return result;
}

TEST_CASE("an element is inserted before another one, or at the end") {
  std::vector<element> elements(4);
  for (element& each : elements) each.number = static_cast<int>(&each - elements.data());
  list all;
  all.insert_before(nullptr, elements[2]);
  all.insert_before(&elements[2], elements[0]);
  all.insert_before(&elements[2], elements[1]);
  all.insert_before(nullptr, elements[3]);
  CHECK(numbers(all) == std::vector<int>{0, 1, 2, 3});
  all.remove(elements[1]);
  all.remove(elements[0]);
  all.insert_before(&elements[2], elements[1]);
  CHECK(numbers(all) == std::vector<int>{1, 2, 3});
}

struct pushed {
  int number = 0;
  pushed* next = nullptr;
};

TEST_CASE("a list to which threads have pushed is reversed") {
  CHECK(colls::reversed<pushed, &pushed::next>(nullptr) == nullptr);
  pushed all[3];
  for (int i = 0; i < 3; ++i) {
    all[i].number = i;
    all[i].next = i > 0 ? &all[i - 1] : nullptr;
  }
  std::vector<int> order;
  for (const pushed* each = colls::reversed<pushed, &pushed::next>(&all[2]); each != nullptr;) {
    order.push_back(each->number);
    each = each->next;
  }
  CHECK(order == std::vector<int>{0, 1, 2});
}

}  // namespace

TEST_CASE("a list keeps the order of random insertions and removals") {
  std::vector<element> elements(20);
  for (int i = 0; i < 20; ++i) elements[static_cast<std::size_t>(i)].number = i;
  std::mt19937 random(1);
  list all;
  other_list reversed;
  std::vector<int> model;
  for (int step = 0; step < 5000; ++step) {
    element& each = elements[random() % elements.size()];
    const auto found = std::find(model.begin(), model.end(), each.number);
    if (found != model.end()) {
      model.erase(found);
      all.remove(each);
      reversed.remove(each);
    } else if (random() % 2 == 0) {
      model.push_back(each.number);
      all.push_back(each);
      reversed.push_front(each);
    } else {
      model.insert(model.begin(), each.number);
      all.push_front(each);
      reversed.push_back(each);
    }
    CHECK(all.empty() == model.empty());
    REQUIRE(numbers(all) == model);
    REQUIRE(numbers(reversed) == std::vector<int>(model.rbegin(), model.rend()));
  }
}

TEST_CASE("a visit may remove its element") {
  std::vector<element> elements(5);
  list all;
  for (element& each : elements) {
    each.number = static_cast<int>(&each - elements.data());
    all.push_back(each);
  }
  all.for_each([&](element& each) {
    if (each.number % 2 == 0) all.remove(each);
  });
  CHECK(numbers(all) == std::vector<int>{1, 3});
  all.for_each([&](element& each) { all.remove(each); });
  CHECK(all.empty());
}
