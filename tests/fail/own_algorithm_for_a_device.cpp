// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: an algorithm of your own moves host memory, and this communicator moves device memory
#define COLLS_CUDA_STAND_IN
#include <colls/colls.hpp>
#include <colls/cuda/staged.hpp>

#include <vector>

struct own_algorithm : colls::collective_algorithm<colls::collective::all_reduce> {
  static constexpr const char* name = "own";

  template <colls::channel Channel>
  static colls::task<> run(Channel, colls::any_buffer, colls::any_buffer, colls::any_op) {
    co_return;
  }
  static constexpr auto cost(const colls::loggp_model& model, const colls::algorithm_choice&) {
    return model.star_out(model.bytes());
  }
};
inline constexpr own_algorithm own;

colls::task<> rank_main(colls::inproc::communicator& comm) {
  std::vector<int> data(8);
  auto gpu = co_await colls::cuda::attach<colls::cuda::staged>(comm, 0);
#ifdef MUST_NOT_COMPILE
  co_await gpu.all_reduce<own>(colls::device_span(data.data(), 8));
#else
  co_await gpu.all_reduce(colls::device_span(data.data(), 8));
#endif
}
