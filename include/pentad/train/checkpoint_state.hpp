// The state of a trainer as a checkpoint holds it: pieces of published tensors, whatever the mesh, the schedule and
// what ZeRO shards.
#pragma once

#include <pentad/checkpoint/manifest.hpp>
#include <pentad/io/safetensors.hpp>
#include <pentad/model/family.hpp>
#include <pentad/train/export.hpp>
#include <pentad/train/import.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace pentad::train {

/// What a rank holds of a state of a tensor.
struct HeldPiece {
    io::NamedShape tensor;          ///< as published
    checkpoint::StoredPiece stored; ///< without checksums
    void* data = nullptr;           ///< in the memory of the execution space, for as long as it is shown
};

namespace detail {

/// The piece of a state of type A that is shown.
template <class A>
HeldPiece held_piece(io::NamedShape const& tensor, std::string_view state, checkpoint::Piece piece, A* data) {
    return {tensor, {tensor.name, std::string(state), std::string(io::safetensors_type<A>), std::move(piece)}, data};
}

/// Calls f(tensor, piece, offset) for the published tensors that elements [first, first + count) of this rank's shard
/// of a parameter belong to; `offset` counts from `first`. Padding is left out.
template <class T, class Exec, class F>
void for_each_published_piece(AnyParameter<T, Exec> const& parameter, std::optional<model::Family> family,
                              std::size_t first, std::size_t count, F&& f) {
    auto const box = held_box(parameter);
    auto const tensors = published(parameter, family);
    bool const by_expert = parameter.name().find("{}") != std::string::npos;
    auto const& layout = parameter.stored_layout();
    std::size_t const here = by_expert ? parameter.local_extents()[0] : 1;
    std::size_t const first_here =
        by_expert ? here * parameter.context().communicators().shard_index(layout.dimensions[0].axes) : 0;
    std::size_t const each = parameter.size() / std::max<std::size_t>(here, 1); // with padding, which comes last
    std::uint64_t const valid = io::detail::elements(box);
    for (std::size_t i = 0; i < here; ++i) {
        std::size_t const start = i * each;
        std::size_t const begin = std::max(first, start), end = std::min<std::size_t>(first + count, start + valid);
        if (begin >= end) continue;
        f(tensors[parameter.matrix_at(first_here + i)], checkpoint::Piece{box, begin - start, end - start},
          begin - first);
    }
}

} // namespace detail

/// Calls f(piece) for this rank's pieces of the state of a trainer, in an order that depends on nothing else than the
/// model, the mesh and the sharding. What a piece points to is there until f returns. Not during a step.
/// @param once the ranks together have every element once: what a checkpoint is written from; otherwise f gets all that
/// an update reads or writes here, and writes it
/// @throws io::FileError where the state is offloaded and cannot be read
template <class Trainer, class F>
void for_each_held_piece(Trainer& trainer, bool once, F&& f) {
    auto const family = model::family_of(trainer.settings().model);
    trainer.store().for_each_state(
        once, !once, [&](std::string_view state, auto const& parameter, std::size_t first, auto const& elements) {
            using A = typename std::remove_cvref_t<decltype(elements)>::value_type;
            detail::for_each_published_piece(
                parameter, family, first, elements.size(),
                [&](io::NamedShape const& tensor, checkpoint::Piece piece, std::size_t offset) {
                    f(detail::held_piece<A>(tensor, state, std::move(piece), elements.data() + offset));
                });
        });
}

/// Calls f(piece) for the pieces that for_each_held_piece(trainer, true, ...) will show when updates have made all
/// states. Their data are null: nothing is read.
template <class Trainer, class F>
void for_each_planned_piece(Trainer& trainer, F&& f) {
    using A = typename Trainer::Store::A;
    auto const family = model::family_of(trainer.settings().model);
    trainer.store().for_each_planned_state(
        [&](std::string_view state, auto const& parameter, std::size_t first, std::size_t count) {
            detail::for_each_published_piece(parameter, family, first, count,
                                             [&](io::NamedShape const& tensor, checkpoint::Piece piece, std::size_t) {
                                                 f(detail::held_piece<A>(tensor, state, std::move(piece), nullptr));
                                             });
        });
}

} // namespace pentad::train
