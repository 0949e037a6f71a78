#include <doctest/doctest.h>

#include <pentad/model/decoder.hpp>

#include <string>

using namespace pentad;

TEST_CASE("a decoder has attention and an MLP or experts in each block, under the names of published checkpoints") {
    auto const model =
        model::decoder({.layers = 4, .hidden = 32, .heads = 4, .kv_heads = 2, .ffn = 96, .experts = 8, .moe_every = 2});
    CHECK(model.blocks.size() == 4);
    CHECK(model.find<model::Attention>(3)->head_dim == 8);
    CHECK(model.find<model::Attention>(3)->kv_heads == 2);
    CHECK(model.find<model::GatedMlp>(0)->width == 96);
    CHECK(model.find<model::Experts>(0) == nullptr);
    CHECK(model.find<model::Experts>(1)->count == 8);
    CHECK(model.find<model::GatedMlp>(1) == nullptr);
    CHECK(model.blocks[1].branches[1].name == "block_sparse_moe");
    CHECK(model::Model::prefix(1) + model.blocks[0].branches[0].norm == "model.layers.1.input_layernorm");
    CHECK(model::decoder({.heads = 4, .head_dim = 64}).find<model::Attention>(0)->head_dim == 64);
}

TEST_CASE("a decoder that cannot be is refused") {
    CHECK_THROWS_WITH_AS(model::decoder({.hidden = 30, .heads = 4}),
                         "a decoder of width 30 cannot have 4 heads: give a divisor, or head_dim",
                         std::invalid_argument);
    CHECK_THROWS_AS(model::decoder({.heads = 0}), std::invalid_argument);
    CHECK_THROWS_AS(model::decoder({.experts = 4, .moe_every = 0}), std::invalid_argument);
}

TEST_CASE("a model prints a line for each run of blocks that are alike") {
    auto model = model::decoder({.layers = 3, .hidden = 32, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 100});
    CHECK(model.text() == "width 32, vocabulary of 100\n"
                          "blocks 0 to 2: attention (4 heads, 2 of keys and values, of 8); gated MLP (width 96)\n");
    model.blocks[2].branches[1].part = model::PlainMlp{64};
    model.ties_embeddings = true;
    model.padding_token = 7;
    CHECK(model.text() == "width 32, vocabulary of 100, padding 7, tied embeddings\n"
                          "blocks 0 to 1: attention (4 heads, 2 of keys and values, of 8); gated MLP (width 96)\n"
                          "blocks 2 to 2: attention (4 heads, 2 of keys and values, of 8); plain MLP (width 64)\n");
}

TEST_CASE("attention says what its scores are") {
    auto const text = [](model::Scores const& scores, bool rotates = true) {
        return model::Attention{.heads = 2, .kv_heads = 2, .head_dim = 8, .rotates = rotates, .scores = scores}.text();
    };
    CHECK(text({}) == "2 heads, 2 of keys and values, of 8");
    CHECK(text({}, false) == "2 heads, 2 of keys and values, of 8, not turned");
    CHECK(text({.soft_cap = 50, .sinks = true}) == "2 heads, 2 of keys and values, of 8, scores capped at 50, sinks");
    CHECK(text({.soft_cap = 0.25, .alibi = true}, false) ==
          "2 heads, 2 of keys and values, of 8, scores capped at 0.25, ALiBi");
}

namespace {
struct Own {
    static constexpr std::string_view kind = "own";
    int number = 0;
    friend bool operator==(Own const&, Own const&) = default;
    [[nodiscard]] std::string text() const { return std::to_string(number); }
};
} // namespace

TEST_CASE("parts are values: of any kind, equal where they say the same") {
    model::Part const part = Own{3};
    CHECK(part.kind() == "own");
    CHECK(part.as<Own>()->number == 3);
    CHECK(part.as<model::GatedMlp>() == nullptr);
    CHECK(part == model::Part(Own{3}));
    CHECK_FALSE(part == model::Part(Own{4}));
    CHECK_FALSE(model::Part(model::GatedMlp{4}) == model::Part(model::PlainMlp{4}));
    CHECK_FALSE(part.sees_later_tokens().has_value());
    CHECK_FALSE(part.keeps_documents_apart());
    CHECK_FALSE(part.is_for_grids());
    CHECK(part.query_heads() + part.key_value_heads() == 0);
    CHECK(!part.refusal(model::PartRanks::of_tensor(model::TensorKind::one_d, 3)));
}
