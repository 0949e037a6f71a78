// The work of a pass, added up: its time is a sum over kinds of work, and over the axes along which it sends.
#pragma once

#include <pentad/layout/cost.hpp>
#include <pentad/planner/held_moments.hpp>
#include <pentad/planner/part.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad::planner {

/// Exchanges of a pass along the same axes, of one kind.
struct ExchangeSum {
    enum class Kind : unsigned char {
        collective, ///< of which every rank sends (n-1)/n of `bytes`, as a reduce-scatter or an all-gather does
        pieces,     ///< an all-to-all: the same bytes, as messages from rank to rank
        message,    ///< from a rank to another
    };
    AxisNames const* axes = nullptr;
    Kind kind = Kind::collective;
    bool has_rows = false; ///< of experts, of which training sends others than a dry run
    double bytes = 0;      ///< of a collective the whole operand, of messages what is sent
    double rounds = 0;     ///< times n-1 messages one after the other; of messages how many
    double count = 0;      ///< how often the ranks wait for each other: once for several that follow each other
    double row_bytes = 0;  ///< of a row, in all of them that it is in
};

/// What a pass of a micro-batch does.
struct PassSums {
    double product_flops = 0, product_bytes = 0;
    double attention_flops = 0, attention_bytes = 0;
    double scan_flops = 0, scan_bytes = 0;
    double pass_bytes = 0; ///< of passes over memory
    double products = 0;   ///< how many
    double attentions = 0; ///< how many, with scans; of several pieces one after the other once
    double passes = 0;     ///< how many over memory
    double operations = 0; ///< that the host starts: all of these, and exchanges
    double calls = 0;      ///< of a framework: as Hardware::call_s
    std::vector<ExchangeSum> exchanges;

    /// Adds exchanges to those along the same axes and of the same kind.
    void add(ExchangeSum const& x, double times = 1) {
        auto at = std::find_if(exchanges.begin(), exchanges.end(), [&](ExchangeSum const& known) {
            return known.axes == x.axes && known.kind == x.kind && known.has_rows == x.has_rows;
        });
        if (at == exchanges.end()) at = exchanges.insert(at, {.axes = x.axes, .kind = x.kind, .has_rows = x.has_rows});
        at->bytes += times * x.bytes;
        at->rounds += times * x.rounds;
        at->count += times * x.count;
        at->row_bytes += times * x.row_bytes;
    }
    void add(PassSums const& other, double times) {
        using Self = PassSums;
        std::array const fields{&Self::product_flops,   &Self::product_bytes, &Self::attention_flops,
                                &Self::attention_bytes, &Self::scan_flops,    &Self::scan_bytes,
                                &Self::pass_bytes,      &Self::products,      &Self::attentions,
                                &Self::passes,          &Self::operations,    &Self::calls};
        for (auto const field : fields) this->*field += times * other.*field;
        for (auto const& x : other.exchanges) add(x, times);
        std::erase_if(exchanges, [](ExchangeSum const& x) { return x.count == 0 && x.bytes == 0; });
    }
};

/// A part of a model, added up.
struct PartSums {
    PassSums forward, backward_data, backward_weight;
    PartMemory memory;
    std::shared_ptr<std::vector<ParameterAccount> const> parameters;
    observe::DecodingState state;

    /// Adds the work of another part, and its bytes between the passes. The peaks inside of passes are not known any
    /// more.
    void add(PartSums const& other, double times = 1) {
        forward.add(other.forward, times);
        backward_data.add(other.backward_data, times);
        backward_weight.add(other.backward_weight, times);
        memory.saved += times * other.memory.saved;
        memory.left += times * other.memory.left;
        memory.forward = 0;
        memory.backward_data = memory.saved;
        memory.backward_weight = memory.left;
    }
};

namespace detail {

/// A copy of the names that stays.
inline AxisNames const* kept(AxisNames const& axes) {
    static std::deque<AxisNames> all;
    for (auto const& known : all)
        if (known == axes) return &known;
    return &all.emplace_back(axes);
}

/// Whether work is done again, on something else.
inline bool are_alike(observe::Work const* before, observe::Work const& x) {
    return before != nullptr && before->kind == x.kind && before->name == x.name && before->scope == x.scope &&
           before->operation == x.operation && before->cost.axes == x.cost.axes;
}

inline ExchangeSum sum_of(observe::Work const& x) {
    using Kind = ExchangeSum::Kind;
    double const n = x.ranks;
    AxisNames axes; // major to minor; a cost has them the other way round
    for (std::size_t i = x.cost.axes.size(); i-- > 0;) axes.push(x.cost.axes[i]);
    ExchangeSum sum{.axes = kept(axes), .has_rows = x.rows > 0, .count = 1};
    switch (x.operation) {
    case observe::Operation::send:
        sum.kind = Kind::message;
        sum.bytes = x.bytes;
        sum.rounds = 1;
        break;
    case observe::Operation::all_to_all:
        sum.kind = x.rows > 0 ? Kind::pieces : Kind::collective;
        sum.bytes = x.bytes * n / (n - 1);
        sum.rounds = 1;
        sum.row_bytes = x.rows > 0 ? x.bytes / x.rows * x.part : 0;
        break;
    default: // an all-reduce goes twice round
        sum.bytes = x.bytes * n / (n - 1);
        sum.rounds = x.operation == observe::Operation::all_reduce ? 2 : 1;
    }
    return sum;
}

} // namespace detail

inline PassSums sums_of(std::vector<observe::Work> const& work) {
    using observe::WorkKind;
    PassSums sums;
    observe::Work const *before = nullptr, *exchange = nullptr, *other = nullptr; // the last of all, and of each sort
    for (auto const& x : work) {
        auto*& alike = x.kind == WorkKind::exchange ? exchange : other;
        bool const is_repeated = detail::are_alike(alike, x), is_next = detail::are_alike(before, x);
        alike = before = &x;
        sums.operations += 1;
        if (x.kind == WorkKind::pass)
            sums.passes += 1;
        else if (!is_repeated)
            sums.calls += 1;
        if (x.kind == WorkKind::product) sums.products += 1;
        if ((x.kind == WorkKind::attention || x.kind == WorkKind::scan) && !is_next) sums.attentions += 1;
        switch (x.kind) {
        case WorkKind::product:
            sums.product_flops += x.flops;
            sums.product_bytes += x.bytes;
            break;
        case WorkKind::attention:
            sums.attention_flops += x.flops;
            sums.attention_bytes += x.bytes;
            break;
        case WorkKind::scan:
            sums.scan_flops += x.flops;
            sums.scan_bytes += x.bytes;
            break;
        case WorkKind::pass:
            sums.pass_bytes += x.bytes;
            break;
        case WorkKind::exchange: {
            auto one = detail::sum_of(x);
            if (is_next) one.count = 0;
            sums.add(one);
        }
        }
    }
    return sums;
}

inline PartSums sums_of(PartAccount const& part) {
    PartSums sums;
    sums.forward = sums_of(part.forward.work);
    sums.backward_data = sums_of(part.backward_data.work);
    sums.backward_weight = sums_of(part.backward_weight.work);
    sums.memory = {.saved = part.saved,
                   .left = part.left,
                   .forward = part.forward.peak,
                   .backward_data = part.saved + part.backward_data.peak,
                   .backward_weight = part.left + part.backward_weight.peak};
    sums.state = part.state;
    return sums;
}

} // namespace pentad::planner
