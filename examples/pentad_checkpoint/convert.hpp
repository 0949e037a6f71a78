// Checkpoints of a run to and from the weights of Hugging Face.
#pragma once

#include <filesystem>
#include <string>

/// Writes the weights of a checkpoint to a folder, which is made where there is none, as model.safetensors (or shards
/// and their index) and config.json. @param element "F64", "F32" or "BF16"; empty: that of the checkpoint
/// @throws io::FileError, std::invalid_argument
void to_hugging_face(std::filesystem::path const& checkpoint, std::filesystem::path const& folder,
                     std::string const& element);

/// Makes a checkpoint of step 0 in a folder of checkpoints, which is made where there is none, from the weights and the
/// config.json of another folder.
/// Gives its path. @throws io::FileError, std::invalid_argument
std::filesystem::path from_hugging_face(std::filesystem::path const& weights, std::filesystem::path const& folder,
                                        std::string const& element);
