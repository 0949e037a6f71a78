// ranks: 1 2 3 4 6
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/layers/rms_norm.hpp>
#include <pentad/layout/ml.hpp>

#include <support/layer_check.hpp>

using namespace support;

namespace {

Arrays arrays() {
    Arrays result = golden("rms_norm");
    result["norm.weight"] = result.at("weight");
    result["dnorm.weight"] = result.at("dweight");
    return result;
}

template <class Stream>
void check_on(MeshShape const& m, Arrays const& arrays, Order order) {
    OnMesh const mesh(m);
    LayerSetup<Exec> const setup{
        .context = mesh.context, .hidden = 8, .batch = 4, .seq = 12, .block = {.zigzag = order == Order::zigzag}};
    check_layer(mesh, setup, [](LayerSetup<Exec> const& s) { return RmsNorm::on<Stream, Exec>(s, "norm"); }, arrays);
}

} // namespace

TEST_CASE("RMSNorm is PyTorch's on any mesh; its weight's gradient is partial over tp under sequence parallelism") {
    Arrays const expected = arrays();
    for (auto const& m : meshes([](MeshShape const& m) { return m.pp == 1 && 4 % (m.dp * m.ep) == 0; }))
        check_on<InvariantStream<f64>>(m, expected, Order::contiguous);
    for (auto const& m :
         meshes([](MeshShape const& m) { return m.pp == 1 && 4 % (m.dp * m.ep) == 0 && 12 % (m.cp * m.tp) == 0; }))
        check_on<SequenceStream<f64>>(m, expected, 6 % m.cp == 0 ? Order::zigzag : Order::contiguous);
    using Weight = Layout<f64, Dims<Dim<hidden>>>;
    CHECK(layout_text<Parameter<Weight, used_t<Weight, SequenceStream<f64>>, Exec>::gradient_layout>.view() ==
          "f64[hidden:?]{dp.cp.tp: partial}");
    CHECK(layout_text<Parameter<Weight, used_t<Weight, InvariantStream<f64>>, Exec>::gradient_layout>.view() ==
          "f64[hidden:?]{dp.cp: partial}");
}
