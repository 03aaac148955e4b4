// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: this algorithm does not derive from colls::collective_algorithm<C>, where C is the collective that is called
#include <colls/colls.hpp>

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
#ifdef MUST_NOT_COMPILE
  co_await comm.scan<own>(data);
#else
  co_await comm.all_reduce<own>(data);
#endif
}
