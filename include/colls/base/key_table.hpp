// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// An intrusive table of message nodes: first in, first out for each key, no allocation per node.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
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
    make_room();
    link(buckets_[slot(node.key)], node);
    ++count_;
  }
  /// Memory for one more node, which is then added without asking for any.
  void make_room() {
    if (count_ >= 2 * buckets_.size()) rehash(4 * buckets_.size());
  }
  /// Before the oldest node of its key that `which` picks, or behind all of them.
  template <class Which>
  void insert(Node& node, Which which) {
    Node* const at = find_if(node.key, which);
    if (at == nullptr) return push_back(node);
    make_room();
    keyed*& before = at->prev != nullptr ? at->prev->next : buckets_[slot(node.key)].first;
    node.prev = at->prev;
    node.next = at;
    before = &node;
    at->prev = &node;
    ++count_;
  }

  /// The oldest node with that key, or null.
  Node* find(const message_key& key) const {
    return find_if(key, [](const Node&) { return true; });
  }
  template <class Which>
  Node* find_if(const message_key& key, Which which) const {
    if (count_ == 0) return nullptr;
    for (keyed* at = buckets_[slot(key)].first; at != nullptr; at = at->next) {
      if (at->key == key && which(static_cast<Node&>(*at))) return static_cast<Node*>(at);
    }
    return nullptr;
  }

  /// The first node that `which` picks, of whatever key, or null. A pass over all begins with
  /// `home` 0, and goes on there at the next call, whatever is removed meanwhile; it need not see
  /// what is added. No `all_of` comes between.
  template <class Which>
  Node* find_from(std::size_t& home, Which which) {
    if (home == 0) shrink();
    for (; count_ != 0 && home < buckets_.size(); ++home) {
      for (keyed* at = buckets_[home].first; at != nullptr; at = at->next) {
        if (which(static_cast<Node&>(*at))) return static_cast<Node*>(at);
      }
    }
    return nullptr;
  }

  void remove(Node& node) { unlink(buckets_[slot(node.key)], node); }
  /// `other`, of the same key, takes the place of `node`.
  void replace(Node& node, Node& other) {
    bucket& home = buckets_[slot(node.key)];
    other.prev = node.prev;
    other.next = node.next;
    (other.prev != nullptr ? other.prev->next : home.first) = &other;
    (other.next != nullptr ? other.next->prev : home.last) = &other;
    node.next = node.prev = nullptr;
  }

  /// Removes the oldest node with that key and gives it, or null.
  Node* take(const message_key& key) {
    if (count_ == 0) return nullptr;
    bucket& home = buckets_[slot(key)];
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
    return count_ == 0 ? nullptr : &buckets_[slot(key)];
  }
  const void* first_at_home(const message_key& key) const {
    return count_ == 0 ? nullptr : buckets_[slot(key)].first;
  }

  /// Whether `test` is true of every node; it asks no further once it is not.
  template <class Test>
  bool all_of(Test test) {
    if (count_ == 0) return true;
    shrink();  // drivers ask at each poll
    for (const bucket& home : buckets_) {
      for (keyed* at = home.first; at != nullptr; at = at->next) {
        if (!test(static_cast<Node&>(*at))) return false;
      }
    }
    return true;
  }

  /// Calls `visit` for every node; `visit` may remove the node it is given.
  template <class Visit>
  void each(Visit visit) {
    for (bucket& home : buckets_) {
      for (keyed* at = home.first; at != nullptr;) {
        keyed* const following = at->next;
        visit(static_cast<Node&>(*at));
        at = following;
      }
    }
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

  std::size_t slot(const message_key& key) const {
    const auto peer = static_cast<std::uint64_t>(static_cast<std::uint32_t>(key.peer));
    std::uint64_t mixed = (peer << 32 | key.communicator) + key.lane * 0xbf58476d1ce4e5b9ULL;
    mixed = (mixed ^ key.sequence * 0x94d049bb133111ebULL) * 0x9e3779b97f4a7c15ULL;
    return static_cast<std::size_t>(mixed >> 40) & (buckets_.size() - 1);
  }

  // Where many nodes were, few are not looked for everywhere.
  void shrink() {
    if (buckets_.size() > 64 && 16 * count_ < buckets_.size()) rehash(std::bit_ceil(count_));
  }
  // To that many buckets, at least 8. Memory is asked for where there were never so many.
  [[gnu::noinline]] void rehash(std::size_t wanted) {
    wanted = std::max<std::size_t>(wanted, 8);
    buckets_.reserve(wanted);
    bucket all;
    for (bucket& home : buckets_) {
      if (home.first == nullptr) continue;
      (all.last != nullptr ? all.last->next : all.first) = home.first;
      all.last = home.last;
    }
    buckets_.assign(wanted, {});
    for (keyed* at = all.first; at != nullptr;) {
      keyed* const following = at->next;
      link(buckets_[slot(at->key)], *at);
      at = following;
    }
  }

  std::vector<bucket> buckets_;
  std::size_t count_ = 0;
};

}  // namespace colls
