// The index that Megatron-LM writes beside its tokens: NAME.idx says what the numbers of NAME.bin are.
#pragma once

#include <pentad/io/file.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace pentad::io {

struct TokenIndex {
    std::string_view type; ///< of a token: "int32"
    std::size_t width = 0; ///< bytes of a token
    bool is_signed = false;
    std::uint64_t tokens = 0; ///< in all sequences
};

/// The index beside a file of tokens, NAME.idx beside NAME.bin, where there is one that begins as Megatron's.
[[gnu::cold]] std::optional<std::filesystem::path> index_beside(std::filesystem::path const& tokens);

/// @throws FileError where it is damaged, of another version, or of tokens that are no whole numbers
[[gnu::cold]] TokenIndex read_token_index(std::filesystem::path const& path);

} // namespace pentad::io

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/io/impl/token_index.hpp>
#endif
