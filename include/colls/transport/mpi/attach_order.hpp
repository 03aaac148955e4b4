// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// attach_order: the order in which the ranks of a communicator of MPI duplicate it.

#include <colls/transport/mpi/check.hpp>

#include <memory>

namespace colls::mpi {

/// All ranks must duplicate a communicator in the same order, also if they attach it to several
/// communicators of colls at the same time. Its rank 0 gives each attachment a number, which it
/// passes to the others over links of colls.
struct attach_order {
  int given = 0;           // how many numbers rank 0 has given
  int next = 0;            // the number of the attachment that may duplicate it next
  bool is_broken = false;  // an attachment has failed or was dropped after it got its number

  /// Returns the order of `comm`, which exists as long as `comm`.
  static attach_order& of(MPI_Comm comm) {
    const int key = keyval();
    attach_order* result = nullptr;
    int exists = 0;
    check(MPI_Comm_get_attr(comm, key, &result, &exists), "MPI_Comm_get_attr");
    if (exists != 0) return *result;
    auto made = std::make_unique<attach_order>();
    check(MPI_Comm_set_attr(comm, key, made.get()), "MPI_Comm_set_attr");
    return *made.release();
  }

 private:
  static int keyval() {
    static const int key = [] {
      const auto destroy = [](MPI_Comm, int, void* value, void*) {
        delete static_cast<attach_order*>(value);
        return MPI_SUCCESS;
      };
      int made = MPI_KEYVAL_INVALID;
      check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, destroy, &made, nullptr),
            "MPI_Comm_create_keyval");
      return made;
    }();
    return key;
  }
};

}  // namespace colls::mpi
