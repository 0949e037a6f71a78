// Apart, since JSON is slow to compile.
#include "model_file.hpp"

#include "flags.hpp"

#include <pentad/io/model_config.hpp>
#include <pentad/model/parameter_count.hpp>
#include <pentad/model/parts.hpp>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>

namespace train_lm {

std::string config_of(std::string const& model) { return pentad::io::config_path(model).string(); }

std::string read_model(Options& options) {
    namespace model = pentad::model;
    auto const number = [](std::size_t n) { return static_cast<std::int64_t>(n); };
    try {
        options.config = pentad::io::read_config(options.model);
        auto read = pentad::io::model_from_config(options.config, pentad::io::ConfigUse::training);
        auto& described = read.model;
        options.layers = number(described.blocks.size());
        options.hidden = number(described.hidden);
        options.heads = options.kv_heads = options.ffn = 1; // of what it has none of
        if (auto const* attention = described.first<model::Attention>()) {
            options.heads = number(attention->heads);
            options.kv_heads = number(attention->kv_heads);
        }
        if (auto const* latent = described.first<model::LatentAttention>())
            options.heads = options.kv_heads = number(latent->heads);
        options.kv_heads_given = true;
        options.vocab = number(described.vocab);
        options.tie_embeddings = described.ties_embeddings;
        options.experts = 0;
        options.moe_every = 1;
        for (std::size_t i = 0; i < described.blocks.size(); ++i) {
            if (auto const* mlp = described.find<model::GatedMlp>(i)) options.ffn = number(mlp->width);
            if (auto const* experts = described.find<model::Experts>(i)) {
                options.experts = number(experts->count);
                options.top_k = number(experts->top_k);
                options.ffn = number(experts->width);
            }
        }
        options.usual_aux_coef = read.losses.balance;
        options.usual_z_coef = read.losses.z;
        options.file_predictors = read.predictors;
        options.described_parameters = model::parameter_count(described);
        options.described = std::move(described);
        return {};
    } catch (pentad::io::FileError const& error) {
        return "--model " + options.model + ": " + error.what();
    } catch (std::invalid_argument const& error) {
        return "--model " + options.model + ": cannot read the model " + config_of(options.model) + ": " + error.what();
    }
}

std::vector<std::string> passed_over(Options const& options) {
    std::vector<std::string> starts;
    for (auto i = static_cast<std::size_t>(options.mtp); options.described && i < options.file_predictors; ++i)
        starts.push_back(pentad::model::Model::prefix(options.described->blocks.size() + i));
    return starts;
}

std::vector<std::string> lines_of_model(Options const& options, pentad::io::Checkpoint const* weights) {
    std::vector<std::string> lines;
    if (!options.described) return lines;
    if (auto const* experts = options.described->first<pentad::model::Experts>();
        experts != nullptr && experts->router.balance_loss != pentad::model::BalanceLoss::none)
        lines.push_back("losses of routers: balance times " + number_text(options.aux_coef) +
                        " (--aux-coef), z times " + number_text(options.z_coef) +
                        " (--z-coef); without these flags, what --model says");
    if (auto const positions =
            pentad::io::plain_config(options.config).value("max_position_embeddings", nlohmann::ordered_json());
        positions.is_number() && positions < options.strategy.seq)
        lines.push_back(given(of_strategy("--seq"), options) + " is more than the " + positions.dump() +
                        " positions that --model is made for (max_position_embeddings)");
    for (auto const& start : passed_over(options)) {
        auto const& tensors = weights != nullptr ? weights->tensors() : std::vector<pentad::io::TensorEntry>();
        auto const count = std::count_if(tensors.begin(), tensors.end(),
                                         [&](auto const& tensor) { return tensor.name.starts_with(start); });
        if (count > 0)
            lines.push_back("passed over: " + std::to_string(count) + " tensors of --weights, " + start +
                            "*, a module of multi-token prediction (--mtp " + std::to_string(options.file_predictors) +
                            " trains it too)");
    }
    return lines;
}

} // namespace train_lm
