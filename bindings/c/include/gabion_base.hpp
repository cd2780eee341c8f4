// What gabion.hpp and gabion_changes.hpp have in common: errors, options, and the way across to
// gabion.h. Programs include gabion.hpp.

#ifndef GABION_BASE_HPP
#define GABION_BASE_HPP

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "gabion.h"

namespace gabion {

// What went wrong: a code, and a sentence.
class Error : public std::runtime_error {
public:
    Error(gabion_code code, const std::string &message, std::string position = {})
        : std::runtime_error(message), code_(code), position_(std::move(position)) {}

    gabion_code code() const noexcept { return code_; }

    // Where changes are there again, after GABION_CODE_CHANGES_GONE or
    // GABION_CODE_CHANGES_UNLOGGED; empty otherwise.
    const std::string &position() const noexcept { return position_; }

    // Whether a transaction is to be run again.
    bool is_conflict() const noexcept {
        return code_ == GABION_CODE_CONFLICT || code_ == GABION_CODE_TRANSACTION_TOO_OLD;
    }

private:
    gabion_code code_;
    std::string position_;
};

namespace detail {

// Takes the error object of a call, and throws where there is one.
class Check {
public:
    Check() = default;
    Check(const Check &) = delete;
    Check &operator=(const Check &) = delete;
    ~Check() { gabion_error_free(&error_); }

    operator gabion_error **() { return &error_; }

    void operator()(gabion_code code) const {
        if (code != GABION_CODE_OK) {
            throw Error(code, gabion_error_message(error_), gabion_error_position(error_));
        }
    }

private:
    gabion_error *error_ = nullptr;
};

template <auto Free> struct Freer {
    template <typename Handle> void operator()(Handle *handle) const noexcept { Free(&handle); }
};

template <typename Handle, auto Free> using Owned = std::unique_ptr<Handle, Freer<Free>>;

struct FreeBytes {
    void operator()(void *memory) const noexcept { gabion_free(memory); }
};

inline const std::uint8_t *bytes(std::string_view text) {
    return reinterpret_cast<const std::uint8_t *>(text.data());
}

inline std::string_view view(const std::uint8_t *data, std::size_t len) {
    return {reinterpret_cast<const char *>(data), len};
}

// An end of a range: NULL stands for none, so that an empty key needs a place.
inline const std::uint8_t *end(const std::optional<std::string_view> &key) {
    if (!key) {
        return nullptr;
    }
    return key->data() == nullptr ? bytes("") : bytes(*key);
}

inline std::size_t size(const std::optional<std::string_view> &key) {
    return key ? key->size() : 0;
}

inline const char *word(const std::string &durability) {
    return durability.empty() ? nullptr : durability.c_str();
}

// The value that a function hands out as a copy.
template <typename Get> std::optional<std::string> copied(Get &&get) {
    std::uint8_t *value = nullptr;
    std::size_t len = 0;
    Check check;
    gabion_error **error = check;
    check(get(&value, &len, error));
    std::unique_ptr<std::uint8_t, FreeBytes> owned(value);
    if (value == nullptr) {
        return std::nullopt;
    }
    return std::string(view(value, len));
}

// The text that a function hands out as a copy.
template <typename Get> std::string text(Get &&get) {
    char *text = nullptr;
    Check check;
    gabion_error **error = check;
    check(get(&text, error));
    std::unique_ptr<char, FreeBytes> owned(text);
    return text;
}

// A moment of -1 for none.
inline std::optional<std::chrono::system_clock::time_point> moment(std::int64_t unix_ms) {
    if (unix_ms < 0) {
        return std::nullopt;
    }
    auto since = std::chrono::milliseconds(unix_ms);
    return std::chrono::system_clock::time_point(
        std::chrono::duration_cast<std::chrono::system_clock::duration>(since));
}

inline std::uint64_t millis(std::chrono::milliseconds time) {
    return static_cast<std::uint64_t>(time.count() < 0 ? 0 : time.count());
}

} // namespace detail

// An end of a range of keys, or none.
using Bound = std::optional<std::string_view>;

// Options by name and value, such as {"memory_bytes_max", "256MiB"}.
class Options {
public:
    Options() : handle_(gabion_options_new()) {}

    Options(std::initializer_list<std::pair<const char *, const char *>> pairs) : Options() {
        for (const auto &[name, value] : pairs) {
            set(name, value);
        }
    }

    Options &set(const char *name, const char *value) {
        detail::Check check;
        check(gabion_options_set(handle_.get(), name, value, check));
        return *this;
    }

    const gabion_options *get() const { return handle_.get(); }

private:
    detail::Owned<gabion_options, gabion_options_free> handle_;
};

} // namespace gabion

#endif // GABION_BASE_HPP
