// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// object_call: the calls that move objects. They serialise an object when the call starts, move the
// bytes by a call of unknown lengths, and make the objects of the received bytes.

#include <colls/call/communicator_core.hpp>
#include <colls/call/gathered.hpp>
#include <colls/call/probed_message.hpp>
#include <colls/objects/serializer.hpp>

#include <cstdlib>
#include <cxxabi.h>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <typeinfo>

namespace colls::detail {

/// Returns the name of a type as C++ writes it. `name` is that of its std::type_info.
inline std::string demangled(const char* name) {
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, nullptr), &std::free);
  return text != nullptr ? text.get() : name;
}

/// Returns the number that identifies the objects of type `T` in a fingerprint or a message, and
/// what a call does with them (`use`). Equal on ranks whose compilers name types by the same ABI.
template <class T>
std::uint32_t object_type(const char* use = "object") {
  static const std::string readable_name = demangled(typeid(T).name());
  const std::uint32_t type = name_hash().add(use).add(typeid(T).name()).user_id();
  remember_object_type(type, readable_name.c_str());
  return type;
}

/// Objects as bytes, one behind the other.
class written_objects {
 public:
  template <class T>
  void write(const T& value) {
    serializer<T>::write(value, bytes_);
    ends_.push_back(bytes_.size());
  }
  /// Returns the bytes of each object. They move with this object.
  std::vector<any_view> pieces() {
    std::vector<any_view> result;
    std::size_t begin = 0;
    for (const std::size_t end : ends_) {
      result.push_back(any_buffer(bytes_.data() + begin, end - begin, 1));
      begin = end;
    }
    return result;
  }
  std::span<const std::byte> all() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
  std::vector<std::size_t> ends_;
};

/// The part of a call of objects that does not depend on what it returns: the bytes that this rank
/// passes, and those that it gets.
template <class Value>
class object_call : public unknown_lengths_call<Value> {
 public:
  using unknown_lengths_call<Value>::unknown_lengths_call;

  written_objects own;

  void* resize(std::size_t size) override {
    received_.emplace(size);
    return received_->data();
  }

 protected:
  /// Returns the bytes that this rank has received, or, if it has received none, as the root of a
  /// broadcast, those that it has passed.
  std::span<const std::byte> received() const {
    return received_ ? std::span<const std::byte>(*received_) : own.all();
  }
  std::span<const std::byte> received_from(std::size_t rank) const {
    const std::size_t begin = this->offsets[rank];
    return received().subspan(begin, this->offsets[rank + 1] - begin);
  }

 private:
  std::optional<std::vector<std::byte>> received_;
};

/// A call whose result is one object.
template <class T>
class one_object_call final : public object_call<T> {
 public:
  using object_call<T>::object_call;

 private:
  T take_value() override { return serializer<T>::read(this->received()); }
};

/// A call whose result is the objects of all ranks.
template <class T>
class object_list_call final : public object_call<std::vector<T>> {
 public:
  using object_call<std::vector<T>>::object_call;

  bool is_empty = false;  // because this rank is not the root

 private:
  std::vector<T> take_value() override {
    std::vector<T> values;
    for (std::size_t rank = 0; !is_empty && rank + 1 < this->offsets.size(); ++rank) {
      values.push_back(serializer<T>::read(this->received_from(rank)));
    }
    return values;
  }
};

/// A call whose result is the objects of all ranks, combined in rank order.
template <class T, class Op>
class object_reduction_call final : public object_call<T> {
 public:
  using object_call<T>::object_call;

  std::optional<Op> op;

 private:
  T take_value() override {
    T sum = serializer<T>::read(this->received_from(0));
    for (std::size_t rank = 1; rank + 1 < this->offsets.size(); ++rank) {
      sum = (*op)(std::move(sum), serializer<T>::read(this->received_from(rank)));
    }
    return sum;
  }
};

/// Revokes the communicator because of the exception that is being handled, which the
/// serialisation of an object has thrown. Returns the reason of the revocation.
template <class Transport>
failure revoke_for_object(core<Transport>& comm, collective coll) {
  failure reason = failure_of(std::current_exception());
  reason.operation = coll;
  reason.culprit = comm.matching().rank();
  if (comm.is_open()) comm.revoke(reason);
  return reason;
}

/// Starts a call of the type `Call`, which passes the objects that `write(own)` writes. If that
/// throws, revokes the communicator and returns an operation that has failed. `prepare(call)` is
/// called before the call begins.
template <class Call, class Transport, class Write, class Prepare>
operation<typename Call::value_type> start_object_call(core<Transport>& comm, collective coll,
                                                       std::uint32_t type, int root,
                                                       const options& opts, const Write& write,
                                                       const Prepare& prepare) {
  written_objects own;
  const auto make_call = [&]() -> call<typename Call::value_type>* {
    return comm.template make<Call>(coll);
  };
  if (!comm.accepts_calls()) return comm.refuse_unusable(make_call());
  try {
    write(own);
  } catch (...) {
    revoke_for_object(comm, coll);
    return comm.refuse_unusable(make_call());
  }
  unknown_lengths_request request{coll, type, 1, root, own.pieces()};
  return start_unknown_lengths<Call>(comm, std::move(request), opts, [&](Call& new_call) {
    new_call.own = std::move(own);
    prepare(new_call);
  });
}
template <class Call, class Transport, class Write>
operation<typename Call::value_type> start_object_call(core<Transport>& comm, collective coll,
                                                       std::uint32_t type, int root,
                                                       const options& opts, const Write& write) {
  return start_object_call<Call>(comm, coll, type, root, opts, write, [](Call&) {});
}

// ---- point to point: a message begins with the type of its object

template <class T>
std::vector<std::byte> message_of(const T& value) {
  const std::uint64_t type = object_type<T>();
  std::vector<std::byte> bytes(sizeof type);
  std::memcpy(bytes.data(), &type, sizeof type);
  serializer<T>::write(value, bytes);
  return bytes;
}

template <class T, class Transport>
task<T> recv_object(core<Transport>& comm, call_base& owner, message_key key) {
  unexpected_message* message = nullptr;
  const message_owner discards(comm, message);
  // The memory is not initialised, so a message takes no more pages than bytes have arrived.
  std::unique_ptr<std::byte[]> memory;
  std::span<const std::byte> bytes;
  const auto resize = [&](std::size_t size) {
    try {
      memory = std::make_unique_for_overwrite<std::byte[]>(size);
    } catch (...) {
      throw error(revoke_for_object(comm, collective::recv));
    }
    bytes = {memory.get(), size};
    return any_buffer(memory.get(), size, 1);
  };
  auto receiving = comm.recv_resized(owner, key, message, 1, default_most, resize);
  const received from = co_await receiving;
  std::uint64_t type = 0;
  if (bytes.size() >= sizeof type) std::memcpy(&type, bytes.data(), sizeof type);
  if (type != object_type<T>()) {
    failure reason(errc::mismatch);
    reason.culprit = comm.state().world_rank(from.source);
    reason.set_detail(
        "the message with tag %d of rank %d is no object of the type that is received", from.tag,
        from.source);
    throw error(reason);
  }
  try {
    co_return serializer<T>::read(bytes.subspan(sizeof type));
  } catch (...) {
    const failure reason = revoke_for_object(comm, collective::recv);
    throw error(reason);
  }
}

}  // namespace colls::detail
