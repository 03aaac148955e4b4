// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// data_parallel: a libtorch module that trains on all ranks. The only header that includes libtorch.

#include <colls/communicator.hpp>
#include <colls/ddp/options.hpp>

#include <torch/torch.h>

#include <memory>

namespace colls::ddp {

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
/// A rank that died is a `colls::error` from `backward()` that names it; the model is unusable
/// afterwards, as its communicator is.
template <class Module, class Communicator>
class data_parallel {
 public:
  /// `net` is a module holder (what TORCH_MODULE makes) or a std::shared_ptr to a module.
  data_parallel(std::shared_ptr<Module> net, Communicator& ranks, options how = {});

  /// The module itself: forward, train, eval, parameters.
  Module* operator->() const;
  Module& operator*() const;
  const std::shared_ptr<Module>& module() const;
  /// The module's forward.
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) const;

  int rank() const;
  int size() const;

  /// The coming backward's gradient is a mean over `count` samples of this rank: the average is
  /// sum(count_r * gradient_r) / sum(count_r). All ranks say so before a step, or none does: then
  /// all ranks weigh the same. A rank that says 0 counts for nothing, whatever its gradient is.
  void samples(std::int64_t count);

  /// While the result lives, backward() only adds to this rank's gradients; the first backward
  /// afterwards averages what has gathered.
  [[nodiscard]] auto no_sync();

  /// In place of a backward, on a rank without samples in this step: contributes nothing and holds
  /// the average afterwards. The other ranks have said `samples`.
  void take_part();
};

}  // namespace colls::ddp
