// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// store: the interface of a key-value store through which the processes of a job exchange
// information.

#include <colls/base/reported_failure.hpp>
#include <colls/bootstrap/config.hpp>
#include <colls/coroutine/task.hpp>

#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>

namespace colls {

/// An interface through which a store reports failures of ranks. A report for rank -1 means that
/// the world cannot form.
class failure_listener {
 public:
  /// Handles the failure `report` of the rank `rank`. The store calls this function while the
  /// engine (the event loop) polls, or from `store::listen_for_failures`. The function must not
  /// destroy the store.
  virtual void rank_failed(int rank, const reported_failure& report) = 0;

 protected:
  ~failure_listener() = default;
};

/// A key-value store that all processes of a job share. Several calls may be awaited concurrently,
/// and every call copies its arguments. A call throws `errc::timeout` if it does not complete by
/// its deadline, and `errc::unreachable` if the connection to the store is lost. A call throws
/// `errc::invalid_argument` if a key, a value or the whole store would exceed its limit.
class store {
 public:
  static constexpr std::size_t max_key_size = std::size_t{8} << 10;
  static constexpr std::size_t max_value_size = std::size_t{8} << 20;
  static constexpr std::size_t max_keys = std::size_t{128} << 10;
  static constexpr std::size_t max_bytes = std::size_t{256} << 20;  // limit for all values together

  virtual ~store() = default;

  /// Sets the value of the key.
  task<> set(std::string_view key, std::string_view value, time_point deadline = never) {
    return do_set(std::string(key), std::string(value), deadline);
  }
  /// Waits until the key exists and returns its value.
  task<std::string> get(std::string_view key, time_point deadline = never) {
    return do_get(std::string(key), deadline);
  }
  /// Adds `amount` to the number that the key holds, or to 0 if the key does not exist. Stores and
  /// returns the sum.
  task<std::int64_t> add(std::string_view key, std::int64_t amount, time_point deadline = never) {
    return do_add(std::string(key), amount, deadline);
  }
  /// Waits until all keys exist.
  task<> wait(std::span<const std::string> keys, time_point deadline = never) {
    return do_wait({keys.begin(), keys.end()}, deadline);
  }
  /// Sets the key to `desired` if its value is `expected`, or if the key does not exist and
  /// `expected` is empty. Returns the value that the key has afterwards, or an empty string if the
  /// key does not exist.
  task<std::string> compare_set(std::string_view key, std::string_view expected,
                                std::string_view desired, time_point deadline = never) {
    return do_compare_set(std::string(key), std::string(expected), std::string(desired), deadline);
  }
  /// Returns a string with one character for each key. The character is '1' if the key exists, and
  /// '0' if it does not exist. Does not wait for keys.
  task<std::string> check(std::span<const std::string> keys, time_point deadline = never) {
    return do_check({keys.begin(), keys.end()}, deadline);
  }

  /// Sends `reason` to the store, which announces it to all processes of the job. `reason` says
  /// that the rank `reason.culprit` has failed, that the world cannot form, or that a communicator
  /// was revoked. If the world cannot form, `reason.culprit` must be -1. Does nothing if the store
  /// cannot announce failures.
  virtual task<> report_failure(failure reason, time_point deadline) {
    (void)reason;
    (void)deadline;
    co_return;
  }
  /// Sets the listener for failures, or removes it if the argument is null. Immediately reports to
  /// a new listener all failures that the store has already announced.
  virtual void listen_for_failures(failure_listener*) {}
  /// Returns whether the store has sent data that this process has not read yet. Such data may
  /// announce a failure.
  virtual bool has_unread() const { return false; }
  /// Tells the store that this process is leaving, so that the store does not report the process as
  /// failed when the connection closes. After `leave`, no other function may be called.
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

/// Awaits `work`. Returns true if `work` completes, and false if `work` throws `timeout`. Rethrows
/// any other error.
inline task<bool> ends_in_time(task<> work) {
  bool late = false;
  try {
    co_await work;
  } catch (const error& thrown) {
    if (thrown.record().code != errc::timeout) throw;
    late = true;
  }
  co_return !late;
}

/// Adds two numbers modulo 2^64, so that an overflow is well defined.
inline std::int64_t wrapping_add(std::int64_t value, std::int64_t amount) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(value) +
                                   static_cast<std::uint64_t>(amount));
}

/// The keys and values of a store, and the objects that wait for keys that do not exist yet.
class store_table {
 public:
  /// An object that waits for keys that do not exist yet. The table calls `ready` once, as soon as
  /// all these keys exist.
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
    const auto [entry, is_new] = values_.try_emplace(key);
    bytes_ += value.size();
    bytes_ -= entry->second.size();
    entry->second = std::move(value);
    if (!is_new) return;
    // A call of `ready` may start another wait, which changes `waiting_`. Therefore the loop over
    // `waiting_` must end before the first call of `ready`.
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
    const std::int64_t sum = wrapping_add(before, amount);
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
    std::string present;
    for (const std::string& key : keys) present += find(key) != nullptr ? '1' : '0';
    return present;
  }

  /// Makes `target` wait until all `keys` exist, and returns false. If all keys already exist,
  /// returns true and does not call `ready`.
  bool wait(waiter& target, const std::vector<std::string>& keys) {
    target.missing_ = 0;
    for (const std::string& key : keys) {
      if (find(key) != nullptr) continue;
      waiting_.emplace(key, &target);
      ++target.missing_;
    }
    return target.missing_ == 0;
  }
  void forget(waiter& target) {
    std::erase_if(waiting_, [&](const auto& entry) { return entry.second == &target; });
  }

 private:
  void check_limits(const std::string& key, std::size_t size) const {
    const std::string* const old = find(key);
    if (key.size() > store::max_key_size || size > store::max_value_size) {
      raise(errc::invalid_argument,
            "a key of %zu bytes with a value of %zu: the limits are %zu, %zu", key.size(), size,
            store::max_key_size, store::max_value_size);
    }
    if (old == nullptr && values_.size() >= store::max_keys) {
      raise(errc::invalid_argument, "the store holds its %zu keys", store::max_keys);
    }
    if (bytes_ - (old == nullptr ? 0 : old->size()) + size > store::max_bytes) {
      raise(errc::invalid_argument, "the store holds its %zu bytes", store::max_bytes);
    }
  }

  std::map<std::string, std::string> values_;
  std::unordered_multimap<std::string, waiter*> waiting_;
  std::size_t bytes_ = 0;
};

}  // namespace detail

}  // namespace colls
