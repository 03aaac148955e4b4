// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A checkpoint of training a libtorch module: everything that another number of ranks needs to go
// on.

#include <colls/coroutine/sync_wait.hpp>
#include <colls/ddp/checkpoint.hpp>
#include <colls/ddp/sampler.hpp>

#include <torch/torch.h>

#include <sstream>

namespace colls::ddp {

namespace detail {

/// Beside the module's own entries, under a name that no module has.
inline constexpr const char* training_entry = "colls_training";

inline error not_usable(const std::string& path, const std::string& why) {
  return error(failure(errc::file_failed).say("%s: %s", path.c_str(), why.c_str()));
}

/// The first line of what libtorch says.
inline std::string first_line(const c10::Error& thrown) {
  const std::string all = thrown.what_without_backtrace();
  return all.substr(0, all.find('\n'));
}

inline std::string shape_of(const torch::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.dtype() << ' ' << tensor.sizes();
  return text.str();
}

/// What a checkpoint says of a module, compared with the module before anything is changed.
class stored_module {
 public:
  stored_module(torch::serialize::InputArchive& from, torch::nn::Module& into,
                const std::string& path)
      : path_(path) {
    compare(from, into, "");
  }

  /// The module has the stored values, in the memory where it had its own.
  void copy() {
    const torch::NoGradGuard no_grad;
    for (auto& [into, value] : pairs_) into.copy_(value);
  }

 private:
  void compare(torch::serialize::InputArchive& from, torch::nn::Module& into,
               const std::string& prefix) {
    std::vector<std::string> known{training_entry};
    const auto take = [&](const auto& tensors, bool is_buffer) {
      for (const auto& mine : tensors) {
        torch::Tensor value;
        if (!from.try_read(mine.key(), value, is_buffer)) refuse(prefix + mine.key(), "not in it");
        if (value.sizes() != mine.value().sizes() || value.dtype() != mine.value().dtype()) {
          refuse(prefix + mine.key(),
                 shape_of(value) + " in it, " + shape_of(mine.value()) + " here");
        }
        known.push_back(mine.key());
        pairs_.emplace_back(mine.value(), value);
      }
    };
    take(into.named_parameters(false), false);
    take(into.named_buffers(false), true);
    for (const auto& child : into.named_children()) {
      torch::serialize::InputArchive below;
      if (from.try_read(child.key(), below)) {
        compare(below, *child.value(), prefix + child.key() + ".");
      } else if (const auto missing = child.value()->named_parameters(); !missing.is_empty()) {
        refuse(prefix + child.key() + "." + missing.begin()->key(), "not in it");
      }
      known.push_back(child.key());
    }
    for (const std::string& name : from.keys()) {
      torch::Tensor value;
      torch::serialize::InputArchive below;
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      if (from.try_read(name, value) || from.try_read(name, value, true)) {
        refuse(prefix + name, "in it, not in this one");
      }
      if (from.try_read(name, below)) refuse(prefix + name, "a part of it, not of this one");
    }
  }

  [[noreturn]] void refuse(const std::string& name, const std::string& why) const {
    throw not_usable(path_, "is the checkpoint of another network: " + name + " is " + why);
  }

  const std::string& path_;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> pairs_;
};

inline void write_state(torch::serialize::OutputArchive& to, const sampler_state& at) {
  const auto put = [&](const char* name, std::uint64_t value) {
    to.write(name, c10::IValue(static_cast<std::int64_t>(value)));
  };
  put("samples", at.samples);
  put("batch", at.batch);
  put("seed", at.seed);
  put("epoch", at.epoch);
  put("step", at.step);
}

inline sampler_state read_state(torch::serialize::InputArchive& from) {
  const auto get = [&](const char* name) {
    c10::IValue value;
    from.read(name, value);
    return static_cast<std::uint64_t>(value.toInt());
  };
  return {get("samples"), get("batch"), get("seed"), get("epoch"), get("step")};
}

}  // namespace detail

/// Rank 0 writes module, optimizer and sampler to `path`, as an `atomic_file`: afterwards it is on
/// disk, and every rank knows; or the old file is as it was, and every rank throws
/// `errc::file_failed`. The module's entries have its own names, so that `torch::load(net, path)`
/// reads the file into a module without colls. Blocks; every rank calls it.
template <class Communicator>
void save_checkpoint(Communicator& comm, const std::string& path, const torch::nn::Module& net,
                     const torch::optim::Optimizer& optimizer, const sampler_state& at) {
  const auto write = [&](atomic_file& file) {
    torch::serialize::OutputArchive archive, training(archive.compilation_unit());
    net.save(archive);
    torch::serialize::OutputArchive state(archive.compilation_unit());
    optimizer.save(state);
    training.write("optimizer", state);
    detail::write_state(training, at);
    archive.write(detail::training_entry, training);
    // By way of memory: libtorch's writer ends the process when its output fails.
    std::ostringstream all;
    archive.save_to(all);
    const std::string bytes = std::move(all).str();
    file.write(bytes.data(), bytes.size());
  };
  sync_wait(comm, write_file(comm, path, write));
}

/// Module and optimizer of every rank are as they were saved (the optimizer's options, such as its
/// learning rate, are those that it was made with); gives the sampler's state. Only rank 0 needs
/// the file. Throws `errc::file_failed`, which names the file and what does not fit, and has then
/// changed neither. Blocks; every rank calls it.
template <class Communicator>
sampler_state load_checkpoint(Communicator& comm, const std::string& path, torch::nn::Module& net,
                              torch::optim::Optimizer& optimizer) {
  const std::vector<char> bytes = sync_wait(comm, read_file(comm, path));
  torch::serialize::InputArchive archive;
  try {
    archive.load_from(bytes.data(), bytes.size());
  } catch (const c10::Error& thrown) {
    throw detail::not_usable(path, "is no checkpoint: " + detail::first_line(thrown));
  }
  detail::stored_module stored(archive, net, path);
  torch::serialize::InputArchive training, state;
  if (!archive.try_read(detail::training_entry, training)) {
    throw detail::not_usable(path, "holds a module alone, nothing to go on training from");
  }
  sampler_state at;
  try {
    at = detail::read_state(training);
    training.read("optimizer", state);
    optimizer.load(state);
  } catch (const c10::Error&) {
    throw detail::not_usable(path, "has the state of another kind of optimizer");
  }
  stored.copy();
  return at;
}

}  // namespace colls::ddp
