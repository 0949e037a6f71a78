// Random numbers without state (Philox). Needs Random123.
#pragma once

#include <pentad/random/philox.hpp>
