// Schedules of several stages a rank, dealt out in rounds, as the order of each rank's
// computes: interleaved 1F1B and looped breadth-first.
#pragma once

#include <pentad/pipeline/generators/one_stage.hpp>
#include <pentad/pipeline/instruction.hpp>
#include <pentad/pipeline/schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace pentad::pipeline::order {

/// Stage s on rank s mod p.
inline std::vector<int> looped(int p, int chunks) {
    std::vector<int> placement = straight(p * chunks);
    for (int& rank : placement) rank %= p;
    return placement;
}

/// Narayanan et al. 2021: 1F1B over the chunks in turn, p micro-batches each. Where m is not a multiple of p, in m / p
/// groups of more, as equal as can be. One chunk is 1F1B.
inline Schedule interleaved(int p, int m, int chunks) {
    Schedule schedule = empty("interleaved-1f1b", p, m, {looped(p, chunks)});
    struct ChunkPass {
        int chunk;
        int micro_batch;
    };
    std::vector<ChunkPass> passes; // of the forwards; backwards take them with the chunks in the opposite order
    int const groups = std::max(1, m / p);
    for (int group = 0, first = 0; group < groups; ++group) {
        int const end = first + m / groups + (group < m % groups ? 1 : 0);
        for (int chunk = 0; chunk < chunks; ++chunk)
            for (int i = first; i < end; ++i) passes.push_back({chunk, i});
        first = end;
    }
    int const all = m * chunks;
    int const largest = (m + groups - 1) / groups;
    for (int rank = 0; rank < p; ++rank) {
        auto& list = schedule.instructions[static_cast<std::size_t>(rank)];
        auto const add = [&](Operation operation, int n) {
            if (n >= all) return;
            auto const [chunk_in_order, i] = passes[static_cast<std::size_t>(n)];
            int const chunk = operation == Operation::forward ? chunk_in_order : chunks - 1 - chunk_in_order;
            list.push_back({operation, chunk * p + rank, i});
        };
        int const ahead = std::min(all, chunks == 1 ? p - 1 - rank : 2 * (p - 1 - rank) + (chunks - 1) * largest);
        for (int n = 0; n < ahead; ++n) add(Operation::forward, n);
        for (int n = 0; n < all; ++n) {
            add(Operation::forward, n + ahead);
            add(Operation::backward, n);
        }
    }
    return schedule;
}

/// Lamy-Poirier 2022: all micro-batches through one chunk, then the next; back the same way. Holds everything, but uses
/// the parameters of one chunk at a time, twice a step.
inline Schedule looped_breadth_first(int p, int m, int chunks) {
    Schedule schedule = empty("looped-bfs", p, m, {looped(p, chunks)});
    for (int rank = 0; rank < p; ++rank) {
        auto& list = schedule.instructions[static_cast<std::size_t>(rank)];
        for (int chunk = 0; chunk < chunks; ++chunk)
            for (int i = 0; i < m; ++i) list.push_back({Operation::forward, chunk * p + rank, i});
        for (int chunk = chunks - 1; chunk >= 0; --chunk)
            for (int i = 0; i < m; ++i) list.push_back({Operation::backward, chunk * p + rank, i});
    }
    return schedule;
}

} // namespace pentad::pipeline::order
