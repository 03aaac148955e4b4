// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// key_table: an intrusive hash table of nodes that stand for messages, sends or receives. The table
// finds nodes with equal keys in the order of their insertion. The table does not allocate nodes;
// its users provide them.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace colls {

/// The matching key of a message. Sends and receives with equal keys match in the order in which
/// they were posted. The lane distinguishes concurrent parts of one operation. In the key of a
/// point-to-point message, `lane` is `point_to_point` and `sequence` is the tag.
struct message_key {
  std::int32_t peer = -1;  // the rank of the peer in the world
  std::uint32_t communicator = 0;
  std::uint64_t sequence = 0;
  std::uint16_t lane = 0;

  static constexpr std::uint16_t point_to_point = 0xFFFF;
  bool is_point_to_point() const { return lane == point_to_point; }
  friend bool operator==(const message_key&, const message_key&) = default;
};

/// The base class of the nodes of a `key_table`. The owner of a node must remove the node from the
/// table before destroying it.
struct key_table_node {
  message_key key;
  key_table_node* next = nullptr;
  key_table_node* prev = nullptr;
};

/// A hash table in which each bucket is a doubly linked list of nodes in the order of insertion.
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
  /// Grows the table if necessary, so that the next insertion of a node does not allocate memory.
  void make_room() {
    if (count_ >= 2 * buckets_.size()) rehash(4 * buckets_.size());
  }
  /// Inserts `node` before the first node that has the same key as `node` and satisfies
  /// `predicate`. If there is no such node, inserts `node` after all nodes with the same key.
  template <class Predicate>
  void insert(Node& node, Predicate predicate) {
    Node* const next = find_if(node.key, predicate);
    if (next == nullptr) return push_back(node);
    make_room();
    key_table_node*& before =
        next->prev != nullptr ? next->prev->next : buckets_[slot(node.key)].first;
    node.prev = next->prev;
    node.next = next;
    before = &node;
    next->prev = &node;
    ++count_;
  }

  /// Returns the oldest node with the key `key`, or null if there is none.
  Node* find(const message_key& key) const {
    return find_if(key, [](const Node&) { return true; });
  }
  template <class Predicate>
  Node* find_if(const message_key& key, Predicate predicate) const {
    if (count_ == 0) return nullptr;
    for (key_table_node* it = buckets_[slot(key)].first; it != nullptr; it = it->next) {
      if (it->key == key && predicate(static_cast<Node&>(*it))) return static_cast<Node*>(it);
    }
    return nullptr;
  }

  /// Returns a node that satisfies `predicate`, or null if there is none. Does not compare keys.
  /// This function is meant for a loop that removes all such nodes from the table. The loop must
  /// set `index` to 0 before the first call, pass the same variable to every call, and remove each
  /// returned node before the next call. The loop may also remove other nodes. It may miss nodes
  /// that are inserted while it runs. It must not call `all_of`, because `all_of` may rehash the
  /// table.
  template <class Predicate>
  Node* find_next(std::size_t& index, Predicate predicate) {
    if (index == 0) shrink();
    for (; count_ != 0 && index < buckets_.size(); ++index) {
      for (key_table_node* it = buckets_[index].first; it != nullptr; it = it->next) {
        if (predicate(static_cast<Node&>(*it))) return static_cast<Node*>(it);
      }
    }
    return nullptr;
  }

  void remove(Node& node) { unlink(buckets_[slot(node.key)], node); }
  /// Puts `other` at the position of `node` and removes `node`. Both must have the same key.
  void replace(Node& node, Node& other) {
    bucket& home = buckets_[slot(node.key)];
    other.prev = node.prev;
    other.next = node.next;
    (other.prev != nullptr ? other.prev->next : home.first) = &other;
    (other.next != nullptr ? other.next->prev : home.last) = &other;
    node.next = node.prev = nullptr;
  }

  /// Removes the oldest node with the key `key` and returns it. Returns null if there is no such
  /// node.
  Node* take(const message_key& key) {
    if (count_ == 0) return nullptr;
    bucket& home = buckets_[slot(key)];
    for (key_table_node* it = home.first; it != nullptr; it = it->next) {
      if (!(it->key == key)) continue;
      unlink(home, *it);
      return static_cast<Node*>(it);
    }
    return nullptr;
  }

  /// Returns the address of the bucket of `key`, or null if the table is empty. The function
  /// `bucket_head` returns the address of the first node in this bucket, or null if the bucket is
  /// empty. A caller can prefetch both addresses before it looks up `key`.
  const void* bucket_address(const message_key& key) const {
    return count_ == 0 ? nullptr : &buckets_[slot(key)];
  }
  const void* bucket_head(const message_key& key) const {
    return count_ == 0 ? nullptr : buckets_[slot(key)].first;
  }

  /// Returns whether `predicate` is true for all nodes. Stops at the first node for which
  /// `predicate` returns false.
  template <class Predicate>
  bool all_of(Predicate predicate) {
    if (count_ == 0) return true;
    shrink();  // because this function is called often and visits empty buckets too
    for (const bucket& home : buckets_) {
      for (key_table_node* it = home.first; it != nullptr; it = it->next) {
        if (!predicate(static_cast<Node&>(*it))) return false;
      }
    }
    return true;
  }

  /// Calls `callback` for each node. The callback may remove the node that is passed to it.
  template <class Callback>
  void for_each(Callback callback) {
    for (bucket& home : buckets_) {
      for (key_table_node* it = home.first; it != nullptr;) {
        key_table_node* const following = it->next;
        callback(static_cast<Node&>(*it));
        it = following;
      }
    }
  }

 private:
  struct bucket {
    key_table_node* first = nullptr;
    key_table_node* last = nullptr;
  };

  static void link(bucket& home, key_table_node& node) {
    node.prev = home.last;
    node.next = nullptr;
    (home.last != nullptr ? home.last->next : home.first) = &node;
    home.last = &node;
  }

  void unlink(bucket& home, key_table_node& node) {
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

  // Reduces the number of buckets if most nodes have been removed, so that passes over all nodes
  // take less time.
  void shrink() {
    if (buckets_.size() > 64 && 16 * count_ < buckets_.size()) rehash(std::bit_ceil(count_));
  }
  // Changes the number of buckets to `wanted`, or to 8 if `wanted` is smaller. Allocates memory
  // only if the table has never had so many buckets before.
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
    for (key_table_node* it = all.first; it != nullptr;) {
      key_table_node* const following = it->next;
      link(buckets_[slot(it->key)], *it);
      it = following;
    }
  }

  std::vector<bucket> buckets_;
  std::size_t count_ = 0;
};

}  // namespace colls
