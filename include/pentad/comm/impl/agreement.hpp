// The functions of <pentad/comm/agreement.hpp>.
#pragma once

#include <pentad/comm/agreement.hpp>

#include <pentad/comm/broadcast_text.hpp>
#include <pentad/comm/environment.hpp>
#include <pentad/comm/error.hpp>
#include <pentad/mesh/hash.hpp>
#include <pentad/mesh/inline.hpp>

#include <link.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace pentad::comm {

PENTAD_INLINE std::string disagreement(MPI_Comm world, std::span<Fact const> facts) {
    std::string text;
    for (auto const& [kind, value] : facts) text += kind + '\0' + value + '\0';
    auto const hash = fnv1a(text);
    std::array<std::uint64_t, 2> extremes{hash, ~hash};
    check(MPI_Allreduce(MPI_IN_PLACE, extremes.data(), 2, MPI_UINT64_T, MPI_MAX, world), "MPI_Allreduce");
    if (extremes[0] == ~extremes[1]) return "";

    int rank = 0, ranks = 1;
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &ranks);
    auto size = static_cast<int>(text.size());
    std::vector<int> sizes(static_cast<std::size_t>(ranks)), begins(sizes.size());
    check(MPI_Gather(&size, 1, MPI_INT, sizes.data(), 1, MPI_INT, 0, world), "MPI_Gather");
    int all = 0;
    for (std::size_t r = 0; r < sizes.size(); all += sizes[r++]) begins[r] = all;
    std::string texts(static_cast<std::size_t>(all), '\0');
    check(MPI_Gatherv(text.data(), size, MPI_CHAR, texts.data(), sizes.data(), begins.data(), MPI_CHAR, 0, world),
          "MPI_Gatherv");
    std::string sentence;
    if (rank == 0) {
        std::vector<std::vector<Fact>> known(sizes.size());
        for (std::size_t r = 0; r < sizes.size(); ++r) {
            auto left =
                std::string_view(texts).substr(static_cast<std::size_t>(begins[r]), static_cast<std::size_t>(sizes[r]));
            auto const next = [&left] {
                std::string const word(left.substr(0, left.find('\0')));
                left.remove_prefix(word.size() + 1);
                return word;
            };
            while (!left.empty()) {
                auto kind = next();
                known[r].push_back({std::move(kind), next()});
            }
        }
        sentence = detail::difference(known);
    }
    return broadcast_text(world, std::move(sentence), 0);
}

PENTAD_INLINE std::string build_id() {
    std::string id;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* result) {
            for (int i = 0; i < info->dlpi_phnum; ++i) {
                auto const& segment = info->dlpi_phdr[i];
                if (segment.p_type != PT_NOTE) continue;
                auto const* next = reinterpret_cast<char const*>(info->dlpi_addr + segment.p_vaddr);
                for (auto const* const end = next + segment.p_memsz; next + sizeof(ElfW(Nhdr)) <= end;) {
                    auto const* const note = reinterpret_cast<ElfW(Nhdr) const*>(next);
                    auto const padded = [](std::size_t bytes) { return (bytes + 3) / 4 * 4; };
                    auto const* const name = next + sizeof *note;
                    auto const* const description = name + padded(note->n_namesz);
                    if (note->n_type == NT_GNU_BUILD_ID &&
                        std::string_view(name, note->n_namesz) == std::string_view("GNU", 4)) {
                        for (std::size_t byte = 0; byte < note->n_descsz; ++byte)
                            for (int const digit : {(description[byte] >> 4) & 15, description[byte] & 15})
                                *static_cast<std::string*>(result) += "0123456789abcdef"[digit];
                        return 1;
                    }
                    next = description + padded(note->n_descsz);
                }
            }
            return 1; // the first object is the program; libraries are not asked
        },
        &id);
    return id;
}

PENTAD_INLINE std::vector<Fact> start_facts(int argc, char const* const* argv) {
    std::vector<Fact> facts;
    for (int i = 1; i < argc; ++i) {
        bool const is_value = i > 1 && argv[i][0] != '-' && argv[i - 1][0] == '-'; // of the flag before it
        if (is_value)
            facts.back().value += ' ' + std::string(argv[i]);
        else
            facts.push_back({"arguments", argv[i]});
    }
    // The number of threads decides how sums are split, and so how they round. Binding and devices may differ.
    for (auto const prefix : {"PENTAD_", "OPENBLAS_", "DNNL_", "ONEDNN_", "OMP_NUM_THREADS", "OMP_THREAD_LIMIT",
                              "OMP_DYNAMIC", "OMP_SCHEDULE", "KOKKOS_NUM_THREADS"})
        for (auto& variable : environment::variables(prefix)) facts.push_back({"environment", std::move(variable)});
    facts.push_back({"build of the program", build_id()});
    return facts;
}

} // namespace pentad::comm

namespace pentad::comm::detail {

PENTAD_INLINE std::string only_in(std::span<Fact const> one, std::span<Fact const> other, std::string_view kind) {
    for (auto const& fact : one)
        if (fact.kind == kind && std::find(other.begin(), other.end(), fact) == other.end()) {
            constexpr std::size_t longest = 80;
            return fact.value.size() <= longest ? fact.value : fact.value.substr(0, longest - 3) + "...";
        }
    return "nothing";
}

PENTAD_INLINE std::string difference(std::vector<std::vector<Fact>> const& facts) {
    // The others are those of the largest group of ranks that agree; of two as large, that of the lower rank.
    auto const agreeing = [&](std::vector<Fact> const& own) { return std::count(facts.begin(), facts.end(), own); };
    std::size_t usual = 0;
    for (std::size_t rank = 1; rank < facts.size(); ++rank)
        if (agreeing(facts[rank]) > agreeing(facts[usual])) usual = rank;
    std::size_t odd = 0;
    while (facts[odd] == facts[usual]) ++odd;
    auto const& a = facts[odd];
    auto const& b = facts[usual];
    auto const of_kind = [](std::vector<Fact> own, std::string_view kind) {
        std::erase_if(own, [&](Fact const& fact) { return fact.kind != kind; });
        return own;
    };
    std::string kind;
    for (auto const* const list : {&a, &b})
        for (auto const& fact : *list)
            if (kind.empty() && of_kind(a, fact.kind) != of_kind(b, fact.kind)) kind = fact.kind;
    auto const has = only_in(a, b, kind), have = only_in(b, a, kind);
    return "rank " + std::to_string(odd) + " differs from rank " + std::to_string(usual) + " in its " + kind +
           (has == have ? ": the same in another order" : ": " + has + " where that has " + have) +
           "; start all ranks alike";
}

} // namespace pentad::comm::detail
