// The functions of <pentad/io/temporaries.hpp>.
#pragma once

#include <pentad/io/temporaries.hpp>

#include <pentad/mesh/inline.hpp>

#include <cstring>
#include <string_view>
#include <system_error>

namespace pentad::io::detail {

PENTAD_INLINE Listed::Listed(std::filesystem::path const& path) {
    std::error_code error;
    std::string const whole = std::filesystem::absolute(path, error).string();
    for (auto& place : listed_files) {
        int state = ListedFile::unused;
        if (error || whole.size() >= place.path.size()) return;
        if (!place.state.compare_exchange_strong(state, ListedFile::being_filled)) continue;
        std::memcpy(place.path.data(), whole.c_str(), whole.size() + 1);
        place.state = ListedFile::listed;
        place_ = &place;
        return;
    }
}

PENTAD_INLINE void remove_left_behind(std::filesystem::path const& path) {
    auto const folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
    std::string const prefix = temporary_prefix(path);
    std::error_code ignored;
    for (std::filesystem::directory_iterator at(folder, ignored), end; at != end; at.increment(ignored)) {
        std::string const name = at->path().filename().string();
        std::string_view middle = name; // PID.ATTEMPT
        if (!middle.starts_with(prefix) || !middle.ends_with(".tmp") || middle.size() < prefix.size() + 4) continue;
        middle.remove_prefix(prefix.size());
        middle.remove_suffix(4);
        if (middle.empty() || middle.find_first_not_of("0123456789.") != middle.npos) continue;
        if (!at->is_regular_file(ignored)) continue;
        auto const file = File::open_to_lock(at->path());
        if (file.is_open() && ::flock(file.descriptor(), LOCK_EX | LOCK_NB) == 0 && has_name(file, at->path()))
            ::unlink(at->path().c_str());
    }
}

} // namespace pentad::io::detail

namespace pentad::io {

PENTAD_INLINE void remove_temporaries_on_signals() {
    struct sigaction action{};
    action.sa_handler = detail::pentad_remove_temporaries;
    action.sa_flags = SA_RESTART;
    for (int const signal : detail::ending_signals) ::sigaddset(&action.sa_mask, signal);
    for (std::size_t i = 0; i < detail::ending_signals.size(); ++i) {
        struct sigaction former{};
        int const signal = detail::ending_signals[i];
        if (::sigaction(signal, nullptr, &former) != 0 || former.sa_handler == SIG_IGN ||
            former.sa_handler == action.sa_handler)
            continue;
        detail::former_actions[i] = former;
        ::sigaction(signal, &action, nullptr);
    }
}

PENTAD_INLINE HeldSignal::HeldSignal(int signal) {
    sigset_t held;
    ::sigemptyset(&held);
    ::sigaddset(&held, signal);
    (void)::pthread_sigmask(SIG_BLOCK, &held, &before_);
}

} // namespace pentad::io
