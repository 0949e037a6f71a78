// Apart, since JSON is slow to compile.
#include "model_file.hpp"

#include <pentad/io/model_config.hpp>
#include <pentad/model/family.hpp>

#include <stdexcept>

namespace train_lm {

std::string config_of(std::string const& model) { return pentad::io::config_path(model).string(); }

std::string read_model(Options& options) {
    namespace model = pentad::model;
    auto const number = [](std::size_t n) { return static_cast<std::int64_t>(n); };
    try {
        auto described = pentad::io::read_model(options.model).model;
        if (!model::family_of(described))
            return "--model " + options.model +
                   ": models of this type can be planned (pentad_plan --model-json), not "
                   "trained with train_lm";
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
        options.described = std::move(described);
        return {};
    } catch (pentad::io::FileError const& error) {
        return "--model " + options.model + ": " + error.what();
    }
}

} // namespace train_lm
