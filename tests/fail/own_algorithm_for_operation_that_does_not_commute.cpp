// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: this algorithm does not combine the inputs in rank order, so the operation has to commute
#include <colls/colls.hpp>

#include <vector>

struct own_algorithm : colls::collective_algorithm<colls::collective::all_reduce> {
  static constexpr const char* name = "own";
  static constexpr colls::algorithm_needs needs{.commutative = true};

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
  const auto join = [](int a, int b) { return 10 * a + b; };
#ifdef MUST_NOT_COMPILE
  co_await comm.all_reduce<own>(data, join);
#else
  co_await comm.all_reduce<own>(data, colls::commutative(join));
#endif
}
