// What people read: tables, charts, progress and timelines.
#pragma once

#include <pentad/report/activity.hpp>
#include <pentad/report/blocks_flag.hpp>
#include <pentad/report/chart_svg.hpp>
#include <pentad/report/chart_text.hpp>
#include <pentad/report/field_flags.hpp>
#include <pentad/report/format.hpp>
#include <pentad/report/measured_chart.hpp>
#include <pentad/report/nodes_text.hpp>
#include <pentad/report/pipeline_chart.hpp>
#include <pentad/report/plan_account.hpp>
#include <pentad/report/plan_remarks.hpp>
#include <pentad/report/plan_svg.hpp>
#include <pentad/report/plan_table.hpp>
#include <pentad/report/plan_text.hpp>
#include <pentad/report/plan_types.hpp>
#include <pentad/report/progress.hpp>
#include <pentad/report/strategy_flags.hpp>
#include <pentad/report/terminal.hpp>
#include <pentad/report/timeline.hpp>
