// ranks: 1
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/layers/layer.hpp>

#include <support/on_mesh.hpp>

using namespace support;

TEST_CASE("a pass in another place is the same pass, without sums") {
    OnMesh const one({}, 1), other({}, 1);
    ActivationMemory* const saved = nullptr;
    Sequences sequences;
    RaggedBatch<Exec> const* const ragged = nullptr;
    SequenceMap<Exec> const map;
    Pass<Exec> pass{.context = one.context,
                    .predicted_scale = 2,
                    .loss_scale = 3,
                    .balance_scale = 4,
                    .z_scale = 5,
                    .trains = false,
                    .saves = false,
                    .is_replay = true,
                    .completes_gradients = true,
                    .draw = 6,
                    .slice = 7,
                    .sequences = &sequences,
                    .ragged = ragged,
                    .map = &map,
                    .saved = saved};
    pass.loss_sum = pass.balance_sum = pass.z_sum = 1;
    auto const own = pass.on(other.context);
    // Every member, in their order: one that is new is to be copied by Pass::on() too.
    auto const& [context, tokens, targets, ahead, predicted_scale, loss_scale, balance_scale, z_scale, trains, saves,
                 is_replay, completes_gradients, draw, slice, at, tokens_of, places, kept, loss, predicted, balance,
                 z] = own;
    CHECK(&context == &other.context);
    CHECK(tokens.data() == pass.tokens.data());
    CHECK(targets.data() == pass.targets.data());
    CHECK(ahead.empty());
    CHECK(predicted_scale == 2);
    CHECK(loss_scale == 3);
    CHECK(balance_scale == 4);
    CHECK(z_scale == 5);
    CHECK(!trains);
    CHECK(!saves);
    CHECK(is_replay);
    CHECK(completes_gradients);
    CHECK(draw == 6);
    CHECK(slice == 7);
    CHECK(at == &sequences);
    CHECK(tokens_of == ragged);
    CHECK(places == &map);
    CHECK(kept == saved);
    CHECK(loss + predicted + balance + z == 0);
    pass.add_sums(pass);
    CHECK(pass.loss_sum == 2);
    pass.add_sums(pass, true);
    CHECK(pass.loss_sum == 2);
    CHECK(pass.predicted_sum == 2);
    CHECK(pass.z_sum == 4);
}
