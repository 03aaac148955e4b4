// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: a file that pins an algorithm of its own compiles it for the transport, so it includes the transport.s header
#define COLLS_SEPARATE_COMPILATION
#ifdef MUST_NOT_COMPILE
#include <colls/run.hpp>
#else
#include <colls/interprocess.hpp>
#include <colls/run.hpp>
#endif

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

colls::task<> rank_main(colls::world& world) {
  std::vector<int> data(8);
  co_await world.all_reduce<own>(data);
}
