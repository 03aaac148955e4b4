// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Stores: a few keys and values by which the processes of a job find each other.

#include <colls/base/reported_failure.hpp>
#include <colls/bootstrap/config.hpp>
#include <colls/coroutine/task.hpp>

#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>

namespace colls {

/// Who wants to know of ranks that died, or of a world that cannot form (rank -1).
class failure_listener {
 public:
  /// Called from a poll; must not destroy the store that calls.
  virtual void rank_failed(int rank, const reported_failure& why) = 0;

 protected:
  ~failure_listener() = default;
};

/// Keys and values that all processes of a job see. Every call may be awaited beside others; the
/// texts are copied at the call. A deadline that passes is `errc::timeout`, a store that is gone
/// `errc::unreachable`, a key or value beyond the limits `errc::invalid_argument`.
class store {
 public:
  static constexpr std::size_t longest_key = std::size_t{8} << 10;
  static constexpr std::size_t longest_value = std::size_t{8} << 20;
  static constexpr std::size_t most_keys = std::size_t{128} << 10;
  static constexpr std::size_t most_bytes = std::size_t{256} << 20;  // of all values

  virtual ~store() = default;

  task<> set(std::string_view key, std::string_view value, time_point deadline = never) {
    return do_set(std::string(key), std::string(value), deadline);
  }
  /// Waits until somebody has set the key.
  task<std::string> get(std::string_view key, time_point deadline = never) {
    return do_get(std::string(key), deadline);
  }
  /// Adds to the number that the key holds (0 before) and gives the sum.
  task<std::int64_t> add(std::string_view key, std::int64_t amount, time_point deadline = never) {
    return do_add(std::string(key), amount, deadline);
  }
  /// Waits until all keys exist.
  task<> wait(std::span<const std::string> keys, time_point deadline = never) {
    return do_wait({keys.begin(), keys.end()}, deadline);
  }
  /// Sets the key if it holds `expected` (empty: if it does not exist); gives what it holds then.
  task<std::string> compare_set(std::string_view key, std::string_view expected,
                                std::string_view desired, time_point deadline = never) {
    return do_compare_set(std::string(key), std::string(expected), std::string(desired), deadline);
  }
  /// Which of the keys exist, at once: '1' or '0' for each.
  task<std::string> check(std::span<const std::string> keys, time_point deadline = never) {
    return do_check({keys.begin(), keys.end()}, deadline);
  }

  /// Tells all processes that a rank has failed (-1: that the world cannot form).
  virtual task<> report_failure(failure why, time_point deadline) {
    (void)why;
    (void)deadline;
    co_return;
  }
  /// Who is told; failures that were announced before are told at once. Null: nobody.
  virtual void listen_for_failures(failure_listener*) {}
  /// Whether something has come that was not read yet: news of a failure perhaps.
  virtual bool has_unread() const { return false; }
  /// The orderly end: nothing may be called afterwards.
  virtual task<> leave(time_point deadline) {
    (void)deadline;
    co_return;
  }

 protected:
  virtual task<> do_set(std::string key, std::string value, time_point deadline) = 0;
  virtual task<std::string> do_get(std::string key, time_point deadline) = 0;
  virtual task<std::int64_t> do_add(std::string key, std::int64_t amount, time_point deadline) = 0;
  virtual task<> do_wait(std::vector<std::string> keys, time_point deadline) = 0;
  virtual task<std::string> do_compare_set(std::string key, std::string expected,
                                           std::string desired, time_point deadline) = 0;
  virtual task<std::string> do_check(std::vector<std::string> keys, time_point deadline) = 0;
};

namespace detail {

/// True: the work is done; false: its deadline has passed. Other errors are thrown.
inline task<bool> in_time(task<> work) {
  bool late = false;
  try {
    co_await work;
  } catch (const error& thrown) {
    if (thrown.record().code != errc::timeout) throw;
    late = true;
  }
  co_return !late;
}

/// Of numbers that a store holds; it wraps around.
inline std::int64_t sum_of(std::int64_t before, std::int64_t amount) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(before) +
                                   static_cast<std::uint64_t>(amount));
}

/// What a store holds, and who waits for what it does not hold yet.
class store_table {
 public:
  /// Waits for keys; `ready` is called once, from the call that set the last of them.
  class waiter {
   public:
    virtual void ready() = 0;

   protected:
    ~waiter() = default;

   private:
    friend store_table;
    std::size_t missing_ = 0;
  };

  const std::string* find(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }

  void set(const std::string& key, std::string value) {
    check_limits(key, value.size());
    const auto [place, fresh] = values_.try_emplace(key);
    bytes_ += value.size();
    bytes_ -= place->second.size();
    place->second = std::move(value);
    if (!fresh) return;
    // `ready` may start another wait, so the list is taken apart first.
    const auto range = waiting_.equal_range(key);
    std::vector<waiter*> ready;
    for (auto it = range.first; it != range.second; ++it) {
      if (--it->second->missing_ == 0) ready.push_back(it->second);
    }
    waiting_.erase(range.first, range.second);
    for (waiter* it : ready) it->ready();
  }

  std::int64_t add(const std::string& key, std::int64_t amount) {
    const std::string* const old = find(key);
    const std::int64_t before = old == nullptr ? 0 : std::strtoll(old->c_str(), nullptr, 10);
    const std::int64_t sum = sum_of(before, amount);
    set(key, std::to_string(sum));
    return sum;
  }

  std::string compare_set(const std::string& key, const std::string& expected,
                          std::string desired) {
    const std::string* const old = find(key);
    const bool same = old == nullptr ? expected.empty() : *old == expected;
    if (same) set(key, std::move(desired));
    const std::string* const now = find(key);
    return now == nullptr ? std::string() : *now;
  }

  std::string check(const std::vector<std::string>& keys) const {
    std::string there;
    for (const std::string& key : keys) there += find(key) != nullptr ? '1' : '0';
    return there;
  }

  /// True: all keys exist already, and nobody waits.
  bool wait(waiter& who, const std::vector<std::string>& keys) {
    who.missing_ = 0;
    for (const std::string& key : keys) {
      if (find(key) != nullptr) continue;
      waiting_.emplace(key, &who);
      ++who.missing_;
    }
    return who.missing_ == 0;
  }
  void forget(waiter& who) {
    std::erase_if(waiting_, [&](const auto& entry) { return entry.second == &who; });
  }

 private:
  void check_limits(const std::string& key, std::size_t size) const {
    const std::string* const old = find(key);
    if (key.size() > store::longest_key || size > store::longest_value) {
      raise(errc::invalid_argument,
            "a key of %zu bytes with a value of %zu: the limits are %zu, %zu", key.size(), size,
            store::longest_key, store::longest_value);
    }
    if (old == nullptr && values_.size() >= store::most_keys) {
      raise(errc::invalid_argument, "the store holds its %zu keys", store::most_keys);
    }
    if (bytes_ - (old == nullptr ? 0 : old->size()) + size > store::most_bytes) {
      raise(errc::invalid_argument, "the store holds its %zu bytes", store::most_bytes);
    }
  }

  std::map<std::string, std::string> values_;
  std::unordered_multimap<std::string, waiter*> waiting_;
  std::size_t bytes_ = 0;
};

}  // namespace detail

}  // namespace colls
