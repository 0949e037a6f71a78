// The tables of fields and words say all that there is.
#include <doctest/doctest.h>

#include <pentad/strategy/fields.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

using namespace pentad;

namespace {

/// Whatever a member is initialised with.
struct Anything {
    template <class T>
    operator T() const; // NOLINT: never called
};
template <class T, std::size_t... i>
constexpr bool takes(std::index_sequence<i...>) {
    return requires { T{(void(i), Anything())...}; };
}
/// How many members an aggregate has.
template <class T, std::size_t n = 0>
constexpr std::size_t members() {
    if constexpr (takes<T>(std::make_index_sequence<n + 1>()))
        return members<T, n + 1>();
    else
        return n;
}

struct Two {
    int a;
    std::string b;
};
static_assert(members<Two>() == 2);

template <class T>
void all_fields() {
    CAPTURE(std::string(FieldsOf<T>::type));
    CHECK(std::tuple_size_v<std::remove_cvref_t<decltype(FieldsOf<T>::value)>> == members<T>());
    T value{};
    std::set<std::string_view> names;
    char const* last = nullptr; // fields are in the order of the members
    for_each_field<T>([&](auto const& field) {
        CHECK(names.insert(field.name).second);
        auto const* const address = reinterpret_cast<char const*>(&(value.*field.member));
        CHECK((last == nullptr || address > last));
        last = address;
    });
}
template <class... T>
void all_fields_of(std::variant<T...> const&) {
    (all_fields<T>(), ...);
}

} // namespace

TEST_CASE("a table of fields has every member of its type, in their order") {
    all_fields<Strategy>();
    all_fields<ZeroSharding>();
    all_fields<LocalSteps>();
    all_fields<model::ExpertMesh>();
    all_fields<model::Recomputation>();
    all_fields<model::BlockRecomputation>();
    all_fields<model::Precision>();
    all_fields<model::Offload>();
    all_fields_of(model::Optimizer());
}

TEST_CASE("words are the enumerators") {
    CHECK(word_of(ContextStrategy::ring_heads) == "ring_heads");
    CHECK(word_of(Compact::fp8) == "fp8");
    CHECK(word_of(model::Element::bf16) == "bf16");
    CHECK(word_of(model::TensorKind::three_d) == "three_d");
    CHECK(word_of(model::AttentionOutput::all_to_all) == "all_to_all");
    CHECK(word_of(model::Recomputation::Kind::planned) == "planned");
    CHECK(word_of(model::Piece::rows) == "rows");
    CHECK(word_of(model::MuonRate::match_rms_adamw) == "match_rms_adamw");
}

TEST_CASE("micro-batches of so many sequences on a rank") {
    Strategy s{.dp = 2, .ep = 2, .batch = 64};
    s.use_micro_batch(2);
    CHECK(s.micro_batches == 8);
    CHECK(s.micro_batch() == 2);
    CHECK_THROWS_WITH_AS(s.use_micro_batch(3), "the global batch = 64 is not divisible by dp x ep x micro-batch = 12",
                         std::invalid_argument);
}
