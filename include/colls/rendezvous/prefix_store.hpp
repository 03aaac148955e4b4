// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// prefix_store: a part of a store, for those who would use each other's keys.

#include <colls/rendezvous/store.hpp>

#include <utility>

namespace colls {

/// A part of a store: every key gets a prefix.
class prefix_store final : public store {
 public:
  prefix_store(std::shared_ptr<store> whole, std::string prefix)
      : whole_(std::move(whole)), prefix_(std::move(prefix)) {}

  task<> report_failure(failure why, time_point deadline) override {
    return whole_->report_failure(why, deadline);
  }
  void listen_for_failures(failure_listener* who) override { whole_->listen_for_failures(who); }
  task<> leave(time_point deadline) override { return whole_->leave(deadline); }

 private:
  std::vector<std::string> prefixed(std::vector<std::string> keys) const {
    for (std::string& key : keys) key.insert(0, prefix_);
    return keys;
  }
  task<> do_set(std::string key, std::string value, time_point deadline) override {
    return whole_->set(prefix_ + key, value, deadline);
  }
  task<std::string> do_get(std::string key, time_point deadline) override {
    return whole_->get(prefix_ + key, deadline);
  }
  task<std::int64_t> do_add(std::string key, std::int64_t amount, time_point deadline) override {
    return whole_->add(prefix_ + key, amount, deadline);
  }
  task<> do_wait(std::vector<std::string> keys, time_point deadline) override {
    return whole_->wait(prefixed(std::move(keys)), deadline);
  }
  task<std::string> do_compare_set(std::string key, std::string expected, std::string desired,
                                   time_point deadline) override {
    return whole_->compare_set(prefix_ + key, expected, desired, deadline);
  }
  task<std::string> do_check(std::vector<std::string> keys, time_point deadline) override {
    return whole_->check(prefixed(std::move(keys)), deadline);
  }

  std::shared_ptr<store> whole_;
  std::string prefix_;
};

}  // namespace colls
