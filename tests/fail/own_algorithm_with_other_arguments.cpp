// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: the function run of this algorithm does not take the arguments of its collective
#include <colls/colls.hpp>

#include <vector>

struct own_algorithm : colls::collective_algorithm<colls::collective::all_reduce> {
  static constexpr const char* name = "own";

#ifdef MUST_NOT_COMPILE
  template <colls::channel Channel>
  static colls::task<> run(Channel, colls::any_buffer, colls::any_op) {
    co_return;
  }
#else
  template <colls::channel Channel>
  static colls::task<> run(Channel, colls::any_buffer, colls::any_buffer, colls::any_op) {
    co_return;
  }
#endif
  static constexpr auto cost(const colls::loggp_model& model, const colls::algorithm_choice&) {
    return model.star_out(model.bytes());
  }
};
inline constexpr own_algorithm own;

colls::task<> rank_main(colls::inproc::communicator& comm) {
  std::vector<int> data(8);
  co_await comm.all_reduce<own>(data);
}
