// Mixtures of experts: router, dispatch and expert layer.
#pragma once

#include <pentad/experts/balance.hpp>
#include <pentad/experts/balanced_order.hpp>
#include <pentad/experts/choice.hpp>
#include <pentad/experts/dispatch.hpp>
#include <pentad/experts/layer.hpp>
#include <pentad/experts/router.hpp>
#include <pentad/experts/selection.hpp>
#include <pentad/experts/tokens.hpp>
