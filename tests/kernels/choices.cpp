#include <pentad/kernels/choices.hpp>

#include "arrays.hpp"

#include <vector>

using namespace arrays;

TEST_CASE("choices are told apart by node, and found again") {
    // Three tokens of three choices among eight experts, four on each of two nodes.
    Matrix<i32> choice(3, 3), node(3, 2), position(3, 2), place(3, 3), unpacked(4, 3);
    Matrix<f64> weight(3, 3), packed(4, 6), unpacked_weight(4, 3);
    choice.set({5, 1, 7, 0, 3, 2, 4, 6, 7});
    weight.set({.1, .2, .3, .4, .5, .6, .7, .8, .9});
    kernels::places_of_choices(Exec(), choice.view(), 4, node.view());
    CHECK(node.get() == std::vector<double>{1, 0, 0, -1, 1, -1});

    position.set({2, 0, 1, -1, 3, -1}); // sorted by node
    kernels::pack_choices<f64>(Exec(), choice.view(), weight.view(), 4, node.view(), position.view(), packed.view(),
                               place.view());
    CHECK(packed.get() == std::vector<double>{1, -1, -1, .2, 0,  0,  //
                                              0, 3,  2,  .4, .5, .6, //
                                              1, 3,  -1, .1, .3, 0,  //
                                              0, 2,  3,  .7, .8, .9});
    CHECK(place.get() == std::vector<double>{6, 0, 7, 3, 4, 5, 9, 10, 11});

    kernels::unpack_choices<f64>(Exec(), packed.view(), unpacked.view(), unpacked_weight.view());
    CHECK(unpacked.get() == std::vector<double>{1, -1, -1, 0, 3, 2, 1, 3, -1, 0, 2, 3});
    CHECK(unpacked_weight.get() == std::vector<double>{.2, 0, 0, .4, .5, .6, .1, .3, 0, .7, .8, .9});

    Matrix<f64> back(3, 3);
    View<f64, 2, Exec> const from = unpacked_weight.view(), to = back.view();
    View<i32, 2, Exec> const places = place.view();
    kernels::take_entries<f64>(Exec(), View<f64, 1, Exec>(from.data(), from.size()),
                               View<i32, 1, Exec>(places.data(), places.size()),
                               View<f64, 1, Exec>(to.data(), to.size()));
    CHECK(back.get() == weight.get());
}

TEST_CASE("a token that chose no expert goes to no node, and its weights come back as zeros") {
    Matrix<i32> choice(2, 2), node(2, 2), position(2, 2), place(2, 2);
    Matrix<f64> weight(2, 2), packed(1, 4);
    choice.set({-1, -1, 2, 5});
    weight.set({0, 0, .2, .8});
    kernels::places_of_choices(Exec(), choice.view(), 8, node.view());
    CHECK(node.get() == std::vector<double>{-1, -1, 0, -1});
    position.set({-1, -1, 0, -1});
    kernels::pack_choices<f64>(Exec(), choice.view(), weight.view(), 8, node.view(), position.view(), packed.view(),
                               place.view());
    CHECK(packed.get() == std::vector<double>{2, 5, .2, .8});
    CHECK(place.get() == std::vector<double>{-1, -1, 0, 1});
    Vector<f64> const sent(std::vector<double>{.3, .7}), back(4);
    Vector<i32> const places(std::vector<double>{-1, -1, 0, 1});
    kernels::take_entries<f64>(Exec(), sent.view(), places.view(), back.view());
    CHECK(back.get() == std::vector<double>{0, 0, .3, .7});
}

TEST_CASE("a row is of the first or of the last part of a rank's experts that it needs") {
    // 6 experts on a rank, in parts of 0 to 1, 2 to 3 and 4 to 5; rows 0 and 1 are of rank 0, none of rank 1, the
    // others of rank 2. Packed: three choices, by their numbers on the rank or its node, then their weights.
    kernels::ExpertParts const parts{.experts = 6, .count = 3};
    CHECK(parts.begin(0) == 0);
    CHECK(parts.begin(1) == 2);
    CHECK(parts.begin(3) == 6);
    Matrix<f64> packed(5, 6);
    packed.set({3, 0, 5, 1,       1, 1,  /**/ 4, -1, -1, 1,      0, 0, /**/ 2, 3, -1,
                1, 1, 0, /**/ 11, 8, -1, 1,      1,  0,  /**/ 1, 7, 6, 1,      1, 1});
    Vector<i64> end(3);
    end.set({2, 2, 5});
    Vector<i32> part(5), key(5), none(0), of_rank(std::vector<double>{2, 0, 1});
    kernels::part_of_rows<f64>(Exec(), packed.view(), parts, kernels::Needed::first, part.view());
    CHECK(part.get() == std::vector<double>{0, 2, 1, 1, 0});
    kernels::part_and_rank(Exec(), end.view(), part.view(), none.view(), key.view());
    CHECK(key.get() == std::vector<double>{0, 6, 5, 5, 2});
    kernels::part_of_rows<f64>(Exec(), packed.view(), parts, kernels::Needed::last, part.view());
    CHECK(part.get() == std::vector<double>{2, 2, 1, 2, 0});
    kernels::part_and_rank(Exec(), end.view(), none.view(), of_rank.view(), key.view());
    CHECK(key.get() == std::vector<double>{6, 6, 5, 5, 5});
    // Parts of different sizes: each expert is of one.
    kernels::ExpertParts const uneven{.experts = 5, .count = 3};
    for (int e = 0; e < 5; ++e) {
        auto const part = static_cast<std::size_t>(uneven.of(e));
        CHECK(uneven.begin(part) <= static_cast<std::size_t>(e));
        CHECK(static_cast<std::size_t>(e) < uneven.begin(part + 1));
    }
}
