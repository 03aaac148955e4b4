// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Kernels whose PTX tests/meson.build checks: packs are stored by quads, never word by word.

#include <colls/cuda/one_shot.cuh>

namespace colls::cuda::detail {

template <class T, std::size_t Inputs>
using sum_of = fold<T, float, plus, Inputs>;
template <std::size_t Ranks>
using one_shot_of = one_shot<float, plus, sum_of<float, Ranks>, Ranks>;

template void launch(const sum_of<float, 1>&, std::size_t, stream_ref);
template void launch(const sum_of<float, 2>&, std::size_t, stream_ref);
template void launch(const sum_of<float, 4>&, std::size_t, stream_ref);
template void launch(const sum_of<bfloat16, 2>&, std::size_t, stream_ref);
template void launch_blocks(const one_shot_of<2>&, std::size_t, stream_ref);
template void launch_blocks(const one_shot_of<8>&, std::size_t, stream_ref);

}  // namespace colls::cuda::detail
