// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: join needs a transport with a name and with `static task<std::shared_ptr<Transport>> make\(
#include <colls/transport.hpp>

struct own final : colls::transport_base {
  static constexpr const char* name = "own";

  own(std::shared_ptr<colls::engine> driver, std::shared_ptr<colls::world_info> info)
      : transport_base(std::move(driver), std::move(info), {}) {}
#ifdef MUST_NOT_COMPILE
#else
  static colls::task<std::shared_ptr<own> > make(std::shared_ptr<colls::engine> driver,
                                                 std::shared_ptr<colls::world_info> info) {
    co_return std::make_shared<own>(std::move(driver), std::move(info));
  }
#endif
};

int main() {
  return colls::run<own>([](colls::communicator<own>&) {});
}
