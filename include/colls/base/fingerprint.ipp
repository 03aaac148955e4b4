// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What differs, in words: the second half of fingerprint.hpp.

#include <colls/base/compiler.hpp>
#include <colls/base/fingerprint.hpp>

namespace colls::detail {

COLLS_ONCE void describe(line& to, const fingerprint& call) {
  to.add("%s", colls::name(call.what));
  if (call.type != 0 || call.count != 0) {
    to.add(" of %llu x %s", static_cast<unsigned long long>(call.count), type_name(call.type));
    if (type_name(call.type)[0] == 'u' && type_name(call.type)[1] == 's') {
      to.add(" (%u bytes)", call.element_size);
    }
  }
  if (call.op != 0) to.add(", %s", op_name(call.op));
  if (call.accumulate != 0 && call.accumulate != call.type) {
    to.add(" in %s", type_name(call.accumulate));
  }
  if (call.root >= 0) to.add(", root %d", call.root);
  if (call.how != algorithm::automatic) to.add(", %s", colls::name(call.how));
}

COLLS_ONCE void say_difference(failure& why, int rank, const fingerprint& one, int other_rank,
                               const fingerprint& other) {
  line first;
  line second;
  line differ;
  describe(first, one);
  describe(second, other);
  const auto add = [&](bool differs, const char* what) {
    if (differs) differ.add("%s%s", differ.text()[0] == 0 ? "" : ", ", what);
  };
  if (one.what != other.what) {
    why.say("rank %d called %.100s, rank %d called %.100s; they differ in collective", rank,
            first.text(), other_rank, second.text());
    return;
  }
  add(one.count != other.count || one.shape != other.shape, "count");
  add(one.type != other.type || one.element_size != other.element_size, "type");
  add(one.op != other.op, "op");
  add(one.root != other.root, "root");
  add(one.how != other.how, "algorithm");
  add(one.accumulate != other.accumulate || one.wire != other.wire, "accumulate type");
  add(one.segment != other.segment || one.lanes != other.lanes, "segment");
  add(one.radix != other.radix, "radix");
  add(one.sum != other.sum, "order");
  why.say("rank %d called %.100s, rank %d called %.100s; they differ in %.60s", rank, first.text(),
          other_rank, second.text(), differ.text());
}

COLLS_ONCE void say_forgotten(failure& why, int rank, int other_rank, const fingerprint& other) {
  line known;
  describe(known, other);
  why.say("rank %d called %.100s, rank %d called something else, many calls ago", other_rank,
          known.text(), rank);
}

}  // namespace colls::detail
