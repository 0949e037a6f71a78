// A collective as its caller means it, and what is wrong when the ranks of a group mean different ones.
#pragma once

#include <pentad/comm/detail/datatype.hpp>
#include <pentad/observe/ledger.hpp>

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pentad::comm {

/// What the ranks of a group must agree on.
struct Call {
    observe::Operation operation{};
    std::uint32_t type = 0; ///< of the elements, and how they are reduced: type_code of datatype.hpp
    std::size_t count = 0;  ///< elements of the unscattered side, where all counts are equal
    int root = -1;
    bool is_started = false; ///< start_all_reduce, not all_reduce: where MPI carries it out they do not match
    /// All-to-all of given counts: elements that go to each rank and come from it.
    std::span<MPI_Count const> sent{}, received{};
};

#if PENTAD_CHECKED
namespace checked {

/// A call as it travels, without the counts.
struct Fingerprint {
    std::uint64_t number = 0; ///< among the collectives of the group
    std::uint64_t count = 0;
    std::uint32_t operation = 0, type = 0;
    std::int32_t root = -1, is_started = 0;
    std::int32_t has_counts = 0, unused = 0;
    std::array<char, 64> axes{};

    /// Whether another is the same collective, of whatever number.
    [[nodiscard]] bool matches(Fingerprint const& other) const {
        return count == other.count && operation == other.operation && type == other.type && root == other.root &&
               is_started == other.is_started && has_counts == other.has_counts && axes == other.axes;
    }
};

/// What one rank has said.
struct Said {
    Fingerprint call;
    std::vector<std::int64_t> counts; ///< sent to each rank, then received from each; empty unless given

    /// "all_reduce of 256 x f32"
    [[nodiscard]] std::string text() const {
        std::string text = call.is_started != 0 ? "start_" : "";
        text += observe::name(static_cast<observe::Operation>(call.operation));
        text += reduction_text(call.type);
        text += " of " + (call.has_counts != 0 ? std::string("given counts of ") : std::to_string(call.count) + " x ");
        text += type_text(call.type);
        return text + (call.root < 0 ? "" : " with root " + std::to_string(call.root));
    }
};

/// "rank 3", "ranks 0, 2 and 3"
inline std::string text(std::vector<int> const& ranks) {
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < ranks.size(); ++i)
        text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
    return text;
}

/// How the calls of a group's ranks differ, of which those that have not come are null: "rank 2 of 4 calls all_gather
/// of 128 x f32, the others all_reduce of 256 x f32". Empty when they agree.
inline std::string difference(std::span<Said const* const> said) {
    struct Party {
        Said const* said;
        std::vector<int> ranks;
    };
    std::vector<Party> parties;
    std::size_t present = 0;
    bool same_axes = true;
    for (std::size_t p = 0; p < said.size(); ++p) {
        if (said[p] == nullptr) continue;
        ++present;
        auto const party = std::find_if(parties.begin(), parties.end(),
                                        [&](Party const& known) { return known.said->call.matches(said[p]->call); });
        if (party != parties.end())
            party->ranks.push_back(static_cast<int>(p));
        else
            parties.push_back({said[p], {static_cast<int>(p)}});
        same_axes = same_axes && said[p]->call.axes == parties.front().said->call.axes;
    }
    std::string const of = " of " + std::to_string(said.size());
    if (parties.size() > 1) {
        std::stable_sort(parties.begin(), parties.end(),
                         [](Party const& a, Party const& b) { return a.ranks.size() < b.ranks.size(); });
        auto const& most = parties.back().ranks;
        bool const has_others =
            present == said.size() && most.size() > 1 && most.size() > parties[parties.size() - 2].ranks.size();
        std::string why;
        for (auto const& party : parties) {
            bool const is_first = why.empty(), is_others = has_others && &party == &parties.back();
            why += (is_first ? "" : ", ") + (is_others ? std::string("the others") : text(party.ranks)) +
                   (is_first ? of + (party.ranks.size() == 1 ? " calls " : " call ") : " ") + party.said->text() +
                   (same_axes ? "" : " over " + std::string(party.said->call.axes.data()));
        }
        return why;
    }
    if (parties.empty() || present < said.size() || parties.front().said->counts.empty()) return {};
    for (std::size_t from = 0; from < said.size(); ++from)
        for (std::size_t to = 0; to < said.size(); ++to) {
            auto const sent = said[from]->counts[to], received = said[to]->counts[said.size() + from];
            if (sent == received) continue;
            return "rank " + std::to_string(from) + of + " sends " + std::to_string(sent) + " x " +
                   type_text(said[from]->call.type) + " to rank " + std::to_string(to) + ", which is to receive " +
                   std::to_string(received);
        }
    return {};
}

} // namespace checked
#endif

} // namespace pentad::comm
