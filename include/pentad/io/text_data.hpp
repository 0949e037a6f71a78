// The name that TokenData has where tokens are bytes.
#pragma once

#include <pentad/io/token_data.hpp>

namespace pentad::io {

using TextData = TokenData;

} // namespace pentad::io
