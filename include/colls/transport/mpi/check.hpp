// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// check: errors of the functions of MPI. Its header is included here alone.

#include <colls/base/error.hpp>

// Both switch off C++ bindings that MPI no longer has.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>

namespace colls::mpi {

/// Throws if a function of MPI, named `call`, has returned an error.
inline void check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING + 1] = "unknown error";
  int length = 0;
  (void)MPI_Error_string(status, text, &length);  // the text says "unknown error" then
  std::replace_if(text, text + sizeof text, [](char c) { return c > 0 && c < ' '; }, ' ');
  failure reason(errc::device_failed);
  throw error(reason.set_detail("%s: %.200s", call, text));
}

/// Makes MPI return errors while this object exists. Open MPI reports an error of a collective to
/// the handler of MPI_COMM_WORLD, whatever its communicator. By default that handler aborts.
class error_return {
 public:
  error_return() {
    is_changed_ = MPI_Comm_get_errhandler(MPI_COMM_WORLD, &previous_) == MPI_SUCCESS &&
                  previous_ == MPI_ERRORS_ARE_FATAL &&
                  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN) == MPI_SUCCESS;
  }
  error_return(const error_return&) = delete;
  error_return& operator=(const error_return&) = delete;
  ~error_return() {
    // The handlers of a valid communicator can be set.
    if (is_changed_) (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, previous_);
    if (previous_ != MPI_ERRHANDLER_NULL) (void)MPI_Errhandler_free(&previous_);
  }

 private:
  MPI_Errhandler previous_ = MPI_ERRHANDLER_NULL;
  bool is_changed_ = false;
};

}  // namespace colls::mpi
