// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of fingerprint.hpp: the texts that describe a mismatch between the calls of two
// ranks.

#include <colls/base/compiler.hpp>
#include <colls/base/fingerprint.hpp>

#include <atomic>

namespace colls::detail {

/// Names of what a fingerprint contains only a number of, as far as calls in this process have used
/// them. If there are very many, a name can be lost. An error message then does not contain it.
class name_table {
 public:
  /// Remembers `name`, which must stay valid, as the name of `number`.
  void add(std::uint32_t number, const char* name) {
    const lock guard(is_locked_);
    slots_[number % size] = {number, name};
  }
  /// Returns the name of `number`, or null if it is unknown.
  const char* find(std::uint32_t number) {
    const lock guard(is_locked_);
    const slot& known = slots_[number % size];
    return known.number == number ? known.name : nullptr;
  }

 private:
  struct slot {
    std::uint32_t number = 0;
    const char* name = nullptr;
  };
  class lock {
   public:
    explicit lock(std::atomic_flag& flag) : flag_(flag) {
      while (flag_.test_and_set(std::memory_order_acquire)) {
      }
    }
    lock(const lock&) = delete;
    lock& operator=(const lock&) = delete;
    ~lock() { flag_.clear(std::memory_order_release); }

   private:
    std::atomic_flag& flag_;
  };
  static constexpr std::size_t size = 256;

  std::atomic_flag is_locked_;
  slot slots_[size];
};

COLLS_ONCE name_table& names_of_custom_algorithms() {
  static name_table names;
  return names;
}
COLLS_ONCE name_table& names_of_object_types() {
  static name_table names;
  return names;
}

COLLS_ONCE void remember_custom_algorithm(const char* name) {
  names_of_custom_algorithms().add(static_cast<std::uint32_t>(with_name(0, name) >> 32), name);
}
COLLS_ONCE void remember_object_type(std::uint32_t type, const char* name) {
  names_of_object_types().add(type, name);
}

/// Appends a description of the data of `call` to `out`.
inline void describe_data(line& out, const fingerprint& call) {
  if (call.type == 0 && call.count == 0) return;
  if (const char* const name = names_of_object_types().find(call.type)) {
    out.add(" of objects of type %.60s", name);
    return;
  }
  out.add(" of %llu x %s", static_cast<unsigned long long>(call.count), type_name(call.type));
  if (is_user_type(call.type)) out.add(" (%u bytes)", call.element_size);
}

COLLS_ONCE void describe(line& out, const fingerprint& call) {
  out.add("%s", colls::name(call.operation));
  describe_data(out, call);
  if (call.op != 0) out.add(", %s", op_name(call.op));
  if (call.accumulate != 0 && call.accumulate != call.type) {
    out.add(" in %s", type_name(call.accumulate));
  }
  if (call.root >= 0) out.add(", root %d", call.root);
  if (call.algorithm == algorithm::custom) {
    const char* const known =
        names_of_custom_algorithms().find(static_cast<std::uint32_t>(call.shape >> 32));
    out.add(", %s", known != nullptr ? known : "an algorithm that is unknown here");
  } else if (call.algorithm != algorithm::automatic) {
    out.add(", %s", colls::name(call.algorithm));
  }
}

COLLS_ONCE void describe_mismatch(failure& reason, int rank, const fingerprint& call,
                                  int other_rank, const fingerprint& other_call) {
  line first;
  line second;
  line differ;
  describe(first, call);
  describe(second, other_call);
  const auto add = [&](bool differs, const char* field) {
    if (differs) differ.add("%s%s", differ.text()[0] == 0 ? "" : ", ", field);
  };
  if (call.operation != other_call.operation) {
    reason.set_detail("rank %d called %.100s, rank %d called %.100s; they differ in collective",
                      rank, first.text(), other_rank, second.text());
    return;
  }
  const bool is_custom =
      call.algorithm == algorithm::custom && other_call.algorithm == algorithm::custom;
  const std::uint64_t differing = call.shape ^ other_call.shape;
  const bool shapes_differ = (is_custom ? differing << 32 : differing) != 0;
  const bool has_data = call.type != 0 && call.count == other_call.count;
  add(call.count != other_call.count || (shapes_differ && !has_data), "count");
  add(shapes_differ && has_data, "counts, or strided and other data");
  add(call.type != other_call.type || call.element_size != other_call.element_size, "type");
  add(call.op != other_call.op, "op");
  add(call.root != other_call.root, "root");
  add(call.algorithm != other_call.algorithm || (is_custom && differing >> 32 != 0), "algorithm");
  add(call.accumulate != other_call.accumulate || call.wire != other_call.wire, "accumulate type");
  add(call.segment != other_call.segment || call.lanes != other_call.lanes, "segment");
  add(call.radix != other_call.radix, "radix");
  add(call.order != other_call.order, "order");
  reason.set_detail("rank %d called %.100s, rank %d called %.100s; they differ in %.60s", rank,
                    first.text(), other_rank, second.text(), differ.text());
}

COLLS_ONCE void describe_forgotten_call(failure& reason, int rank, int other_rank,
                                        const fingerprint& other_call) {
  line known;
  describe(known, other_call);
  reason.set_detail("rank %d called %.100s, rank %d called something else, many calls ago",
                    other_rank, known.text(), rank);
}

}  // namespace colls::detail
