#define PENTAD_INLINE
#include <pentad/model/impl/context_choice.hpp>
#include <pentad/model/impl/family.hpp>
#include <pentad/model/impl/parts.hpp>
#include <pentad/model/impl/presets.hpp>
#include <pentad/model/impl/recomputation.hpp>
#include <pentad/model/impl/router.hpp>
#include <pentad/model/impl/rotary.hpp>
