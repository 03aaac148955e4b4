// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// gradient_buckets: gradients that are averaged over the ranks while others are still computed.

#include <colls/ddp/bucket_plan.hpp>
#include <colls/ddp/compression.hpp>
#include <colls/ddp/driver.hpp>

#include <cstring>
#include <memory>
#include <string>

namespace colls::ddp {

/// What is trained: a name for messages, and how many elements its gradient has.
struct parameter {
  std::string name;
  std::size_t elements = 0;
};

/// What `no_sync` gives: gradients gather while it lives.
class [[nodiscard("gradients are averaged again once it is gone: give it a name")]] quiet_scope {
 public:
  explicit quiet_scope(int& depth) : depth_(&++depth) {}
  quiet_scope(quiet_scope&& other) noexcept : depth_(std::exchange(other.depth_, nullptr)) {}
  quiet_scope& operator=(quiet_scope&&) = delete;
  ~quiet_scope() {
    if (depth_ != nullptr) --*depth_;
  }

 private:
  int* depth_;
};

/// The gradients of one model on one rank, in buckets that are summed over the ranks as soon as
/// they are full. In each step every rank says `mark_ready(i)` once its gradient i lies in
/// `gradient(i)`, in any order, and then `finish()`; afterwards `gradient(i)` is the average, the
/// same bits on all ranks.
///
/// All ranks have the same parameters and options (`check_agreement` finds out) and take the same
/// steps. Buckets start in the same order on all ranks: the reverse of the parameters' order in the
/// first step, then the order in which they became ready on rank 0. After an error nothing more can
/// be done with it. Used by one thread at a time.
template <class T, class Communicator>
class gradient_buckets {
 public:
  using hook = bucket_hook<T, Communicator>;

  /// `by` turns a communicator of its own (`drive_by`).
  gradient_buckets(std::unique_ptr<driver<Communicator>> by, std::vector<parameter> parameters,
                   options how = {})
      : parameters_(std::move(parameters)),
        how_(how),
        hook_(hook_for<T, Communicator>(how.compression)),
        seen_(parameters_.size()),
        used_(parameters_.size()),
        driver_(std::move(by)) {
    arrange(bucket_plan::reverse_order(parameters_.size()));
  }
  /// Makes the driver that the options ask for: a collective call that blocks.
  gradient_buckets(Communicator& ranks, std::vector<parameter> parameters, options how = {})
      : gradient_buckets(drive_by(ranks, how.drive), std::move(parameters), how) {}
  gradient_buckets(const gradient_buckets&) = delete;
  gradient_buckets& operator=(const gradient_buckets&) = delete;

  int rank() const { return driver_->rank(); }
  int size() const { return driver_->size(); }
  const std::vector<parameter>& parameters() const { return parameters_; }
  const bucket_plan& plan() const { return plan_; }

  /// Where the gradient of parameter `i` is put, and where its average is found. It moves once, in
  /// the first `finish()`.
  std::span<T> gradient(std::size_t i) {
    const bucket_plan::place& at = plan_[i];
    return {memory_[at.bucket].get() + at.offset, parameters_[i].elements};
  }
  /// The same for who needs it to outlive this.
  std::shared_ptr<T> shared_gradient(std::size_t i) {
    return {memory_[plan_[i].bucket], gradient(i).data()};
  }

  /// Sums buckets by `by` from the next step on.
  void reduce_by(hook by) { hook_ = std::move(by); }
  /// From the next step on, each step leaves rank 0's bytes in these on all ranks; their sizes are
  /// the same everywhere.
  void keep_equal(std::vector<std::span<std::byte>> buffers) {
    buffers_ = std::move(buffers);
    std::size_t total = 0;
    for (const auto& each : buffers_) total += each.size();
    staging_.resize(total);
  }

  /// The gradients of the coming step are means over `count` samples of this rank: the average is
  /// sum(count_r * gradient_r) / sum(count_r). All ranks say so before a step, or none.
  void samples(std::int64_t count) {
    if (count < 0) throw error(errc::invalid_argument, "a number of samples is negative");
    samples_ = count;
  }

  /// While the result lives, `mark_ready` does nothing: gradients gather where they are.
  quiet_scope no_sync() { return quiet_scope(quiet_); }
  bool is_quiet() const { return quiet_ > 0; }

  /// Whether something of the step is ready and `finish` has not been called.
  bool under_way() const { return under_way_; }
  /// Whether gradient `i` is, in the step that is under way.
  bool is_ready(std::size_t i) const { return under_way_ && seen_[i]; }

  /// `gradient(i)` is complete and not written again before `finish` has returned. The last one of
  /// a bucket, and of all buckets before it, starts the sum.
  void mark_ready(std::size_t i) {
    if (is_quiet()) return;
    expect_gradient(i);
    if (how_.trace != nullptr) how_.trace->ready[i] = driver_->now();
    used_[i] = 1;
    arrived(i);
  }
  /// The same for a gradient to which this step has added nothing: what lies in `gradient(i)`
  /// counts, but nobody's use of the parameter.
  void mark_untouched(std::size_t i) {
    if (is_quiet()) return;
    expect_gradient(i);
    arrived(i);
  }

  /// Waits until all averages are there. Throws what went wrong on any rank.
  void finish() {
    continue_step();
    std::vector<std::size_t> unused;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!seen_[i]) unused.push_back(i);
    }
    if (!unused.empty() && !how_.allow_unused) {
      give_up(named(unused) +
              " got no gradient in this step; options.allow_unused makes that count as zero");
    }
    leave_out_rest();
    complete();
  }

  /// A whole step of a rank that has no samples: contributes nothing and gets the averages.
  void take_part() {
    samples(0);
    continue_step();
    leave_out_rest();
    complete();
  }

  /// Ends the training on all ranks, which learn this reason; to be called where no error can be
  /// thrown.
  void abandon(const std::string& reason) noexcept {
    try {
      give_up(reason);
    } catch (...) {  // kept for the next call
    }
  }

  /// After a step: whether any rank had a gradient for parameter `i`. Without `allow_unused` every
  /// parameter has one.
  bool used(std::size_t i) const { return !how_.allow_unused || used_[i] != 0; }

 private:
  static constexpr std::int64_t unsaid = -1;

  /// Puts the gradients into new buckets, with what they held.
  void arrange(std::vector<std::size_t> order) {
    const bucket_plan before = std::move(plan_);
    const auto old = std::move(memory_);
    std::vector<std::size_t> elements;
    for (const parameter& each : parameters_) elements.push_back(each.elements);
    plan_ = bucket_plan(elements, std::move(order), how_.first_bucket_bytes / sizeof(T),
                        how_.bucket_bytes / sizeof(T));
    memory_.clear();
    for (const auto& bucket : plan_.buckets()) {
      memory_.push_back(std::make_shared<T[]>(bucket.elements));
    }
    if (old.empty()) return;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const T* const from = old[before[i].bucket].get() + before[i].offset;
      std::copy_n(from, parameters_[i].elements, gradient(i).data());
    }
  }

  void continue_step() {
    if (failed_) std::rethrow_exception(failed_);
    if (!under_way_) begin();
  }

  void expect_gradient(std::size_t i) {
    if (i >= parameters_.size()) {
      failure why(errc::invalid_argument);
      throw error(why.say("there is no parameter %zu: there are %zu", i, parameters_.size()));
    }
    continue_step();
    if (seen_[i]) give_up("the gradient of " + named({i}) + " became ready twice in one step");
  }

  void begin() {
    missing_.clear();
    for (const auto& bucket : plan_.buckets()) missing_.push_back(bucket.parameters.size());
    complete_ = 0;
    std::fill(seen_.begin(), seen_.end(), false);
    std::fill(used_.begin(), used_.end(), std::uint8_t{0});
    ready_order_.clear();
    std::size_t at = 0;
    for (const auto& each : buffers_) {
      std::copy(each.begin(), each.end(), staging_.begin() + static_cast<std::ptrdiff_t>(at));
      at += each.size();
    }
    if (timeline* const trace = how_.trace) {
      trace->begin = driver_->now();
      trace->ready.assign(parameters_.size(), 0);
      trace->buckets.assign(plan_.buckets().size(), {});
    }
    under_way_ = true;
    driver_->start(step(std::exchange(samples_, unsaid)));
  }

  void arrived(std::size_t i) {
    seen_[i] = true;
    ready_order_.push_back(static_cast<std::uint32_t>(i));
    --missing_[plan_[i].bucket];
    const std::size_t before = complete_;
    while (complete_ < missing_.size() && missing_[complete_] == 0) ++complete_;
    if (complete_ != before) driver_->raise(complete_);
  }
  void leave_out_rest() {
    for (const std::size_t i : plan_.order()) {
      if (seen_[i]) continue;
      const std::span<T> none = gradient(i);
      std::fill(none.begin(), none.end(), T());
      arrived(i);
    }
  }

  void wait() {
    try {
      driver_->wait();
    } catch (...) {
      failed_ = std::current_exception();
      throw;
    }
  }

  void complete() {
    wait();
    under_way_ = false;
    std::size_t at = 0;
    for (const auto& each : buffers_) {
      std::copy_n(staging_.data() + at, each.size(), each.data());
      at += each.size();
    }
    if (!std::exchange(ordered_, true)) {
      std::vector<std::size_t> order(ready_order_.begin(), ready_order_.end());
      if (order != plan_.order()) arrange(std::move(order));
    }
    if (how_.trace != nullptr) how_.trace->end = driver_->now();
  }

  /// "parameters 'a', 'b', 'c' and 4 more"
  std::string named(const std::vector<std::size_t>& which) const {
    constexpr std::size_t most = 3;
    std::string text = which.size() > 1 ? "parameters" : "parameter";
    for (std::size_t k = 0; k < std::min(which.size(), most); ++k) {
      text += (k > 0 ? ", '" : " '") + parameters_[which[k]].name + "'";
    }
    if (which.size() > most) text += " and " + std::to_string(which.size() - most) + " more";
    return text;
  }

  [[noreturn]] void give_up(const std::string& reason) {
    if (failed_) std::rethrow_exception(failed_);
    driver_->give_up(reason);
    wait();  // throws, unless the step's sums were all there
    failed_ = std::make_exception_ptr(error(errc::revoked, reason.c_str()));
    std::rethrow_exception(failed_);
  }

  // The side that turns the communicator. It shares with the other one what lies in buckets that
  // are complete, and nothing else that changes during a step.
  task<> step(std::int64_t samples) {
    Communicator& comm = driver_->comm();
    std::vector<std::int64_t> all(static_cast<std::size_t>(comm.size()));
    const std::int64_t mine[1] = {samples};
    co_await comm.all_gather(mine, all);
    const double weight = weight_among(all, comm.rank());
    if (!staging_.empty()) co_await comm.broadcast(staging_, 0);
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      co_await driver_->reached(i + 1);
      const std::span<T> bucket(memory_[i].get(), plan_.buckets()[i].elements);
      detail::scale(bucket, weight);
      if (how_.trace != nullptr) how_.trace->buckets[i] = {driver_->now(), 0, bucket.size()};
      task<> sum = hook_(comm, bucket);
      co_await sum;
      if (how_.trace != nullptr) how_.trace->buckets[i].end = driver_->now();
    }
    if (how_.allow_unused) co_await comm.all_reduce(used_, maximum{});
    if (!ordered_) co_await comm.broadcast(ready_order_, 0);
  }

  static double weight_among(const std::vector<std::int64_t>& samples, int rank) {
    double total = 0;
    int silent = -1;
    int said = -1;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      (samples[i] == unsaid ? silent : said) = static_cast<int>(i);
      total += static_cast<double>(samples[i]);
    }
    if (said < 0) return 1 / static_cast<double>(samples.size());
    if (silent >= 0) {
      failure why(errc::mismatch);
      why.culprit = silent;
      throw error(
          why.say("rank %d said how many samples its gradient is a mean of, rank %d did "
                  "not: all ranks say so before a step, or none",
                  said, silent));
    }
    return total == 0 ? 0 : static_cast<double>(samples[static_cast<std::size_t>(rank)]) / total;
  }

  std::vector<parameter> parameters_;
  options how_;
  hook hook_;
  bucket_plan plan_;
  std::vector<std::shared_ptr<T[]>> memory_;  // by bucket
  std::vector<std::span<std::byte>> buffers_;
  std::vector<std::byte> staging_;

  std::exception_ptr failed_;  // what ended the training
  int quiet_ = 0;
  std::int64_t samples_ = unsaid;
  bool ordered_ = false;  // the buckets are in rank 0's order

  // The step under way.
  bool under_way_ = false;
  std::vector<std::size_t> missing_;  // by bucket: gradients that are not ready
  std::size_t complete_ = 0;          // buckets from the front that miss none
  std::vector<bool> seen_;
  std::vector<std::uint8_t> used_;
  std::vector<std::uint32_t> ready_order_;

  std::unique_ptr<driver<Communicator>> driver_;  // last: its task uses all of the above
};

}  // namespace colls::ddp
