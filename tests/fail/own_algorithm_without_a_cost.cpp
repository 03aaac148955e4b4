// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: an algorithm of your own needs a static constexpr function cost
#include <colls/colls.hpp>

#include <vector>

struct own_algorithm : colls::collective_algorithm<colls::collective::all_reduce> {
  static constexpr const char* name = "own";

  template <colls::channel Channel>
  static colls::task<> run(Channel, colls::any_buffer, colls::any_buffer, colls::any_op) {
    co_return;
  }
#ifdef MUST_NOT_COMPILE
  static constexpr auto price(const colls::loggp_model& model, const colls::algorithm_choice&) {
    return model.star_out(model.bytes());
  }
#else
  static constexpr auto cost(const colls::loggp_model& model, const colls::algorithm_choice&) {
    return model.star_out(model.bytes());
  }
#endif
};
inline constexpr own_algorithm own;

colls::task<> rank_main(colls::inproc::communicator& comm) {
  std::vector<int> data(8);
  co_await comm.all_reduce<own>(data);
}
