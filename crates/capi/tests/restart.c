/* restart.c: what was created is there after closing and opening again; deletes hold. */
#include "check.h"

#define OBJECTS 500

static void fill(damelo_store *store) {
    char key[32], value[3000];
    int i;
    for (i = 0; i < OBJECTS; i++) {
        snprintf(key, sizeof key, "object %d", i);
        memset(value, 'a' + i % 26, sizeof value);
        OK(damelo_create(store, key, strlen(key), (uint64_t)(i % 7), value, sizeof value));
    }
    OK(damelo_remove(store, LIT("object 3")));
    OK(damelo_purge_group(store, 6));
}

static void verify(damelo_store *store) {
    char key[32];
    damelo_object *object;
    int i;
    size_t at;
    for (i = 0; i < OBJECTS; i++) {
        const char *data;
        snprintf(key, sizeof key, "object %d", i);
        if (i == 3 || i % 7 == 6) {
            MISSING(damelo_read(store, key, strlen(key), &object));
            continue;
        }
        OK(damelo_read(store, key, strlen(key), &object));
        CHECK(damelo_object_length(object) == 3000);
        CHECK(damelo_object_group(object) == (uint64_t)(i % 7));
        data = damelo_object_data(object);
        for (at = 0; at < 3000; at++) {
            CHECK(data[at] == 'a' + i % 26);
        }
        damelo_object_release(object);
    }
}

int main(int argc, char **argv) {
    const char *directory = directory_of(argc, argv);
    damelo_store *store = open_small(directory);
    damelo_store_info info;
    damelo_object *object;

    fill(store);
    verify(store);
    OK(damelo_sync(store));
    OK(damelo_drop_memory(store));
    verify(store);
    OK(damelo_close(store));

    store = open_small(directory);
    OK(damelo_get_store_info(store, &info));
    CHECK(info.created == 0);
    OK(damelo_wait_recovered(store));
    OK(damelo_read(store, LIT("object 1"), &object));
    CHECK(damelo_object_from_memory(object) == 0);
    damelo_object_release(object);
    verify(store);
    OK(damelo_close(store));
    return 0;
}
