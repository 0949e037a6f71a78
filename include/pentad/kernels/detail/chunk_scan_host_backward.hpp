// The chunked scan on the host, backward: the states at the chunks' starts again, then the chunks from the last to the
// first, each with the gradient of the state behind it. One thread owns whatever it writes: the same bits each run.
#pragma once

#include <pentad/kernels/detail/chunk_scan_host_forward.hpp>
#include <pentad/kernels/detail/chunk_scan_host_gradients.hpp>
#include <pentad/kernels/detail/chunk_scan_problem.hpp>
#include <pentad/kernels/detail/host_tiles.hpp>
#include <pentad/kernels/detail/tile_product.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>

namespace pentad::kernels::detail {

/// The states at the chunks' starts, and the gradients of those at their ends.
template <class Acc>
struct BoundaryStates {
    ScanStates<Acc> states, gradients;
};

template <class In, class T>
class ScanBackward {
  public:
    using Acc = accumulator_t<T>;
    using Scratch = ScanBackwardScratch<In>;

    ScanBackward(ScanProblem<T> const& problem, ScanGradient<T> const& gradient, BoundaryStates<Acc> const& boundary)
        : problem_(problem), gradient_(gradient), boundary_(boundary), state_(static_cast<int>(problem.sizes.state)),
          head_dim_(static_cast<int>(problem.sizes.head_dim)), rows_(padded_dim<In>(state_)),
          columns_(padded_dim<In>(head_dim_)) {}

    std::size_t scratch_bytes() const { return Scratch(nullptr, problem_.sizes).bytes; }

    /// The gradients of one chunk, of all heads of a group. @param passes the gradient of the state on, to before it
    void chunk(i64 batch, i64 group, i64 chunk, bool passes, void* memory) const {
        auto const& [sizes, q, k, v, decay, positions] = problem_;
        Scratch tiles(memory, sizes);
        auto const documents = documents_of(sizes, positions, batch, chunk);
        i64 const start = chunk * sizes.chunk;
        int const tokens = sizes.length(chunk), padded = padded_dim<In>(tokens);
        load_tile(q.row(batch, start, group), q.seq_stride, tokens, state_, tiles.q, padded, rows_);
        load_tile(k.row(batch, start, group), k.seq_stride, tokens, state_, tiles.k, padded, rows_);
        transpose_tile(tiles.k, padded, rows_ / depth, tiles.k_transposed);
        turn_depth(tiles.k, padded, rows_, tiles.k_across);
        turn_depth(tiles.q, padded, rows_, tiles.q_across);
        visible_scores(0, padded, padded, state_, tiles.q, rows_, tiles.k_transposed, tiles.scores);
        clear_other_documents(documents, padded, tiles.scores);
        for (Acc** sums : {&tiles.dq, &tiles.dk}) std::fill(*sums, *sums + padded * rows_, Acc(0));

        i64 const first = group * sizes.heads_per_group();
        for (i64 head = first; head < first + sizes.heads_per_group(); ++head) {
            tiles.ahead.start(row_blocks(padded) + row_blocks(state_));
            bool const is_last = head + 1 == first + sizes.heads_per_group();
            if (!is_last || (chunk > 0 && passes))
                for (auto const* tensor : {&v, &gradient_.dy})
                    add_ahead(tiles, *tensor, batch, is_last ? first : head + 1, is_last ? chunk - 1 : chunk,
                              head_dim_);
            if (is_last && chunk > 0 && passes)
                for (auto const* tensor : {&q, &k}) add_ahead(tiles, *tensor, batch, group, chunk - 1, state_);
            add_head(tiles, batch, head, chunk, head == first, passes);
        }

        for_each_unseen<Acc, 1>(0, padded, padded, [&](int row, int column) {
            store(tiles.d_scores + row * padded + column, Vector<Acc>{});
        });
        clear_other_documents(documents, padded, tiles.d_scores);
        if constexpr (depth > 1) {
            to_along(tiles.d_scores, padded, padded, tiles.d_scores_along);
            to_across(tiles.d_scores, padded, padded, tiles.d_scores_across);
        }
        for_each_row_block(padded, [&](int begin, int end) {
            tile_product<Into::sum, In>(end - begin, rows_, operands<In>(end),
                                        {tiles.d_scores_along + begin * padded / depth, padded / depth, 1},
                                        {tiles.k_across, rows_}, {tiles.dq + begin * rows_, rows_});
            tile_product<Into::sum, In>(end - begin, rows_, operands<In>(padded - begin),
                                        {tiles.d_scores_across + begin / depth * padded + begin, 1, padded},
                                        {tiles.q_across + begin / depth * rows_, rows_},
                                        {tiles.dk + begin * rows_, rows_});
        });
        store_tile(tiles.dq, rows_, tokens, state_, gradient_.dq.row(batch, start, group), gradient_.dq.seq_stride);
        store_tile(tiles.dk, rows_, tokens, state_, gradient_.dk.row(batch, start, group), gradient_.dk.seq_stride);
    }

    /// Only the gradients of the states at the ends of all chunks, of some heads, and of the initial state.
    void states(ScanWork const& work, void* memory) const {
        auto const& sizes = problem_.sizes;
        Scratch tiles(memory, sizes);
        for (i64 chunk = sizes.chunks(); chunk-- > 0;) {
            i64 const start = chunk * sizes.chunk;
            int const tokens = sizes.length(chunk), padded = padded_dim<In>(tokens);
            load_tile(problem_.q.row(work.batch, start, work.group), problem_.q.seq_stride, tokens, state_, tiles.q,
                      padded, rows_);
            turn_depth(tiles.q, padded, rows_, tiles.q_across);
            for (i64 head = work.first_head; head < work.last_head; ++head) {
                tiles.ahead.start(row_blocks(state_));
                if (head + 1 < work.last_head)
                    add_ahead(tiles, gradient_.dy, work.batch, head + 1, chunk, head_dim_);
                else if (chunk > 0) {
                    add_ahead(tiles, gradient_.dy, work.batch, work.first_head, chunk - 1, head_dim_);
                    add_ahead(tiles, problem_.q, work.batch, work.group, chunk - 1, state_);
                }
                load_head(tiles, work.batch, head, chunk);
                pass_on(tiles, work.batch, head, chunk);
            }
        }
    }

  private:
    static constexpr int depth = depth_of<In>;

    void add_ahead(Scratch& tiles, Heads<T const> const& tensor, i64 batch, i64 head, i64 chunk, int extent) const {
        auto const& sizes = problem_.sizes;
        tiles.ahead.add(tensor.row(batch, chunk * sizes.chunk, head), tensor.seq_stride, sizes.length(chunk), extent);
    }
    /// dy, the decays, and after the last chunk the gradient of the final state.
    void load_head(Scratch& tiles, i64 batch, i64 head, i64 chunk) const {
        auto const& sizes = problem_.sizes;
        auto const& decay = problem_.decay;
        i64 const start = chunk * sizes.chunk, index = batch * sizes.heads + head;
        int const tokens = sizes.length(chunk), padded = padded_dim<In>(tokens);
        load_tile(gradient_.dy.row(batch, start, head), gradient_.dy.seq_stride, tokens, head_dim_, tiles.dy, padded,
                  columns_);
        tiles.decay.set(decay.data ? decay.row(batch, start, head) : nullptr, decay.seq_stride, tokens, padded);
        tiles.decay.cut(documents_of(sizes, problem_.positions, batch, chunk));
        if (chunk + 1 == sizes.chunks())
            load_state<In>(sizes, gradient_.d_final ? gradient_.d_final + index * state_ * head_dim_ : nullptr,
                           boundary_.gradients.at(index, chunk));
    }
    /// The gradient of the state before the chunk: of that behind it, decayed, and of what the queries read. Multiplies
    /// dy with the decays.
    void pass_on(Scratch& tiles, i64 batch, i64 head, i64 chunk) const {
        auto const& sizes = problem_.sizes;
        i64 const index = batch * sizes.heads + head;
        if (chunk == 0 && gradient_.d_initial == nullptr) return;
        Acc const* const behind = boundary_.gradients.at(index, chunk);
        Acc* const before = boundary_.gradients.at(index, std::max<i64>(chunk - 1, 0));
        int const tokens = sizes.length(chunk);
        scale_rows(tokens, columns_, tiles.dy, [&](int token) { return tiles.decay.from_start(token); });
        turn_depth(tiles.dy, padded_dim<In>(tokens), columns_, tiles.dy_across);
        Acc* const to = chunk > 0 ? before : tiles.before_all;
        step_state(sizes, tokens, tiles.decay.whole(), tiles.q_across, tiles.dy_across, behind, to, tiles.ahead);
        if (chunk == 0) store_state<In>(sizes, to, gradient_.d_initial + index * state_ * head_dim_);
    }

    void add_head(Scratch& tiles, i64 batch, i64 head, i64 chunk, bool is_first, bool passes) const {
        auto const& sizes = problem_.sizes;
        i64 const start = chunk * sizes.chunk, index = batch * sizes.heads + head;
        int const tokens = sizes.length(chunk), padded = padded_dim<In>(tokens);
        bool const has_before = chunk > 0 || gradient_.initial != nullptr,
                   has_behind = chunk + 1 < sizes.chunks() || gradient_.d_final != nullptr;
        load_head(tiles, batch, head, chunk);
        load_tile(problem_.v.row(batch, start, head), problem_.v.seq_stride, tokens, head_dim_, tiles.v, padded,
                  columns_);
        transpose_tile(tiles.v, padded, columns_ / depth, tiles.v_transposed);
        for (Acc** sums : {&tiles.of_columns, &tiles.of_states}) std::fill(*sums, *sums + padded, Acc(0));

        Acc const* const before = boundary_.states.at(index, chunk);
        Acc const* const behind = boundary_.gradients.at(index, chunk);
        if (has_behind) {
            tile_product<Into::empty, In>(padded, columns_, operands<In>(state_), {tiles.k, rows_ / depth, 1},
                                          {state_across(sizes, behind, tiles.state), columns_}, {tiles.dv, columns_});
            scale_rows(padded, columns_, tiles.dv, [&](int token) { return tiles.decay.to_end(token); });
            for (int token = 0; token < padded; ++token)
                tiles.of_states[token] = dot(columns_, tiles.dv + token * columns_, tiles.v + token * columns_ / depth);
        } else {
            std::fill(tiles.dv, tiles.dv + padded * columns_, Acc(0));
        }
        turn_depth(tiles.dy, padded, columns_, tiles.dy_across);
        add_pairs(tiles, padded, head_dim_, columns_, is_first);
        store_tile(tiles.dv, columns_, tokens, head_dim_, gradient_.dv.row(batch, start, head),
                   gradient_.dv.seq_stride);
        if (has_before) {
            times_state<Into::empty>(tiles, sizes, padded, tiles.dy, before, tiles.product);
            for (int token = 0; token < padded; ++token)
                tiles.of_rows[token] += add_and_dot(rows_, tiles.decay.from_start(token), tiles.product + token * rows_,
                                                    tiles.q + token * rows_ / depth, tiles.dq + token * rows_);
        }
        if (has_behind) {
            scale_rows(padded, columns_, tiles.v, [&](int token) { return tiles.decay.to_end(token); });
            times_state<Into::sum>(tiles, sizes, padded, tiles.v, behind, tiles.dk);
        }
        if (gradient_.da.data != nullptr) {
            Acc const across = has_before && has_behind ? dot(rows_ * columns_, before, behind) : Acc(0);
            store_decay_gradient(tiles, documents_of(sizes, problem_.positions, batch, chunk),
                                 across * tiles.decay.whole(), gradient_.da.row(batch, start, head),
                                 gradient_.da.seq_stride);
        }
        if (passes) pass_on(tiles, batch, head, chunk);
    }

    ScanProblem<T> problem_;
    ScanGradient<T> gradient_;
    BoundaryStates<Acc> boundary_;
    int state_, head_dim_, rows_, columns_;
};

/// Whether there are so few groups that threads would idle for more than it costs to keep the gradients of the states
/// at all boundaries, so that each chunk has a thread of its own.
template <class Exec>
bool scans_back_by_chunk(Exec const& exec, ScanSizes const& sizes) {
    i64 const items = sizes.batch * sizes.groups, threads = exec.concurrency();
    return 10 * items < 9 * ((items + threads - 1) / threads) * threads;
}

/// One thread for each group, which takes its chunks from the last to the first; or first the gradients of the states,
/// and then one thread for each chunk of each group.
/// @tparam In as in the forward pass
template <class In, class Exec, class T>
void scan_backward_host(Exec const& exec, ScanProblem<T> const& problem, ScanGradient<T> const& gradient,
                        accumulator_t<T>* workspace, bool by_chunk) {
    using Acc = accumulator_t<T>;
    auto const sizes = problem.sizes;
    i64 const size = padded_state<In>(sizes), chunks = sizes.chunks();
    ScanStates<Acc> const states{workspace, chunks, size};
    ScanStates<Acc> const gradients{workspace + sizes.batch * sizes.heads * chunks * size, by_chunk ? chunks : 1, size};
    scan_forward_host<In>(exec, problem, ScanResult<T>{gradient.initial, {}, nullptr, nullptr}, states);
    ScanBackward<In, T> const backward(problem, gradient, {states, gradients});
    std::size_t const scratch = backward.scratch_bytes();
    if (by_chunk) {
        for_each_heads("pentad::chunk_scan_backward_states", exec, sizes, scratch,
                       [=](ScanWork const& work, void* memory) { backward.states(work, memory); });
        for_each_item("pentad::chunk_scan_backward", exec, sizes.batch * sizes.groups * chunks, scratch,
                      [=](i64 item, void* memory) {
                          i64 const group = item / chunks;
                          backward.chunk(group / sizes.groups, group % sizes.groups, item % chunks, false, memory);
                      });
    } else {
        for_each_item("pentad::chunk_scan_backward", exec, sizes.batch * sizes.groups, scratch,
                      [=](i64 group, void* memory) {
                          for (i64 chunk = chunks; chunk-- > 0;)
                              backward.chunk(group / sizes.groups, group % sizes.groups, chunk, true, memory);
                      });
    }
}

/// Only the gradient of the initial state.
template <class In, class Exec, class T>
void scan_initial_gradient_host(Exec const& exec, ScanProblem<T> const& problem, ScanGradient<T> const& gradient,
                                accumulator_t<T>* workspace) {
    ScanBackward<In, T> const backward(problem, gradient, {{}, {workspace, 1, padded_state<In>(problem.sizes)}});
    for_each_heads("pentad::chunk_scan_initial_gradient", exec, problem.sizes, backward.scratch_bytes(),
                   [=](ScanWork const& work, void* memory) { backward.states(work, memory); });
}

} // namespace pentad::kernels::detail
