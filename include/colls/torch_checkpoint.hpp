// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// torch_checkpoint: saves the training state of a libtorch module to a file, and restores it from
// the file. Training can be resumed with a different number of ranks.

#include <colls/coroutine/sync_wait.hpp>
#include <colls/ddp/checkpoint.hpp>
#include <colls/ddp/sampler.hpp>

#include <torch/torch.h>

#include <sstream>

namespace colls::ddp {

namespace detail {

/// The name of the archive entry that holds the states of the optimizer and the sampler. No module
/// may have an entry of this name.
inline constexpr const char* training_entry = "colls_training";

inline error checkpoint_error(const std::string& path, const std::string& reason) {
  return error(failure(errc::file_failed).set_detail("%s: %s", path.c_str(), reason.c_str()));
}

/// Returns the first line of libtorch's error message.
inline std::string first_line(const c10::Error& thrown) {
  const std::string all = thrown.what_without_backtrace();
  return all.substr(0, all.find('\n'));
}

inline std::string shape_of(const torch::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.dtype() << ' ' << tensor.sizes();
  return text.str();
}

/// The values of the parameters and buffers of a module, as an archive stores them. The constructor
/// does not change `module`. It compares the names, shapes and types in the archive with those of
/// `module`, and throws if they differ.
class stored_module {
 public:
  stored_module(torch::serialize::InputArchive& archive, torch::nn::Module& module,
                const std::string& path)
      : path_(path) {
    compare(archive, module, "");
  }

  /// Copies the stored values into the memory of the module's tensors.
  void copy() {
    const torch::NoGradGuard no_grad;
    for (auto& [target, value] : pairs_) target.copy_(value);
  }

 private:
  void compare(torch::serialize::InputArchive& archive, torch::nn::Module& module,
               const std::string& prefix) {
    std::vector<std::string> known{training_entry};
    const auto take = [&](const auto& tensors, bool is_buffer) {
      for (const auto& item : tensors) {
        torch::Tensor value;
        if (!archive.try_read(item.key(), value, is_buffer))
          refuse(prefix + item.key(), "not in it");
        if (value.sizes() != item.value().sizes() || value.dtype() != item.value().dtype()) {
          refuse(prefix + item.key(),
                 shape_of(value) + " in it, " + shape_of(item.value()) + " here");
        }
        known.push_back(item.key());
        pairs_.emplace_back(item.value(), value);
      }
    };
    take(module.named_parameters(false), false);
    take(module.named_buffers(false), true);
    for (const auto& child : module.named_children()) {
      torch::serialize::InputArchive nested;
      if (archive.try_read(child.key(), nested)) {
        compare(nested, *child.value(), prefix + child.key() + ".");
      } else if (const auto missing = child.value()->named_parameters(); !missing.is_empty()) {
        refuse(prefix + child.key() + "." + missing.begin()->key(), "not in it");
      }
      known.push_back(child.key());
    }
    for (const std::string& name : archive.keys()) {
      torch::Tensor value;
      torch::serialize::InputArchive nested;
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      if (archive.try_read(name, value) || archive.try_read(name, value, true)) {
        refuse(prefix + name, "in it, not in this one");
      }
      if (archive.try_read(name, nested)) refuse(prefix + name, "a part of it, not of this one");
    }
  }

  [[noreturn]] void refuse(const std::string& name, const std::string& reason) const {
    throw checkpoint_error(path_,
                           "is the checkpoint of another network: " + name + " is " + reason);
  }

  const std::string& path_;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> pairs_;
};

inline void write_state(torch::serialize::OutputArchive& archive, const sampler_state& state) {
  const auto put = [&](const char* name, std::uint64_t value) {
    archive.write(name, c10::IValue(static_cast<std::int64_t>(value)));
  };
  put("samples", state.samples);
  put("batch", state.batch);
  put("seed", state.seed);
  put("epoch", state.epoch);
  put("step", state.step);
}

inline sampler_state read_state(torch::serialize::InputArchive& archive) {
  const auto get = [&](const char* name) {
    c10::IValue value;
    archive.read(name, value);
    return static_cast<std::uint64_t>(value.toInt());
  };
  return {get("samples"), get("batch"), get("seed"), get("epoch"), get("step")};
}

/// The parts of a training's state other than those of the module and the optimizer.
struct training_position {
  sampler_state sampler;
  std::string own;  // the state of the user's own
};

/// Returns the state of a training as the bytes of an archive.
inline std::string encode_training(const torch::nn::Module& net,
                                   const torch::optim::Optimizer& optimizer,
                                   const training_position& position) {
  torch::serialize::OutputArchive archive, training(archive.compilation_unit());
  net.save(archive);
  torch::serialize::OutputArchive optimizer_state(archive.compilation_unit());
  optimizer.save(optimizer_state);
  training.write("optimizer", optimizer_state);
  write_state(training, position.sampler);
  training.write("own", c10::IValue(position.own));
  archive.write(training_entry, training);
  std::ostringstream all;
  archive.save_to(all);
  return std::move(all).str();
}

/// Restores the module and the optimizer from the bytes of an archive, and returns the rest of the
/// state. `source` names the archive in the texts of errors. If this function throws, it has
/// changed neither the module nor the optimizer.
inline training_position decode_training(std::span<const char> bytes, const std::string& source,
                                         torch::nn::Module& net,
                                         torch::optim::Optimizer& optimizer) {
  torch::serialize::InputArchive archive;
  try {
    archive.load_from(bytes.data(), bytes.size());
  } catch (const c10::Error& thrown) {
    throw checkpoint_error(source, "is no checkpoint: " + first_line(thrown));
  }
  stored_module stored(archive, net, source);
  torch::serialize::InputArchive training, state;
  if (!archive.try_read(training_entry, training)) {
    throw checkpoint_error(source, "holds a module alone, nothing to go on training from");
  }
  training_position position;
  try {
    position.sampler = read_state(training);
    c10::IValue own;
    if (training.try_read("own", own)) position.own = own.toStringRef();
    training.read("optimizer", state);
    optimizer.load(state);
  } catch (const c10::Error&) {
    throw checkpoint_error(source, "has the state of another kind of optimizer");
  }
  stored.copy();
  return position;
}

/// Writes the state of rank 0's training to the file `path`, as `save_checkpoint` does.
template <class Communicator>
void write_training(Communicator& comm, const std::string& path, const torch::nn::Module& net,
                    const torch::optim::Optimizer& optimizer, const training_position& position) {
  // libtorch writes the archive to memory and not directly to the file, because libtorch's writer
  // terminates the process if it cannot write its output.
  const auto write = [&](atomic_file& file) {
    const std::string bytes = encode_training(net, optimizer, position);
    file.write(bytes.data(), bytes.size());
  };
  sync_wait(comm, write_file(comm, path, write));
}

/// Restores the state of a training from the file `path`, as `load_checkpoint` does.
template <class Communicator>
training_position read_training(Communicator& comm, const std::string& path, torch::nn::Module& net,
                                torch::optim::Optimizer& optimizer) {
  return decode_training(sync_wait(comm, read_file(comm, path)), path, net, optimizer);
}

}  // namespace detail

/// Writes the state of rank 0's module, optimizer and sampler to the file `path`. Replaces an
/// existing file atomically (see `atomic_file`). All ranks must call this function, which blocks
/// until the new file is on disk. If rank 0 fails, this function throws `errc::file_failed` on
/// every rank. The old file is unchanged if rank 0 failed before the new file was complete. The
/// entries of the module have the names that `torch::save` gives them, so `torch::load(net, path)`
/// can read the file without colls.
template <class Communicator>
void save_checkpoint(Communicator& comm, const std::string& path, const torch::nn::Module& net,
                     const torch::optim::Optimizer& optimizer, const sampler_state& state) {
  detail::write_training(comm, path, net, optimizer, {state, {}});
}

/// Restores the module and the optimizer on every rank from the file `path`, and returns the state
/// of the sampler. All ranks must call this function, which blocks. Only rank 0 needs the file. The
/// options of the optimizer, such as its learning rate, are not restored. If the file does not
/// match the module or the optimizer, throws `errc::file_failed` and leaves the module and the
/// optimizer unchanged. The text of the error names the file. If the module does not match, the
/// text also names the first entry that differs.
template <class Communicator>
sampler_state load_checkpoint(Communicator& comm, const std::string& path, torch::nn::Module& net,
                              torch::optim::Optimizer& optimizer) {
  return detail::read_training(comm, path, net, optimizer).sampler;
}

}  // namespace colls::ddp
