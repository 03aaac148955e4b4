// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// An intrusive table of message nodes: first in, first out for each key, no allocation per node.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace colls {

/// What pairs a send with a receive: FIFO for each (peer, communicator, sequence, lane).
/// Point-to-point messages have `lane` == `point_to_point` and their tag as sequence.
struct message_key {
  std::int32_t peer = -1;  // rank in the world
  std::uint32_t communicator = 0;
  std::uint64_t sequence = 0;
  std::uint16_t lane = 0;

  static constexpr std::uint16_t point_to_point = 0xFFFF;
  bool is_point_to_point() const { return lane == point_to_point; }
  friend bool operator==(const message_key&, const message_key&) = default;
};

/// Base of what a key_table holds. Leaves its table by itself.
struct keyed {
  message_key key;
  keyed* next = nullptr;
  keyed* prev = nullptr;
};

/// Buckets of doubly linked nodes, in order of arrival.
template <class Node>
class key_table {
 public:
  bool empty() const { return count_ == 0; }
  std::size_t size() const { return count_; }

  void push_back(Node& node) {
    if (count_ >= (buckets_.empty() ? few : 2 * buckets_.size())) grow();
    link(home_of(node.key), node);
    ++count_;
  }

  /// The oldest node with that key, or null.
  Node* find(const message_key& key) const {
    return find_if(key, [](const Node&) { return true; });
  }
  template <class Which>
  Node* find_if(const message_key& key, Which which) const {
    if (count_ == 0) return nullptr;
    for (keyed* at = home_of(key).first; at != nullptr; at = at->next) {
      if (at->key == key && which(static_cast<Node&>(*at))) return static_cast<Node*>(at);
    }
    return nullptr;
  }

  void remove(Node& node) { unlink(home_of(node.key), node); }
  /// `other`, of the same key, takes the place of `node`.
  void replace(Node& node, Node& other) {
    bucket& home = home_of(node.key);
    other.prev = node.prev;
    other.next = node.next;
    (other.prev != nullptr ? other.prev->next : home.first) = &other;
    (other.next != nullptr ? other.next->prev : home.last) = &other;
    node.next = node.prev = nullptr;
  }

  /// Removes the oldest node with that key and gives it, or null.
  Node* take(const message_key& key) {
    if (count_ == 0) return nullptr;
    bucket& home = home_of(key);
    for (keyed* at = home.first; at != nullptr; at = at->next) {
      if (!(at->key == key)) continue;
      unlink(home, *at);
      return static_cast<Node*>(at);
    }
    return nullptr;
  }

  /// Where a node with that key would be looked for, and the first that would be looked at, or
  /// null: whoever sees a key coming may fetch their memory in time.
  const void* home(const message_key& key) const {
    return count_ == 0 ? nullptr : &home_of(key);
  }
  const void* first_at_home(const message_key& key) const {
    return count_ == 0 ? nullptr : home_of(key).first;
  }

  /// Whether `test` is true of every node; it asks no further once it is not.
  template <class Test>
  bool all_of(Test test) const {
    if (count_ == 0) return true;
    for (const bucket& home : buckets_) {
      for (keyed* at = home.first; at != nullptr; at = at->next) {
        if (!test(static_cast<const Node&>(*at))) return false;
      }
    }
    return true;
  }

  /// Calls `visit` for every node; `visit` may remove the node it is given.
  template <class Visit>
  void each(Visit visit) {
    const auto each_of = [&](const bucket& home) {
      for (keyed* at = home.first; at != nullptr;) {
        keyed* const following = at->next;
        visit(static_cast<Node&>(*at));
        at = following;
      }
    };
    each_of(first_);
    for (const bucket& home : buckets_) each_of(home);
  }

 private:
  struct bucket {
    keyed* first = nullptr;
    keyed* last = nullptr;
  };

  static void link(bucket& home, keyed& node) {
    node.prev = home.last;
    node.next = nullptr;
    (home.last != nullptr ? home.last->next : home.first) = &node;
    home.last = &node;
  }

  void unlink(bucket& home, keyed& node) {
    (node.prev != nullptr ? node.prev->next : home.first) = node.next;
    (node.next != nullptr ? node.next->prev : home.last) = node.prev;
    node.next = node.prev = nullptr;
    --count_;
  }

  const bucket& home_of(const message_key& key) const {
    return buckets_.empty() ? first_ : buckets_[slot(key)];
  }
  bucket& home_of(const message_key& key) {
    return const_cast<bucket&>(std::as_const(*this).home_of(key));
  }
  std::size_t slot(const message_key& key) const {
    const auto peer = static_cast<std::uint64_t>(static_cast<std::uint32_t>(key.peer));
    std::uint64_t mixed = (peer << 32 | key.communicator) + key.lane * 0xbf58476d1ce4e5b9ULL;
    mixed = (mixed ^ key.sequence * 0x94d049bb133111ebULL) * 0x9e3779b97f4a7c15ULL;
    return static_cast<std::size_t>(mixed >> 40) & (buckets_.size() - 1);
  }

  void grow() {
    std::vector<bucket> old(buckets_.empty() ? 2 * few : 4 * buckets_.size());
    old.swap(buckets_);
    const auto spread = [&](const bucket& home) {
      for (keyed* at = home.first; at != nullptr;) {
        keyed* const following = at->next;
        link(buckets_[slot(at->key)], *at);
        at = following;
      }
    };
    spread(std::exchange(first_, {}));
    for (const bucket& home : old) spread(home);
  }

  static constexpr std::size_t few = 8;

  bucket first_;  // has all as long as they are few: to walk it takes less than to find another
  std::vector<bucket> buckets_;
  std::size_t count_ = 0;
};

}  // namespace colls
