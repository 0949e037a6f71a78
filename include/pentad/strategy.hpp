// How a run lies on its ranks: a value, and the table of its fields.
#pragma once

#include <pentad/strategy/field_set.hpp>
#include <pentad/strategy/fields.hpp>
#include <pentad/strategy/strategy.hpp>
#include <pentad/strategy/why_not.hpp>
