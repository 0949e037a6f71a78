// config.json as Hugging Face's transformers writes it, both ways. Of the families whose checkpoints are read nothing
// is ignored in silence: what would make another model, and what is not known, is refused by name.
#pragma once

#include <pentad/model/presets.hpp>

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>

namespace pentad::io {

namespace detail {

/// An approximate number of parameters, to refuse models whose sizes would overflow later.
double about_parameters(model::Model const& model);

} // namespace detail

/// The model of a config.json, and its name (_name_or_path, or the model_type): of the families of model/family.hpp, or
/// one whose checkpoints are not read (deepseek_v3, gpt2). Sizes must be in the file; other fields that are not
/// there have the values that transformers gives them. @throws std::invalid_argument with the field and what is
/// expected
model::Preset model_from_config(std::string_view text);

/// The file that read_model() reads: of a folder its config.json.
inline std::filesystem::path config_path(std::filesystem::path const& model) {
    std::error_code ignored;
    return std::filesystem::is_directory(model, ignored) ? model / "config.json" : model;
}
/// Reads a config.json, or that of a folder. @throws FileError with the file, the field and what is expected there
model::Preset read_model(std::filesystem::path const& model);

/// The config.json with which transformers reads what this model's weights are written as. Where no family has such a
/// model the type is "pentad", which no other program takes for one that it knows.
/// @param positions that the model was trained for
/// @param element "float32", "float64"
nlohmann::ordered_json family_config(model::Model const& model, std::size_t positions, std::string const& element,
                                     double balance_coefficient);

/// A config.json as JSON has it, without the infinities that Python writes. @throws std::invalid_argument
nlohmann::ordered_json plain_config(std::string_view source);
/// The same as one that describes weights that are written anew, as elements of this kind: "float32".
nlohmann::ordered_json stored_config(std::string_view source, std::string const& element);

} // namespace pentad::io

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/io/impl/model_config.hpp>
#endif
