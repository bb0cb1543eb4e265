/* objects.c: create, read, ranges, lookup, metadata and remove; also with wrong arguments. */
#include "check.h"

static char long_key[70000];

static void whole_objects(damelo_store *store) {
    damelo_object *object = NULL;
    damelo_object *second;
    size_t length = 0;

    OK(damelo_create_with(store, LIT("a\0b"), 5, LIT("hello"), LIT("type: text"), 0));
    OK(damelo_read(store, LIT("a\0b"), &object));
    CHECK(damelo_object_length(object) == 5);
    CHECK(memcmp(damelo_object_data(object), "hello", 5) == 0);
    CHECK(memcmp(damelo_object_metadata(object, &length), "type: text", 10) == 0);
    CHECK(length == 10);
    CHECK(memcmp(damelo_object_key(object, &length), "a\0b", 3) == 0);
    CHECK(length == 3);
    CHECK(damelo_object_key(object, NULL) != NULL);
    CHECK(damelo_object_group(object) == 5);
    CHECK(damelo_object_expires(object) == 0);
    CHECK(damelo_object_from_memory(object) == 1);

    /* Who has the old one keeps it. */
    second = damelo_object_clone(object);
    CHECK(second != NULL);
    damelo_object_release(object);
    OK(damelo_create(store, LIT("a\0b"), 6, LIT("goodbye")));
    CHECK(memcmp(damelo_object_data(second), "hello", 5) == 0);
    damelo_object_release(second);
    OK(damelo_read(store, LIT("a\0b"), &object));
    CHECK(damelo_object_length(object) == 7);
    CHECK(damelo_object_group(object) == 6);
    OK(damelo_remove(store, LIT("a\0b")));
    CHECK(memcmp(damelo_object_data(object), "goodbye", 7) == 0);
    damelo_object_release(object);
    MISSING(damelo_read(store, LIT("a\0b"), &object));
    CHECK(object == NULL);

    OK(damelo_create(store, LIT("empty"), 5, NULL, 0));
    OK(damelo_read(store, LIT("empty"), &object));
    CHECK(damelo_object_length(object) == 0);
    CHECK(damelo_object_data(object) != NULL);
    damelo_object_release(object);

    OK(damelo_create_with(store, LIT("late"), 5, LIT("x"), NULL, 0, 4102444800u));
    OK(damelo_read(store, LIT("late"), &object));
    CHECK(damelo_object_expires(object) == 4102444800u);
    damelo_object_release(object);
    OK(damelo_create_with(store, LIT("late"), 5, LIT("x"), NULL, 0, 1));
    MISSING(damelo_read(store, LIT("late"), &object));
}

static void whole_objects_wrong(damelo_store *store) {
    damelo_object *object = NULL;
    size_t length = 1;
    char *large = malloc(1 << 20);

    CHECK(large != NULL);
    memset(large, 0, 1 << 20);
    INVALID(damelo_create(NULL, LIT("key"), 1, LIT("value")));
    INVALID(damelo_create(store, NULL, 3, 1, LIT("value")));
    INVALID(damelo_create(store, LIT("key"), 1, NULL, 5));
    INVALID(damelo_create(store, LIT("key"), 1, "value", (size_t)-1));
    CHECK_STATUS(DAMELO_EKEY, damelo_create(store, NULL, 0, 1, LIT("value")));
    CHECK_STATUS(DAMELO_EKEY, damelo_create(store, long_key, sizeof long_key, 1, LIT("value")));
    INVALID(damelo_create_with(NULL, LIT("key"), 1, LIT("value"), NULL, 0, 0));
    INVALID(damelo_create_with(store, NULL, 3, 1, LIT("value"), NULL, 0, 0));
    INVALID(damelo_create_with(store, LIT("key"), 1, NULL, 5, NULL, 0, 0));
    INVALID(damelo_create_with(store, LIT("key"), 1, LIT("value"), NULL, 4, 0));
    CHECK_STATUS(DAMELO_EMETADATA,
                 damelo_create_with(store, LIT("key"), 1, LIT("v"), large, 1 << 20, 0));
    free(large);
    INVALID(damelo_read(NULL, LIT("key"), &object));
    INVALID(damelo_read(store, NULL, 3, &object));
    INVALID(damelo_read(store, LIT("key"), NULL));
    MISSING(damelo_read(store, LIT("key"), &object));
    INVALID(damelo_remove(NULL, LIT("key")));
    INVALID(damelo_remove(store, NULL, 3));
    MISSING(damelo_remove(store, LIT("never there")));

    CHECK(damelo_object_data(NULL) == NULL);
    CHECK(damelo_object_length(NULL) == 0);
    CHECK(damelo_object_key(NULL, &length) == NULL && length == 0);
    length = 1;
    CHECK(damelo_object_metadata(NULL, &length) == NULL && length == 0);
    CHECK(damelo_object_group(NULL) == 0);
    CHECK(damelo_object_expires(NULL) == 0);
    CHECK(damelo_object_from_memory(NULL) == 0);
    CHECK(damelo_object_clone(NULL) == NULL);
    damelo_object_release(NULL);
}

static void ranges(damelo_store *store) {
    damelo_range *range = NULL;
    size_t length = 0;

    OK(damelo_create_with(store, LIT("digits"), 5, LIT("0123456789"), LIT("meta"), 0));
    OK(damelo_read_range(store, LIT("digits"), 3, 4, &range));
    CHECK(damelo_range_length(range) == 4);
    CHECK(memcmp(damelo_range_data(range), "3456", 4) == 0);
    CHECK(damelo_range_offset(range) == 3);
    CHECK(damelo_range_object_length(range) == 10);
    CHECK(memcmp(damelo_range_metadata(range, &length), "meta", 4) == 0 && length == 4);
    damelo_range_release(range);
    OK(damelo_read_range(store, LIT("digits"), 8, UINT64_MAX, &range));
    CHECK(damelo_range_length(range) == 2);
    damelo_range_release(range);
    OK(damelo_read_range(store, LIT("digits"), 99, 1, &range));
    CHECK(damelo_range_length(range) == 0);
    damelo_range_release(range);

    MISSING(damelo_read_range(store, LIT("never there"), 0, 1, &range));
    CHECK(range == NULL);
    INVALID(damelo_read_range(NULL, LIT("digits"), 0, 1, &range));
    INVALID(damelo_read_range(store, NULL, 6, 0, 1, &range));
    INVALID(damelo_read_range(store, LIT("digits"), 0, 1, NULL));
    CHECK(damelo_range_data(NULL) == NULL);
    CHECK(damelo_range_length(NULL) == 0);
    CHECK(damelo_range_offset(NULL) == 0);
    CHECK(damelo_range_object_length(NULL) == 0);
    CHECK(damelo_range_metadata(NULL, &length) == NULL && length == 0);
    damelo_range_release(NULL);
}

static void information(damelo_store *store) {
    damelo_info info;
    uint64_t length = 1;
    int contained = 0;

    OK(damelo_create_with(store, LIT("known"), 9, LIT("12345"), LIT("abc"), 4102444800u));
    OK(damelo_lookup(store, LIT("known"), &info));
    CHECK(info.group == 9 && info.length_bytes == 5 && info.metadata_bytes == 3);
    CHECK(info.expires_unix_s == 4102444800u && info.resident == 1);
    OK(damelo_length(store, LIT("known"), &length));
    CHECK(length == 5);
    OK(damelo_may_contain(store, LIT("known"), &contained));
    CHECK(contained == 1);
    OK(damelo_may_contain(store, LIT("never there"), &contained));

    MISSING(damelo_lookup(store, LIT("never there"), &info));
    CHECK(info.group == 0 && info.length_bytes == 0);
    MISSING(damelo_length(store, LIT("never there"), &length));
    CHECK(length == 0);
    INVALID(damelo_lookup(NULL, LIT("known"), &info));
    INVALID(damelo_lookup(store, NULL, 5, &info));
    INVALID(damelo_lookup(store, LIT("known"), NULL));
    INVALID(damelo_length(NULL, LIT("known"), &length));
    INVALID(damelo_length(store, NULL, 5, &length));
    INVALID(damelo_length(store, LIT("known"), NULL));
    INVALID(damelo_may_contain(NULL, LIT("known"), &contained));
    INVALID(damelo_may_contain(store, NULL, 5, &contained));
    INVALID(damelo_may_contain(store, LIT("known"), NULL));
}

static void metadata(damelo_store *store) {
    char buffer[8];
    damelo_info info;
    size_t length = 0;

    OK(damelo_create_with(store, LIT("meta"), 5, LIT("value"), LIT("first"), 0));
    OK(damelo_get_metadata(store, LIT("meta"), buffer, sizeof buffer, &length));
    CHECK(length == 5 && memcmp(buffer, "first", 5) == 0);
    OK(damelo_set_metadata(store, LIT("meta"), LIT("second one")));
    CHECK_STATUS(DAMELO_EBUFFER,
                 damelo_get_metadata(store, LIT("meta"), buffer, sizeof buffer, &length));
    CHECK(length == 10 && memcmp(buffer, "first", 5) == 0);
    CHECK_STATUS(DAMELO_EBUFFER, damelo_get_metadata(store, LIT("meta"), NULL, 0, &length));
    CHECK(length == 10);
    OK(damelo_set_metadata(store, LIT("meta"), NULL, 0));
    OK(damelo_get_metadata(store, LIT("meta"), NULL, 0, &length));
    CHECK(length == 0);

    MISSING(damelo_get_metadata(store, LIT("never there"), buffer, 8, &length));
    MISSING(damelo_set_metadata(store, LIT("never there"), LIT("x")));
    INVALID(damelo_get_metadata(NULL, LIT("meta"), buffer, 8, &length));
    INVALID(damelo_get_metadata(store, NULL, 4, buffer, 8, &length));
    INVALID(damelo_get_metadata(store, LIT("meta"), NULL, 8, &length));
    INVALID(damelo_get_metadata(store, LIT("meta"), buffer, 8, NULL));
    INVALID(damelo_set_metadata(NULL, LIT("meta"), LIT("x")));
    INVALID(damelo_set_metadata(store, NULL, 4, LIT("x")));
    INVALID(damelo_set_metadata(store, LIT("meta"), NULL, 1));

    OK(damelo_set_metadata_with(store, LIT("meta"), LIT("third"), 4102444800u));
    OK(damelo_lookup(store, LIT("meta"), &info));
    CHECK(info.expires_unix_s == 4102444800u && info.metadata_bytes == 5);
    OK(damelo_set_metadata_with(store, LIT("meta"), LIT("past"), 1));
    MISSING(damelo_lookup(store, LIT("meta"), &info));
    MISSING(damelo_set_metadata_with(store, LIT("meta"), LIT("back"), 0));
    INVALID(damelo_set_metadata_with(NULL, LIT("meta"), LIT("x"), 0));
}

/* New metadata of a large object refers to where its value lies on disk, and nobody waits here for
 * it to get there. */
static void metadata_too_soon(const char *directory) {
    static const char value[40000];
    damelo_store *store = NULL;
    damelo_options *options = damelo_options_new(path_in(directory, "slow"), VOLUME_BYTES);
    OK(damelo_options_set_memory(options, MEMORY_BYTES));
    OK(damelo_options_set_flush_period(options, 0));
    OK(damelo_options_set_when_memory_full(options, DAMELO_MEMORY_FULL_WAIT, 0));
    OK(damelo_open(options, &store));
    damelo_options_free(options);
    OK(damelo_create(store, LIT("large"), 1, value, sizeof value));
    CHECK_STATUS(DAMELO_EWRITING, damelo_set_metadata(store, LIT("large"), LIT("new")));
    OK(damelo_sync(store));
    OK(damelo_set_metadata(store, LIT("large"), LIT("new")));
    OK(damelo_close(store));
}

int main(int argc, char **argv) {
    damelo_store *store = open_small(directory_of(argc, argv));
    damelo_object *object = NULL;

    whole_objects(store);
    whole_objects_wrong(store);
    ranges(store);
    information(store);
    metadata(store);
    metadata_too_soon(directory_of(argc, argv));

    /* A pinned object outlives its store. */
    OK(damelo_read(store, LIT("digits"), &object));
    OK(damelo_close(store));
    CHECK(memcmp(damelo_object_data(object), "0123456789", 10) == 0);
    damelo_object_release(object);
    return 0;
}
