/* threads.c: one store used by several threads at once; objects released by another thread. */
#include <pthread.h>

#include "check.h"

#define THREADS 4
#define ROUNDS 500

static damelo_store *store;

/* Each thread writes and reads its own keys and one that all share; values tell their writer. */
static void *work(void *argument) {
    unsigned char mine = *(unsigned char *)argument;
    unsigned char value[2000];
    char key[32];
    int round;
    for (round = 0; round < ROUNDS; round++) {
        damelo_object *object;
        const unsigned char *data;
        memset(value, mine, sizeof value);
        snprintf(key, sizeof key, "%d of %d", round % 50, mine);
        OK(damelo_create(store, key, strlen(key), mine, value, sizeof value));
        OK(damelo_create(store, LIT("shared"), 9, value, sizeof value));
        OK(damelo_read(store, key, strlen(key), &object));
        CHECK(memcmp(damelo_object_data(object), value, sizeof value) == 0);
        damelo_object_release(object);
        OK(damelo_read(store, LIT("shared"), &object));
        data = damelo_object_data(object);
        memset(value, data[0], sizeof value);
        CHECK(memcmp(data, value, sizeof value) == 0);
        damelo_object_release(object);
    }
    return NULL;
}

static void *release(void *object) {
    damelo_object_release(object);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    unsigned char numbers[THREADS];
    damelo_object *object;
    int i;

    store = open_small(directory_of(argc, argv));
    for (i = 0; i < THREADS; i++) {
        numbers[i] = (unsigned char)(i + 1);
        CHECK(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
    }
    for (i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    OK(damelo_read(store, LIT("shared"), &object));
    CHECK(pthread_create(&threads[0], NULL, release, object) == 0);
    CHECK(pthread_join(threads[0], NULL) == 0);
    OK(damelo_close(store));
    return 0;
}
