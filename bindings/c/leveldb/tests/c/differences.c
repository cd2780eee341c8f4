// What differs from LevelDB, and what LevelDB's own test leaves out: orders of keys, snapshots that
// were released, limits, errors that follow each other, and a repair of a damaged store.
//
// Usage: differences DIRECTORY

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <leveldb/c.h>

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, err ? err : "no error");   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static char *err;
static int destroyed;

static void expect_error(int line, const char *part) {
    if (err == NULL || strstr(err, part) == NULL) {
        fprintf(stderr, "line %d: %s\n", line, err == NULL ? "no error" : err);
        exit(1);
    }
    leveldb_free(err);
    err = NULL;
}

static void destroy_state(void *state) {
    EXPECT(state == &destroyed);
    destroyed++;
}

static int compare_bytes(void *state, const char *a, size_t alen, const char *b, size_t blen) {
    EXPECT(state == &destroyed);
    int order = memcmp(a, b, alen < blen ? alen : blen);
    return order != 0 ? order : (alen > blen) - (alen < blen);
}

static int compare_backward(void *state, const char *a, size_t alen, const char *b, size_t blen) {
    return compare_bytes(state, b, blen, a, alen);
}

// As numbers of eight bytes, lowest byte first; others as bytes.
static int compare_numbers(void *state, const char *a, size_t alen, const char *b, size_t blen) {
    if (alen == 8 && blen == 8) {
        for (size_t at = 8; at-- > 0;) {
            int order = (unsigned char)a[at] - (unsigned char)b[at];
            if (order != 0) {
                return order;
            }
        }
        return 0;
    }
    return compare_bytes(state, a, alen, b, blen);
}

static const char *name_of(void *state) {
    (void)state;
    return "an order";
}

static char *make_filter(void *state, const char *const *keys, const size_t *lens, int count,
                         size_t *len) {
    (void)state, (void)keys, (void)lens, (void)count;
    *len = 0;
    return malloc(1);
}

static unsigned char match_nothing(void *state, const char *key, size_t len, const char *filter,
                                   size_t filter_len) {
    (void)state, (void)key, (void)len, (void)filter, (void)filter_len;
    return 0;
}

static void orders(const char *path) {
    typedef int (*compare)(void *, const char *, size_t, const char *, size_t);
    const compare refused[] = {compare_backward, compare_numbers};
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, 1);
    for (int number = 0; number < 2; number++) {
        leveldb_comparator_t *order =
            leveldb_comparator_create(&destroyed, destroy_state, refused[number], name_of);
        leveldb_options_set_comparator(options, order);
        EXPECT(leveldb_open(options, path, &err) == NULL);
        expect_error(__LINE__, "an order does not order keys by their bytes");
        leveldb_comparator_destroy(order);
        EXPECT(destroyed == number + 1);
    }
    leveldb_comparator_t *order =
        leveldb_comparator_create(&destroyed, destroy_state, compare_bytes, name_of);
    leveldb_options_set_comparator(options, order);
    leveldb_t *db = leveldb_open(options, path, &err);
    EXPECT(db != NULL && err == NULL);
    leveldb_close(db);
    leveldb_options_destroy(options);
    leveldb_comparator_destroy(order);
}

static void reads(const char *path) {
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_compression(options, leveldb_snappy_compression);
    leveldb_options_set_block_size(options, 1 << 20);
    leveldb_filterpolicy_t *policy = leveldb_filterpolicy_create(
        &destroyed, destroy_state, make_filter, match_nothing, name_of);
    leveldb_options_set_filter_policy(options, policy);
    leveldb_t *db = leveldb_open(options, path, &err);
    EXPECT(db != NULL);
    leveldb_writeoptions_t *write = leveldb_writeoptions_create();
    leveldb_readoptions_t *read = leveldb_readoptions_create();
    leveldb_put(db, write, "a", 1, "1", 1, &err);
    leveldb_put(db, write, "b", 1, "", 0, &err);
    leveldb_compact_range(db, NULL, 0, NULL, 0);
    size_t len = 7;
    // A policy of the program's own hides nothing.
    char *value = leveldb_get(db, read, "a", 1, &len, &err);
    EXPECT(value != NULL && len == 1 && err == NULL);
    leveldb_free(value);
    value = leveldb_get(db, read, "b", 1, &len, &err);
    EXPECT(value != NULL && len == 0);
    leveldb_free(value);

    leveldb_put(db, write, "a", (size_t)1 << 40, "1", 1, &err);
    EXPECT(err != NULL && strstr(err, "limit is 65535") != NULL);
    // Another error takes the place of the first one.
    leveldb_get(NULL, read, "a", 1, &len, &err);
    expect_error(__LINE__, "NULL");

    const leveldb_snapshot_t *moment = leveldb_create_snapshot(db);
    leveldb_readoptions_set_snapshot(read, moment);
    leveldb_delete(db, write, "a", 1, &err);
    leveldb_iterator_t *iterator = leveldb_create_iterator(db, read);
    leveldb_release_snapshot(db, moment);
    value = leveldb_get(db, read, "a", 1, &len, &err);
    EXPECT(value == NULL);
    expect_error(__LINE__, "was released");
    leveldb_iterator_t *late = leveldb_create_iterator(db, read);
    leveldb_iter_seek_to_first(late);
    EXPECT(!leveldb_iter_valid(late) && leveldb_iter_key(late, &len) == NULL);
    leveldb_iter_get_error(late, &err);
    expect_error(__LINE__, "was released");
    leveldb_iter_destroy(late);
    leveldb_iter_seek_to_first(iterator);
    EXPECT(leveldb_iter_valid(iterator) && *leveldb_iter_key(iterator, &len) == 'a');
    leveldb_iter_destroy(iterator);

    char *files = leveldb_property_value(db, "leveldb.num-files-at-level0");
    char *memory = leveldb_property_value(db, "leveldb.approximate-memory-usage");
    EXPECT(files != NULL && memory != NULL && atol(memory) > 0);
    leveldb_free(files);
    leveldb_free(memory);
    leveldb_close(db);
    leveldb_options_destroy(options);
    leveldb_filterpolicy_destroy(policy);
    leveldb_readoptions_destroy(read);
    leveldb_writeoptions_destroy(write);
}

// Overwrites bytes of all tables of a store.
static void damage(const char *path) {
    char command[8192];
    snprintf(command, sizeof command,
             "for table in '%s'/*.tbl; do printf xxxxxxxx | dd of=\"$table\" bs=1 seek=64 "
             "conv=notrunc 2> /dev/null || exit 1; done",
             path);
    EXPECT(system(command) == 0);
}

static void repairs(const char *path) {
    leveldb_options_t *options = leveldb_options_create();
    leveldb_repair_db(options, "no such directory", &err);
    expect_error(__LINE__, "no such directory");
    damage(path);
    leveldb_repair_db(options, path, &err);
    EXPECT(err == NULL);
    leveldb_t *db = leveldb_open(options, path, &err);
    EXPECT(db != NULL);
    leveldb_close(db);
    char beside[4096];
    EXPECT(snprintf(beside, sizeof beside, "%s.damaged", path) < (int)sizeof beside);
    FILE *directory = fopen(beside, "r");
    EXPECT(directory != NULL);
    fclose(directory);
    leveldb_destroy_db(options, path, &err);
    EXPECT(err == NULL && leveldb_open(options, path, &err) == NULL);
    leveldb_free(err);
    leveldb_options_destroy(options);
}

int main(int argc, char **argv) {
    EXPECT(argc == 2);
    orders(argv[1]);
    reads(argv[1]);
    repairs(argv[1]);
    return 0;
}
