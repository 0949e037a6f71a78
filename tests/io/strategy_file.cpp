#include <doctest/doctest.h>

#include <pentad/io/file.hpp>
#include <pentad/io/strategy_file.hpp>
#include <pentad/strategy/fields.hpp>

#include "scratch.hpp"

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

using namespace pentad;

namespace {

/// Draws values of whatever a strategy is made of, each field from its default with even odds.
class Draw {
  public:
    explicit Draw(unsigned seed) : random_(seed) {}

    Strategy strategy() {
        Strategy s;
        value(s);
        return s;
    }

  private:
    std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }
    void value(bool& x) { x = below(2) == 0; }
    template <std::integral T>
    void value(T& x) {
        x = static_cast<T>(below(1000));
    }
    void value(double& x) { x = std::uniform_real_distribution<double>(-2, 2)(random_); }
    void value(std::string& x) {
        static constexpr std::array<std::string_view, 4> texts{"", "zb-v", "a folder/with \"quotes\"", "\t\\ä"};
        x = texts[below(texts.size())];
    }
    template <HasWords T>
    void value(T& x) {
        x = static_cast<T>(below(WordsOf<T>::words.size()));
    }
    void value(model::PieceSet& x) {
        x = {};
        for (std::size_t i = 0; i < model::piece_names.size(); ++i)
            if (below(2) == 0) x.add(static_cast<model::Piece>(i));
    }
    void value(std::array<std::string_view, 5>& x) { std::shuffle(x.begin(), x.end(), random_); }
    template <class T>
    void value(std::vector<T>& x) {
        x.resize(below(4));
        for (auto& one : x) value(one);
    }
    template <class T>
    void value(std::optional<T>& x) {
        value(x.emplace());
    }
    template <class... T>
    void value(std::variant<T...>& x) {
        std::size_t const chosen = below(sizeof...(T));
        std::size_t i = 0;
        auto const take = [&]<class One>(One one) {
            if (i++ == chosen) value(one), x = one;
        };
        (take(T()), ...);
    }
    template <HasFields T>
    void value(T& x) {
        for_each_field<T>([&](auto const& field) {
            if (below(2) == 0) value(x.*field.member);
        });
    }

    std::mt19937 random_;
};

} // namespace

TEST_CASE("what is written is read back equal, whatever a strategy says") {
    std::set<std::string> texts;
    for (unsigned seed = 1; seed <= 2000; ++seed) {
        auto const strategy = Draw(seed).strategy();
        auto const text = io::to_json(strategy);
        texts.insert(text);
        REQUIRE_MESSAGE(io::strategy_from_json(text) == strategy, text);
    }
    CHECK(texts.size() == 2000);
    CHECK(io::to_json(Strategy()) == "{}\n");
    CHECK(
        io::to_json({.dp = 4, .sharding = {.stage = 1}, .optimizer = model::Muon{.momentum = 0.9}}) ==
        "{\n  \"dp\": 4,\n  \"sharding\": {\n    \"stage\": 1\n  },\n  \"optimizer\": {\n    \"type\": \"Muon\",\n    "
        "\"momentum\": 0.9\n  }\n}\n");
}

TEST_CASE("each change of a field changes the text") {
    Strategy const usual;
    for (unsigned seed = 1; seed <= 50; ++seed) {
        auto const drawn = Draw(seed).strategy();
        for_each_field<Strategy>([&](auto const& field) {
            auto changed = usual;
            changed.*field.member = drawn.*field.member;
            CHECK((io::to_json(changed) == io::to_json(usual)) == (changed == usual));
        });
    }
}

TEST_CASE("what a strategy cannot say is refused at its place") {
    auto const refused = [](std::string const& text) -> std::string {
        try {
            (void)io::strategy_from_json(text);
        } catch (std::invalid_argument const& error) {
            return error.what();
        }
        return "";
    };
    CHECK(refused(R"({"dp": 2, "block": {"zigzag": true}})").empty());
    CHECK(refused(R"({"dpp": 2})") == "'dpp': expected another key: did you mean dp?");
    CHECK(refused(R"({"dp": "two"})") == "dp: expected a whole number from 0 to 9007199254740992, not \"two\"");
    CHECK(refused(R"({"block": {"zigzag": 1}})") == "block.zigzag: expected true or false, not 1");
    CHECK(
        refused(R"({"block": {"context": "rings"}})") ==
        "block.context: expected one of \"ring\", \"all_gather\", \"double_ring\", \"heads_ring\", \"ring_heads\", not "
        "\"rings\"");
    CHECK(refused(R"({"order": ["dp", "dp", "ep", "cp", "tp"]})") ==
          "order: expected the five axes, each once: [\"dp\",\"pp\",\"ep\",\"cp\",\"tp\"], not "
          "[\"dp\",\"dp\",\"ep\",\"cp\",\"tp\"]");
    CHECK(refused(R"({"sharding": {"stages": 1}})") == "'sharding.stages': expected another key: did you mean stage?");
    CHECK(refused(R"({"optimizer": {"type": "Adam"}})") ==
          "optimizer.type: expected one of \"AdamW\", \"Sgd\", \"Lion\", \"Muon\", \"LoadBalance\", not \"Adam\"");
    CHECK(refused(R"({"optimizer": {"type": "Sgd", "beta1": 1}})")
              .starts_with("'optimizer.beta1': expected another key"));
    CHECK(refused(R"({"recompute": {"blocks": [{}, {"pieces": ["norm"]}]}})")
              .starts_with("recompute.blocks[1].pieces[0]: expected one of"));
    CHECK(refused("[]") == "the file: expected one JSON object");
    test::Scratch const folder;
    io::write_strategy(folder / "strategy.json", {.tp = 8});
    CHECK(io::read_strategy(folder / "strategy.json") == Strategy{.tp = 8});
    test::write_text(folder / "strategy.json", R"({"tp": -1})");
    CHECK_THROWS_WITH_AS((void)io::read_strategy(folder / "strategy.json"),
                         ("cannot read the strategy " + (folder / "strategy.json").string() +
                          ": tp: expected a whole number from 0 to 9007199254740992, not -1")
                             .c_str(),
                         io::FileError);
}
