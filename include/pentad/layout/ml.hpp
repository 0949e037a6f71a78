// The mesh axes and tensor dimensions of machine learning, in a namespace of their own: tags are any empty types with a
// name, and other programs have others.
#pragma once

#include <string_view>

namespace pentad::ml {

struct dp {
    static constexpr std::string_view name = "dp";
}; ///< data parallelism
struct pp {
    static constexpr std::string_view name = "pp";
    static constexpr unsigned views = 3;
}; ///< pipeline parallelism
struct cp {
    static constexpr std::string_view name = "cp";
}; ///< context parallelism
struct tp {
    static constexpr std::string_view name = "tp";
}; ///< tensor parallelism

// The ranks along dp, cp and tp as experts see them: a second view of the mesh (mesh/fold.hpp).
struct edp {
    static constexpr std::string_view name = "edp";
    static constexpr unsigned views = 2;
}; ///< data parallelism of experts: their copies
struct ep {
    static constexpr std::string_view name = "ep";
    static constexpr unsigned views = 2;
}; ///< expert parallelism: different experts
struct etp {
    static constexpr std::string_view name = "etp";
    static constexpr unsigned views = 2;
}; ///< tensor parallelism of experts: the width of each is sharded

struct batch {
    static constexpr std::string_view name = "batch";
};
struct seq {
    static constexpr std::string_view name = "seq";
};
struct token {
    static constexpr std::string_view name = "token";
};
struct hidden {
    static constexpr std::string_view name = "hidden";
};
struct joined {
    static constexpr std::string_view name = "joined";
}; ///< two vectors of the residual stream, one behind the other
struct heads {
    static constexpr std::string_view name = "heads";
};
struct kv_heads {
    static constexpr std::string_view name = "kv_heads";
};
struct head_dim {
    static constexpr std::string_view name = "head_dim";
};
struct ffn {
    static constexpr std::string_view name = "ffn";
};
struct vocab {
    static constexpr std::string_view name = "vocab";
};
struct expert {
    static constexpr std::string_view name = "expert";
};
struct slot {
    static constexpr std::string_view name = "slot";
}; ///< one of the top-k choices of a token
struct position {
    static constexpr std::string_view name = "position";
};
struct latent {
    static constexpr std::string_view name = "latent";
}; ///< the vector that heads are made from in latent attention
struct stretch {
    static constexpr std::string_view name = "stretch";
}; ///< the contiguous part of a sequence that a rank of cp has
struct state_dim {
    static constexpr std::string_view name = "state_dim";
}; ///< the rows of a recurrent layer's state, as head_dim is the columns
struct tap {
    static constexpr std::string_view name = "tap";
}; ///< of a convolution's filter
struct group {
    static constexpr std::string_view name = "group";
}; ///< of channels that are normalised together
struct flat {
    static constexpr std::string_view name = "flat";
}; ///< the elements of a bucket

} // namespace pentad::ml
