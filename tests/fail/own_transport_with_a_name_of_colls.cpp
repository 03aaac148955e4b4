// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: the name of a transport has 1 to 31 printable characters without spaces, and is not hybrid, tcp or shm
#include <colls/transport.hpp>

struct own final : colls::transport_base {
#ifdef MUST_NOT_COMPILE
  static constexpr const char* name = "tcp";
#else
  static constexpr const char* name = "own";
#endif

  own(std::shared_ptr<colls::engine> driver, std::shared_ptr<colls::world_info> info)
      : transport_base(std::move(driver), std::move(info), {}) {}
  static colls::task<std::shared_ptr<own>> make(std::shared_ptr<colls::engine> driver,
                                                std::shared_ptr<colls::world_info> info) {
    co_return std::make_shared<own>(std::move(driver), std::move(info));
  }
};

int main() {
  return colls::run<own>([](colls::communicator<own>&) {});
}
