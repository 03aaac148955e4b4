// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// torch: the class data_parallel, which trains a libtorch module on all ranks of a communicator.
// Gradients are averaged in buckets, that is, buffers that hold the gradients of several
// parameters.

#include <colls/ddp/gradient_buckets.hpp>
#include <colls/ddp/replicate.hpp>
#include <colls/interprocess.hpp>

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

/// The parameters and buffers of a module. A tensor that the module contains several times is
/// listed once.
struct module_tensors {
  std::vector<named_tensor> parameters;
  std::vector<named_tensor> buffers;

  explicit module_tensors(const torch::nn::Module& net) {
    for (const auto& item : net.named_parameters()) add(parameters, "parameter", item);
    for (const auto& item : net.named_buffers()) add(buffers, "buffer", item);
  }

  std::vector<named_tensor> trained() const {
    std::vector<named_tensor> all;
    for (const named_tensor& tensor : parameters) {
      if (tensor.value.requires_grad()) all.push_back(tensor);
    }
    return all;
  }

 private:
  template <class Item>
  static void add(std::vector<named_tensor>& list, const char* kind, const Item& item) {
    const torch::Tensor& value = item.value();
    if (!value.defined()) return;
    for (const named_tensor& known : list) {
      if (known.value.is_same(value)) return;
    }
    if (!value.device().is_cpu() || value.layout() != torch::kStrided ||
        !value.is_non_overlapping_and_dense()) {
      failure reason(errc::invalid_argument);
      throw error(reason.set_detail("%s '%s' is not in one piece of host memory", kind,
                                    item.key().c_str()));
    }
    list.push_back({item.key(), value});
  }
};

inline std::string text_of(torch::IntArrayRef numbers) {
  std::string text = "[";
  for (const std::int64_t number : numbers) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(number);
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

inline std::vector<fact> facts_of(const module_tensors& net, const options& opts) {
  std::vector<fact> facts;
  for (const named_tensor& tensor : net.parameters) {
    facts.push_back(
        {"parameter", tensor.name,
         text_of(tensor.value) + (tensor.value.requires_grad() ? "" : ", not trained")});
  }
  for (const named_tensor& tensor : net.buffers) {
    facts.push_back({"buffer", tensor.name, text_of(tensor.value)});
  }
  const auto option = [&](const char* name, std::size_t value) {
    facts.push_back({"option", name, std::to_string(value)});
  };
  option("first_bucket_bytes", opts.first_bucket_bytes);
  option("bucket_bytes", opts.bucket_bytes);
  option("compression", static_cast<std::size_t>(opts.compression));
  option("allow_unused", opts.allow_unused);
  option("broadcast_buffers", opts.broadcast_buffers);
  return facts;
}

inline std::span<std::byte> bytes_of(const torch::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

/// Checks that the module and the options are equal on all ranks. If they differ, throws
/// `errc::mismatch`. Otherwise copies the values of the parameters and buffers from rank 0 to all
/// other ranks. All ranks must call this function.
template <class Communicator>
void replicate(driver<Communicator>& driver, const module_tensors& net, const options& opts) {
  driver.start(check_agreement(driver.comm(), facts_of(net, opts)));
  driver.wait();
  std::vector<std::span<std::byte>> pieces;
  for (const auto* list : {&net.parameters, &net.buffers}) {
    for (const named_tensor& tensor : *list) pieces.push_back(bytes_of(tensor.value));
  }
  driver.start(broadcast_pieces(driver.comm(), std::move(pieces)));
  driver.wait();
}

/// The interface of `typed_gradient_sync`, which averages a module's gradients. The interface does
/// not depend on the element type of the gradients.
class gradient_sync {
 public:
  virtual ~gradient_sync() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void samples(std::int64_t count) = 0;
  virtual no_sync_guard no_sync() = 0;
  virtual void take_part() = 0;
  /// Throws if libtorch no longer calls the hook of a trained parameter (see `ready_hooks`).
  virtual void check() const = 0;
  virtual void ready(std::size_t parameter) = 0;
};

/// The hooks through which libtorch reports gradients. Each trained parameter has one hook. Each
/// time libtorch has added to the gradient of a parameter, libtorch calls the parameter's hook, and
/// the hook calls `gradient_sync::ready`.
class ready_hooks {
 public:
  ready_hooks(gradient_sync& sync, const std::vector<named_tensor>& parameters) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      auto node = torch::autograd::impl::grad_accumulator(parameters[i].value);
      const std::uintptr_t key = node->add_post_hook(std::make_unique<hook>(sync, i));
      all_.emplace_back(std::move(node), key);
    }
  }
  ready_hooks(const ready_hooks&) = delete;
  ready_hooks& operator=(const ready_hooks&) = delete;
  /// Returns whether libtorch still calls the hook of `parameter`, whose index is `i`. libtorch
  /// stops calling the hook when the program converts the parameter to another type.
  bool is_called(std::size_t i, const torch::Tensor& parameter) const {
    return torch::autograd::impl::try_get_grad_accumulator(parameter) == all_[i].first;
  }
  ~ready_hooks() {
    for (const auto& [node, key] : all_) node->del_post_hook(key);
  }

 private:
  class hook final : public torch::autograd::FunctionPostHook {
   public:
    hook(gradient_sync& sync, std::size_t parameter) : sync_(sync), parameter_(parameter) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                              const torch::autograd::variable_list&) override {
      sync_.ready(parameter_);
      return outputs;
    }

   private:
    gradient_sync& sync_;
    std::size_t parameter_;
  };

  // The pointer's class depends on libtorch's version.
  using node_pointer =
      decltype(torch::autograd::impl::grad_accumulator(std::declval<const torch::Tensor&>()));
  std::vector<std::pair<node_pointer, std::uintptr_t>> all_;
};

/// An object that tells a listener whether a backward pass has completed or was aborted. A callback
/// in libtorch's queue owns this object. When the pass completes, libtorch runs the callback, which
/// calls `reached`. If an exception aborts the pass, libtorch destroys the callback without running
/// it, and the destructor of this object informs the listener.
class backward_end {
 public:
  class listener {
   public:
    virtual void backward_ended() = 0;
    virtual void backward_aborted() noexcept = 0;

   protected:
    ~listener() = default;
  };

  explicit backward_end(listener& target) : listener_(&target) {}
  backward_end(const backward_end&) = delete;
  backward_end& operator=(const backward_end&) = delete;
  ~backward_end() {
    if (listener_ != nullptr) listener_->backward_aborted();
  }
  void reached() {
    if (listener* const target = std::exchange(listener_, nullptr)) target->backward_ended();
  }
  void forget() { listener_ = nullptr; }

 private:
  listener* listener_;
};

/// The implementation of `gradient_sync` for gradients of type T. The gradients lie in buckets.
/// This class copies the first gradient of a parameter to a bucket, and then makes the gradient
/// tensor of the parameter a view of that part of the bucket. libtorch therefore adds later
/// gradients directly to the bucket. Once the ranks have averaged the bucket, the tensor refers to
/// the average, so this class need not copy the average back. If libtorch later stores a gradient
/// in other memory, this class copies the gradient to the bucket again.
template <class T, class Communicator>
class typed_gradient_sync final : public gradient_sync, backward_end::listener {
 public:
  typed_gradient_sync(const module_tensors& net, std::vector<named_tensor> trained,
                      std::unique_ptr<driver<Communicator>> driver, const options& opts)
      : parameters_(std::move(trained)),
        added_(parameters_.size()),
        allow_unused_(opts.allow_unused),
        buckets_(std::move(driver), described(parameters_), opts),
        hooks_(*this, parameters_) {
    if (opts.broadcast_buffers) {
      std::vector<std::span<std::byte>> bytes;
      for (const named_tensor& tensor : net.buffers) {
        bytes.push_back(bytes_of(tensor.value));
        buffers_.push_back(tensor.value);
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
  no_sync_guard no_sync() override { return buckets_.no_sync(); }

  void check() const override {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (hooks_.is_called(i, parameters_[i].value)) continue;
      failure reason(errc::invalid_argument);
      throw error(reason.set_detail(
          "parameter '%s' has been converted: convert a module before data_parallel",
          parameters_[i].name.c_str()));
    }
  }

  void take_part() override {
    check();
    buckets_.take_part();
    attach_averages();
  }

  void ready(std::size_t i) override {
    added_[i] = true;
    if (buckets_.is_accumulating()) return;
    if (!buckets_.is_in_step()) {
      check();
      backward_end::listener& target = *this;
      const auto end = std::make_shared<backward_end>(target);
      backward_ = end;
      torch::autograd::Engine::get_default_engine().queue_callback([end] { end->reached(); });
    }
    place_in_bucket(i);
    buckets_.mark_ready(i);
  }

 private:
  static std::vector<parameter> described(const std::vector<named_tensor>& all) {
    std::vector<parameter> list;
    for (const named_tensor& tensor : all) {
      list.push_back({tensor.name, static_cast<std::size_t>(tensor.value.numel())});
    }
    return list;
  }

  torch::Tensor view(std::size_t i) {
    const torch::Tensor& value = parameters_[i].value;
    std::shared_ptr<T> memory = buckets_.shared_gradient(i);
    T* const data = memory.get();
    return torch::from_blob(
        data, value.sizes(), value.strides(), [memory = std::move(memory)](void*) {},
        torch::TensorOptions(value.scalar_type()));
  }

  void place_in_bucket(std::size_t i) {
    const torch::NoGradGuard no_graph;
    torch::Tensor& gradient = parameters_[i].value.mutable_grad();
    const auto refuse = [&](const char* problem) {
      failure reason(errc::invalid_argument);
      throw error(reason.set_detail("the gradient of parameter '%s' %s",
                                    parameters_[i].name.c_str(), problem));
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

  // Completes the step. Before that, puts the gradients of the parameters that this backward pass
  // did not reach into the buckets. Such a parameter can have a gradient that the program
  // accumulated while a `no_sync` guard existed. If the program did not clear the gradients, the
  // parameter can also have the gradient of an earlier step, which is used only if `allow_unused`
  // is true.
  void backward_ended() override {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (buckets_.is_ready(i)) continue;
      if (added_[i]) {
        place_in_bucket(i);
        buckets_.mark_ready(i);
      } else if (allow_unused_ && parameters_[i].value.grad().defined()) {
        place_in_bucket(i);
        buckets_.mark_untouched(i);
      }
    }
    buckets_.finish();
    attach_averages();
  }
  void backward_aborted() noexcept override {
    buckets_.abandon("an exception ended backward() in the middle of a step");
  }

  // Makes the gradient tensors of the parameters refer to the averages. Called at the end of each
  // step, because a step may move the gradients to new buckets.
  void attach_averages() {
    std::fill(added_.begin(), added_.end(), false);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (views_[i].data_ptr() != buckets_.gradient(i).data()) views_[i] = view(i);
      if (buckets_.used(i)) parameters_[i].value.mutable_grad() = views_[i];
    }
  }

  std::vector<named_tensor> parameters_;
  std::vector<torch::Tensor> buffers_;  // kept alive, because each step overwrites them
  std::vector<torch::Tensor> views_;    // views of the gradients in the buckets
  std::vector<bool> added_;             // whether a parameter got a gradient since the last average
  bool allow_unused_;
  std::weak_ptr<backward_end> backward_;  // empty unless a backward pass is running
  gradient_buckets<T, Communicator> buckets_;
  ready_hooks hooks_;
};

template <class Communicator>
std::unique_ptr<gradient_sync> sync_gradients(const torch::nn::Module& module, Communicator& comm,
                                              const options& opts) {
  const module_tensors net(module);
  std::vector<named_tensor> trained = net.trained();
  if (trained.empty()) {
    throw error(errc::invalid_argument, "the module has no parameter that requires a gradient");
  }
  const auto type = trained[0].value.scalar_type();
  for (const named_tensor& tensor : trained) {
    if (tensor.value.scalar_type() == type) continue;
    failure reason(errc::invalid_argument);
    throw error(reason.set_detail(
        "parameter '%s' is %s and parameter '%s' is %s: gradients of one module are "
        "of one type",
        trained[0].name.c_str(), c10::toString(type), tensor.name.c_str(),
        c10::toString(tensor.value.scalar_type())));
  }
  auto driver = make_driver(comm, opts.drive);
  replicate(*driver, net, opts);
  const auto make = [&]<class T>(T) -> std::unique_ptr<gradient_sync> {
    return std::make_unique<typed_gradient_sync<T, Communicator>>(net, std::move(trained),
                                                                  std::move(driver), opts);
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

/// A libtorch module that all ranks of a communicator train, each with its own part of the batch.
/// After `auto model = data_parallel(net, world);` the training loop is the same as for one
/// process. When `backward()` returns, every rank holds the average of the gradients of all ranks.
/// This average is bit for bit equal on all ranks, so the optimizers of all ranks take identical
/// steps.
///
/// The constructor is a collective call, which blocks. It checks that the names, order, types and
/// shapes of the parameters and buffers, and also the options, are equal on all ranks. It then
/// copies the values from rank 0 to all other ranks. If the check fails, the constructor overwrites
/// nothing and throws a `colls::error` with the code `errc::mismatch`. The text of the error names
/// two ranks and the first property that differs between them, for example the shape of a
/// parameter. The model uses a duplicate of the communicator, so the library never matches the
/// model's calls with other calls on the communicator. The communicator must outlive the model.
///
/// All parameters and buffers must be in host memory, and all trained parameters must be of one
/// type. Move or convert the module before you construct the model, because the parameters must
/// then keep their memory and type. Use the model from one thread only.
///
/// `backward()` throws `colls::error` if it cannot complete the step. For example, a rank has died
/// (the error names that rank), a parameter got no gradient and `options.allow_unused` is false,
/// only some ranks have called `samples`, a gradient is sparse, or `backward()` threw an exception
/// on another rank. After such an error, the model can no longer be trained until `reset`.
template <class Module, class Communicator>
class data_parallel {
 public:
  data_parallel(std::shared_ptr<Module> net, Communicator& comm, options opts = {})
      : net_(std::move(net)), opts_(std::move(opts)) {
    reset(comm);
  }
  /// Accepts a module holder, which is a class that the macro TORCH_MODULE defines.
  data_parallel(const torch::nn::ModuleHolder<Module>& net, Communicator& comm, options opts = {})
      : data_parallel(net.ptr(), comm, opts) {}

  /// Lets the model train on `comm` from now on, for example on the communicator that `shrink` has
  /// made after an error. This is the same collective call as the constructor, with the same
  /// errors. If it throws, the model stays on its old communicator.
  void reset(Communicator& comm) { sync_ = detail::sync_gradients(*net_, comm, opts_); }

  /// Returns a pointer to the module, so that `model->train()` calls the module's `train`.
  Module* operator->() const { return net_.get(); }
  Module& operator*() const { return *net_; }
  const std::shared_ptr<Module>& module() const { return net_; }
  /// Calls the module's `forward` with `inputs` and returns the result.
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) const {
    sync_->check();
    return net_->forward(std::forward<Inputs>(inputs)...);
  }

  int rank() const { return sync_->rank(); }
  int size() const { return sync_->size(); }

  /// Declares that the next backward pass computes the mean gradient of `count` samples on this
  /// rank. The average over the ranks r is then sum(count_r * gradient_r) / sum(count_r). If
  /// `count` is 0, the gradient of this rank is ignored. If one rank calls this function before a
  /// step, all ranks must call it. If no rank calls it, all ranks have equal weight.
  void samples(std::int64_t count) {
    sync_->check();
    sync_->samples(count);
  }

  /// Returns a guard. While the guard exists, `backward()` adds to this rank's gradients but does
  /// not average them over the ranks. After the guard has been destroyed, the next `backward()`
  /// averages the accumulated gradients.
  no_sync_guard no_sync() { return sync_->no_sync(); }

  /// Lets this rank take part in a step in which it has no samples. The rank must then call this
  /// function instead of `backward()`. The rank contributes nothing to the average. When this
  /// function returns, the gradients of the rank hold the average. All ranks that have samples must
  /// call `samples` before such a step.
  void take_part() { sync_->take_part(); }

 private:
  std::shared_ptr<Module> net_;
  options opts_;
  std::unique_ptr<detail::gradient_sync> sync_;
};

}  // namespace colls::ddp
