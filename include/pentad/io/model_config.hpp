// config.json as Hugging Face's transformers writes it, both ways. No field is ignored in silence in the families whose
// checkpoints are read: a field that would make another model, or that is not known, is refused by name, and the fields
// that came in go out again.
#pragma once

#include <pentad/model/presets.hpp>

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>

namespace pentad::io {

/// Weights of the losses of routers.
struct RouterLosses {
    double balance = 0; ///< of how even the loads of experts are
    double z = 0;       ///< of how large the router's logits are

    RouterLosses() = default;
    RouterLosses(double balance_weight, double z_weight = 0) // NOLINT: of a balance loss alone
        : balance(balance_weight), z(z_weight) {}
    friend bool operator==(RouterLosses const&, RouterLosses const&) = default;
};

/// The contents of a config.json.
struct ModelConfig : model::Preset {
    RouterLosses losses{}; ///< with which the model is trained: what the file says, or transformers where it does not
    /// Modules of multi-token prediction that the checkpoint may have as further layers; the model has none of them.
    std::size_t predictors = 0;
};

/// Which models are read.
enum class ConfigUse {
    planning, ///< those of the families, and others whose checkpoints are not read (gpt2)
    training  ///< those of the families: model::family_of() the model is one of them
};

/// The model of a config.json, and its name (_name_or_path, or the model_type). Sizes must be in the file; other fields
/// that are not there have the values that transformers gives them. @throws std::invalid_argument with the field and
/// what is expected; with all names where fields are not known
ModelConfig model_from_config(std::string_view text, ConfigUse use = ConfigUse::planning);

/// The file that read_model() reads: of a folder its config.json.
inline std::filesystem::path config_path(std::filesystem::path const& model) {
    std::error_code ignored;
    return std::filesystem::is_directory(model, ignored) ? model / "config.json" : model;
}
/// Reads a config.json, or that of a folder. @throws FileError with the file, the field and what is expected there
ModelConfig read_model(std::filesystem::path const& model, ConfigUse use = ConfigUse::planning);
/// The text of a config.json, or of that of a folder. @throws FileError
std::string read_config(std::filesystem::path const& model);

/// The config.json with which transformers reads what this model's weights are written as. Where no family has such a
/// model the type is "pentad", which no other program takes for one that it knows.
/// @param positions that the model was trained for
/// @param element "float32", "float64"
/// @param source the config.json that the model came with: all that it says, and that is still so, is kept as it was,
/// special tokens and the length of the context among it, which `positions` may only raise; empty: the model was made
/// otherwise @throws std::invalid_argument where that is none
nlohmann::ordered_json family_config(model::Model const& model, std::size_t positions, std::string const& element,
                                     RouterLosses const& losses, std::string_view source = {});

/// A config.json as JSON has it, without the infinities that Python writes. @throws std::invalid_argument
nlohmann::ordered_json plain_config(std::string_view source);
/// A config.json for weights that are written anew with elements of this kind, such as "float32".
nlohmann::ordered_json stored_config(std::string_view source, std::string const& element);

} // namespace pentad::io

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/io/impl/model_config.hpp>
#endif
