// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// torch_elastic: the class elastic, which trains a libtorch module and goes on with the ranks that
// are left after others have failed.

#include <colls/torch.hpp>
#include <colls/torch_checkpoint.hpp>
#include <colls/world.hpp>

#include <torch/torch.h>

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

namespace colls::ddp {

/// The options of elastic training. `training`, `recovery`, `replace` and `checkpoint` must be
/// equal on all ranks.
struct elastic_options {
  options training{};
  /// The options of the agreements after a failure.
  recovery_options recovery{};
  /// Whether replacements of lost ranks are taken in. Without a launcher that starts some, or if
  /// too few have come, the ranks that are left go on alone.
  bool replace = true;
  /// If not empty, the file to which rank 0 writes the state at the beginning of each epoch and at
  /// the end. `run` goes on from this file if it exists.
  std::string checkpoint{};
  /// If set, returns the state of the user's own that a step may change. It is called on every rank
  /// before each step, and `load` then restores it where the step has to be taken again. Ranks that
  /// have not applied a step get the state of one that has. The state is part of checkpoints.
  std::function<std::string()> save{};
  std::function<void(std::string_view)> load{};
};

/// Trains a libtorch module on all ranks of a world. If ranks fail, the others repair the world
/// with the launcher's replacements, or shrink it, and go on. Every sample then still counts once
/// in each epoch:
///
/// - A step is done if any rank that is left has applied it. The others get the parameters,
///   buffers, optimizer and position of the lowest rank that has applied the most steps.
/// - Otherwise all ranks that are left take the step again, with the same samples, divided among
///   the ranks that there are now, and with the buffers as they were before.
///
/// A replacement runs the program from its start. It must make no collective calls on the world
/// before `run`, which gives it the parameters, buffers, optimizer and position of the others.
///
/// What only the lost rank has known is lost. `recovery_options` decide which ranks may go on; the
/// others get the errors of `shrink`, for example `errc::no_quorum`.
///
/// The world, optimizer and sampler must outlive this object. After a failure, `run` assigns the
/// new communicator to the world, so references to the world stay good.
template <class Module>
class elastic {
 public:
  using model_type = data_parallel<Module, world>;

  elastic(world& comm, std::shared_ptr<Module> net, torch::optim::Optimizer& optimizer,
          batch_sampler& sampler, elastic_options opts = {})
      : world_(comm),
        net_(std::move(net)),
        optimizer_(optimizer),
        sampler_(sampler),
        opts_(std::move(opts)) {
    if ((opts_.save == nullptr) != (opts_.load == nullptr)) {
      throw error(errc::invalid_argument, "elastic training needs both of save and load, or none");
    }
  }
  /// Accepts a module holder, which is a class that the macro TORCH_MODULE defines.
  elastic(world& comm, const torch::nn::ModuleHolder<Module>& net,
          torch::optim::Optimizer& optimizer, batch_sampler& sampler, elastic_options opts = {})
      : elastic(comm, net.ptr(), optimizer, sampler, std::move(opts)) {}

  /// Trains until the sampler is at the beginning of epoch `epochs`, which counts from 0. All ranks
  /// must call this function. For each step, calls `step(model, samples)`, which must compute the
  /// mean loss of these samples with `model` and call `backward()` once. `samples` are the indices
  /// of this rank's part of the batch. Before that, this function clears the gradients and seeds
  /// libtorch's generator from the sampler's seed, the rank, the epoch and the step. After it, this
  /// function applies the step to the parameters. `step` is not called on a rank without samples.
  ///
  /// When this function returns, all ranks that are left have made all steps, and their parameters
  /// have the same bits. Exceptions of `step` other than the failure of another rank end this
  /// function, and so do errors of `shrink`.
  template <class Step>
  void run(std::uint64_t epochs, Step step) {
    while (!is_done([&] { return train(epochs, step); })) {
      recover();
    }
  }

 private:
  /// What an interrupted step may have changed on this rank.
  struct snapshot {
    std::vector<torch::Tensor> buffers;
    std::string own;
    bool is_current = false;  // whether a step has begun and is not applied
  };

  // Assigns to the world what the ranks go on with.
  void recover() {
    if (opts_.replace) {
      try {
        world_ = sync_wait(world_, world_.repair(opts_.recovery));
        return;
      } catch (const error& thrown) {
        if (thrown.code() != errc::no_replacement) throw;
      }
    }
    world_ = sync_wait(world_, world_.shrink(without_replacements()));
  }

  // Returns the options of agree and shrink.
  recovery_options without_replacements() const {
    recovery_options result = opts_.recovery;
    result.at_least = 0;
    result.wait = {};
    return result;
  }

  // Returns the result of `work`, or false if other ranks have failed or left meanwhile.
  template <class Work>
  bool is_done(const Work& work) {
    try {
      return work();
    } catch (const error& thrown) {
      const int culprit = thrown.record().culprit;
      const bool has_left = thrown.code() == errc::closed && culprit >= 0 &&
                            culprit != world_.world_rank(world_.rank());
      if (thrown.code() != errc::peer_failed && thrown.code() != errc::revoked && !has_left) throw;
      return false;
    }
  }

  // Returns whether all ranks have made all steps.
  template <class Step>
  bool train(std::uint64_t epochs, Step& step) {
    begin();
    while (sampler_.state().epoch < epochs) {
      if (sampler_.state().step == 0) {
        if (opts_.replace && do_replacements_wait()) return false;
        save_checkpoint();
      }
      take(step);
    }
    save_checkpoint();
    // A rank that has not applied the last step needs the others, so none may leave before.
    if (!sync_wait(world_, world_.agree(1, without_replacements())).lost.empty()) return false;
    // A rank that closes the world counts as lost in agreements that have not ended on all ranks.
    // So this rank waits until all have the result. What happens to them then does not matter.
    (void)is_done([&] {
      sync_wait(world_, world_.barrier());
      return true;
    });
    return true;
  }

  // Returns whether replacements wait that come too late for the last repair.
  bool do_replacements_wait() {
    int waiting[] = {world_.waiting()};
    sync_wait(world_, world_.all_reduce(waiting, maximum{}));
    return waiting[0] > 0;
  }

  // Gives all ranks the same state, and lets the model train on the current world.
  void begin() {
    undo_step();
    check();
    const std::vector<std::uint64_t> steps = steps_of_all();
    const auto most = std::max_element(steps.begin(), steps.end());
    if (*most == 0) {
      resume();
    } else if (*std::min_element(steps.begin(), steps.end()) != *most) {
      transfer(static_cast<int>(most - steps.begin()));
    }
    has_state_ = true;
    if (model_) {
      model_->reset(world_);
    } else {
      model_.emplace(net_, world_, opts_.training);
    }
  }

  // Throws `errc::mismatch` unless the ranks train on the same batches.
  void check() {
    const sampler_state& at = sampler_.state();
    std::vector<fact> facts;
    facts.push_back({"sampler's number", "samples", std::to_string(at.samples)});
    facts.push_back({"sampler's number", "batch", std::to_string(at.batch)});
    facts.push_back({"sampler's number", "seed", std::to_string(at.seed)});
    facts.push_back({"option", "checkpoint", opts_.checkpoint});
    facts.push_back({"option", "save", opts_.save != nullptr ? "set" : "not set"});
    sync_wait(world_, check_agreement(world_, std::move(facts)));
  }

  // Returns for each rank the number of steps that it has applied, plus 1, or 0 if it may still
  // have to load the checkpoint.
  std::vector<std::uint64_t> steps_of_all() {
    const sampler_state& at = sampler_.state();
    const std::uint64_t own[] = {has_state_ ? at.epoch * sampler_.steps() + at.step + 1 : 0};
    std::vector<std::uint64_t> all(static_cast<std::size_t>(world_.size()));
    sync_wait(world_, world_.all_gather(own, all));
    return all;
  }

  // Goes on from the checkpoint, if there is one.
  void resume() {
    if (opts_.checkpoint.empty()) return;
    int exists[] = {world_.rank() == 0 && ::access(opts_.checkpoint.c_str(), F_OK) == 0};
    sync_wait(world_, world_.broadcast(exists, 0));
    if (exists[0] == 0) return;
    take_over(detail::read_training(world_, opts_.checkpoint, *net_, optimizer_), opts_.checkpoint);
  }

  // Gives all ranks the state of the rank `source`.
  void transfer(int source) {
    std::string bytes;
    if (world_.rank() == source) {
      bytes = detail::encode_training(*net_, optimizer_, position());
    }
    std::uint64_t size[] = {bytes.size()};
    sync_wait(world_, world_.broadcast(size, source));
    bytes.resize(size[0]);
    sync_wait(world_, world_.broadcast(bytes, source));
    if (world_.rank() == source) return;
    const std::string name = "the state of rank " + std::to_string(source);
    take_over(detail::decode_training(bytes, name, *net_, optimizer_), name);
  }

  void take_over(const detail::training_position& position, const std::string& source) {
    const sampler_state& own = sampler_.state();
    const sampler_state& other = position.sampler;
    if (other.samples != own.samples || other.batch != own.batch || other.seed != own.seed) {
      failure reason(errc::file_failed);
      throw error(reason.set_detail(
          "%s is of a training with another number of samples, batch or seed", source.c_str()));
    }
    sampler_ = batch_sampler(other);
    if (opts_.load != nullptr) opts_.load(position.own);
  }

  detail::training_position position() const {
    return {sampler_.state(), opts_.save != nullptr ? opts_.save() : std::string()};
  }

  void save_checkpoint() {
    if (opts_.checkpoint.empty()) return;
    detail::write_training(world_, opts_.checkpoint, *net_, optimizer_, position());
  }

  template <class Step>
  void take(Step& step) {
    const std::span<const std::size_t> samples = sampler_.batch(world_.rank(), world_.size());
    begin_step();
    optimizer_.zero_grad();
    model_->samples(static_cast<std::int64_t>(samples.size()));
    if (samples.empty()) {
      model_->take_part();
    } else {
      step(*model_, samples);
    }
    optimizer_.step();
    sampler_.advance();
    before_.is_current = false;
  }

  void begin_step() {
    const torch::NoGradGuard no_graph;
    const std::vector<torch::Tensor> buffers = net_->buffers();
    before_.buffers.resize(buffers.size());
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      torch::Tensor& copy = before_.buffers[i];
      if (copy.defined()) {
        copy.copy_(buffers[i]);
      } else {
        copy = buffers[i].clone();
      }
    }
    if (opts_.save != nullptr) before_.own = opts_.save();
    before_.is_current = true;
    const sampler_state& at = sampler_.state();
    const auto rank = static_cast<std::uint64_t>(world_.rank());
    torch::manual_seed(mix(mix(mix(at.seed, rank), at.epoch), at.step));
  }

  // Restores what an interrupted step has changed.
  void undo_step() {
    if (!std::exchange(before_.is_current, false)) return;
    const torch::NoGradGuard no_graph;
    const std::vector<torch::Tensor> buffers = net_->buffers();
    for (std::size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(before_.buffers[i]);
    if (opts_.load != nullptr) opts_.load(before_.own);
  }

  world& world_;
  std::shared_ptr<Module> net_;
  torch::optim::Optimizer& optimizer_;
  batch_sampler& sampler_;
  elastic_options opts_;
  snapshot before_;
  bool has_state_ = false;  // false until this rank has loaded the checkpoint, or needs none
  std::optional<model_type> model_;
};

}  // namespace colls::ddp
