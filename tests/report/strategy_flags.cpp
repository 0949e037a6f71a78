#include <pentad/report/field_flags.hpp>
#include <pentad/report/strategy_flags.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

using namespace pentad;

namespace {

/// The paths of the fields of T that hold one value each: "seq", "sharding.stage".
template <HasFields T>
void add_paths(std::set<std::string>& paths, std::string const& before = {}) {
    for_each_field<T>([&]<class Member>(Field<T, Member> const& field) {
        auto const path = before + std::string(field.name);
        if constexpr (HasFields<Member>)
            add_paths<Member>(paths, path + ".");
        else
            paths.insert(path);
    });
}

} // namespace

TEST_CASE("each flag of a strategy sets a field of its own, and reads what it writes") {
    Strategy const usual;
    std::set<std::string_view> names, fields;
    for (auto const& flag : report::strategy_flags) {
        CAPTURE(flag.flag);
        CHECK(names.insert(flag.flag).second);
        CHECK(fields.insert(flag.field).second);
        CHECK(report::flag_of(flag.field) == flag.flag);
        CHECK(&report::strategy_flag(flag.flag) == &flag);
        bool is_number = false;
        CHECK(report::with_field(usual, flag.field, [&]<class Member>(Member const&) {
            is_number = std::is_arithmetic_v<Member> && !std::is_same_v<Member, bool>;
        }));
        CHECK(is_number == (flag.most > flag.least));
        auto const text = report::flag_value(usual, flag);
        CHECK(!text.empty());
        Strategy other;
        CHECK(report::set_flag(other, flag, text));
        CHECK(other == usual);
        CHECK((flag.field == "schedule" || !report::set_flag(other, flag, "nothing of the kind")));
        CHECK(other == usual);
        for (std::size_t begin = 0; flag.shown.find('|') != flag.shown.npos && begin < flag.shown.size();) {
            auto const end = std::min(flag.shown.find('|', begin), flag.shown.size());
            auto const word = flag.shown.substr(begin, end - begin); // of the help
            CHECK_MESSAGE(report::set_flag(other, flag, word), word);
            CHECK(report::flag_value(other, flag) == word);
            begin = end + 1;
        }
    }
    CHECK_THROWS_AS(report::strategy_flag("--zeros"), std::logic_error);
}

TEST_CASE("a field of a strategy has a flag of its own, or is said together with others") {
    std::set<std::string> const with_others{"dp",
                                            "pp",
                                            "ep",
                                            "cp",
                                            "tp",
                                            "order", // --mesh and --order
                                            "experts",
                                            "batch",
                                            "pairs",
                                            "block.context",
                                            "block.inner_cp",
                                            "block.zigzag",
                                            "block.mesh", // of single blocks: --blocks
                                            "blocks",
                                            "stage_layers",
                                            "balances_stages",
                                            "optimizer", // a variant, whose numbers have flags
                                            "fp8_products",
                                            "recompute.kind",
                                            "recompute.pieces",
                                            "recompute.blocks",
                                            "offload.optimizer",
                                            "offload.activations",
                                            "offload.folder",
                                            "offload.window_bytes"};
    std::set<std::string> paths;
    add_paths<Strategy>(paths);
    for (auto const& flag : report::strategy_flags) CHECK_MESSAGE(paths.erase(std::string(flag.field)) == 1, flag.flag);
    CHECK(paths == with_others);
}

TEST_CASE("flags of a strategy are those of the fields that differ") {
    Strategy strategy;
    auto const all = [](auto const&) { return true; };
    CHECK(report::flags_text(strategy, {}, all).empty());
    strategy.sharding = {.stage = 3, .keeps_parameters = true, .releases_gradients = true};
    strategy.block.attention_output = model::AttentionOutput::all_to_all;
    strategy.local.outer_learning_rate = 0.7;
    CHECK(report::flags_text(strategy, {}, all) ==
          " --zero 3 --zero-keep on --gradient-release --attention-output all-to-all --outer-lr 0.7");
    CHECK(report::flags_text({}, strategy, [](auto const& flag) { return flag.flag == "--zero-keep"; }) ==
          " --zero-keep off");
}
