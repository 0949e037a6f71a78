// The decays between the tokens of a chunk, on the host: an exponential for each block of lanes x lanes on the
// diagonal, and for what is left of it products of two factors, one for each of the tokens.
#pragma once

#include <pentad/kernels/detail/chunk_scan_problem.hpp>
#include <pentad/kernels/detail/host_tiles.hpp>
#include <pentad/kernels/detail/simd.hpp>

#include <algorithm>
#include <type_traits>

namespace pentad::kernels::detail {

/// The decays of one head. The decay from token j to token i of an earlier and a later block is that from j to the end
/// of its block, times that from there to i: neither exponent is positive, and each is a sum of its own, so that none
/// is lost in the difference of two large ones.
template <class Acc>
class ChunkDecay {
  public:
    ChunkDecay(TileScratch& pieces, int capacity) {
        pieces.take(capacity, since_, until_, block_, from_start_, to_end_);
    }

    /// @param log_decay of the chunk's first token; null: no decay
    void set(Acc const* log_decay, i64 stride, int tokens, int padded) {
        Acc before = 0;
        for (int begin = 0; begin < padded; begin += width) {
            auto const at = [&](int lane) {
                bool const is_there = log_decay != nullptr && begin + lane < tokens;
                return is_there ? log_decay[(begin + lane) * stride] * log2_e<Acc> : Acc(0);
            };
            Acc since = 0, until = 0;
            for (int lane = 0; lane < width; ++lane) since_[begin + lane] = since += at(lane);
            for (int lane = width - 1; lane >= 0; until += at(lane--)) until_[begin + lane] = until;
            store(from_start_ + begin, exp2<Acc>(load(since_ + begin) + before));
            block_[begin / width] = since;
            before += since;
        }
        whole_ = exp2<Acc>(broadcast(before))[0];
        Acc after = 0;
        for (int begin = padded - width; begin >= 0; begin -= width) {
            store(to_end_ + begin, exp2<Acc>(load(until_ + begin) + after));
            store(until_ + begin, exp2<Acc>(load(until_ + begin)));
            after += block_[begin / width];
        }
    }

    /// No decay from before a document to behind its start. Those between tokens of the chunk stay as they are, since
    /// clear_other_documents makes the scores zeros.
    void cut(ChunkDocuments const& documents) {
        if (!documents.begin_here()) return;
        for (int token = 0; token < documents.tokens; ++token) {
            if (!documents.sees_before(token)) from_start_[token] = 0;
            if (!documents.reaches_end(token)) to_end_[token] = 0;
        }
        whole_ = 0;
    }

    /// From the chunk's start up to and with a token; from behind a token to the chunk's end; both. Zero where a
    /// document begins between.
    [[nodiscard]] Acc from_start(int token) const { return from_start_[token]; }
    [[nodiscard]] Acc to_end(int token) const { return to_end_[token]; }
    [[nodiscard]] Acc whole() const { return whole_; }

    /// f(on_diagonal, row, column, decay_of) for each block of lanes x lanes in rows [begin, end) that has tokens on or
    /// before the diagonal: decay_of(r) are the decays from the tokens of its columns to token row + r, 0 from later
    /// ones.
    template <class F>
    void for_each_block(int begin, int end, F const& f) const {
        for (int column = 0; column < end; column += width) {
            if (column >= begin) {
                auto const from = load(since_ + column);
                f(std::true_type(), column, column, [&](int r) {
                    auto const decay = exp2<Acc>(smaller<Vector<Acc>>(Vector<Acc>{}, since_[column + r] - from));
                    return up_to(r) ? decay : Vector<Acc>{};
                });
            }
            auto const until = load(until_ + column);
            Acc between = 0;
            for (int row = column + width; row < end; row += width) {
                if (row >= begin) {
                    Acc since[width];
                    store(since, exp2<Acc>(load(since_ + row) + between));
                    f(std::false_type(), row, column, [&](int r) { return until * since[r]; });
                }
                between += block_[row / width];
            }
        }
    }
    /// Which lanes are at most `last`.
    static auto up_to(int last) {
        Vector<Acc> lane;
        for (int l = 0; l < width; ++l) lane[l] = static_cast<Acc>(l);
        return lane <= broadcast(static_cast<Acc>(last));
    }

  private:
    static constexpr int width = lanes<Acc>;
    Acc *since_, *until_, *block_; ///< within blocks: log2 up to and with a token; from behind it; log2 of whole ones
    Acc *from_start_, *to_end_;
    Acc whole_ = 1;
};

/// Rows of a chunk whose scores a thread works on at once: whole blocks of rows, and whole vectors.
inline constexpr int band_rows = 8 * block_rows;
static_assert(rows_at_once % 2 == 0, "blocks of rows are whole operands across");

/// Products of rows and columns of a chunk as far as the rows see the columns: scores[row, column] for rows [begin,
/// end) of `rows`, along, [padded, width of depth], and all columns of `columns`, across, [depth, padded], up to each
/// block's end.
template <class In>
void visible_scores(int begin, int end, int padded, int depth, In const* rows, int row_stride, In const* columns,
                    sum_of<In>* scores) {
    int const stride = row_stride / depth_of<In>;
    for_each_row_block(end - begin, [&](int first, int last) {
        int const seen = std::min(padded_dim<sum_of<In>>(begin + last), padded);
        tile_product<Into::empty, In>(last - first, seen, operands<In>(depth),
                                      {rows + (begin + first) * stride, stride, 1}, {columns, padded},
                                      {scores + first * padded, padded});
    });
}

/// f(row, column) for the vectors of rows [begin, end) to the right of the blocks on the diagonal, as far as products
/// of a block of rows read them: zeros are to be there. @tparam step rows at once
template <class Acc, int step, class F>
void for_each_unseen(int begin, int end, int padded, F const& f) {
    for_each_row_block(end - begin, [&](int first, int last) {
        for (int row = first; row < last; row += step)
            for (int column = padded_dim<Acc>(begin + row + 1); column < begin + last && column < padded;
                 column += lanes<Acc>)
                f(begin + row, column);
    });
}

/// Zeros in the columns of documents before those of the rows, of [tokens, padded] scores or their gradient.
template <class Acc>
void clear_other_documents(ChunkDocuments const& documents, int padded, Acc* scores) {
    if (!documents.begin_here()) return;
    for (int row = 0; row < documents.tokens; ++row)
        std::fill_n(scores + row * padded, std::max(documents.first_seen(row), 0), Acc(0));
}

/// Multiplies each row of a tile along with a number.
template <class In, class Factor>
void scale_rows(int rows, int columns, In* tile, Factor const& factor) {
    constexpr int depth = depth_of<In>, width = lanes<In>;
    for (int row = 0; row < rows; ++row) {
        auto const by = broadcast(factor(row));
        for (int column = 0; column < columns; column += depth * width) {
            In* const at = tile + (row * columns + column) / depth;
            Vector<sum_of<In>> numbers[depth];
            for (int v = 0; v < depth; ++v) numbers[v] = Operand<In>::load_along(at + v * width / depth) * by;
            Operand<In>::store_along(at, width / depth, numbers);
        }
    }
}

} // namespace pentad::kernels::detail
