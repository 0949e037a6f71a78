// Weights from a checkpoint: each rank reads the parts that it holds, whatever the mesh on which they were trained.
#pragma once

#include <pentad/comm/broadcast_text.hpp>
#include <pentad/io/checkpoint.hpp>
#include <pentad/io/tensor_box.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/family.hpp>
#include <pentad/train/export.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad::train {

using namespace ml;

namespace detail {

/// The part of a published tensor that this rank holds: of an expert's, that of the first one here. Padding is left
/// out.
template <class T, class Exec>
io::Box held_box(AnyParameter<T, Exec> const& parameter) {
    auto const& layout = parameter.stored_layout();
    auto const& communicators = parameter.context().communicators();
    std::size_t const begin = parameter.name().find("{}") == std::string::npos ? 0 : 1;
    io::Box box;
    for (std::size_t d = begin; d < layout.rank; ++d) {
        auto const extent = static_cast<std::int64_t>(parameter.local_extents()[d]);
        auto const offset = extent * static_cast<std::int64_t>(communicators.shard_index(layout.dimensions[d].axes));
        auto const whole = static_cast<std::int64_t>(d == 0 ? parameter.valid_rows() : parameter.global_extents()[d]);
        if (d > begin && layout.dimensions[d].name == head_dim::name) {
            box.offsets.back() = box.offsets.back() * whole + offset;
            box.extents.back() *= extent;
        } else {
            box.offsets.push_back(std::min(offset, whole));
            box.extents.push_back(std::min(extent, whole - box.offsets.back()));
        }
    }
    if (auto const& rows = parameter.published_rows()) box.offsets[0] += static_cast<std::int64_t>(rows->first);
    return box;
}

/// Why a head of its own beside a tied table is not that table; empty: it is, or there is none. On one rank.
inline std::string refused_head(io::Checkpoint const& checkpoint, std::string const& table) {
    std::string const head = "lm_head.weight";
    if (!checkpoint.contains(head) || !checkpoint.contains(table)) return {};
    auto const shape = checkpoint.tensor(table).shape;
    bool is_same = checkpoint.tensor(head).shape == shape;
    constexpr std::int64_t at_once = std::int64_t{1} << 22; // elements, in whole rows
    std::int64_t const rows = is_same && shape.size() == 2 ? shape[0] : 0, width = rows > 0 ? shape[1] : 1;
    std::int64_t const step = std::max<std::int64_t>(1, at_once / std::max<std::int64_t>(1, width));
    std::vector<double> of_head, of_table;
    for (std::int64_t row = 0; is_same && row < rows; row += step) {
        io::Box const box{{row, 0}, {std::min(step, rows - row), width}};
        of_head.resize(io::detail::elements(box.extents));
        of_table.resize(of_head.size());
        checkpoint.read(head, box, std::span(of_head));
        checkpoint.read(table, box, std::span(of_table));
        is_same = of_head == of_table;
    }
    if (is_same) return {};
    return checkpoint.path().string() + " does not fit the model: its " + head + " is not its " + table +
           ", which the model has as its head (tie_word_embeddings): say false there, or leave the tensor out";
}

} // namespace detail

/// Replaces the weights of a model by those of a checkpoint. Call it before the first step: optimizer moments stay as
/// they are. Not during a step. Collective over all ranks.
/// @param family whose names the checkpoint uses
/// @param passed_over what the names of tensors begin with that the checkpoint may have and the model has not: modules
/// of multi-token prediction
/// @throws std::invalid_argument on all ranks where tensors are missing, left over or of another shape, which it names;
/// io::FileError where a file cannot be read
template <class T, class Exec, class Model, class Store>
void import_weights(Context<Exec> const& context, Model& model, Store& store, std::optional<model::Family> family,
                    io::Checkpoint const& checkpoint, std::span<std::string const> passed_over = {}) {
    using A = accumulator_t<T>;
    auto& communicators = context.communicators();
    bool const is_root = detail::is_first_along_all_but_stages(context);
    std::vector<io::NamedShape> own;
    model.for_each_parameter([&](auto const& parameter) {
        for (auto& entry : detail::published(parameter, family)) own.push_back(std::move(entry));
    });
    std::string refusal;
    if (is_root) {
        auto const stages = detail::gather_entries(context.exec(), communicators.along(AxisNames(pp::name)), own);
        std::vector<io::NamedShape> expected;
        std::set<std::string> names;
        for (auto const& entries : stages)
            for (auto const& entry : entries)
                if (names.insert(entry.name).second) expected.push_back(entry); // a tied table is on two stages
        // Older files have the rotary frequencies too, which are computed, and modules of multi-token prediction
        // copies of the tables that they share with the model.
        // A tied head may be there under its own name too, if it is the table.
        bool const has_tied_head = !names.contains("lm_head.weight");
        auto const is_known = [&](std::string_view name) {
            return std::any_of(passed_over.begin(), passed_over.end(),
                               [&](std::string const& start) { return name.starts_with(start); }) ||
                   name.ends_with("rotary_emb.inv_freq") || name.ends_with("shared_head.head.weight") ||
                   (name.starts_with("model.layers.") && name.ends_with(".embed_tokens.weight")) ||
                   (has_tied_head && name == "lm_head.weight");
        };
        refusal = checkpoint.refusal(expected, is_known).value_or("");
        if (refusal.empty() && has_tied_head && communicators.world().rank() == 0) try {
                refusal = detail::refused_head(checkpoint, model::published_name(family, "model.embed_tokens.weight"));
            } catch (io::FileError const& error) { // the other ranks wait for a sentence
                refusal = error.what();
            }
    }
    refusal = comm::broadcast_text(communicators.world().handle(), std::move(refusal), 0);
    if (!refusal.empty()) throw std::invalid_argument(refusal);

    std::vector<A> host;
    store.for_each_imported([&](auto const& parameter) {
        auto const box = detail::held_box(parameter);
        auto const entries = detail::published(parameter, family);
        auto const& layout = parameter.stored_layout();
        bool const by_expert = entries.size() > 1 || parameter.name().find("{}") != std::string::npos;
        std::size_t const here = by_expert ? parameter.local_extents()[0] : 1;
        std::size_t const first = by_expert ? here * communicators.shard_index(layout.dimensions[0].axes) : 0;
        host.assign(parameter.size(), A(0));
        std::size_t const count = io::detail::elements(box.extents);
        for (std::size_t i = 0; i < here; ++i)
            checkpoint.read(entries[parameter.matrix_at(first + i)].name, box,
                            std::span(host).subspan(i * (parameter.size() / here), count));
        memory::copy_from_host(context.exec(), parameter.flat_gradient().data(), host.data(), host.size() * sizeof(A));
    });
}

} // namespace pentad::train
