#define PENTAD_INLINE
#include <pentad/pipeline/impl/messages.hpp>
#include <pentad/pipeline/impl/search.hpp>
#include <pentad/pipeline/impl/simulator.hpp>
#include <pentad/pipeline/impl/text.hpp>
#include <pentad/pipeline/impl/validator.hpp>
