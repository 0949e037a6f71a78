// The functions of <pentad/comm/node/copy_methods.hpp>.
#pragma once

#include <pentad/comm/node/copy_methods.hpp>

#include <pentad/mesh/inline.hpp>

#include <utility>

namespace pentad::comm::node {

PENTAD_INLINE CopyMethod CopyMethods::Kind::suggest(PossibleMethods possible, bool in_segments) {
    auto& known = known_[in_segments];
    std::uint64_t const number = known.count++;
    bool const is_first = number < first_again;
    std::uint64_t const round = is_first ? 0 : std::uint64_t{1} << (std::bit_width(number) - 1) / 2 * 2;
    if (std::size_t const i = (number - round) / trials; i < possible.size()) {
        CopyMethod const tried = possible.at(i);
        bool const is_slow = known.has(tried) && known.took(tried) > 1.5F * known.took(known.fastest);
        return is_slow && !is_first && number < slow_again ? known.fastest : tried;
    }
    for (std::size_t i = 0; i < possible.size(); ++i) // small gains are not worth a change
        if (known.took(possible.at(i)) < 0.9F * known.took(known.fastest)) known.fastest = possible.at(i);
    return known.fastest;
}

PENTAD_INLINE void CopyMethods::Kind::learn(CopyMethod method, bool in_segments, double seconds) {
    auto& known = known_[in_segments];
    if (std::exchange(known.last, method) != method) {
        known.recent_count = 0;
        return;
    }
    auto& usual = known.usual[static_cast<std::size_t>(method)];
    auto& recent = known.recent;
    auto const taken = static_cast<float>(seconds);
    if (known.recent_count == recent.size()) {
        usual += (taken > usual ? usual : -usual) / 16;
        return;
    }
    auto const end = recent.begin() + static_cast<std::ptrdiff_t>(known.recent_count++);
    auto const place = std::upper_bound(recent.begin(), end, taken);
    std::move_backward(place, end, end + 1);
    *place = taken;
    if (known.recent_count < recent.size()) return;
    usual = recent[recent.size() / 2];
}

} // namespace pentad::comm::node
