// Cross-entropy of logits sharded over the vocabulary: each rank's part of the log-sum-exp and of the
// target's logit, then (once both are reduced over the ranks) the token losses and, in place, the logits' gradient.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/math.hpp>
#include <pentad/kernels/rows.hpp>

#include <stdexcept>
#include <string>

namespace pentad::kernels {

namespace detail {

template <class Logits, class Targets>
void require_vocabulary(char const* kernel, Logits const& logits, Targets const& targets, i64 valid_vocab_local) {
    require_extent(kernel, "targets", targets.extent(0), logits.extent(0), "rows of logits");
    if (valid_vocab_local < 0 || valid_vocab_local > static_cast<i64>(logits.extent(1)))
        throw std::invalid_argument(std::string(kernel) + ": valid_vocab_local is " +
                                    std::to_string(valid_vocab_local) + ", it must lie in [0, " +
                                    std::to_string(logits.extent(1)) + "], the columns of logits");
}

} // namespace detail

/// lse[r] = log-sum-exp over the valid local columns (-inf where there is none), target_logit[r] = the target's logit
/// if its column is here, else 0. Columns from valid_vocab_local on are padding and count as -inf.
template <class T, class Exec>
void cross_entropy_partial(Exec const& exec, In<T, 2, Exec> logits, In<i32, 1, Exec> targets, i64 vocab_begin,
                           i64 valid_vocab_local, Out<accumulator_t<T>, 1, Exec> lse,
                           Out<accumulator_t<T>, 1, Exec> target_logit) {
    using A = accumulator_t<T>;
    detail::require_vocabulary("cross_entropy_partial", logits, targets, valid_vocab_local);
    detail::require_extent("cross_entropy_partial", "lse", lse.extent(0), logits.extent(0), "rows of logits");
    detail::require_extent("cross_entropy_partial", "target_logit", target_logit.extent(0), logits.extent(0),
                           "rows of logits");
    int const valid = static_cast<int>(valid_vocab_local);
    if (dry("cross_entropy_partial", logits, targets, lse, target_logit)) return;
    for_each_row(
        "pentad::cross_entropy_partial", exec, logits.extent(0), valid, KOKKOS_LAMBDA(Row<Exec> const& row) {
            T const* const in = row.of(logits);
            A const largest = row.template max<A>(valid, [&](int i) { return A(in[i]); });
            A const total = row.template sum<A>(valid, [&](int i) { return math::exp(A(in[i]) - largest); });
            row.once([&] {
                i64 const column = targets(row.index()) - vocab_begin;
                bool const here = targets(row.index()) >= 0 && column >= 0 && column < valid;
                bool const none = largest == -Kokkos::Experimental::infinity_v<A>; // then total is NaN
                lse(row.index()) = none ? largest : largest + Kokkos::log(total);
                target_logit(row.index()) = here ? A(in[column]) : A(0);
            });
        });
}
PENTAD_KERNEL(cross_entropy_partial)

/// loss[r] = lse[r] - target_logit[r], both reduced over the ranks; 0 where the target is negative (ignored).
template <class A, class Exec>
void cross_entropy_token_loss(Exec const& exec, In<A, 1, Exec> lse, In<A, 1, Exec> target_logit,
                              In<i32, 1, Exec> targets, Out<A, 1, Exec> loss) {
    detail::require_extent("cross_entropy_token_loss", "lse", lse.extent(0), loss.extent(0), "as loss");
    detail::require_extent("cross_entropy_token_loss", "target_logit", target_logit.extent(0), loss.extent(0),
                           "as loss");
    detail::require_extent("cross_entropy_token_loss", "targets", targets.extent(0), loss.extent(0), "as loss");
    if (dry("cross_entropy_token_loss", lse, target_logit, targets, loss)) return;
    for_each_element(
        "pentad::cross_entropy_token_loss", exec, loss.extent(0),
        KOKKOS_LAMBDA(i64 r) { loss(r) = targets(r) < 0 ? A(0) : lse(r) - target_logit(r); });
}
PENTAD_KERNEL_OF_ACCUMULATORS(cross_entropy_token_loss)

/// In place: dlogits = scale * (exp(logit - lse) - [column is the target]), lse being that of the whole vocabulary;
/// 0 in rows whose target is negative and in padding columns.
template <class T, class Exec>
void cross_entropy_backward(Exec const& exec, Out<T, 2, Exec> logits, In<accumulator_t<T>, 1, Exec> lse,
                            In<i32, 1, Exec> targets, i64 vocab_begin, i64 valid_vocab_local, accumulator_t<T> scale) {
    using A = accumulator_t<T>;
    detail::require_vocabulary("cross_entropy_backward", logits, targets, valid_vocab_local);
    detail::require_extent("cross_entropy_backward", "lse", lse.extent(0), logits.extent(0), "rows of logits");
    int const valid = static_cast<int>(valid_vocab_local);
    int const width = static_cast<int>(logits.extent(1));
    if (dry("cross_entropy_backward", logits, logits, lse, targets)) return;
    for_each_row(
        "pentad::cross_entropy_backward", exec, logits.extent(0), width, KOKKOS_LAMBDA(Row<Exec> const& row) {
            T* const values = row.of(logits);
            i32 const target = targets(row.index());
            A const total = lse(row.index());
            bool const counts = target >= 0 && total > -Kokkos::Experimental::infinity_v<A>;
            if (!counts) {
                row.each(width, [&](int i) { values[i] = T(0); });
                return;
            }
            int const column = static_cast<int>(target - vocab_begin);
            row.each(valid, [&](int i) {
                A const probability = math::exp(A(values[i]) - total);
                values[i] = T(scale * (probability - static_cast<A>(i == column))); // no branch: it would not vectorise
            });
            row.each(width - valid, [&](int i) { values[valid + i] = T(0); });
        });
}
PENTAD_KERNEL(cross_entropy_backward)

} // namespace pentad::kernels
