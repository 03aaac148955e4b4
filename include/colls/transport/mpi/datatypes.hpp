// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// datatypes: the element types and operations of MPI that are those of colls.

#include <colls/base/element_type.hpp>
#include <colls/base/op.hpp>
#include <colls/transport/mpi/check.hpp>

#include <climits>
#include <complex>

namespace colls::mpi {

/// An element type and an operation of MPI, or null if MPI has none that gives the results of
/// colls.
struct native_reduction {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Op op = MPI_OP_NULL;

  explicit operator bool() const { return type != MPI_DATATYPE_NULL && op != MPI_OP_NULL; }
};

/// Returns what MPI has for an operation of colls. `type` and `op` are the numbers of the type in
/// which elements are combined, and of the operation. Minima and maxima of floating-point numbers
/// are not among them: MPI does not say what those of NaN are.
inline native_reduction native_reduction_of(std::uint32_t type, std::uint32_t op) {
  struct known_type {
    std::uint32_t id;
    MPI_Datatype type;
    bool is_integer = false;
  };
  const known_type types[] = {
      {type_id<std::int8_t>(), MPI_INT8_T, true},
      {type_id<std::int16_t>(), MPI_INT16_T, true},
      {type_id<std::int32_t>(), MPI_INT32_T, true},
      {type_id<std::int64_t>(), MPI_INT64_T, true},
      {type_id<std::uint8_t>(), MPI_UINT8_T, true},
      {type_id<std::uint16_t>(), MPI_UINT16_T, true},
      {type_id<std::uint32_t>(), MPI_UINT32_T, true},
      {type_id<std::uint64_t>(), MPI_UINT64_T, true},
      {type_id<float>(), MPI_FLOAT},
      {type_id<double>(), MPI_DOUBLE},
      {type_id<std::complex<float>>(), MPI_C_FLOAT_COMPLEX},
      {type_id<std::complex<double>>(), MPI_C_DOUBLE_COMPLEX},
  };
  native_reduction result;
  bool is_integer = false;
  for (const known_type& each : types) {
    if (each.id != type) continue;
    result.type = each.type;
    is_integer = each.is_integer;
  }
  // The sum of an average is divided afterwards.
  if (op == plus::op_number || op == average::op_number) result.op = MPI_SUM;
  if (op == multiplies::op_number) result.op = MPI_PROD;
  if (is_integer) {
    if (op == minimum::op_number) result.op = MPI_MIN;
    if (op == maximum::op_number) result.op = MPI_MAX;
    if (op == bit_and::op_number) result.op = MPI_BAND;
    if (op == bit_or::op_number) result.op = MPI_BOR;
    if (op == bit_xor::op_number) result.op = MPI_BXOR;
    if (op == logical_and::op_number) result.op = MPI_LAND;
    if (op == logical_or::op_number) result.op = MPI_LOR;
  }
  return result;
}

/// The greatest number of elements of one call of MPI, whose counts are of type int. A longer
/// vector is cut. (Tests lower it.)
inline std::size_t max_count = INT_MAX;

/// Returns a type of `bytes` bytes, however many. The caller frees it.
inline MPI_Datatype block_type(std::size_t bytes) {
  const std::size_t chunk = max_count;
  MPI_Datatype result = MPI_DATATYPE_NULL;
  if (bytes <= chunk) {
    check(MPI_Type_contiguous(static_cast<int>(bytes), MPI_BYTE, &result), "MPI_Type_contiguous");
  } else {
    MPI_Datatype whole = MPI_DATATYPE_NULL;
    check(MPI_Type_contiguous(static_cast<int>(chunk), MPI_BYTE, &whole), "MPI_Type_contiguous");
    int lengths[] = {static_cast<int>(bytes / chunk), static_cast<int>(bytes % chunk)};
    MPI_Aint places[] = {0, static_cast<MPI_Aint>(bytes / chunk * chunk)};
    MPI_Datatype parts[] = {whole, MPI_BYTE};
    const int status = MPI_Type_create_struct(2, lengths, places, parts, &result);
    (void)MPI_Type_free(&whole);  // the new type keeps what it needs
    check(status, "MPI_Type_create_struct");
  }
  const int status = MPI_Type_commit(&result);
  if (status != MPI_SUCCESS) (void)MPI_Type_free(&result);  // the first error is told
  check(status, "MPI_Type_commit");
  return result;
}

}  // namespace colls::mpi
