// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// memory_store: the store of a job that is one process.

#include <colls/rendezvous/store.hpp>
#include <colls/transport/engine.hpp>

#include <utility>

namespace colls {

/// A store inside one process, for ranks that share an engine.
class memory_store final : public store {
 public:
  explicit memory_store(engine& on) : engine_(on) {}

 private:
  // Ends when the keys are there or the deadline is past, whichever is first.
  class arrival : detail::store_table::waiter, engine::source {
   public:
    arrival(memory_store& in, const std::vector<std::string>& keys, time_point deadline)
        : store_(in), keys_(keys), deadline_(deadline) {}
    arrival(const arrival&) = delete;
    ~arrival() {
      if (done_ != nullptr) unlink();
    }
    bool start(completion& done) {
      if (store_.table_.wait(*this, keys_)) return true;
      done_ = &done;
      store_.engine_.add(static_cast<engine::source&>(*this), false);
      return false;
    }
    bool result() const { return !late_; }

   private:
    void unlink() {
      store_.table_.forget(*this);
      store_.engine_.remove(static_cast<engine::source&>(*this));
    }
    void stop() {
      unlink();
      std::exchange(done_, nullptr)->post();
    }
    void ready() override { stop(); }
    bool poll() override { return false; }
    bool pending() const override { return true; }
    void sweep(time_point now) override {
      if (now < deadline_ || done_ == nullptr) return;
      late_ = true;
      stop();
    }

    memory_store& store_;
    const std::vector<std::string>& keys_;
    time_point deadline_;
    completion* done_ = nullptr;
    bool late_ = false;
  };

  task<> do_set(std::string key, std::string value, time_point) override {
    table_.set(key, std::move(value));
    co_return;
  }
  task<std::string> do_get(std::string key, time_point deadline) override {
    const std::vector<std::string> keys{key};
    co_await do_wait(keys, deadline);
    co_return *table_.find(key);
  }
  task<std::int64_t> do_add(std::string key, std::int64_t amount, time_point) override {
    co_return table_.add(key, amount);
  }
  task<> do_wait(std::vector<std::string> keys, time_point deadline) override {
    arrival all(*this, keys, deadline);
    const bool there = co_await all;
    if (!there) detail::raise(errc::timeout, "nobody has set '%.200s'", keys.front().c_str());
  }
  task<std::string> do_compare_set(std::string key, std::string expected, std::string desired,
                                   time_point) override {
    co_return table_.compare_set(key, expected, std::move(desired));
  }
  task<std::string> do_check(std::vector<std::string> keys, time_point) override {
    co_return table_.check(keys);
  }

  engine& engine_;
  detail::store_table table_;
};

}  // namespace colls
