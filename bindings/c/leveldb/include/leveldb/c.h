// The C interface of LevelDB 1.23, as Gabion's library libgabion_leveldb has it.
//
// cargo writes this file from bindings/c/leveldb/src, see bindings/c/README.md. Do not edit it. The
// functions are declared as in LevelDB's own header, which serves as well.
//
// What a program relies on holds here: stores, snapshots and iterators as there, writes that
// survive the death of the process, and with sync set a loss of power. What differs:
//
// - Keys are ordered by their bytes. leveldb_open tries a comparator on some thousand pairs of keys
//   and refuses one that orders them otherwise; afterwards it is not called.
// - A filter policy of the program's own is not called.
// - The options max_open_files, block_restart_interval, max_file_size, info_log, verify_checksums
//   and fill_cache say nothing. Snappy stands for LZ4.
// - Keys have at most 65,535 bytes, values 1 GiB. Files of LevelDB's are not read.

#ifndef STORAGE_LEVELDB_INCLUDE_C_H_
#define STORAGE_LEVELDB_INCLUDE_C_H_



#include <stddef.h>
#include <stdint.h>

// Blocks are stored as they are.
#define leveldb_no_compression 0

// Blocks are compressed: by LZ4, as Gabion has no Snappy.
#define leveldb_snappy_compression 1

// A cache for blocks.
typedef struct leveldb_cache_t leveldb_cache_t;

// An order of keys of the program's own.
typedef struct leveldb_comparator_t leveldb_comparator_t;

// The system.
typedef struct leveldb_env_t leveldb_env_t;

// A filter policy.
typedef struct leveldb_filterpolicy_t leveldb_filterpolicy_t;

// The pairs of a store.
typedef struct leveldb_iterator_t leveldb_iterator_t;

// A log for messages, which nobody can make.
typedef struct leveldb_logger_t leveldb_logger_t;

// Options of a store.
typedef struct leveldb_options_t leveldb_options_t;

// Options of a read.
typedef struct leveldb_readoptions_t leveldb_readoptions_t;

// A store as it was at one moment.
typedef struct leveldb_snapshot_t leveldb_snapshot_t;

// An open store.
typedef struct leveldb_t leveldb_t;

// Writes that take effect together.
typedef struct leveldb_writebatch_t leveldb_writebatch_t;

// Options of a write.
typedef struct leveldb_writeoptions_t leveldb_writeoptions_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Frees what one of these functions returned as a copy. NULL is fine.
void leveldb_free(void *ptr);

// The version of LevelDB whose interface this is, first part.
int leveldb_major_version(void);

// The version of LevelDB whose interface this is, second part.
int leveldb_minor_version(void);

// Opens the store in a directory; NULL after an error.
leveldb_t *leveldb_open(const leveldb_options_t *options, const char *name, char **errptr);

// Closes a store.
void leveldb_close(leveldb_t *db);

// Gives a key a value.
void leveldb_put(leveldb_t *db,
                 const leveldb_writeoptions_t *options,
                 const char *key,
                 size_t keylen,
                 const char *val,
                 size_t vallen,
                 char **errptr);

// Removes a key.
void leveldb_delete(leveldb_t *db,
                    const leveldb_writeoptions_t *options,
                    const char *key,
                    size_t keylen,
                    char **errptr);

// Writes a batch: all of it or nothing. The batch stays as it is.
void leveldb_write(leveldb_t *db,
                   const leveldb_writeoptions_t *options,
                   leveldb_writebatch_t *batch,
                   char **errptr);

// The value of a key as a copy, and in *vallen its length; NULL if it is not there.
char *leveldb_get(leveldb_t *db,
                  const leveldb_readoptions_t *options,
                  const char *key,
                  size_t keylen,
                  size_t *vallen,
                  char **errptr);

// The store as it is now, for leveldb_readoptions_set_snapshot.
const leveldb_snapshot_t *leveldb_create_snapshot(leveldb_t *db);

// Gives a snapshot up.
void leveldb_release_snapshot(leveldb_t *db, const leveldb_snapshot_t *snapshot);

// What a store tells of itself, as text; NULL for a name that is not known. Known are
// leveldb.stats, which is a JSON object here, leveldb.approximate-memory-usage and
// leveldb.num-files-at-level with a number behind it.
char *leveldb_property_value(leveldb_t *db, const char *propname);

// The bytes of keys and values in ranges, each from a key on and below another one. Goes through
// the pairs of each range.
void leveldb_approximate_sizes(leveldb_t *db,
                               int num_ranges,
                               const char *const *range_start_key,
                               const size_t *range_start_key_len,
                               const char *const *range_limit_key,
                               const size_t *range_limit_key_len,
                               uint64_t *sizes);

// Brings the keys between two into their best order; NULL for no end on that side.
void leveldb_compact_range(leveldb_t *db,
                           const char *start_key,
                           size_t start_key_len,
                           const char *limit_key,
                           size_t limit_key_len);

// Removes the store in a directory; where there is no directory, there is nothing to do.
void leveldb_destroy_db(const leveldb_options_t *options, const char *name, char **errptr);

// Repairs the store in a directory. A sound one stays as it is; a damaged one stays beside the
// repaired one, with ".damaged" behind its name.
void leveldb_repair_db(const leveldb_options_t *options, const char *name, char **errptr);

// An iterator over all pairs, of a snapshot if the options have one. It stands at none at first.
leveldb_iterator_t *leveldb_create_iterator(leveldb_t *db, const leveldb_readoptions_t *options);

// Frees an iterator.
void leveldb_iter_destroy(leveldb_iterator_t *iter);

// Whether the iterator stands at a pair.
uint8_t leveldb_iter_valid(const leveldb_iterator_t *iter);

// Goes to the first pair.
void leveldb_iter_seek_to_first(leveldb_iterator_t *iter);

// Goes to the last pair.
void leveldb_iter_seek_to_last(leveldb_iterator_t *iter);

// Goes to the first pair whose key is a key or above it.
void leveldb_iter_seek(leveldb_iterator_t *iter, const char *k, size_t klen);

// Goes to the next pair.
void leveldb_iter_next(leveldb_iterator_t *iter);

// Goes to the pair before.
void leveldb_iter_prev(leveldb_iterator_t *iter);

// The key of the pair, valid until the iterator moves; NULL where there is none.
const char *leveldb_iter_key(const leveldb_iterator_t *iter, size_t *klen);

// The value of the pair, as leveldb_iter_key its key.
const char *leveldb_iter_value(const leveldb_iterator_t *iter, size_t *vlen);

// What went wrong first with the iterator, if anything did.
void leveldb_iter_get_error(const leveldb_iterator_t *iter, char **errptr);

// An empty batch.
leveldb_writebatch_t *leveldb_writebatch_create(void);

// Frees a batch.
void leveldb_writebatch_destroy(leveldb_writebatch_t *batch);

// Removes all operations.
void leveldb_writebatch_clear(leveldb_writebatch_t *batch);

// Adds a put. What is too long is left out, as there is no place for an error.
void leveldb_writebatch_put(leveldb_writebatch_t *batch,
                            const char *key,
                            size_t klen,
                            const char *val,
                            size_t vlen);

// Adds a delete.
void leveldb_writebatch_delete(leveldb_writebatch_t *batch, const char *key, size_t klen);

// Calls back for each operation of a batch, in their order.
void leveldb_writebatch_iterate(const leveldb_writebatch_t *batch,
                                void *state,
                                void (*put)(void *state,
                                            const char *k,
                                            size_t klen,
                                            const char *v,
                                            size_t vlen),
                                void (*deleted)(void *state, const char *k, size_t klen));

// Adds the operations of another batch.
void leveldb_writebatch_append(leveldb_writebatch_t *destination,
                               const leveldb_writebatch_t *source);

// The options that LevelDB has by default; where it has sizes, Gabion's own.
leveldb_options_t *leveldb_options_create(void);

// Frees options.
void leveldb_options_destroy(leveldb_options_t *options);

// The order of keys, which leveldb_open compares with that of bytes; NULL for that of bytes.
void leveldb_options_set_comparator(leveldb_options_t *options, leveldb_comparator_t *comparator);

// Filters: those of a Bloom policy with as many bits per key; Gabion's own for a policy of the
// program's, and for NULL.
void leveldb_options_set_filter_policy(leveldb_options_t *options, leveldb_filterpolicy_t *policy);

// Whether to make a store that is not there. Not by default.
void leveldb_options_set_create_if_missing(leveldb_options_t *options, uint8_t v);

// Whether a store that is there is an error. Not by default.
void leveldb_options_set_error_if_exists(leveldb_options_t *options, uint8_t v);

// Whether blocks are checked each time that they are read, and not only the first time.
void leveldb_options_set_paranoid_checks(leveldb_options_t *options, uint8_t v);

// Says nothing to Gabion: there is one environment.
void leveldb_options_set_env(leveldb_options_t *options, leveldb_env_t *env);

// Says nothing to Gabion.
void leveldb_options_set_info_log(leveldb_options_t *options, leveldb_logger_t *info_log);

// Memory for what is not in tables yet: twice as much, as LevelDB has two such buffers.
void leveldb_options_set_write_buffer_size(leveldb_options_t *options, size_t s);

// Says nothing to Gabion.
void leveldb_options_set_max_open_files(leveldb_options_t *options, int n);

// The size of the cache for blocks that are not read in place, those that are compressed.
void leveldb_options_set_cache(leveldb_options_t *options, leveldb_cache_t *cache);

// The size of blocks before compression; Gabion's are 64 to 32,768 bytes.
void leveldb_options_set_block_size(leveldb_options_t *options, size_t s);

// Says nothing to Gabion.
void leveldb_options_set_block_restart_interval(leveldb_options_t *options, int n);

// Says nothing to Gabion.
void leveldb_options_set_max_file_size(leveldb_options_t *options, size_t s);

// How blocks are compressed. Not at all by default.
void leveldb_options_set_compression(leveldb_options_t *options, int t);

// The options that LevelDB has by default.
leveldb_readoptions_t *leveldb_readoptions_create(void);

// Frees options.
void leveldb_readoptions_destroy(leveldb_readoptions_t *options);

// Says nothing to Gabion: blocks are always checked when they are first read.
void leveldb_readoptions_set_verify_checksums(leveldb_readoptions_t *options, uint8_t v);

// Says nothing to Gabion.
void leveldb_readoptions_set_fill_cache(leveldb_readoptions_t *options, uint8_t v);

// The moment that is read; NULL for now.
void leveldb_readoptions_set_snapshot(leveldb_readoptions_t *options,
                                      const leveldb_snapshot_t *snapshot);

// The options that LevelDB has by default.
leveldb_writeoptions_t *leveldb_writeoptions_create(void);

// Frees options.
void leveldb_writeoptions_destroy(leveldb_writeoptions_t *options);

// Whether a write survives a loss of power when it returns. All others survive the death of the
// process, and a loss of power but for the last 100 ms.
void leveldb_writeoptions_set_sync(leveldb_writeoptions_t *options, uint8_t v);

// A comparator of functions of the program's.
leveldb_comparator_t *leveldb_comparator_create(void *state,
                                                void (*destructor)(void *state),
                                                int (*compare)(void *state,
                                                               const char *a,
                                                               size_t alen,
                                                               const char *b,
                                                               size_t blen),
                                                const char *(*name)(void *state));

// Frees a comparator.
void leveldb_comparator_destroy(leveldb_comparator_t *comparator);

// A filter policy of functions of the program's. They are not called, as Gabion has its own
// filters.
leveldb_filterpolicy_t *leveldb_filterpolicy_create(void *state,
                                                    void (*destructor)(void *state),
                                                    char *(*create_filter)(void *state,
                                                                           const char *const *key_array,
                                                                           const size_t *key_length_array,
                                                                           int num_keys,
                                                                           size_t *filter_length),
                                                    uint8_t (*_key_may_match)(void *state,
                                                                              const char *key,
                                                                              size_t length,
                                                                              const char *filter,
                                                                              size_t filter_length),
                                                    const char *(*name)(void *state));

// Frees a filter policy.
void leveldb_filterpolicy_destroy(leveldb_filterpolicy_t *policy);

// Bloom filters with so many bits per key, 32 at most.
leveldb_filterpolicy_t *leveldb_filterpolicy_create_bloom(int bits_per_key);

// A cache of so many bytes. Each store that is opened with it has one of its own.
leveldb_cache_t *leveldb_cache_create_lru(size_t capacity);

// Frees a cache.
void leveldb_cache_destroy(leveldb_cache_t *cache);

// The system's own environment.
leveldb_env_t *leveldb_create_default_env(void);

// Frees an environment.
void leveldb_env_destroy(leveldb_env_t *env);

// A directory for tests, which is there then: that of the variable TEST_TMPDIR, or one below the
// system's directory for temporary files.
char *leveldb_env_get_test_directory(leveldb_env_t *env);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STORAGE_LEVELDB_INCLUDE_C_H_ */
