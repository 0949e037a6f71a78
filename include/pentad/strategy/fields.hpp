// The fields of a Strategy, and of the values that it is made of, as tables: whatever reads, writes or compares all of
// a strategy (JSON, C++ text) goes through these.
#pragma once

#include <pentad/strategy/strategy.hpp>

#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <vector>

namespace pentad {

/// A field of `Of`, by name.
template <class Of, class Member>
struct Field {
    using Pointer = Member Of::*; // named: nvcc would pass a declaration with parentheses on to g++, which warns
    std::string_view name;
    Pointer member;
};

/// Specialised for each aggregate that a strategy is made of. Has `type`, the name of T in namespace pentad, and
/// `value`, a tuple of all Fields of T in the order of its members.
template <class T>
struct FieldsOf;
template <class T>
concept HasFields = requires { FieldsOf<T>::value; };

/// Specialised for each enumeration. Has `type`, the name of T in namespace pentad, and `words`, the names of its
/// enumerators in their order.
template <class T>
struct WordsOf;
template <class T>
concept HasWords = requires { WordsOf<T>::words; };

template <HasWords T>
constexpr std::string_view word_of(T value) {
    return WordsOf<T>::words.at(static_cast<std::size_t>(value));
}

/// The pieces of a set, in the order of model::Piece.
inline std::vector<model::Piece> list_of(model::PieceSet pieces) {
    std::vector<model::Piece> list;
    for (std::size_t i = 0; i < model::piece_names.size(); ++i)
        if (auto const piece = static_cast<model::Piece>(i); pieces.contains(piece)) list.push_back(piece);
    return list;
}

/// Calls f(field) for each field of T.
template <HasFields T, class F>
constexpr void for_each_field(F&& f) {
    std::apply([&](auto const&... field) { (f(field), ...); }, FieldsOf<T>::value);
}

/// Calls f(field) for each field of `value` that differs from its default.
template <HasFields T, class F>
void for_each_set_field(T const& value, F&& f) {
    for_each_field<T>([&](auto const& field) {
        if (!(value.*field.member == T{}.*field.member)) f(field);
    });
}

#define PENTAD_FIELD(T, name)                                                                                          \
    Field { #name, &T::name }

template <>
struct WordsOf<ContextStrategy> {
    static constexpr std::string_view type = "ContextStrategy";
    static constexpr auto words = [] {
        std::array<std::string_view, 5> all{};
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = name(static_cast<ContextStrategy>(i));
        return all;
    }();
};
template <>
struct WordsOf<Compact> {
    static constexpr std::string_view type = "Compact";
    static constexpr std::array<std::string_view, 3> words{"none", "bf16", "fp8"};
};
template <>
struct WordsOf<model::Element> {
    static constexpr std::string_view type = "model::Element";
    static constexpr std::array<std::string_view, 3> words{"f64", "f32", "bf16"};
};
template <>
struct WordsOf<model::TensorKind> {
    static constexpr std::string_view type = "model::TensorKind";
    static constexpr std::array<std::string_view, 4> words{"one_d", "two_d", "two_and_half_d", "three_d"};
};
template <>
struct WordsOf<model::AttentionOutput> {
    static constexpr std::string_view type = "model::AttentionOutput";
    static constexpr std::array<std::string_view, 2> words{"reduce_scatter", "all_to_all"};
};
template <>
struct WordsOf<model::Recomputation::Kind> {
    static constexpr std::string_view type = "model::Recomputation::Kind";
    static constexpr std::array<std::string_view, 5> words{"none", "selective", "full", "automatic", "planned"};
};
template <>
struct WordsOf<model::Piece> {
    static constexpr std::string_view type = "model::Piece";
    static constexpr std::array<std::string_view, 5> words = model::piece_names;
};
template <>
struct WordsOf<model::MuonRate> {
    static constexpr std::string_view type = "model::MuonRate";
    static constexpr std::array<std::string_view, 2> words{"original", "match_rms_adamw"};
};

template <>
struct FieldsOf<model::ExpertMesh> {
    static constexpr std::string_view type = "model::ExpertMesh";
    static constexpr std::tuple value{PENTAD_FIELD(model::ExpertMesh, ep), PENTAD_FIELD(model::ExpertMesh, etp)};
};
template <>
struct FieldsOf<ZeroSharding> {
    static constexpr std::string_view type = "ZeroSharding";
    static constexpr std::tuple value{PENTAD_FIELD(ZeroSharding, stage), PENTAD_FIELD(ZeroSharding, ranks),
                                      PENTAD_FIELD(ZeroSharding, keeps_parameters),
                                      PENTAD_FIELD(ZeroSharding, accumulates_gradients),
                                      PENTAD_FIELD(ZeroSharding, releases_gradients)};
};
template <>
struct FieldsOf<LocalSteps> {
    static constexpr std::string_view type = "LocalSteps";
    static constexpr std::tuple value{PENTAD_FIELD(LocalSteps, steps), PENTAD_FIELD(LocalSteps, ranks),
                                      PENTAD_FIELD(LocalSteps, outer_learning_rate),
                                      PENTAD_FIELD(LocalSteps, outer_momentum)};
};
template <>
struct FieldsOf<model::BlockRecomputation> {
    static constexpr std::string_view type = "model::BlockRecomputation";
    static constexpr std::tuple value{PENTAD_FIELD(model::BlockRecomputation, whole),
                                      PENTAD_FIELD(model::BlockRecomputation, pieces)};
};
template <>
struct FieldsOf<model::Recomputation> {
    static constexpr std::string_view type = "model::Recomputation";
    static constexpr std::tuple value{
        PENTAD_FIELD(model::Recomputation, kind), PENTAD_FIELD(model::Recomputation, every),
        PENTAD_FIELD(model::Recomputation, pieces), PENTAD_FIELD(model::Recomputation, blocks)};
};
template <>
struct FieldsOf<model::AdamW> {
    static constexpr std::string_view type = "model::AdamW";
    static constexpr std::tuple value{PENTAD_FIELD(model::AdamW, beta1), PENTAD_FIELD(model::AdamW, beta2),
                                      PENTAD_FIELD(model::AdamW, epsilon), PENTAD_FIELD(model::AdamW, weight_decay)};
};
template <>
struct FieldsOf<model::Sgd> {
    static constexpr std::string_view type = "model::Sgd";
    static constexpr std::tuple value{PENTAD_FIELD(model::Sgd, momentum), PENTAD_FIELD(model::Sgd, nesterov),
                                      PENTAD_FIELD(model::Sgd, weight_decay)};
};
template <>
struct FieldsOf<model::Lion> {
    static constexpr std::string_view type = "model::Lion";
    static constexpr std::tuple value{PENTAD_FIELD(model::Lion, beta1), PENTAD_FIELD(model::Lion, beta2),
                                      PENTAD_FIELD(model::Lion, weight_decay)};
};
template <>
struct FieldsOf<model::Muon> {
    static constexpr std::string_view type = "model::Muon";
    static constexpr std::tuple value{PENTAD_FIELD(model::Muon, momentum),     PENTAD_FIELD(model::Muon, nesterov),
                                      PENTAD_FIELD(model::Muon, weight_decay), PENTAD_FIELD(model::Muon, epsilon),
                                      PENTAD_FIELD(model::Muon, iterations),   PENTAD_FIELD(model::Muon, rate),
                                      PENTAD_FIELD(model::Muon, others)};
};
template <>
struct FieldsOf<model::LoadBalance> {
    static constexpr std::string_view type = "model::LoadBalance";
    static constexpr std::tuple value{PENTAD_FIELD(model::LoadBalance, rate),
                                      PENTAD_FIELD(model::LoadBalance, tolerance),
                                      PENTAD_FIELD(model::LoadBalance, whole)};
};
template <>
struct FieldsOf<model::Precision> {
    static constexpr std::string_view type = "model::Precision";
    static constexpr std::tuple value{PENTAD_FIELD(model::Precision, reduce), PENTAD_FIELD(model::Precision, rows),
                                      PENTAD_FIELD(model::Precision, moments),
                                      PENTAD_FIELD(model::Precision, keeps_masters)};
};
template <>
struct FieldsOf<model::Offload> {
    static constexpr std::string_view type = "model::Offload";
    static constexpr std::tuple value{PENTAD_FIELD(model::Offload, optimizer),
                                      PENTAD_FIELD(model::Offload, activations), PENTAD_FIELD(model::Offload, folder),
                                      PENTAD_FIELD(model::Offload, window_bytes)};
};
template <>
struct FieldsOf<model::BlockMesh> {
    static constexpr std::string_view type = "model::BlockMesh";
    static constexpr std::tuple value{PENTAD_FIELD(model::BlockMesh, cp), PENTAD_FIELD(model::BlockMesh, tp)};
};
template <>
struct FieldsOf<model::BlockStrategy> {
    static constexpr std::string_view type = "model::BlockStrategy";
    static constexpr std::tuple value{PENTAD_FIELD(model::BlockStrategy, mesh),
                                      PENTAD_FIELD(model::BlockStrategy, tensor_kind),
                                      PENTAD_FIELD(model::BlockStrategy, sequence_parallel),
                                      PENTAD_FIELD(model::BlockStrategy, context),
                                      PENTAD_FIELD(model::BlockStrategy, inner_cp),
                                      PENTAD_FIELD(model::BlockStrategy, zigzag),
                                      PENTAD_FIELD(model::BlockStrategy, attention_output),
                                      PENTAD_FIELD(model::BlockStrategy, row_parts)};
};
template <>
struct FieldsOf<Strategy> {
    static constexpr std::string_view type = "Strategy";
    static constexpr std::tuple value{PENTAD_FIELD(Strategy, dp),
                                      PENTAD_FIELD(Strategy, pp),
                                      PENTAD_FIELD(Strategy, ep),
                                      PENTAD_FIELD(Strategy, cp),
                                      PENTAD_FIELD(Strategy, tp),
                                      PENTAD_FIELD(Strategy, order),
                                      PENTAD_FIELD(Strategy, experts),
                                      PENTAD_FIELD(Strategy, batch),
                                      PENTAD_FIELD(Strategy, micro_batches),
                                      PENTAD_FIELD(Strategy, seq),
                                      PENTAD_FIELD(Strategy, schedule),
                                      PENTAD_FIELD(Strategy, chunks),
                                      PENTAD_FIELD(Strategy, pairs),
                                      PENTAD_FIELD(Strategy, stage_layers),
                                      PENTAD_FIELD(Strategy, balances_stages),
                                      PENTAD_FIELD(Strategy, block),
                                      PENTAD_FIELD(Strategy, blocks),
                                      PENTAD_FIELD(Strategy, recompute),
                                      PENTAD_FIELD(Strategy, sharding),
                                      PENTAD_FIELD(Strategy, local),
                                      PENTAD_FIELD(Strategy, bucket_elements),
                                      PENTAD_FIELD(Strategy, optimizer),
                                      PENTAD_FIELD(Strategy, precision),
                                      PENTAD_FIELD(Strategy, offload),
                                      PENTAD_FIELD(Strategy, element),
                                      PENTAD_FIELD(Strategy, fp8_products)};
};
#undef PENTAD_FIELD

} // namespace pentad
