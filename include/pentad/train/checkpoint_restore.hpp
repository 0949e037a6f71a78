// The state of a trainer from a checkpoint, whatever the mesh, the schedule, the sharding and the element that wrote
// it: each rank reads what it holds.
#pragma once

#include <pentad/checkpoint/reader.hpp>
#include <pentad/comm/first_failure.hpp>
#include <pentad/memory/copy.hpp>
#include <pentad/train/checkpoint_state.hpp>
#include <pentad/train/run_settings.hpp>

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad::train {

namespace detail {

/// Whether a checkpoint has nothing but weights.
inline bool has_only_weights(checkpoint::Manifest const& manifest) {
    for (auto const& file : manifest.files)
        for (auto const& piece : file.pieces)
            if (piece.state != checkpoint::weight_state) return false;
    return true;
}

using KnownTensors = std::map<std::string_view, io::NamedShape const*>;

/// @throws std::invalid_argument where the checkpoint is not of this model, or of another optimizer
inline void require_fit(checkpoint::Reader const& reader, KnownTensors const& known, HeldPiece const& held) {
    auto const refuse = [&](std::string const& why) {
        throw std::invalid_argument("the checkpoint " + reader.folder().string() + " does not fit the run: " + why);
    };
    auto const found = known.find(held.tensor.name);
    if (found == known.end()) refuse("it has no tensor " + held.tensor.name);
    if (found->second->shape != held.tensor.shape)
        refuse("tensor " + held.tensor.name + " is " + io::detail::shape_text(found->second->shape) + ", not " +
               io::detail::shape_text(held.tensor.shape));
    if (!reader.contains(held.tensor.name, held.stored.state))
        refuse("tensor " + held.tensor.name + " has no " + held.stored.state + ", which the optimizer needs");
}

template <class T, class Exec>
void read_piece(Exec const& exec, checkpoint::Reader const& reader, HeldPiece const& held,
                std::vector<std::byte>& staging) {
    auto const& piece = held.stored.piece;
    if constexpr (memory::runs_on_host<Exec>) {
        reader.read(held.tensor.name, held.stored.state, piece, std::span(static_cast<T*>(held.data), piece.size()));
    } else {
        staging.resize(piece.size() * sizeof(T));
        auto* const host = reinterpret_cast<T*>(staging.data());
        reader.read(held.tensor.name, held.stored.state, piece, std::span(host, piece.size()));
        memory::copy_from_host(exec, held.data, host, staging.size());
    }
}

} // namespace detail

/// Reads the state of a trainer, and goes on from `position`. A checkpoint of weights alone leaves the optimizer as it
/// begins. Where this throws, the state of the trainer is of no use until another checkpoint has been read. Collective.
/// @throws on all ranks: checkpoint::Damaged, io::FileError; std::invalid_argument where the checkpoint does not fit
template <class Trainer>
void restore(Trainer& trainer, checkpoint::Reader const& reader, RunPosition const& position) {
    enum Kind { damaged, file, unfit };
    auto const& context = trainer.setup().context;
    MPI_Comm const world = context.communicators().world().handle();
    bool const only_weights = detail::has_only_weights(reader.manifest());
    std::optional<comm::Failure> failure;
    try {
        detail::KnownTensors known;
        for (auto const& tensor : reader.manifest().tensors) known.emplace(tensor.name, &tensor);
        std::vector<std::byte> staging;
        trainer.place_experts(position.expert_orders);
        for_each_held_piece(trainer, false, [&](HeldPiece const& held) {
            if (only_weights && held.stored.state != checkpoint::weight_state) {
                memory::clear(context.exec(), held.data, held.stored.bytes());
                return;
            }
            detail::require_fit(reader, known, held);
            if (held.stored.type == io::safetensors_type<f64>)
                detail::read_piece<f64>(context.exec(), reader, held, staging);
            else
                detail::read_piece<f32>(context.exec(), reader, held, staging);
        });
        context.exec().fence("pentad: state read");
    } catch (checkpoint::Damaged const& error) {
        failure = {damaged, error.what()};
    } catch (io::FileError const& error) {
        failure = {file, error.what()};
    } catch (std::invalid_argument const& error) {
        failure = {unfit, error.what()};
    }
    if (auto const first = comm::first_failure(world, failure)) {
        if (first->kind == damaged) throw checkpoint::Damaged(first->text);
        if (first->kind == file) throw io::FileError(first->text);
        throw std::invalid_argument(first->text);
    }
    trainer.store().restore();
    trainer.set_position(position);
}

} // namespace pentad::train
