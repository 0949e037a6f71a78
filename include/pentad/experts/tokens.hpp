// Tokens in the two views of a mesh: each rank has tokens of its own along dp, cp and tp, and experts see the same
// ranks as edp x ep x etp.
#pragma once

#include <pentad/layout/algebra.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/layout/streams.hpp>

namespace pentad::experts {

using namespace ml;

namespace detail {
template <class Tokens>
inline constexpr bool has_states = !std::is_same_v<invariant_t<Tokens>, Tokens>;

template <class Tokens>
consteval void require_dealt() {
    constexpr auto axes = Tokens::value.axes();
    if constexpr (has_states<Tokens> || !axes.contains(dp::name) || !axes.contains(cp::name) ||
                  !axes.contains(tp::name))
        refuse<Text() << "pentad: tokens go to experts from a layout in which each rank along dp, cp and tp has tokens "
                         "of its own: not "
                      << layout_text<Tokens>.view()>();
}
} // namespace detail

/// Tokens [batch, seq, hidden] as the rows of one expert see them: shared out over edp, and the same for the ranks of
/// etp, which shard the expert's width. Each rank has other tokens in either view, so that what its tokens are is no
/// matter of the layout; Dispatch takes them there.
template <class Tokens>
using expert_rows_t = Layout<typename Tokens::element, Dims<Dim<token, dynamic, edp>, Dim<hidden>>, Replicated<etp>>;
/// The rows of all experts, in their order.
template <class Tokens>
using dispatched_t = Layout<typename Tokens::element,
                            Dims<Dim<expert, dynamic, ep>, Dim<token, dynamic, edp>, Dim<hidden>>, Replicated<etp>>;

} // namespace pentad::experts
