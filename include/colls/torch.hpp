// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// data_parallel: a libtorch module that trains on all ranks.

#include <colls/ddp/gradient_buckets.hpp>
#include <colls/ddp/replicate.hpp>

#include <torch/torch.h>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace colls::ddp {

namespace detail {

struct named_tensor {
  std::string name;
  torch::Tensor value;
};

/// What a module consists of: each parameter and buffer once, however often it is used.
struct module_tensors {
  std::vector<named_tensor> parameters;
  std::vector<named_tensor> buffers;

  explicit module_tensors(const torch::nn::Module& net) {
    for (const auto& each : net.named_parameters()) add(parameters, "parameter", each);
    for (const auto& each : net.named_buffers()) add(buffers, "buffer", each);
  }

  std::vector<named_tensor> trained() const {
    std::vector<named_tensor> all;
    for (const named_tensor& each : parameters) {
      if (each.value.requires_grad()) all.push_back(each);
    }
    return all;
  }

 private:
  template <class Item>
  static void add(std::vector<named_tensor>& to, const char* kind, const Item& item) {
    const torch::Tensor& value = item.value();
    if (!value.defined()) return;
    for (const named_tensor& known : to) {
      if (known.value.is_same(value)) return;
    }
    if (!value.device().is_cpu() || value.layout() != torch::kStrided ||
        !value.is_non_overlapping_and_dense()) {
      failure why(errc::invalid_argument);
      throw error(why.say("%s '%s' is not in one piece of host memory", kind, item.key().c_str()));
    }
    to.push_back({item.key(), value});
  }
};

inline std::string text_of(torch::IntArrayRef numbers) {
  std::string text = "[";
  for (const std::int64_t each : numbers) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(each);
  }
  return text + "]";
}

inline std::string text_of(const torch::Tensor& tensor) {
  std::string text = c10::toString(tensor.scalar_type());
  for (char& letter : text) letter = static_cast<char>(std::tolower(letter));
  text += " " + text_of(tensor.sizes());
  if (!tensor.is_contiguous()) text += " with strides " + text_of(tensor.strides());
  return text;
}

inline std::vector<fact> facts_of(const module_tensors& net, const options& how) {
  std::vector<fact> facts;
  for (const named_tensor& each : net.parameters) {
    facts.push_back({"parameter", each.name,
                     text_of(each.value) + (each.value.requires_grad() ? "" : ", not trained")});
  }
  for (const named_tensor& each : net.buffers) {
    facts.push_back({"buffer", each.name, text_of(each.value)});
  }
  const auto option = [&](const char* name, std::size_t value) {
    facts.push_back({"option", name, std::to_string(value)});
  };
  option("first_bucket_bytes", how.first_bucket_bytes);
  option("bucket_bytes", how.bucket_bytes);
  option("compression", static_cast<std::size_t>(how.compression));
  option("allow_unused", how.allow_unused);
  option("broadcast_buffers", how.broadcast_buffers);
  return facts;
}

inline std::span<std::byte> bytes_of(const torch::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

/// The ranks agree on the module and take rank 0's values.
template <class Communicator>
void replicate(driver<Communicator>& by, const module_tensors& net, const options& how) {
  by.start(check_agreement(by.comm(), facts_of(net, how)));
  by.wait();
  std::vector<std::span<std::byte>> pieces;
  for (const auto* list : {&net.parameters, &net.buffers}) {
    for (const named_tensor& each : *list) pieces.push_back(bytes_of(each.value));
  }
  by.start(take_from_first(by.comm(), std::move(pieces)));
  by.wait();
}

/// The averaging of a module's gradients, whatever type they have.
class gradient_sync {
 public:
  virtual ~gradient_sync() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void samples(std::int64_t count) = 0;
  virtual quiet_scope no_sync() = 0;
  virtual void take_part() = 0;
  /// Throws if libtorch would not tell of all gradients.
  virtual void check() const = 0;
  virtual void ready(std::size_t parameter) = 0;
};

/// A call after each time that libtorch has added to a parameter's gradient.
class ready_hooks {
 public:
  ready_hooks(gradient_sync& of, const std::vector<named_tensor>& parameters) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      auto node = torch::autograd::impl::grad_accumulator(parameters[i].value);
      const std::uintptr_t key = node->add_post_hook(std::make_unique<hook>(of, i));
      all_.emplace_back(std::move(node), key);
    }
  }
  ready_hooks(const ready_hooks&) = delete;
  ready_hooks& operator=(const ready_hooks&) = delete;
  /// Whether libtorch still calls the one of parameter `i`: it forgets about hooks when a tensor
  /// gets another type.
  bool is_called(std::size_t i, const torch::Tensor& parameter) const {
    return torch::autograd::impl::try_get_grad_accumulator(parameter) == all_[i].first;
  }
  ~ready_hooks() {
    for (const auto& [node, key] : all_) node->del_post_hook(key);
  }

 private:
  class hook final : public torch::autograd::FunctionPostHook {
   public:
    hook(gradient_sync& of, std::size_t parameter) : of_(of), parameter_(parameter) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                              const torch::autograd::variable_list&) override {
      of_.ready(parameter_);
      return outputs;
    }

   private:
    gradient_sync& of_;
    std::size_t parameter_;
  };

  std::vector<std::pair<std::shared_ptr<torch::autograd::Node>, std::uintptr_t>> all_;
};

/// One backward of libtorch, which keeps this alive: it has ended when it says so, and broken off
/// when this is gone before.
class backward_end {
 public:
  class listener {
   public:
    virtual void backward_ended() = 0;
    virtual void backward_broke_off() noexcept = 0;

   protected:
    ~listener() = default;
  };

  explicit backward_end(listener& of) : of_(&of) {}
  backward_end(const backward_end&) = delete;
  backward_end& operator=(const backward_end&) = delete;
  ~backward_end() {
    if (of_ != nullptr) of_->backward_broke_off();
  }
  void reached() {
    if (listener* const of = std::exchange(of_, nullptr)) of->backward_ended();
  }
  void forget() { of_ = nullptr; }

 private:
  listener* of_;
};

/// Once a parameter has a gradient, it lies in its bucket: libtorch adds to it there, the average
/// is found there, and nothing is copied but a gradient that libtorch had put elsewhere.
template <class T, class Communicator>
class typed_gradient_sync final : public gradient_sync, backward_end::listener {
 public:
  typed_gradient_sync(const module_tensors& net, std::vector<named_tensor> trained,
                      std::unique_ptr<driver<Communicator>> by, const options& how)
      : parameters_(std::move(trained)),
        added_(parameters_.size()),
        allow_unused_(how.allow_unused),
        buckets_(std::move(by), described(parameters_), how),
        hooks_(*this, parameters_) {
    if (how.broadcast_buffers) {
      std::vector<std::span<std::byte>> bytes;
      for (const named_tensor& each : net.buffers) {
        bytes.push_back(bytes_of(each.value));
        buffers_.push_back(each.value);
      }
      buckets_.keep_equal(std::move(bytes));
    }
    for (std::size_t i = 0; i < parameters_.size(); ++i) views_.push_back(view(i));
  }

  ~typed_gradient_sync() override {
    if (const auto running = backward_.lock()) running->forget();
  }

  int rank() const override { return buckets_.rank(); }
  int size() const override { return buckets_.size(); }
  void samples(std::int64_t count) override { buckets_.samples(count); }
  quiet_scope no_sync() override { return buckets_.no_sync(); }

  void check() const override {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (hooks_.is_called(i, parameters_[i].value)) continue;
      failure why(errc::invalid_argument);
      throw error(
          why.say("parameter '%s' has been converted: convert a module before data_parallel",
                  parameters_[i].name.c_str()));
    }
  }

  void take_part() override {
    check();
    buckets_.take_part();
    settle();
  }

  void ready(std::size_t i) override {
    added_[i] = true;
    if (buckets_.is_quiet()) return;
    if (!buckets_.under_way()) {
      check();
      backward_end::listener& told = *this;
      const auto end = std::make_shared<backward_end>(told);
      backward_ = end;
      torch::autograd::Engine::get_default_engine().queue_callback([end] { end->reached(); });
    }
    put(i);
    buckets_.mark_ready(i);
  }

 private:
  static std::vector<parameter> described(const std::vector<named_tensor>& all) {
    std::vector<parameter> list;
    for (const named_tensor& each : all) {
      list.push_back({each.name, static_cast<std::size_t>(each.value.numel())});
    }
    return list;
  }

  torch::Tensor view(std::size_t i) {
    const torch::Tensor& value = parameters_[i].value;
    std::shared_ptr<T> kept = buckets_.shared_gradient(i);
    T* const data = kept.get();
    return torch::from_blob(
        data, value.sizes(), value.strides(), [kept = std::move(kept)](void*) {},
        torch::TensorOptions(value.scalar_type()));
  }

  void put(std::size_t i) {
    const torch::NoGradGuard no_graph;
    torch::Tensor& gradient = parameters_[i].value.mutable_grad();
    const auto refuse = [&](const char* why_not) {
      failure why(errc::invalid_argument);
      throw error(
          why.say("the gradient of parameter '%s' %s", parameters_[i].name.c_str(), why_not));
    };
    if (!gradient.defined()) {
      views_[i].zero_();
    } else if (gradient.layout() != torch::kStrided) {
      refuse("is sparse: such parameters cannot be trained here");
    } else if (gradient.scalar_type() != views_[i].scalar_type() ||
               gradient.sizes() != views_[i].sizes()) {
      refuse("has another type or shape than the parameter");
    } else if (gradient.data_ptr() == views_[i].data_ptr()) {
      return;
    } else {
      views_[i].copy_(gradient);
    }
    gradient = views_[i];
  }

  // What backward did not reach may have gathered before: while it was quiet, or in an earlier
  // step whose average nobody has taken away.
  void backward_ended() override {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (buckets_.is_ready(i)) continue;
      if (added_[i]) {
        put(i);
        buckets_.mark_ready(i);
      } else if (allow_unused_ && parameters_[i].value.grad().defined()) {
        put(i);
        buckets_.mark_untouched(i);
      }
    }
    buckets_.finish();
    settle();
  }
  void backward_broke_off() noexcept override {
    buckets_.abandon("an exception ended backward() in the middle of a step");
  }

  // The averages are there, perhaps in new buckets.
  void settle() {
    std::fill(added_.begin(), added_.end(), false);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (views_[i].data_ptr() != buckets_.gradient(i).data()) views_[i] = view(i);
      if (buckets_.used(i)) parameters_[i].value.mutable_grad() = views_[i];
    }
  }

  std::vector<named_tensor> parameters_;
  std::vector<torch::Tensor> buffers_;  // held, since their bytes are written
  std::vector<torch::Tensor> views_;    // into the buckets
  std::vector<bool> added_;             // got a gradient since the last average
  bool allow_unused_;
  std::weak_ptr<backward_end> backward_;  // under way
  gradient_buckets<T, Communicator> buckets_;
  ready_hooks hooks_;
};

template <class Communicator>
std::unique_ptr<gradient_sync> sync_gradients(const torch::nn::Module& module, Communicator& ranks,
                                              const options& how) {
  const module_tensors net(module);
  std::vector<named_tensor> trained = net.trained();
  if (trained.empty()) {
    throw error(errc::invalid_argument, "the module has no parameter that requires a gradient");
  }
  const auto type = trained[0].value.scalar_type();
  for (const named_tensor& each : trained) {
    if (each.value.scalar_type() == type) continue;
    failure why(errc::invalid_argument);
    throw error(
        why.say("parameter '%s' is %s and parameter '%s' is %s: gradients of one module are "
                "of one type",
                trained[0].name.c_str(), c10::toString(type), each.name.c_str(),
                c10::toString(each.value.scalar_type())));
  }
  auto by = drive_by(ranks, how.drive);
  replicate(*by, net, how);
  const auto make = [&]<class T>(T) -> std::unique_ptr<gradient_sync> {
    return std::make_unique<typed_gradient_sync<T, Communicator>>(net, std::move(trained),
                                                                  std::move(by), how);
  };
  switch (type) {
    case torch::kFloat:
      return make(float());
    case torch::kDouble:
      return make(double());
    case torch::kHalf:
      return make(float16());
    case torch::kBFloat16:
      return make(bfloat16());
    default:
      throw error(errc::invalid_argument, "gradients are float, double, half or bfloat16");
  }
}

}  // namespace detail

/// Trains a libtorch module on all ranks of a communicator, each with its own part of the batch:
/// `auto model = data_parallel(net, world);`, and the loop stays as it was. When `backward()` has
/// returned, every rank's gradients are the average over the ranks, bit for bit the same, so that
/// the optimizers of all ranks take the same step.
///
/// Making one is a collective call that blocks: it checks that names, order, types and shapes of
/// parameters and buffers are the same on all ranks (else a `mismatch` that names the parameter,
/// both ranks and both shapes, with nothing overwritten), and leaves rank 0's values on all ranks.
/// It works on a duplicate of the communicator, so calls on the communicator itself never meet its
/// own. The communicator outlives it. Parameters are in host memory, of one type, and stay where
/// they are: move or convert the module first. Used by one thread.
///
/// A rank that died is a `colls::error` from `backward()` that names it, as is a parameter that got
/// no gradient (`options.allow_unused`), and an exception that left `backward()` on another rank;
/// nothing more can be trained with it then.
template <class Module, class Communicator>
class data_parallel {
 public:
  data_parallel(std::shared_ptr<Module> net, Communicator& ranks, options how = {})
      : net_(std::move(net)), sync_(detail::sync_gradients(*net_, ranks, how)) {}
  /// The same for a module holder, as TORCH_MODULE makes them.
  data_parallel(const torch::nn::ModuleHolder<Module>& net, Communicator& ranks, options how = {})
      : data_parallel(net.ptr(), ranks, how) {}

  /// The module itself: forward, train, eval, parameters.
  Module* operator->() const { return net_.get(); }
  Module& operator*() const { return *net_; }
  const std::shared_ptr<Module>& module() const { return net_; }
  /// The module's forward.
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) const {
    sync_->check();
    return net_->forward(std::forward<Inputs>(inputs)...);
  }

  int rank() const { return sync_->rank(); }
  int size() const { return sync_->size(); }

  /// The coming backward's gradient is a mean over `count` samples of this rank: the average is
  /// sum(count_r * gradient_r) / sum(count_r). All ranks say so before a step, or none does: then
  /// all ranks weigh the same. A rank that says 0 counts for nothing, whatever its gradient is.
  void samples(std::int64_t count) {
    sync_->check();
    sync_->samples(count);
  }

  /// While the result lives, backward() only adds to this rank's gradients; the first backward
  /// afterwards averages what has gathered.
  quiet_scope no_sync() { return sync_->no_sync(); }

  /// In place of a backward, on a rank without samples in this step: contributes nothing and holds
  /// the average afterwards. The other ranks have said `samples`.
  void take_part() { sync_->take_part(); }

 private:
  std::shared_ptr<Module> net_;
  std::unique_ptr<detail::gradient_sync> sync_;
};

}  // namespace colls::ddp
