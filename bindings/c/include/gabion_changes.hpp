// The changes of a store, who follows them, and repositories of backups: a part of gabion.hpp, which
// programs include.

#ifndef GABION_CHANGES_HPP
#define GABION_CHANGES_HPP

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gabion_base.hpp"

namespace gabion {

// What was committed together. Operations are counted from 0, and what is lent is valid as long as
// the change is.
class Change {
public:
    explicit Change(gabion_change *handle) : handle_(handle) {}

    std::string position() const { return gabion_change_position(handle_.get()); }

    std::size_t size() const { return gabion_change_count(handle_.get()); }

    gabion_action action(std::size_t index) const {
        return gabion_change_action(handle_.get(), index);
    }

    std::uint32_t keyspace_id(std::size_t index) const {
        return gabion_change_keyspace_id(handle_.get(), index);
    }

    // The name of the keyspace, if the reader came to know it.
    Bound keyspace(std::size_t index) const {
        std::size_t len = 0;
        const char *name = gabion_change_keyspace(handle_.get(), index, &len);
        return name == nullptr ? Bound() : Bound(std::string_view(name, len));
    }

    // The key, the first one of a range, or the smallest one that was ingested.
    Bound key(std::size_t index) const { return lent(gabion_change_key, index); }

    // The first key above a range; the largest key that was ingested.
    Bound end(std::size_t index) const { return lent(gabion_change_end, index); }

    // The value of a put; what operands are merged into, if that is told.
    Bound value(std::size_t index) const { return lent(gabion_change_value, index); }

    std::optional<std::chrono::system_clock::time_point> expires_at(std::size_t index) const {
        return detail::moment(gabion_change_expires_at(handle_.get(), index));
    }

    // The number of the write before which the key had what operands are merged into; 0 if the
    // value is told.
    std::uint64_t base(std::size_t index) const { return gabion_change_base(handle_.get(), index); }

    std::uint64_t pairs(std::size_t index) const {
        return gabion_change_pairs(handle_.get(), index);
    }

    // The operands of a merge, oldest first.
    std::vector<std::string_view> operands(std::size_t index) const {
        std::vector<std::string_view> found;
        for (std::size_t at = 0; at < gabion_change_operand_count(handle_.get(), index); at++) {
            std::size_t len = 0;
            const std::uint8_t *operand =
                gabion_change_operand(handle_.get(), index, at, &len);
            found.push_back(detail::view(operand, len));
        }
        return found;
    }

private:
    Bound lent(const std::uint8_t *(*find)(const gabion_change *, std::size_t, std::size_t *),
               std::size_t index) const {
        std::size_t len = 0;
        const std::uint8_t *data = find(handle_.get(), index, &len);
        return data == nullptr ? Bound() : Bound(detail::view(data, len));
    }

    detail::Owned<gabion_change, gabion_change_free> handle_;
};

// Reads the changes of a store, each once, in their order.
class Changes {
public:
    explicit Changes(gabion_changes *handle) : handle_(handle) {}

    // The next change, which is waited for up to a time.
    std::optional<Change> next(std::chrono::milliseconds timeout = {}) {
        gabion_change *change = nullptr;
        detail::Check check;
        check(gabion_changes_next(handle_.get(), detail::millis(timeout), &change, check));
        if (change == nullptr) {
            return std::nullopt;
        }
        return Change(change);
    }

    // The position behind the last change that was read.
    std::string position() const {
        return detail::text([&](auto position, auto error) {
            return gabion_changes_position(handle_.get(), position, error);
        });
    }

private:
    detail::Owned<gabion_changes, gabion_changes_free> handle_;
};

// Someone who follows the changes of a store under a name, for whom the store keeps them.
class Consumer {
public:
    explicit Consumer(gabion_consumer *handle) : handle_(handle) {}

    // The position up to which changes are acknowledged.
    std::string position() const {
        return detail::text([&](auto position, auto error) {
            return gabion_consumer_position(handle_.get(), position, error);
        });
    }

    Changes changes(const Options &options = {}) const {
        gabion_changes *changes = nullptr;
        detail::Check check;
        check(gabion_consumer_changes(handle_.get(), options.get(), &changes, check));
        return Changes(changes);
    }

    // Takes note, durably, that no change in front of a position is needed any more.
    void acknowledge(const std::string &position) {
        detail::Check check;
        check(gabion_consumer_acknowledge(handle_.get(), position.c_str(), check));
    }

private:
    detail::Owned<gabion_consumer, gabion_consumer_free> handle_;
};

// Is told how many bytes of how many are done, and returns whether to go on.
using Progress = std::function<bool(std::uint64_t bytes, std::uint64_t bytes_total)>;

namespace detail {

// Carries a Progress across, and what it throws back.
class Listener {
public:
    explicit Listener(const Progress &progress) : progress_(progress) {}

    gabion_progress function() const { return progress_ ? told : nullptr; }

    void *context() { return this; }

    // Throws what the progress threw.
    void rethrow() const {
        if (thrown_) {
            std::rethrow_exception(thrown_);
        }
    }

private:
    static bool told(void *context, std::uint64_t bytes, std::uint64_t bytes_total) noexcept {
        Listener *listener = static_cast<Listener *>(context);
        try {
            return listener->progress_(bytes, bytes_total);
        } catch (...) {
            listener->thrown_ = std::current_exception();
            return false;
        }
    }

    const Progress &progress_;
    std::exception_ptr thrown_;
};

} // namespace detail

// A repository of backups: a directory. What is told is JSON.
class Backups {
public:
    explicit Backups(std::string path) : path_(std::move(path)) {}

    const std::string &path() const { return path_; }

    std::string list() const {
        return detail::text(
            [&](auto json, auto error) { return gabion_backup_list(path_.c_str(), json, error); });
    }

    // Reads what the backup of a number needs, or all backups for 0.
    std::string verify(std::uint64_t id = 0, const Options &options = {},
                       const Progress &progress = {}) const {
        detail::Listener listener(progress);
        return detail::text([&](auto json, auto error) {
            gabion_code code =
                gabion_backup_verify(path_.c_str(), id, options.get(), listener.function(),
                                     listener.context(), json, error);
            listener.rethrow();
            return code;
        });
    }

    // Makes a store of the backup of a number in a directory.
    void restore(std::uint64_t id, const std::string &to, const Options &options = {},
                 const Progress &progress = {}) const {
        detail::Listener listener(progress);
        detail::Check check;
        gabion_code code =
            gabion_backup_restore(path_.c_str(), id, to.c_str(), options.get(),
                                  listener.function(), listener.context(), check);
        listener.rethrow();
        check(code);
    }

    // Removes backups but those that the options newest and younger_than keep.
    std::string prune(const Options &options) const {
        return detail::text([&](auto json, auto error) {
            return gabion_backup_prune(path_.c_str(), options.get(), json, error);
        });
    }

private:
    std::string path_;
};

} // namespace gabion

#endif // GABION_CHANGES_HPP
