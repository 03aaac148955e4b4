// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// gradient_buckets: averages gradients over the ranks while other gradients are still being
// computed.

#include <colls/ddp/bucket_plan.hpp>
#include <colls/ddp/compression.hpp>
#include <colls/ddp/driver.hpp>

#include <cstring>
#include <memory>
#include <string>

namespace colls::ddp {

/// A trained parameter: its name, which is used in error messages, and the number of elements of
/// its gradient.
struct parameter {
  std::string name;
  std::size_t elements = 0;
};

/// The result of `gradient_buckets::no_sync`. While this object exists, `mark_ready` does nothing,
/// and the gradients of the ranks are not averaged.
class [[nodiscard(
    "gradients are averaged again once it is destroyed: give it a name")]] no_sync_guard {
 public:
  explicit no_sync_guard(int& depth) : depth_(&++depth) {}
  no_sync_guard(no_sync_guard&& other) noexcept : depth_(std::exchange(other.depth_, nullptr)) {}
  no_sync_guard& operator=(no_sync_guard&&) = delete;
  ~no_sync_guard() {
    if (depth_ != nullptr) --*depth_;
  }

 private:
  int* depth_;
};

/// The gradients of one model on one rank, in buckets. In each step every rank computes its
/// gradients, in any order. For each gradient i, the rank writes the gradient to `gradient(i)` and
/// then calls `mark_ready(i)`. After all gradients it calls `finish()`. When `finish()` has
/// returned, `gradient(i)` is the average over the ranks, with the same bits on all ranks. The
/// ranks start to sum a bucket as soon as all gradients of this bucket and of all earlier buckets
/// are ready.
///
/// All ranks must have the same parameters and options, and must take the same steps. A program can
/// call `check_agreement` to compare the parameters and options of all ranks. All ranks put the
/// gradients into buckets in the same order. In the first step, the order is the reverse order of
/// the parameters. In later steps, the order is the one in which the gradients became ready on rank
/// 0 in the first step. After an error the object can no longer be used. Only one thread may use
/// the object at a time.
template <class T, class Communicator>
class gradient_buckets {
 public:
  using hook = bucket_hook<T, Communicator>;

  /// Constructs an object whose communication runs on `driver`. The function `make_driver` returns
  /// such a driver. Nothing else may use the communicator of the driver.
  gradient_buckets(std::unique_ptr<driver<Communicator>> driver, std::vector<parameter> parameters,
                   options opts = {})
      : parameters_(std::move(parameters)),
        opts_(opts),
        hook_(make_hook<T, Communicator>(opts.compression)),
        seen_(parameters_.size()),
        used_(parameters_.size()),
        driver_(std::move(driver)) {
    arrange(bucket_plan::reverse_order(parameters_.size()));
  }
  /// Constructs the object with a new driver, which runs on a duplicate of `comm`. `opts.drive`
  /// selects the kind of driver. All ranks must call this constructor. Blocks until the driver
  /// exists.
  gradient_buckets(Communicator& comm, std::vector<parameter> parameters, options opts = {})
      : gradient_buckets(make_driver(comm, opts.drive), std::move(parameters), opts) {}
  gradient_buckets(const gradient_buckets&) = delete;
  gradient_buckets& operator=(const gradient_buckets&) = delete;

  int rank() const { return driver_->rank(); }
  int size() const { return driver_->size(); }
  const std::vector<parameter>& parameters() const { return parameters_; }
  const bucket_plan& plan() const { return plan_; }

  /// Returns the memory of the gradient of parameter `i`. When `finish()` or `take_part()` has
  /// returned, this memory holds the average. In the first step, these functions may also move the
  /// gradients to other memory. Spans that this function returned before then become invalid.
  std::span<T> gradient(std::size_t i) {
    const bucket_plan::location& location = plan_[i];
    return {memory_[location.bucket].get() + location.offset, parameters_[i].elements};
  }
  /// Returns a shared pointer to the memory of the gradient of parameter `i`. The memory exists at
  /// least as long as this pointer, even if this object is destroyed.
  std::shared_ptr<T> shared_gradient(std::size_t i) {
    return {memory_[plan_[i].bucket], gradient(i).data()};
  }

  /// Sets the hook that sums the buckets from the next step on. Must not be called during a step.
  void reduce_by(hook sum_hook) { hook_ = std::move(sum_hook); }
  /// Sets the buffers whose contents each later step copies from rank 0 to all ranks. The sizes of
  /// the buffers must be equal on all ranks. Must not be called during a step.
  void keep_equal(std::vector<std::span<std::byte>> buffers) {
    buffers_ = std::move(buffers);
    std::size_t total = 0;
    for (const auto& buffer : buffers_) total += buffer.size();
    staging_.resize(total);
  }

  /// Declares that the gradients of this rank in the next step are means over `count` samples. The
  /// averages of that step are sum(count_r * gradient_r) / sum(count_r) over the ranks r. Before
  /// each step, either all ranks must call this function or none may call it.
  void samples(std::int64_t count) {
    if (count < 0) throw error(errc::invalid_argument, "a number of samples is negative");
    samples_ = count;
  }

  /// Stops averaging while the returned object exists. During this time `mark_ready` does nothing,
  /// so the caller can add the gradients of several backward passes to `gradient(i)`.
  no_sync_guard no_sync() { return no_sync_guard(no_sync_depth_); }
  bool is_accumulating() const { return no_sync_depth_ > 0; }

  /// Returns whether a step is in progress. A step begins when the first gradient is ready, and
  /// `finish` completes it.
  bool is_in_step() const { return is_in_step_; }
  /// Returns whether gradient `i` is ready in the step that is in progress. Returns false if no
  /// step is in progress.
  bool is_ready(std::size_t i) const { return is_in_step_ && seen_[i]; }

  /// Declares that `gradient(i)` is complete. The caller must not write to the gradient again
  /// before `finish` has returned. The ranks start to sum a bucket when all gradients of this
  /// bucket and of all earlier buckets are ready. Does nothing while a result of `no_sync` exists.
  void mark_ready(std::size_t i) {
    if (is_accumulating()) return;
    expect_gradient(i);
    if (opts_.trace != nullptr) opts_.trace->ready[i] = driver_->now();
    used_[i] = 1;
    count_ready(i);
  }
  /// Marks gradient `i` as ready in a step in which this rank has added nothing to it. The ranks
  /// average the contents of `gradient(i)`, but this call does not make `used(i)` true.
  void mark_untouched(std::size_t i) {
    if (is_accumulating()) return;
    expect_gradient(i);
    count_ready(i);
  }

  /// Completes the step: blocks until all averages have been computed. If `options.allow_unused` is
  /// true, first sets the gradients that are not ready to zero. If it is false and a gradient is
  /// not ready, aborts the training on all ranks. Throws if any rank has failed.
  void finish() {
    continue_step();
    std::vector<std::size_t> unused;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!seen_[i]) unused.push_back(i);
    }
    if (!unused.empty() && !opts_.allow_unused) {
      revoke(named(unused) +
             " got no gradient in this step; options.allow_unused makes that count as zero");
    }
    leave_out_rest();
    complete();
  }

  /// Takes part in a step for which this rank has no samples. The rank adds nothing to the averages
  /// but receives them. Calls `samples(0)`, so all ranks with samples must have called `samples`
  /// before the step. Blocks until all averages have been computed.
  void take_part() {
    samples(0);
    continue_step();
    leave_out_rest();
    complete();
  }

  /// Aborts the training on all ranks with the error text `reason`. Never throws, so it can be
  /// called where exceptions are not allowed.
  void abandon(const std::string& reason) noexcept {
    try {
      revoke(reason);
    } catch (...) {  // the next call throws this error
    }
  }

  /// Returns whether any rank called `mark_ready(i)` in the last completed step. Always returns
  /// true if `options.allow_unused` is false.
  bool used(std::size_t i) const { return !opts_.allow_unused || used_[i] != 0; }

 private:
  static constexpr std::int64_t unset = -1;

  /// Assigns the gradients to new buckets in the order `order`, and copies the contents of all
  /// gradients to the new buckets.
  void arrange(std::vector<std::size_t> order) {
    const bucket_plan before = std::move(plan_);
    const auto old = std::move(memory_);
    std::vector<std::size_t> elements;
    for (const parameter& param : parameters_) elements.push_back(param.elements);
    plan_ = bucket_plan(elements, std::move(order), opts_.first_bucket_bytes / sizeof(T),
                        opts_.bucket_bytes / sizeof(T));
    memory_.clear();
    for (const auto& bucket : plan_.buckets()) {
      memory_.push_back(std::make_shared<T[]>(bucket.elements));
    }
    if (old.empty()) return;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const T* const source = old[before[i].bucket].get() + before[i].offset;
      std::copy_n(source, parameters_[i].elements, gradient(i).data());
    }
  }

  void continue_step() {
    if (failed_) std::rethrow_exception(failed_);
    if (!is_in_step_) begin();
  }

  void expect_gradient(std::size_t i) {
    if (i >= parameters_.size()) {
      failure reason(errc::invalid_argument);
      throw error(
          reason.set_detail("there is no parameter %zu: there are %zu", i, parameters_.size()));
    }
    continue_step();
    if (seen_[i]) revoke("the gradient of " + named({i}) + " became ready twice in one step");
  }

  void begin() {
    missing_.clear();
    for (const auto& bucket : plan_.buckets()) missing_.push_back(bucket.parameters.size());
    complete_ = 0;
    std::fill(seen_.begin(), seen_.end(), false);
    std::fill(used_.begin(), used_.end(), std::uint8_t{0});
    ready_order_.clear();
    std::size_t offset = 0;
    for (const auto& buffer : buffers_) {
      std::copy(buffer.begin(), buffer.end(),
                staging_.begin() + static_cast<std::ptrdiff_t>(offset));
      offset += buffer.size();
    }
    if (timeline* const trace = opts_.trace) {
      trace->begin = driver_->now();
      trace->ready.assign(parameters_.size(), 0);
      trace->buckets.assign(plan_.buckets().size(), {});
    }
    is_in_step_ = true;
    driver_->start(step(std::exchange(samples_, unset)));
  }

  void count_ready(std::size_t i) {
    seen_[i] = true;
    ready_order_.push_back(static_cast<std::uint32_t>(i));
    --missing_[plan_[i].bucket];
    const std::size_t before = complete_;
    while (complete_ < missing_.size() && missing_[complete_] == 0) ++complete_;
    if (complete_ != before) driver_->advance(complete_);
  }
  void leave_out_rest() {
    for (const std::size_t i : plan_.order()) {
      if (seen_[i]) continue;
      const std::span<T> none = gradient(i);
      std::fill(none.begin(), none.end(), T());
      count_ready(i);
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
    is_in_step_ = false;
    std::size_t offset = 0;
    for (const auto& buffer : buffers_) {
      std::copy_n(staging_.data() + offset, buffer.size(), buffer.data());
      offset += buffer.size();
    }
    if (!std::exchange(ordered_, true)) {
      std::vector<std::size_t> order(ready_order_.begin(), ready_order_.end());
      if (order != plan_.order()) arrange(std::move(order));
    }
    if (opts_.trace != nullptr) opts_.trace->end = driver_->now();
  }

  /// Returns the names of the parameters `indices` as text, such as "parameters 'a', 'b', 'c' and 4
  /// more".
  std::string named(const std::vector<std::size_t>& indices) const {
    constexpr std::size_t max_names = 3;
    std::string text = indices.size() > 1 ? "parameters" : "parameter";
    for (std::size_t k = 0; k < std::min(indices.size(), max_names); ++k) {
      text += (k > 0 ? ", '" : " '") + parameters_[indices[k]].name + "'";
    }
    if (indices.size() > max_names)
      text += " and " + std::to_string(indices.size() - max_names) + " more";
    return text;
  }

  [[noreturn]] void revoke(const std::string& reason) {
    if (failed_) std::rethrow_exception(failed_);
    driver_->revoke(reason);
    wait();  // throws, unless all sums of the step were already complete
    failed_ = std::make_exception_ptr(error(errc::revoked, reason.c_str()));
    std::rethrow_exception(failed_);
  }

  // Performs the communication of one step. The driver runs this task, possibly on another thread.
  // The task does not access a bucket until all gradients of the bucket are ready. From then
  // until the end of the step, only the task accesses the bucket.
  task<> step(std::int64_t samples) {
    Communicator& comm = driver_->comm();
    std::vector<std::int64_t> all(static_cast<std::size_t>(comm.size()));
    const std::int64_t own_samples[1] = {samples};
    co_await comm.all_gather(own_samples, all);
    const double weight = weight_among(all, comm.rank());
    if (!staging_.empty()) co_await comm.broadcast(staging_, 0);
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      co_await driver_->wait_for(i + 1);
      const std::span<T> bucket(memory_[i].get(), plan_.buckets()[i].elements);
      detail::scale(bucket, weight);
      if (opts_.trace != nullptr) opts_.trace->buckets[i] = {driver_->now(), 0, bucket.size()};
      task<> sum = hook_(comm, bucket);
      co_await sum;
      if (opts_.trace != nullptr) opts_.trace->buckets[i].end = driver_->now();
    }
    if (opts_.allow_unused) co_await comm.all_reduce(used_, maximum{});
    if (!ordered_) co_await comm.broadcast(ready_order_, 0);
  }

  static double weight_among(const std::vector<std::int64_t>& samples, int rank) {
    double total = 0;
    int unweighted = -1;
    int weighted = -1;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      (samples[i] == unset ? unweighted : weighted) = static_cast<int>(i);
      total += static_cast<double>(samples[i]);
    }
    if (weighted < 0) return 1 / static_cast<double>(samples.size());
    if (unweighted >= 0) {
      failure reason(errc::mismatch);
      reason.culprit = unweighted;
      throw error(
          reason.set_detail("rank %d said how many samples its gradient is a mean of, rank %d did "
                            "not: all ranks say so before a step, or none",
                            weighted, unweighted));
    }
    return total == 0 ? 0 : static_cast<double>(samples[static_cast<std::size_t>(rank)]) / total;
  }

  std::vector<parameter> parameters_;
  options opts_;
  hook hook_;
  bucket_plan plan_;
  std::vector<std::shared_ptr<T[]>> memory_;  // the memory of each bucket
  std::vector<std::span<std::byte>> buffers_;
  std::vector<std::byte> staging_;

  std::exception_ptr failed_;  // the error that aborted the training, if any
  int no_sync_depth_ = 0;
  std::int64_t samples_ = unset;
  bool ordered_ = false;  // whether the buckets have the order taken from rank 0

  // The state of the current step.
  bool is_in_step_ = false;
  std::vector<std::size_t> missing_;  // for each bucket, the number of gradients that are not ready
  std::size_t complete_ = 0;          // the number of leading buckets whose gradients are all ready
  std::vector<bool> seen_;
  std::vector<std::uint8_t> used_;
  std::vector<std::uint32_t> ready_order_;

  std::unique_ptr<driver<Communicator>> driver_;  // last, because its task uses the other members
};

}  // namespace colls::ddp
