// Which copy method the ranks of a node use: through the caches or past them, through mailboxes or by the
// kernel. What is fastest depends on the processor, on the kernel and on who else uses the caches, so it is learnt from
// the exchanges themselves.
#pragma once

#include <pentad/observe/ledger.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace pentad::comm::node {

/// How data gets to where it belongs. Between segments the first two are possible, with a small mailbox the second and
/// the third; elsewhere all, or those that the operation and the kernel leave (process_vm_readv, vmsplice).
enum class CopyMethod : std::uint8_t {
    streamed,         ///< by stores past the caches
    cached,           ///< by ordinary stores
    mail_streamed,    ///< past the caches on the way to a mailbox, from it by ordinary stores
    all_streamed,     ///< past the caches on both
    process,          ///< by the kernel, which reads the other process; what is a rank's own by ordinary stores
    process_streamed, ///< the same, what is a rank's own past the caches
    lent,             ///< by the kernel, through a pipe to which the owner lends its pages
    lent_streamed,
};
inline constexpr std::size_t copy_method_count = 8;
constexpr bool is_by_kernel(CopyMethod method) { return method >= CopyMethod::process; }
constexpr bool is_lent(CopyMethod method) { return method >= CopyMethod::lent; }
/// Whether what is copied to a mailbox goes past the caches, and to where it belongs.
constexpr bool streams_mail(CopyMethod method) {
    return method == CopyMethod::mail_streamed || method == CopyMethod::all_streamed;
}
constexpr bool streams_results(CopyMethod method) {
    return method == CopyMethod::streamed || method == CopyMethod::all_streamed ||
           method == CopyMethod::process_streamed || method == CopyMethod::lent_streamed;
}

/// The methods that are possible: from the first to the last.
struct PossibleMethods {
    CopyMethod first, last;
    [[nodiscard]] CopyMethod at(std::size_t i) const {
        return static_cast<CopyMethod>(static_cast<std::size_t>(first) + i);
    }
    [[nodiscard]] std::size_t size() const {
        return 1U + static_cast<std::size_t>(last) - static_cast<std::size_t>(first);
    }
};

/// Recent timings of exchanges. In each exchange a rank that all others read from proposes the copy method of the next
/// one of that kind, so that all ranks agree without a further message.
class CopyMethods {
    static constexpr int trials = 4; ///< of a method, in a row

  public:
    /// Exchanges of one operation and of similar sizes.
    class Kind {
      public:
        [[nodiscard]] CopyMethod agreed(PossibleMethods possible, bool in_segments) const {
            return std::clamp(agreed_[in_segments], possible.first, possible.last);
        }
        void agree(CopyMethod suggestion, bool in_segments) { agreed_[in_segments] = suggestion; }
        /// The method that this rank proposes: first each a few times in a row, since the state of the caches matters,
        /// then the fastest. They are tried again after 256, 1024, 4096, ... exchanges, those that were much slower
        /// from 1024 on.
        [[nodiscard]] CopyMethod suggest(PossibleMethods possible, bool in_segments);
        /// An exchange took that long, by a measure that does not depend on its size. Where the method has changed the
        /// first does not count; then it is the median, since some take many times as long as others.
        void learn(CopyMethod method, bool in_segments, double seconds);

      private:
        static constexpr std::uint64_t first_again = 256, slow_again = 1024;
        struct Known {
            std::uint64_t count = 0;
            CopyMethod fastest = CopyMethod::cached;
            CopyMethod last = CopyMethod::process_streamed;
            std::array<float, copy_method_count> usual{}; ///< 0: not tried
            std::array<float, trials - 1> recent{};       ///< of the last method, sorted
            std::size_t recent_count = 0;
            [[nodiscard]] bool has(CopyMethod method) const { return usual[static_cast<std::size_t>(method)] > 0; }
            [[nodiscard]] float took(CopyMethod method) const {
                return has(method) ? usual[static_cast<std::size_t>(method)] : std::numeric_limits<float>::max();
            }
        };
        std::array<CopyMethod, 2> agreed_{CopyMethod::cached,
                                          CopyMethod::cached}; ///< for buffers outside segments, and inside
        std::array<Known, 2> known_;
    };
    /// Blocking exchanges of a kind after which all methods have been tried.
    static constexpr int exchanges_to_learn = 1 + trials * static_cast<int>(copy_method_count);
    /// @param bytes the same on all ranks, not 0
    [[nodiscard]] Kind& of(observe::Operation operation, std::size_t bytes) {
        std::size_t const size = std::bit_width(bytes - 1); // up to a power of two
        return kinds_[static_cast<std::size_t>(operation)][std::min(size, classes - 1)];
    }

  private:
    static constexpr std::size_t classes = 40;
    std::array<std::array<Kind, classes>, observe::operation_names.size()> kinds_;
};

} // namespace pentad::comm::node

#if !PENTAD_COMPILED_TENSOR
#include <pentad/comm/impl/node/copy_methods.hpp>
#endif
