/* groups.c: hints, prefetch, statistics and purges. */
#include "check.h"

static void hints(damelo_store *store) {
    damelo_group_stats stats;
    uint64_t pages = 0, bytes = 0;

    OK(damelo_create(store, LIT("one"), 3, LIT("12345")));
    OK(damelo_create(store, LIT("two"), 3, LIT("12345")));
    OK(damelo_love(store, 3));
    OK(damelo_get_group_stats(store, 3, &stats));
    CHECK(stats.objects_created == 2);
    CHECK(stats.bytes_created == 10);
    CHECK(stats.hint == DAMELO_HINT_LOVED);
    OK(damelo_hate(store, 3));
    OK(damelo_get_group_stats(store, 3, &stats));
    CHECK(stats.hint == DAMELO_HINT_HATED);
    OK(damelo_neutral(store, 3));
    OK(damelo_get_group_stats(store, 3, &stats));
    CHECK(stats.hint == DAMELO_HINT_NEUTRAL);
    OK(damelo_sync(store));
    OK(damelo_prefetch(store, 3, &pages, &bytes));
    OK(damelo_prefetch(store, 3, NULL, NULL));
    MISSING(damelo_get_group_stats(store, 999, &stats));
    CHECK(stats.objects_created == 0);
}

static void purges(damelo_store *store) {
    damelo_info info;
    OK(damelo_create(store, LIT("img/1"), 4, LIT("x")));
    OK(damelo_create(store, LIT("img/2"), 5, LIT("x")));
    OK(damelo_create(store, LIT("css/1"), 5, LIT("x")));
    OK(damelo_create(store, LIT("js/1"), 6, LIT("x")));
    OK(damelo_purge_group(store, 4));
    MISSING(damelo_lookup(store, LIT("img/1"), &info));
    OK(damelo_lookup(store, LIT("img/2"), &info));
    OK(damelo_purge_prefix(store, LIT("img/")));
    MISSING(damelo_lookup(store, LIT("img/2"), &info));
    OK(damelo_lookup(store, LIT("css/1"), &info));
    OK(damelo_purge_all(store));
    MISSING(damelo_lookup(store, LIT("css/1"), &info));
    MISSING(damelo_lookup(store, LIT("js/1"), &info));
    OK(damelo_create(store, LIT("img/1"), 4, LIT("y")));
    OK(damelo_lookup(store, LIT("img/1"), &info));
}

static void wrong_arguments(damelo_store *store) {
    static const char prefix[8193] = "longer than a prefix may be";
    damelo_group_stats stats;
    damelo_info info;
    INVALID(damelo_love(NULL, 1));
    INVALID(damelo_hate(NULL, 1));
    INVALID(damelo_neutral(NULL, 1));
    INVALID(damelo_prefetch(NULL, 1, NULL, NULL));
    INVALID(damelo_get_group_stats(NULL, 1, &stats));
    INVALID(damelo_get_group_stats(store, 1, NULL));
    INVALID(damelo_purge_group(NULL, 1));
    INVALID(damelo_purge_prefix(NULL, LIT("x")));
    INVALID(damelo_purge_prefix(store, NULL, 1));
    CHECK_STATUS(DAMELO_EKEY, damelo_purge_prefix(store, NULL, 0));
    OK(damelo_create(store, prefix, sizeof prefix, 4, LIT("x")));
    CHECK_STATUS(DAMELO_EKEY, damelo_purge_prefix(store, prefix, sizeof prefix));
    OK(damelo_lookup(store, prefix, sizeof prefix, &info));
    OK(damelo_purge_prefix(store, prefix, sizeof prefix - 1));
    MISSING(damelo_lookup(store, prefix, sizeof prefix, &info));
    INVALID(damelo_purge_all(NULL));
    CHECK(damelo_group_of(NULL, 4) == 0);
    CHECK(damelo_group_of(NULL, 0) == damelo_group_of("", 0));
    CHECK(damelo_group_of(NULL, 0) != 0);
    CHECK(damelo_group_of(LIT("example.org")) == damelo_group_of(LIT("example.org")));
    CHECK(damelo_group_of(LIT("example.org")) != damelo_group_of(LIT("example.com")));
}

int main(int argc, char **argv) {
    damelo_store *store = open_small(directory_of(argc, argv));
    hints(store);
    purges(store);
    wrong_arguments(store);
    OK(damelo_close(store));
    return 0;
}
