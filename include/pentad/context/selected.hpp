// The strategy that the setup names at run time: one binary runs either.
#pragma once

#include <pentad/context/all_gather.hpp>
#include <pentad/context/ring.hpp>

#include <span>
#include <utility>

namespace pentad::context {

struct Selected {
    template <class Query, class Key, class Exec>
    class on {
      public:
        using Saved = context::Saved<Query, Key, Exec>;
        using Slice = context::Slice<Key, Exec>;

        explicit on(LayerSetup<Exec> const& setup)
            : is_ring_(setup.context_strategy == ContextStrategy::ring), ring_(setup), all_gather_(setup) {}

        Tensor<Query, Exec> forward(Saved& saved, std::span<Slice const> earlier = {}) const {
            return is_ring_ ? ring_.forward(saved, earlier) : all_gather_.forward(saved, earlier);
        }
        template <class Receive>
        void backward(Saved& saved, Tensor<dual_t<Query>, Exec> const& dy, Receive&& receive,
                      std::span<Slice> earlier = {}) const {
            if (is_ring_)
                ring_.backward(saved, dy, std::forward<Receive>(receive), earlier);
            else
                all_gather_.backward(saved, dy, std::forward<Receive>(receive), earlier);
        }

      private:
        bool is_ring_;
        Ring<>::on<Query, Key, Exec> ring_;
        AllGather::on<Query, Key, Exec> all_gather_;
    };
};

} // namespace pentad::context
