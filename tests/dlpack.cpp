// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/dlpack.hpp>

#include <colls/inproc.hpp>

#include "support/communicators.hpp"

#include <vector>

// Calls on the tensors of DLPack.

namespace {

using colls::errc;

/// A tensor of elements of type `T` with strides, and the memory that it describes.
template <class T>
struct tensor {
  tensor(std::uint8_t code, std::vector<std::int64_t> sizes, std::vector<std::int64_t> distances)
      : extents(std::move(sizes)), strides(std::move(distances)), memory(100) {
    view.data = memory.data();
    view.device = {kDLCPU, 0};
    view.dtype = {code, sizeof(T) * 8, 1};
    view.ndim = static_cast<int>(extents.size());
    view.shape = extents.data();
    view.strides = strides.empty() ? nullptr : strides.data();
    view.byte_offset = 0;
  }
  tensor(tensor&&) = default;

  std::vector<std::int64_t> extents;
  std::vector<std::int64_t> strides;
  std::vector<T> memory;
  DLTensor view;
};

template <class T>
void sums_are_those_of_all_ranks(std::uint8_t code) {
  CAPTURE(static_cast<int>(code));
  CAPTURE(sizeof(T));
  communicators all(3);
  std::vector<tensor<T>> tensors;
  tensors.emplace_back(code, std::vector<std::int64_t>{2, 3}, std::vector<std::int64_t>{});
  tensors.emplace_back(code, std::vector<std::int64_t>{2, 3}, std::vector<std::int64_t>{1, 2});
  tensors.emplace_back(code, std::vector<std::int64_t>{2, 3}, std::vector<std::int64_t>{20, -2});
  tensors[2].view.byte_offset = 10 * sizeof(T);
  for (auto& each : tensors) {
    for (T& element : each.memory) element = T(1);
  }
  tensors[0].memory[1] = T(0);  // [0, 1]
  tensors[1].memory[2] = T(0);
  all.all([&](auto& comm) {
    return comm.all_reduce(tensors[static_cast<std::size_t>(comm.rank())].view);
  });
  CHECK(tensors[0].memory[0] == T(3));
  CHECK(tensors[0].memory[1] == T(1));
  CHECK(tensors[1].memory[2] == T(1));
  CHECK(tensors[1].memory[5] == T(3));
  CHECK(tensors[2].memory[10 - 2] == T(1));
  CHECK(tensors[2].memory[10 + 20 - 4] == T(3));
  CHECK(tensors[2].memory[9] == T(1));
  all.all([&](auto& comm) {
    return comm.broadcast(tensors[static_cast<std::size_t>(comm.rank())].view, 0);
  });
  all.check_good();
}

TEST_CASE("tensors of each type and layout are reduced") {
  sums_are_those_of_all_ranks<std::int8_t>(kDLInt);
  sums_are_those_of_all_ranks<std::int16_t>(kDLInt);
  sums_are_those_of_all_ranks<std::int32_t>(kDLInt);
  sums_are_those_of_all_ranks<std::int64_t>(kDLInt);
  sums_are_those_of_all_ranks<std::uint8_t>(kDLUInt);
  sums_are_those_of_all_ranks<std::uint16_t>(kDLUInt);
  sums_are_those_of_all_ranks<std::uint32_t>(kDLUInt);
  sums_are_those_of_all_ranks<std::uint64_t>(kDLUInt);
  sums_are_those_of_all_ranks<colls::float16>(kDLFloat);
  sums_are_those_of_all_ranks<float>(kDLFloat);
  sums_are_those_of_all_ranks<double>(kDLFloat);
  sums_are_those_of_all_ranks<colls::bfloat16>(kDLBfloat);
  sums_are_those_of_all_ranks<std::complex<float>>(kDLComplex);
  sums_are_those_of_all_ranks<std::complex<double>>(kDLComplex);
}

TEST_CASE("tensors that no call can use are refused on their rank") {
  communicators all(2);
  const auto refused = [&](const DLTensor& view, const char* words) {
    auto call = all[0].all_reduce(view);
    const colls::failure why = failure_of(all, call);
    CHECK(why.code == errc::invalid_argument);
    CAPTURE(std::string(why.detail));
    CHECK(says(why, words));
  };
  tensor<float> good(kDLFloat, {2, 3}, {3, 1});
  DLTensor view = good.view;
  view.device = {kDLCUDA, 0};
  refused(view, "not in host memory");
  for (const DLDataType type :
       {DLDataType{kDLFloat, 128, 1}, DLDataType{kDLFloat, 32, 4}, DLDataType{kDLInt, 4, 1},
        DLDataType{kDLInt, 24, 1}, DLDataType{kDLFloat, 8, 1}, DLDataType{kDLComplex, 32, 1},
        DLDataType{kDLOpaqueHandle, 64, 1}, DLDataType{99, 32, 1}, DLDataType{kDLFloat, 0, 1}}) {
    view = good.view;
    view.dtype = type;
    refused(view, "no elements of the type");
  }
  refused(tensor<float>(kDLFloat, {2, 3}, {0, 1}).view, "share memory");
  refused(tensor<float>(kDLFloat, {2, -3}, {3, 1}).view, "negative extent");
  refused(tensor<float>(kDLFloat, {INT64_MAX, 4}, {}).view, "memory can hold");
  refused(tensor<float>(kDLFloat, {2}, {INT64_MAX}).view, "memory can hold");
  refused(tensor<float>(kDLFloat, std::vector<std::int64_t>(9, 1), {}).view, "8 dimensions");
  view = good.view;
  view.ndim = -1;
  refused(view, "8 dimensions");
  auto bits = all[0].all_reduce(good.view, colls::bit_xor{});  // known at run time alone
  CHECK(says(failure_of(all, bits), "cannot reduce elements of this type"));
  tensor<double> doubles(kDLFloat, {2, 3}, {3, 1});
  auto differ = all[0].all_reduce(good.view, doubles.view);
  CHECK(says(failure_of(all, differ), "the same element type"));
  all.check_good();
}

TEST_CASE("a managed tensor is data of a call, too") {
  communicators all(2);
  tensor<float> own[2] = {{kDLFloat, {2, 2}, {1, 2}}, {kDLFloat, {2, 2}, {2, 1}}};
  DLManagedTensor managed[2] = {};
  for (int i = 0; i < 2; ++i) managed[i].dl_tensor = own[i].view;
  own[0].memory[2] = 7;  // [0, 1]
  all.all([&](auto& comm) { return comm.broadcast(managed[comm.rank()], 0); });
  CHECK(own[1].memory[1] == 7);
}

TEST_CASE("lists and groups of tensors are reduced by one call") {
  communicators all(2);
  std::vector<tensor<float>> first, second;
  for (int rank = 0; rank < 2; ++rank) {
    first.emplace_back(kDLFloat, std::vector<std::int64_t>{2, 2}, std::vector<std::int64_t>{1, 2});
    second.emplace_back(kDLFloat, std::vector<std::int64_t>{3}, std::vector<std::int64_t>{});
    first.back().memory = {1, 2, 3, 4};
    second.back().memory = {5, 6, 7};
  }
  const auto tensors = [&](auto& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    return std::vector{first[rank].view, second[rank].view};
  };
  all.all([&](auto& comm) { return comm.all_reduce(tensors(comm)); });
  all.all([&](auto& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    return comm.all_reduce(colls::group{second[rank].view, first[rank].view}, colls::maximum{});
  });
  for (int rank = 0; rank < 2; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    CHECK(first[i].memory == std::vector<float>{2, 4, 6, 8});
    CHECK(second[i].memory == std::vector<float>{10, 12, 14});
  }
  tensor<double> doubles(kDLFloat, {3}, {});
  auto mixed = all[0].all_reduce(std::vector{first[0].view, doubles.view});
  CHECK(says(failure_of(all, mixed), "the same element type"));
  auto none = all[0].all_reduce(std::vector<DLTensor>{});
  CHECK(says(failure_of(all, none), "no element type"));
  auto bits = all[0].all_reduce(tensors(all[0]), colls::bit_xor{});
  CHECK(says(failure_of(all, bits), "cannot reduce elements of this type"));
  DLTensor elsewhere = first[0].view;
  elsewhere.device = {kDLCUDA, 0};
  auto refused = all[0].all_reduce(std::vector{elsewhere});
  CHECK(says(failure_of(all, refused), "not in host memory"));
  all.check_good();
}

}  // namespace
