// Gabion, a key-value store: its C interface.
//
// cargo writes this file from bindings/c/src, see bindings/c/README.md. Do not edit it.
//
// Handles. The types but gabion_code, gabion_action and gabion_progress are opaque. Functions named
// _new, _open, _begin and the like make a handle, _free gives it back. _free takes the address of
// the variable and sets it to NULL, so that to free the same variable twice does nothing. Handles
// keep alive what they need, so they may be freed in any order. After gabion_close, or a commit,
// what was made before gives an error, and is to be freed all the same. A function that is given
// NULL, or a handle of another kind, returns GABION_CODE_INVALID_ARGUMENT; one that was freed,
// through a copy of the variable, is a bug that may go unnoticed.
//
// Threads. Any number of threads may use a store, a keyspace, a snapshot, a consumer, options, a
// change, and values that are lent, at the same time. One thread at a time may use a batch, an
// iterator, an ingest or a reader of changes: a second one gets GABION_CODE_BUSY. Calls of a
// transaction wait for each other. Nobody may use a handle while it is freed. There is no state
// besides handles, and nothing belongs to a thread.
//
// Forks. A store stays with the process that opened it: a child gets GABION_CODE_FORKED, and may
// free its copies of the handles.
//
// Errors. The last argument, which may be NULL, is the address of a variable for an error object.
// Each call sets it: to NULL if all went well. It is to be freed by gabion_error_free, and a
// variable that is used again must have been freed before.
//
// Memory. Keys and values are bytes with a length, also none at all: then the pointer may be NULL,
// but where NULL says that something is missing. They are read during the call only. What a
// function returns as a copy is freed by gabion_free. Places for results must not be NULL; they are
// set to NULL, 0 or false first.
//
// Text is UTF-8 and ends with a zero. A position in the changes of a store is text, too: three
// numbers such as 3.1064.250, the last of which is that of the last write before it.

#ifndef GABION_H
#define GABION_H



#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Version of the binary interface that this header describes. It rises when a program that was
// compiled with an older header could no longer work.
#define GABION_ABI_VERSION 1

// What a function returns: GABION_CODE_OK, or the kind of what went wrong. Numbers stay as they
// are; newer versions add others.
enum gabion_code
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // All went well.
    GABION_CODE_OK = 0,
    // The medium refused an operation.
    GABION_CODE_MEDIA = 1,
    // The store is open elsewhere, in this process or another one.
    GABION_CODE_LOCKED = 2,
    // The medium is full.
    GABION_CODE_NO_SPACE = 3,
    // The process or the system has too many files open.
    GABION_CODE_TOO_MANY_FILES = 4,
    // Bytes on the medium do not pass their checks.
    GABION_CODE_CORRUPTION = 5,
    // The directory holds no store.
    GABION_CODE_NOT_A_STORE = 6,
    // A newer version of Gabion wrote the store.
    GABION_CODE_NEWER_FORMAT = 7,
    // The store needs a part that this library was built without.
    GABION_CODE_MISSING_FEATURE = 8,
    // The store is read-only after an earlier failure, or was opened read-only.
    GABION_CODE_READ_ONLY = 9,
    // A key, a value, a batch, a name or a transaction is too long.
    GABION_CODE_LIMIT = 10,
    // Pairs that must ascend do not.
    GABION_CODE_OUT_OF_ORDER = 11,
    // The option is unknown, or its value is invalid.
    GABION_CODE_INVALID_OPTION = 12,
    // The store has no keyspace of that name.
    GABION_CODE_NO_SUCH_KEYSPACE = 13,
    // The name is reserved for tools.
    GABION_CODE_RESERVED_NAME = 14,
    // The keyspace was dropped.
    GABION_CODE_KEYSPACE_DROPPED = 15,
    // Another write has changed what the transaction read: run it again.
    GABION_CODE_CONFLICT = 16,
    // The transaction was open for too long: run it again.
    GABION_CODE_TRANSACTION_TOO_OLD = 17,
    // The transaction has no such savepoint.
    GABION_CODE_NO_SUCH_SAVEPOINT = 18,
    // The keyspace belongs to another store.
    GABION_CODE_FOREIGN_KEYSPACE = 19,
    // The engine cannot do this.
    GABION_CODE_UNSUPPORTED = 20,
    // The process is a fork of the one that opened the store.
    GABION_CODE_FORKED = 21,
    // The store is closed.
    GABION_CODE_CLOSED = 22,
    // The transaction is committed or rolled back.
    GABION_CODE_ENDED = 23,
    // An argument is invalid: NULL, a handle of another kind, or text that is not UTF-8.
    GABION_CODE_INVALID_ARGUMENT = 24,
    // Another thread is using an object that one thread at a time may use.
    GABION_CODE_BUSY = 25,
    // A thread of the store failed, or Gabion panicked, which is a bug.
    GABION_CODE_INTERNAL = 26,
    // The merge operator of a keyspace failed for a key.
    GABION_CODE_MERGE_FAILED = 27,
    // The keyspace has another merge operator than the program gave, or the program gave none.
    GABION_CODE_OTHER_MERGE_OPERATOR = 28,
    // The directory holds no repository of backups.
    GABION_CODE_NOT_A_REPOSITORY = 29,
    // The repository has no backup of that number.
    GABION_CODE_NO_SUCH_BACKUP = 30,
    // A part of a backup is missing or damaged.
    GABION_CODE_BACKUP_DAMAGED = 31,
    // Who listened to the progress of an operation has ended it.
    GABION_CODE_CANCELLED = 32,
    // The log has the changes behind a position no more.
    GABION_CODE_CHANGES_GONE = 33,
    // Changes were made that the log does not tell.
    GABION_CODE_CHANGES_UNLOGGED = 34,
    // The store has no consumer of that name.
    GABION_CODE_NO_SUCH_CONSUMER = 35,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum gabion_code gabion_code;
#else
typedef int32_t gabion_code;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What an operation of a change does.
enum gabion_action
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // There is no such operation.
    GABION_ACTION_NONE = 0,
    // The key has the value.
    GABION_ACTION_PUT = 1,
    // The key has no value.
    GABION_ACTION_DELETE = 2,
    // The keys from the key on and below the end have no values.
    GABION_ACTION_DELETE_RANGE = 3,
    // Operands were merged into the key, whose value the store did not look up.
    GABION_ACTION_MERGE = 4,
    // The keyspace was made.
    GABION_ACTION_KEYSPACE_CREATED = 5,
    // The keyspace was dropped with all that it held.
    GABION_ACTION_KEYSPACE_DROPPED = 6,
    // Sorted pairs were ingested, from the key to the end, that one included. The log has not got
    // them: read them from the keyspace.
    GABION_ACTION_INGESTED = 7,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum gabion_action gabion_action;
#else
typedef int32_t gabion_action;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Writes that take effect together. One thread at a time may use it.
typedef struct gabion_batch gabion_batch;

// What was committed together: a write, a batch or a transaction, or what became of a keyspace.
// Any number of threads may read it.
typedef struct gabion_change gabion_change;

// What reads the changes of a store. One thread at a time may use it.
typedef struct gabion_changes gabion_changes;

// Someone who follows the changes of a store under a name. Any number of threads may use it.
typedef struct gabion_consumer gabion_consumer;

// What went wrong: a code, its name and a sentence. Any number of threads may read it.
typedef struct gabion_error gabion_error;

// Sorted pairs on their way into a keyspace. One thread at a time may use it.
typedef struct gabion_ingest gabion_ingest;

// The pairs of a keyspace, forward and backward. One thread at a time may use it.
typedef struct gabion_iterator gabion_iterator;

// A named part of a store with its own keys. Any number of threads may use it.
typedef struct gabion_keyspace gabion_keyspace;

// Options of a store, a keyspace or a transaction, by name and value. Any number of threads
// may use it.
typedef struct gabion_options gabion_options;

// A value that is lent, without a copy. Any number of threads may read it.
typedef struct gabion_pinned gabion_pinned;

// A view of all keyspaces as they were at one moment. Any number of threads may use it.
typedef struct gabion_snapshot gabion_snapshot;

// An open store. Any number of threads may use it.
typedef struct gabion_store gabion_store;

// Reads of one moment and writes that take effect together. Calls of several threads wait for
// each other.
typedef struct gabion_transaction gabion_transaction;

// A list of values, some of which may be missing. Any number of threads may read it.
typedef struct gabion_values gabion_values;

// Is told how many bytes of how many are done, again and again, also while nothing moves. Returns
// whether to go on; if not, the operation ends with GABION_CODE_CANCELLED. It is called by the
// thread that makes the call, with the context given there, and must return: neither by longjmp
// nor by an exception.
typedef bool (*gabion_progress)(void *context, uint64_t bytes, uint64_t bytes_total);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the binary interface of the library that is loaded: a program refuses to go on
// where it is not GABION_ABI_VERSION.
uint32_t gabion_abi_version(void);

// The version of Gabion, such as 0.1.0. Static.
const char *gabion_version(void);

// Frees bytes or text that a function returned. NULL is fine.
void gabion_free(void *memory);

// The code of an error; GABION_CODE_OK for NULL.
gabion_code gabion_error_code(const gabion_error *error);

// The name of the error's code, such as "CONFLICT". Valid until the error is freed. An empty text
// for NULL.
const char *gabion_error_name(const gabion_error *error);

// A sentence that says what went wrong and how to mend it, in UTF-8. Valid until the error is
// freed. An empty text for NULL.
const char *gabion_error_message(const gabion_error *error);

// Where changes are there again, after GABION_CODE_CHANGES_GONE or GABION_CODE_CHANGES_UNLOGGED: a
// position for gabion_changes_new. Valid until the error is freed. An empty text for other errors.
const char *gabion_error_position(const gabion_error *error);

// Frees an error and clears the variable.
void gabion_error_free(gabion_error **error);

// An object without options, for which NULL may stand wherever options are taken.
gabion_options *gabion_options_new(void);

// Sets an option, both name and value as text, such as "memory_bytes_max" to "256MiB". They are
// read where the options are used: an unknown name, and a value that cannot be read, is an error
// there that names it. The last value of a name counts.
gabion_code gabion_options_set(gabion_options *options,
                               const char *name,
                               const char *value,
                               gabion_error **error);

// The name of an option that this version has, by its place; NULL behind the last one. Static.
const char *gabion_option_name(size_t index);

// Frees options and clears the variable.
void gabion_options_free(gabion_options **options);

// Opens the store in the directory path, and makes it if the directory is missing or empty. What
// a crash left is recovered first. *store is NULL after an error.
gabion_code gabion_open(const char *path,
                        const gabion_options *options,
                        gabion_store **store,
                        gabion_error **error);

// Syncs and closes the store, whatever else was made from it, and tells what failed: from now on
// reads and writes by any handle are GABION_CODE_CLOSED, but that an iterator may go on with what
// it has in memory. Waits for writes that are under way. The handle stays until it is freed.
gabion_code gabion_close(gabion_store *store, gabion_error **error);

// Frees the handle of a store and clears the variable. Where the store was not closed, it is
// closed with the last handle that was made from it, and what fails then is not told.
void gabion_store_free(gabion_store **store);

// Brings what is in memory to where it stays, and waits for that. Not needed for durability; it
// shortens the next open.
gabion_code gabion_flush(gabion_store *store, gabion_error **error);

// Brings everything written so far to a durability: "sync", after which it survives a loss of
// power, "interval:MILLISECONDS" or "buffered".
gabion_code gabion_persist(gabion_store *store, const char *durability, gabion_error **error);

// Waits until no background work is due.
gabion_code gabion_wait_idle(gabion_store *store, gabion_error **error);

// Writes the store as it is now to the directory path, which must not exist, as a store of its
// own. Reads and writes go on meanwhile.
gabion_code gabion_checkpoint(gabion_store *store, const char *path, gabion_error **error);

// Counts and sizes of the store as a JSON object, which gabion_free frees. A look at each table,
// so not for every request.
gabion_code gabion_stats(gabion_store *store, char **json, gabion_error **error);

// The name of the engine that made the store, such as "wip". Static. NULL for what is no store.
const char *gabion_engine(const gabion_store *store);

// What the engine of the store can do, as a JSON object with a bool for each ability, such as
// "snapshots", and with the lengths of the longest key and value. gabion_free frees it.
gabion_code gabion_capabilities(const gabion_store *store, char **json, gabion_error **error);

// Reads what another process has written since, where the store was opened with the option
// follower; whether there was anything, *is_new tells. All of it becomes visible at one moment,
// and snapshots and iterators go on with what they see. Call it again and again, with a sleep
// where nothing was new.
gabion_code gabion_catch_up(gabion_store *store, bool *is_new, gabion_error **error);

// Reads every byte of the store in a directory and tells as a JSON object what was read and what
// of it is damaged, in its list "problems". gabion_free frees the text. A store whose engine has
// followers may be open meanwhile, others must not.
gabion_code gabion_check(const char *path, char **json, gabion_error **error);

// Writes what can be read of the damaged store in the directory from, which must not be open, to a
// new store in the directory to, which must not exist. Tells as a JSON object what was read and
// what is lost, in its list "lost". gabion_free frees the text. The damaged store stays as it is.
gabion_code gabion_repair(const char *from, const char *to, char **json, gabion_error **error);

// Removes the store in a directory, which must not be open, with all that it holds.
gabion_code gabion_destroy(const char *path, gabion_error **error);

// The keyspace that every store has, named "default".
gabion_code gabion_keyspace_default(const gabion_store *store,
                                    gabion_keyspace **keyspace,
                                    gabion_error **error);

// The keyspace of a name, made durably if it does not exist. With options it has these from now
// on; with NULL a new one has the store's, and another one keeps its own.
gabion_code gabion_keyspace_open(const gabion_store *store,
                                 const char *name,
                                 const gabion_options *options,
                                 gabion_keyspace **keyspace,
                                 gabion_error **error);

// The keyspace of a name, which must exist.
gabion_code gabion_keyspace_existing(const gabion_store *store,
                                     const char *name,
                                     gabion_keyspace **keyspace,
                                     gabion_error **error);

// A keyspace in which a program notes something about the store, made durably if it does not
// exist. gabion_keyspace_open does not find it, and gabion_keyspace_names leaves it out; to drop
// it, put "gabion." in front of the name.
gabion_code gabion_keyspace_hidden(const gabion_store *store,
                                   const char *name,
                                   gabion_keyspace **keyspace,
                                   gabion_error **error);

// The names of all keyspaces, in the order in which they were made.
gabion_code gabion_keyspace_names(const gabion_store *store,
                                  gabion_values **names,
                                  gabion_error **error);

// Removes a keyspace with all that it holds, durably. Handles to it are of no use from then on.
gabion_code gabion_keyspace_drop(gabion_store *store, const char *name, gabion_error **error);

// The name of a keyspace, which does not end with a zero; *len becomes its length. Valid until the
// handle is freed. NULL for what is no keyspace.
const char *gabion_keyspace_name(const gabion_keyspace *keyspace, size_t *len);

// The number of a keyspace, by which changes name it: no other one of the store has had or will
// have it. 0 for what is no keyspace.
uint32_t gabion_keyspace_id(const gabion_keyspace *keyspace);

// The options that a keyspace has of its own, as a JSON object of names and texts as
// gabion_options_set takes them. gabion_free frees it.
gabion_code gabion_keyspace_options(const gabion_keyspace *keyspace,
                                    char **json,
                                    gabion_error **error);

// Frees the handle of a keyspace and clears the variable.
void gabion_keyspace_free(gabion_keyspace **keyspace);

// How many values a list has; 0 for what is no list.
size_t gabion_values_count(const gabion_values *values);

// A value of a list by its place, counted from 0; *len becomes its length. NULL where the value is
// missing, and beyond the end. Valid until the list is freed.
const uint8_t *gabion_values_at(const gabion_values *values, size_t index, size_t *len);

// Frees a list of values and clears the variable.
void gabion_values_free(gabion_values **values);

// Gives a key a value. Any bytes are a key of up to 65,535 bytes, or a value of up to 1 GiB.
gabion_code gabion_put(gabion_keyspace *keyspace,
                       const uint8_t *key,
                       size_t key_len,
                       const uint8_t *value,
                       size_t value_len,
                       gabion_error **error);

// As gabion_put, at a durability: "sync", "interval:MILLISECONDS" or "buffered"; NULL for the
// store's. Other writes that have one of their own go by a batch.
gabion_code gabion_put_with(gabion_keyspace *keyspace,
                            const uint8_t *key,
                            size_t key_len,
                            const uint8_t *value,
                            size_t value_len,
                            const char *durability,
                            gabion_error **error);

// Gives a key a value that expires after so many milliseconds.
gabion_code gabion_put_expiring(gabion_keyspace *keyspace,
                                const uint8_t *key,
                                size_t key_len,
                                const uint8_t *value,
                                size_t value_len,
                                uint64_t after_ms,
                                gabion_error **error);

// Gives a key a value that expires at a moment, in milliseconds since 1970.
gabion_code gabion_put_expiring_at(gabion_keyspace *keyspace,
                                   const uint8_t *key,
                                   size_t key_len,
                                   const uint8_t *value,
                                   size_t value_len,
                                   uint64_t unix_ms,
                                   gabion_error **error);

// Lets the value of a key expire after so many milliseconds, whatever it did before. *is_there
// becomes false, and nothing is done, if the key is not there.
gabion_code gabion_expire(gabion_keyspace *keyspace,
                          const uint8_t *key,
                          size_t key_len,
                          uint64_t after_ms,
                          bool *is_there,
                          gabion_error **error);

// As gabion_expire, at a moment in milliseconds since 1970.
gabion_code gabion_expire_at(gabion_keyspace *keyspace,
                             const uint8_t *key,
                             size_t key_len,
                             uint64_t unix_ms,
                             bool *is_there,
                             gabion_error **error);

// Lets the value of a key stay for good. *is_changed becomes false if it is not there, or did not
// expire.
gabion_code gabion_remove_expiry(gabion_keyspace *keyspace,
                                 const uint8_t *key,
                                 size_t key_len,
                                 bool *is_changed,
                                 gabion_error **error);

// Merges an operand into the value of a key, as the operator says that the keyspace was given by
// its option merge: "add_i64", "add_u64", "max_bytes", "min_bytes", "bit_or", or "append:" with a
// separator behind it.
gabion_code gabion_merge(gabion_keyspace *keyspace,
                         const uint8_t *key,
                         size_t key_len,
                         const uint8_t *operand,
                         size_t operand_len,
                         gabion_error **error);

// Removes a key and its value, if it is there.
gabion_code gabion_delete(gabion_keyspace *keyspace,
                          const uint8_t *key,
                          size_t key_len,
                          gabion_error **error);

// Removes all keys from lower on and below upper, at one moment; NULL for no end on that side.
gabion_code gabion_delete_range(gabion_keyspace *keyspace,
                                const uint8_t *lower,
                                size_t lower_len,
                                const uint8_t *upper,
                                size_t upper_len,
                                gabion_error **error);

// Brings the keys from lower on and below upper into the best order that the engine knows, and
// waits for that; NULL for no end on that side.
gabion_code gabion_compact(gabion_keyspace *keyspace,
                           const uint8_t *lower,
                           size_t lower_len,
                           const uint8_t *upper,
                           size_t upper_len,
                           gabion_error **error);

// Changes the value of a key from expected to value, where NULL stands for no value. *is_changed
// becomes false, and nothing is done, if the key has another value.
gabion_code gabion_compare_and_swap(gabion_keyspace *keyspace,
                                    const uint8_t *key,
                                    size_t key_len,
                                    const uint8_t *expected,
                                    size_t expected_len,
                                    const uint8_t *value,
                                    size_t value_len,
                                    bool *is_changed,
                                    gabion_error **error);

// The value of a key as a copy, with a zero behind it, which gabion_free frees; *value is NULL if
// the key is not there.
gabion_code gabion_get(const gabion_keyspace *keyspace,
                       const uint8_t *key,
                       size_t key_len,
                       uint8_t **value,
                       size_t *value_len,
                       gabion_error **error);

// As gabion_get, into a buffer of the caller's. *value_len becomes the length of the value, and
// SIZE_MAX if the key is not there. A value that is longer than capacity is not copied.
gabion_code gabion_get_into(const gabion_keyspace *keyspace,
                            const uint8_t *key,
                            size_t key_len,
                            uint8_t *buffer,
                            size_t capacity,
                            size_t *value_len,
                            gabion_error **error);

// As gabion_get, without a copy: the value is lent, and with it the piece of memory that it lies
// in. *pinned is NULL if the key is not there.
gabion_code gabion_get_pinned(const gabion_keyspace *keyspace,
                              const uint8_t *key,
                              size_t key_len,
                              gabion_pinned **pinned,
                              gabion_error **error);

// The bytes of a value that is lent, and in *len how many they are. Valid until it is freed. NULL
// for what is no such value.
const uint8_t *gabion_pinned_data(const gabion_pinned *pinned, size_t *len);

// Gives a value back that was lent, and clears the variable.
void gabion_pinned_free(gabion_pinned **pinned);

// Whether a key is there. Costs as much as gabion_get_pinned.
gabion_code gabion_contains(const gabion_keyspace *keyspace,
                            const uint8_t *key,
                            size_t key_len,
                            bool *is_there,
                            gabion_error **error);

// When the value of a key expires, in milliseconds since 1970; -1 for a key that is not there, and
// for a value that does not expire.
gabion_code gabion_expires_at(const gabion_keyspace *keyspace,
                              const uint8_t *key,
                              size_t key_len,
                              int64_t *unix_ms,
                              gabion_error **error);

// The values of count keys at one moment, in the order of the keys: now, or that of a snapshot.
// Cheaper than as many gets, which wait one after the other.
gabion_code gabion_multi_get(const gabion_keyspace *keyspace,
                             const gabion_snapshot *snapshot,
                             const uint8_t *const *keys,
                             const size_t *key_lens,
                             size_t count,
                             gabion_values **values,
                             gabion_error **error);

// A view of all keyspaces as they are now. Copies nothing and does not wait. As long as it lives,
// the store keeps the versions that it sees.
gabion_code gabion_snapshot_new(const gabion_store *store,
                                gabion_snapshot **snapshot,
                                gabion_error **error);

// As gabion_get, of the moment of a snapshot.
gabion_code gabion_snapshot_get(const gabion_snapshot *snapshot,
                                const gabion_keyspace *keyspace,
                                const uint8_t *key,
                                size_t key_len,
                                uint8_t **value,
                                size_t *value_len,
                                gabion_error **error);

// As gabion_get_pinned, of the moment of a snapshot.
gabion_code gabion_snapshot_get_pinned(const gabion_snapshot *snapshot,
                                       const gabion_keyspace *keyspace,
                                       const uint8_t *key,
                                       size_t key_len,
                                       gabion_pinned **pinned,
                                       gabion_error **error);

// As gabion_contains, of the moment of a snapshot.
gabion_code gabion_snapshot_contains(const gabion_snapshot *snapshot,
                                     const gabion_keyspace *keyspace,
                                     const uint8_t *key,
                                     size_t key_len,
                                     bool *is_there,
                                     gabion_error **error);

// As gabion_expires_at, of the moment of a snapshot.
gabion_code gabion_snapshot_expires_at(const gabion_snapshot *snapshot,
                                       const gabion_keyspace *keyspace,
                                       const uint8_t *key,
                                       size_t key_len,
                                       int64_t *unix_ms,
                                       gabion_error **error);

// Frees a snapshot and clears the variable. Iterators over it go on.
void gabion_snapshot_free(gabion_snapshot **snapshot);

// An empty batch.
gabion_batch *gabion_batch_new(void);

// Adds a put.
gabion_code gabion_batch_put(gabion_batch *batch,
                             const gabion_keyspace *keyspace,
                             const uint8_t *key,
                             size_t key_len,
                             const uint8_t *value,
                             size_t value_len,
                             gabion_error **error);

// Adds a put of a value that expires so many milliseconds after this call.
gabion_code gabion_batch_put_expiring(gabion_batch *batch,
                                      const gabion_keyspace *keyspace,
                                      const uint8_t *key,
                                      size_t key_len,
                                      const uint8_t *value,
                                      size_t value_len,
                                      uint64_t after_ms,
                                      gabion_error **error);

// Adds a put of a value that expires at a moment, in milliseconds since 1970.
gabion_code gabion_batch_put_expiring_at(gabion_batch *batch,
                                         const gabion_keyspace *keyspace,
                                         const uint8_t *key,
                                         size_t key_len,
                                         const uint8_t *value,
                                         size_t value_len,
                                         uint64_t unix_ms,
                                         gabion_error **error);

// Adds a merge, as gabion_merge.
gabion_code gabion_batch_merge(gabion_batch *batch,
                               const gabion_keyspace *keyspace,
                               const uint8_t *key,
                               size_t key_len,
                               const uint8_t *operand,
                               size_t operand_len,
                               gabion_error **error);

// Adds a delete.
gabion_code gabion_batch_delete(gabion_batch *batch,
                                const gabion_keyspace *keyspace,
                                const uint8_t *key,
                                size_t key_len,
                                gabion_error **error);

// Adds a delete of all keys from lower on and below upper; NULL for no end on that side.
gabion_code gabion_batch_delete_range(gabion_batch *batch,
                                      const gabion_keyspace *keyspace,
                                      const uint8_t *lower,
                                      size_t lower_len,
                                      const uint8_t *upper,
                                      size_t upper_len,
                                      gabion_error **error);

// How many operations a batch has; 0 for what is no batch.
size_t gabion_batch_count(const gabion_batch *batch);

// How many bytes the operations of a batch have; 0 for what is no batch.
uint64_t gabion_batch_bytes(const gabion_batch *batch);

// Removes all operations and keeps the memory for others.
gabion_code gabion_batch_clear(gabion_batch *batch, gabion_error **error);

// Writes a batch: all of it or nothing. The batch stays as it is and may be written again, or
// cleared. The durability is as for gabion_put_with.
gabion_code gabion_batch_write(gabion_store *store,
                               const gabion_batch *batch,
                               const char *durability,
                               gabion_error **error);

// Frees a batch and clears the variable; what was not written is not.
void gabion_batch_free(gabion_batch **batch);

// An iterator over the keys from lower on and below upper, with NULL for no end on that side: of
// the moment of a snapshot, or of now for NULL. It stands at no pair before it is told where to
// go. It keeps what it needs of the store, also when other handles are freed.
gabion_code gabion_iterator_new(const gabion_keyspace *keyspace,
                                const gabion_snapshot *snapshot,
                                const uint8_t *lower,
                                size_t lower_len,
                                const uint8_t *upper,
                                size_t upper_len,
                                gabion_iterator **iterator,
                                gabion_error **error);

// Goes to the first pair. Whether there is one, gabion_iterator_valid tells: so it is with all
// moves. Of an engine without order, this and gabion_iterator_next go through all pairs.
gabion_code gabion_iterator_first(gabion_iterator *iterator, gabion_error **error);

// Goes to the last pair.
gabion_code gabion_iterator_last(gabion_iterator *iterator, gabion_error **error);

// Goes to the first pair whose key is key or above it.
gabion_code gabion_iterator_seek(gabion_iterator *iterator,
                                 const uint8_t *key,
                                 size_t key_len,
                                 gabion_error **error);

// Goes to the last pair whose key is key or below it.
gabion_code gabion_iterator_seek_back(gabion_iterator *iterator,
                                      const uint8_t *key,
                                      size_t key_len,
                                      gabion_error **error);

// Goes to the next pair. Where the iterator stands at none, it stays there.
gabion_code gabion_iterator_next(gabion_iterator *iterator, gabion_error **error);

// Goes to the pair before. Where the iterator stands at none, it stays there.
gabion_code gabion_iterator_prev(gabion_iterator *iterator, gabion_error **error);

// Whether the iterator stands at a pair; false for what is no iterator.
bool gabion_iterator_valid(const gabion_iterator *iterator);

// The key of the pair, and in *len its length; NULL where there is none. Valid until the iterator
// moves or is freed.
const uint8_t *gabion_iterator_key(const gabion_iterator *iterator, size_t *len);

// The value of the pair, as gabion_iterator_key its key.
const uint8_t *gabion_iterator_value(const gabion_iterator *iterator, size_t *len);

// Frees an iterator and clears the variable.
void gabion_iterator_free(gabion_iterator **iterator);

// Begins a transaction, with the options isolation ("serializable" or "snapshot") and bytes_max,
// or NULL. It should be short, as it keeps old versions like a snapshot.
gabion_code gabion_transaction_begin(gabion_store *store,
                                     const gabion_options *options,
                                     gabion_transaction **transaction,
                                     gabion_error **error);

// The value of a key, the transaction's own or that of its beginning, as gabion_get.
gabion_code gabion_transaction_get(gabion_transaction *transaction,
                                   const gabion_keyspace *keyspace,
                                   const uint8_t *key,
                                   size_t key_len,
                                   uint8_t **value,
                                   size_t *value_len,
                                   gabion_error **error);

// As gabion_transaction_get, of a key that the commit depends on, whatever the isolation.
gabion_code gabion_transaction_get_for_update(gabion_transaction *transaction,
                                              const gabion_keyspace *keyspace,
                                              const uint8_t *key,
                                              size_t key_len,
                                              uint8_t **value,
                                              size_t *value_len,
                                              gabion_error **error);

// Whether a key is there, for the transaction.
gabion_code gabion_transaction_contains(gabion_transaction *transaction,
                                        const gabion_keyspace *keyspace,
                                        const uint8_t *key,
                                        size_t key_len,
                                        bool *is_there,
                                        gabion_error **error);

// As gabion_expires_at, for the transaction.
gabion_code gabion_transaction_expires_at(gabion_transaction *transaction,
                                          const gabion_keyspace *keyspace,
                                          const uint8_t *key,
                                          size_t key_len,
                                          int64_t *unix_ms,
                                          gabion_error **error);

// The values of count keys, for the transaction, in the order of the keys.
gabion_code gabion_transaction_multi_get(gabion_transaction *transaction,
                                         const gabion_keyspace *keyspace,
                                         const uint8_t *const *keys,
                                         const size_t *key_lens,
                                         size_t count,
                                         gabion_values **values,
                                         gabion_error **error);

// Gives a key a value, once the transaction is committed.
gabion_code gabion_transaction_put(gabion_transaction *transaction,
                                   const gabion_keyspace *keyspace,
                                   const uint8_t *key,
                                   size_t key_len,
                                   const uint8_t *value,
                                   size_t value_len,
                                   gabion_error **error);

// As gabion_transaction_put, of a value that expires so many milliseconds after this call.
gabion_code gabion_transaction_put_expiring(gabion_transaction *transaction,
                                            const gabion_keyspace *keyspace,
                                            const uint8_t *key,
                                            size_t key_len,
                                            const uint8_t *value,
                                            size_t value_len,
                                            uint64_t after_ms,
                                            gabion_error **error);

// As gabion_transaction_put, of a value that expires at a moment, in milliseconds since 1970.
gabion_code gabion_transaction_put_expiring_at(gabion_transaction *transaction,
                                               const gabion_keyspace *keyspace,
                                               const uint8_t *key,
                                               size_t key_len,
                                               const uint8_t *value,
                                               size_t value_len,
                                               uint64_t unix_ms,
                                               gabion_error **error);

// Merges an operand into the value of a key, as gabion_merge, once the transaction is committed.
// Others who merge into the key are no conflict.
gabion_code gabion_transaction_merge(gabion_transaction *transaction,
                                     const gabion_keyspace *keyspace,
                                     const uint8_t *key,
                                     size_t key_len,
                                     const uint8_t *operand,
                                     size_t operand_len,
                                     gabion_error **error);

// Removes a key, once the transaction is committed.
gabion_code gabion_transaction_delete(gabion_transaction *transaction,
                                      const gabion_keyspace *keyspace,
                                      const uint8_t *key,
                                      size_t key_len,
                                      gabion_error **error);

// Removes all keys from lower on and below upper, once the transaction is committed; NULL for no
// end on that side.
gabion_code gabion_transaction_delete_range(gabion_transaction *transaction,
                                            const gabion_keyspace *keyspace,
                                            const uint8_t *lower,
                                            size_t lower_len,
                                            const uint8_t *upper,
                                            size_t upper_len,
                                            gabion_error **error);

// An iterator as gabion_iterator_new makes it, over what the transaction sees, its own writes
// included. What it passes counts as read, and up to 64 pairs ahead of that. When the transaction
// has ended, its moves are GABION_CODE_ENDED.
gabion_code gabion_transaction_iterator(gabion_transaction *transaction,
                                        const gabion_keyspace *keyspace,
                                        const uint8_t *lower,
                                        size_t lower_len,
                                        const uint8_t *upper,
                                        size_t upper_len,
                                        gabion_iterator **iterator,
                                        gabion_error **error);

// Marks this moment of a transaction; *savepoint becomes its number.
gabion_code gabion_transaction_savepoint(gabion_transaction *transaction,
                                         uint64_t *savepoint,
                                         gabion_error **error);

// Takes back what a transaction wrote since a savepoint. The savepoint stays, later ones are gone.
gabion_code gabion_transaction_rollback_to(gabion_transaction *transaction,
                                           uint64_t savepoint,
                                           gabion_error **error);

// Commits a transaction, which has ended then, with success or without. GABION_CODE_CONFLICT says
// that nothing was written, and that it is to be run again from its beginning. The durability is
// as for gabion_put_with.
gabion_code gabion_transaction_commit(gabion_transaction *transaction,
                                      const char *durability,
                                      gabion_error **error);

// Ends a transaction without an effect. GABION_CODE_ENDED if it had ended before.
gabion_code gabion_transaction_rollback(gabion_transaction *transaction, gabion_error **error);

// Frees a transaction and clears the variable; what was not committed is rolled back.
void gabion_transaction_free(gabion_transaction **transaction);

// Begins to add sorted pairs to a keyspace, for large loads: they are written straight into
// tables, all of them or none, and each byte once. Nothing of them is there before
// gabion_ingest_finish. Only the engine "wip" has this.
gabion_code gabion_ingest_begin(gabion_keyspace *keyspace,
                                gabion_ingest **ingest,
                                gabion_error **error);

// Adds a pair, whose key must be above the one before: GABION_CODE_OUT_OF_ORDER if it is not. An
// error ends the ingest.
gabion_code gabion_ingest_put(gabion_ingest *ingest,
                              const uint8_t *key,
                              size_t key_len,
                              const uint8_t *value,
                              size_t value_len,
                              gabion_error **error);

// Adds all pairs to the keyspace at one moment, durably; *pairs becomes their number. They replace
// earlier values of their keys. The ingest has ended then, with success or without.
gabion_code gabion_ingest_finish(gabion_ingest *ingest, uint64_t *pairs, gabion_error **error);

// Frees an ingest and clears the variable. What was not finished leaves nothing in the store.
void gabion_ingest_free(gabion_ingest **ingest);

// Where the store is now, behind all changes that readers see, as text, which gabion_free frees. A
// position names a place of this store's log for good, also in other processes.
gabion_code gabion_position(const gabion_store *store, char **position, gabion_error **error);

// The position behind which all changes are there, as gabion_position.
gabion_code gabion_oldest_position(const gabion_store *store,
                                   char **position,
                                   gabion_error **error);

// A position, but not in front of what a snapshot has, which was taken after it: who has read the
// snapshot reads on there, and finds each change once. gabion_free frees the text.
gabion_code gabion_position_after(const char *position,
                                  const gabion_snapshot *snapshot,
                                  char **after,
                                  gabion_error **error);

// Reads the changes behind a position, each once, in the order in which they took effect; NULL for
// the beginning of the store. With the option durable_only only those that survive a loss of
// power. The log has changes as long as it is needed for other things; who must find all of them
// is a consumer. Writers do nothing for who reads.
gabion_code gabion_changes_new(const gabion_store *store,
                               const char *since,
                               const gabion_options *options,
                               gabion_changes **changes,
                               gabion_error **error);

// The next change, which is waited for up to timeout_ms milliseconds; *change is NULL if there is
// none by then. GABION_CODE_CHANGES_GONE and GABION_CODE_CHANGES_UNLOGGED come with a position at
// which another reader may go on, see gabion_error_position.
gabion_code gabion_changes_next(gabion_changes *changes,
                                uint64_t timeout_ms,
                                gabion_change **change,
                                gabion_error **error);

// The position behind the last change that was read, as gabion_position.
gabion_code gabion_changes_position(const gabion_changes *changes,
                                    char **position,
                                    gabion_error **error);

// Frees a reader and clears the variable.
void gabion_changes_free(gabion_changes **changes);

// The position behind a change. Valid until the change is freed. NULL for what is no change.
const char *gabion_change_position(const gabion_change *change);

// How many operations a change has; 0 for what is no change.
size_t gabion_change_count(const gabion_change *change);

// What an operation of a change does, by its place, counted from 0.
gabion_action gabion_change_action(const gabion_change *change, size_t index);

// The number of the keyspace of an operation, as gabion_keyspace_id has it.
uint32_t gabion_change_keyspace_id(const gabion_change *change, size_t index);

// The name of that keyspace, which does not end with a zero; *len becomes its length. NULL if it
// was dropped before the reader came to know it. This and what follows is valid until the change
// is freed.
const char *gabion_change_keyspace(const gabion_change *change, size_t index, size_t *len);

// The key of an operation, the first key of a range, or the smallest one that was ingested, and in
// *len its length; NULL for what becomes of a keyspace.
const uint8_t *gabion_change_key(const gabion_change *change, size_t index, size_t *len);

// The first key above a range, NULL for the end of all keys; the largest key that was ingested.
const uint8_t *gabion_change_end(const gabion_change *change, size_t index, size_t *len);

// The value of a put; of a merge the value that operands are merged into, NULL if there was none,
// or if gabion_change_base says where it is.
const uint8_t *gabion_change_value(const gabion_change *change, size_t index, size_t *len);

// When that value expires, in milliseconds since 1970; -1 if it does not.
int64_t gabion_change_expires_at(const gabion_change *change, size_t index);

// Of a merge whose operands are merged into what the key had before a write, the number of that
// write, which is the last of the three of a position; 0 if the value is told.
uint64_t gabion_change_base(const gabion_change *change, size_t index);

// How many pairs were ingested; 0 for other operations.
uint64_t gabion_change_pairs(const gabion_change *change, size_t index);

// How many operands a merge has; 0 for other operations.
size_t gabion_change_operand_count(const gabion_change *change, size_t index);

// An operand of a merge by its place, the oldest one first, and in *len its length; NULL where
// there is none.
const uint8_t *gabion_change_operand(const gabion_change *change,
                                     size_t index,
                                     size_t operand,
                                     size_t *len);

// Frees a change and clears the variable.
void gabion_change_free(gabion_change **change);

// The consumer of a name, made durably where the store is now if there is none. It lasts until
// gabion_consumer_drop. The store keeps the changes from its position on, up to the option
// changes_bytes_max.
gabion_code gabion_consumer_open(gabion_store *store,
                                 const char *name,
                                 gabion_consumer **consumer,
                                 gabion_error **error);

// The position up to which a consumer has acknowledged changes, as text, which gabion_free frees.
gabion_code gabion_consumer_position(const gabion_consumer *consumer,
                                     char **position,
                                     gabion_error **error);

// The changes from a consumer's position on, with the options of gabion_changes_new.
gabion_code gabion_consumer_changes(const gabion_consumer *consumer,
                                    const gabion_options *options,
                                    gabion_changes **changes,
                                    gabion_error **error);

// Takes note, durably, that a consumer needs no change in front of a position any more. It costs
// syncs, so do so after many changes. What was read and not acknowledged comes again after a
// crash.
gabion_code gabion_consumer_acknowledge(gabion_consumer *consumer,
                                        const char *position,
                                        gabion_error **error);

// Frees the handle of a consumer and clears the variable. The consumer stays.
void gabion_consumer_free(gabion_consumer **consumer);

// Forgets a consumer, durably, and what was kept for it alone.
gabion_code gabion_consumer_drop(gabion_store *store, const char *name, gabion_error **error);

// All consumers, in the order of their names, as a JSON list of objects with "name", "position",
// "bytes" of the log behind that position, and "is_invalidated". gabion_free frees it.
gabion_code gabion_consumers(const gabion_store *store, char **json, gabion_error **error);

// Adds the store as it is now to the repository in a directory, which is made if it is missing or
// empty. What earlier backups have is not copied again. Reads and writes go on meanwhile. Tells as
// a JSON object what was made, with its number "id"; gabion_free frees it. The option is
// bytes_per_second_max, the progress may be NULL.
gabion_code gabion_backup(gabion_store *store,
                          const char *repository,
                          const gabion_options *options,
                          gabion_progress progress,
                          void *context,
                          char **json,
                          gabion_error **error);

// The backups of a repository, oldest first, as a JSON object with the lists "backups" and
// "problems". gabion_free frees it.
gabion_code gabion_backup_list(const char *repository, char **json, gabion_error **error);

// Reads all that the backup of a number needs, or all backups for 0, and tells as a JSON object
// what is missing or damaged, in its list "problems". gabion_free frees it. The options are as for
// gabion_backup.
gabion_code gabion_backup_verify(const char *repository,
                                 uint64_t id,
                                 const gabion_options *options,
                                 gabion_progress progress,
                                 void *context,
                                 char **json,
                                 gabion_error **error);

// Makes a store of the backup of a number in the directory path, which must not exist or be empty.
// Every byte is checked. The options are as for gabion_backup.
gabion_code gabion_backup_restore(const char *repository,
                                  uint64_t id,
                                  const char *path,
                                  const gabion_options *options,
                                  gabion_progress progress,
                                  void *context,
                                  gabion_error **error);

// Removes backups, and what only they need; of each store the newest one stays always. The options
// say which others stay: so many of the newest by newest, those that are not older by
// younger_than, such as "30d". Tells as a JSON object what is gone; gabion_free frees it.
gabion_code gabion_backup_prune(const char *repository,
                                const gabion_options *options,
                                char **json,
                                gabion_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GABION_H */
