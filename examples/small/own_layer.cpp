// A layer of one's own, y = scale * x. Its gradient is synchronised over the axes that its activations vary over.
// ranks: 4
#include <pentad/comm.hpp>
#include <pentad/layers.hpp>
#include <pentad/zero.hpp>

#include <cmath>
#include <cstdio>
using namespace pentad;
using namespace pentad::ml;
using Exec = Kokkos::DefaultHostExecutionSpace;

struct Scale {
    template <class Stream, class Exec>
    class on {
      public:
        using input_layout = Stream;
        using output_layout = Stream;
        using T = typename Stream::element;
        using Stored = Layout<T, Dims<Dim<hidden>>>; // whole on every rank
        using Scales = Parameter<Stored, used_t<Stored, Stream>, Exec>;
        struct Saved {
            Tensor<Stream, Exec> x;
            Tensor<dual_t<Stream>, Exec> dy;
        };
        explicit on(LayerSetup<Exec> const& setup)
            : scale_(setup.context, "scale", {setup.hidden}, {.values = InitialValues::ones}) {}
        Tensor<Stream, Exec> forward(Pass<Exec>& pass, Tensor<Stream, Exec> x, Saved& saved) const {
            saved.x = std::move(x);
            return scaled(pass, saved.x);
        }
        Tensor<dual_t<Stream>, Exec> backward_data(Pass<Exec>& pass, Tensor<dual_t<Stream>, Exec> dy,
                                                   Saved& saved) const {
            saved.dy = std::move(dy);
            return scaled(pass, saved.dy);
        }
        void backward_weight(Pass<Exec>&, Saved& saved) const {
            for (std::size_t i = 0; i < saved.x.size(); ++i)
                scale_.gradient().array()(i % scale_.size()) += saved.dy.array_flat()(i) * saved.x.array_flat()(i);
            saved = {};
        }
        void for_each_parameter(auto&& f) { f(scale_); }

      private:
        template <class L>
        Tensor<L, Exec> scaled(Pass<Exec>& pass, Tensor<L, Exec> const& in) const {
            Tensor<L, Exec> out(pass.context, in.extents());
            for (std::size_t i = 0; i < in.size(); ++i)
                out.array_flat()(i) = scale_.value().view()(i % scale_.size()) * in.array_flat()(i);
            return out;
        }
        Scales scale_;
    };
};

// Where every rank of tp does the same work the gradient is not summed over tp; where tp shards the sequence it is.
template <class Stream>
constexpr std::string_view gradient = layout_text<typename Scale::on<Stream, Exec>::Scales::gradient_layout>.view();
static_assert(gradient<InvariantStream<f64>> == "f64[hidden:?]{dp.cp: partial}");
static_assert(gradient<SequenceStream<f64>> == "f64[hidden:?]{dp.cp.tp: partial}");

int main(int argc, char** argv) {
    comm::Environment const mpi(argc, argv);
    Kokkos::ScopeGuard const kokkos(comm::kokkos_settings());
    comm::Communicators communicators(MPI_COMM_WORLD, Mesh<Axis<dp>, Axis<cp>, Axis<tp>>(2, 1, 2));
    Context<Exec> const context(communicators);
    using Stream = SequenceStream<f64>;
    Scale::on<Stream, Exec> layer({.context = context, .hidden = 3});
    zero::ParameterStore<f64, Exec> store(context, layer, 1, {}, 1 << 20); // memory, and the sums of gradients
    Pass<Exec> pass{.context = context};
    Scale::on<Stream, Exec>::Saved saved;
    Tensor<Stream, Exec> const x(context, {4, 8, 3});
    Kokkos::deep_copy(x.flat(), 2.0);
    (void)layer.forward(pass, x, saved);
    (void)layer.backward_data(pass, x.reinterpret_as<dual_t<Stream>>(), saved);
    layer.backward_weight(pass, saved);
    double const norm = store.reduce_gradients(); // of 3 elements, 4 * 8 tokens * 2 * 2 each
    if (communicators.world().rank() == 0) std::printf("the norm of the gradient is %g\n", norm);
    return std::abs(norm - std::sqrt(3.0) * 128) < 1e-9 ? 0 : 1;
}
