/* thesis.c: the thesis's interface from C, with pins across replacement and a fork, and wrong arguments. */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define GROUP(call) CHECK_STATUS(DAMELO_EGROUP, call)
#define UNPINNED(call) CHECK_STATUS(DAMELO_ENOTPINNED, call)
#define CLOSED(call) CHECK_STATUS(DAMELO_ECLOSED, call)

static void opens_that_fail(const char *path) {
    damelo_thesis *thesis;
    INVALID(damelo_thesis_open(NULL, 16, 16, &thesis));
    CHECK(thesis == NULL);
    INVALID(damelo_thesis_open("", 16, 16, &thesis));
    INVALID(damelo_thesis_open(path, 16, 0, &thesis));
    INVALID(damelo_thesis_open(path, 16, -128, &thesis));
    INVALID(damelo_thesis_open(path, 16, 16, NULL));
    GROUP(damelo_thesis_open(path, 0, 16, &thesis));
    GROUP(damelo_thesis_open(path, -1, 16, &thesis));
    OK(damelo_thesis_close(NULL));
}

static void pins(damelo_thesis *thesis) {
    char *old_data, *new_data, *same_data;
    int length = 0;

    OK(damelo_thesis_create(thesis, "page", 2, "old page", 8));
    OK(damelo_thesis_read(thesis, "page", 2, &old_data, &length));
    CHECK(length == 8);
    OK(damelo_thesis_read(thesis, "page", 2, &same_data, &length));
    CHECK(same_data == old_data);
    OK(damelo_thesis_create(thesis, "page", 2, "new page!", 9));
    OK(damelo_thesis_read(thesis, "page", 2, &new_data, &length));
    CHECK(length == 9 && memcmp(new_data, "new page!", 9) == 0);

    /* Which version a release means is not known: both stay until the last one. */
    OK(damelo_thesis_release(thesis, "page", 2));
    OK(damelo_thesis_remove(thesis, "page", 2));
    OK(damelo_thesis_release(thesis, "page", 2));
    CHECK(memcmp(old_data, "old page", 8) == 0);
    CHECK(memcmp(new_data, "new page!", 9) == 0);
    OK(damelo_thesis_release(thesis, "page", 2));
    UNPINNED(damelo_thesis_release(thesis, "page", 2));
    UNPINNED(damelo_thesis_release(thesis, "never read", 2));
}

static void groups(damelo_thesis *thesis) {
    char *data;
    int length, group;

    OK(damelo_thesis_create(thesis, "a", 16, "x", 1));
    OK(damelo_thesis_lookup(thesis, "a", &group));
    CHECK(group == 16);
    MISSING(damelo_thesis_read(thesis, "a", 1, &data, &length));
    CHECK(data == NULL && length == 0);
    MISSING(damelo_thesis_remove(thesis, "a", 1));
    GROUP(damelo_thesis_create(thesis, "a", 0, "x", 1));
    GROUP(damelo_thesis_create(thesis, "a", 17, "x", 1));
    GROUP(damelo_thesis_create(thesis, "a", -1, "x", 1));
    GROUP(damelo_thesis_read(thesis, "a", 17, &data, &length));
    GROUP(damelo_thesis_release(thesis, "a", 17));
    GROUP(damelo_thesis_remove(thesis, "a", 17));
    GROUP(damelo_thesis_love(thesis, 0));
    GROUP(damelo_thesis_hate(thesis, 17));
    GROUP(damelo_thesis_set_checkpoint(thesis, 0, 1));
    OK(damelo_thesis_love(thesis, 1));
    OK(damelo_thesis_hate(thesis, 16));
    OK(damelo_thesis_set_checkpoint(thesis, 1, 30));
    OK(damelo_thesis_set_checkpoint(thesis, 1, 0));
    INVALID(damelo_thesis_set_checkpoint(thesis, 1, -1));
    OK(damelo_thesis_remove(thesis, "a", 16));
    MISSING(damelo_thesis_lookup(thesis, "a", &group));
    CHECK(group == 0);
    MISSING(damelo_thesis_remove(thesis, "a", 16));
}

static void wrong_arguments(damelo_thesis *thesis) {
    char *data;
    int length, group;
    INVALID(damelo_thesis_create(NULL, "a", 1, "x", 1));
    INVALID(damelo_thesis_create(thesis, NULL, 1, "x", 1));
    INVALID(damelo_thesis_create(thesis, "a", 1, NULL, 1));
    INVALID(damelo_thesis_create(thesis, "a", 1, "x", -1));
    CHECK_STATUS(DAMELO_EKEY, damelo_thesis_create(thesis, "", 1, "x", 1));
    INVALID(damelo_thesis_lookup(NULL, "a", &group));
    INVALID(damelo_thesis_lookup(thesis, NULL, &group));
    INVALID(damelo_thesis_lookup(thesis, "a", NULL));
    INVALID(damelo_thesis_read(NULL, "a", 1, &data, &length));
    INVALID(damelo_thesis_read(thesis, NULL, 1, &data, &length));
    INVALID(damelo_thesis_read(thesis, "a", 1, NULL, &length));
    INVALID(damelo_thesis_read(thesis, "a", 1, &data, NULL));
    INVALID(damelo_thesis_release(NULL, "a", 1));
    INVALID(damelo_thesis_release(thesis, NULL, 1));
    INVALID(damelo_thesis_remove(NULL, "a", 1));
    INVALID(damelo_thesis_remove(thesis, NULL, 1));
    INVALID(damelo_thesis_love(NULL, 1));
    INVALID(damelo_thesis_hate(NULL, 1));
    INVALID(damelo_thesis_set_checkpoint(NULL, 1, 1));
}

/* In a child the store is closed, and its lock on the pins may be one that nobody gives back. */
static void in_a_child(damelo_thesis *thesis) {
    char *data;
    int length, group, status = -1;
    pid_t child;

    OK(damelo_thesis_create(thesis, "shared", 3, "value", 5));
    OK(damelo_thesis_read(thesis, "shared", 3, &data, &length));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(memcmp(data, "value", 5) == 0);
        CLOSED(damelo_thesis_create(thesis, "shared", 3, "child", 5));
        CLOSED(damelo_thesis_lookup(thesis, "shared", &group));
        CLOSED(damelo_thesis_read(thesis, "shared", 3, &data, &length));
        CLOSED(damelo_thesis_remove(thesis, "shared", 3));
        CLOSED(damelo_thesis_release(thesis, "shared", 3));
        CLOSED(damelo_thesis_close(thesis));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(damelo_thesis_release(thesis, "shared", 3));
}

int main(int argc, char **argv) {
    const char *path = path_in(directory_of(argc, argv), "raw4");
    damelo_thesis *thesis = NULL;
    char *data;
    int length;

    /* The test says DAMELO_VOLUME_SIZE: the volume is made by the first open. */
    opens_that_fail(path);
    OK(damelo_thesis_open(path, 16, 16, &thesis));
    pins(thesis);
    groups(thesis);
    wrong_arguments(thesis);
    in_a_child(thesis);
    OK(damelo_thesis_create(thesis, "empty", 1, NULL, 0));
    OK(damelo_thesis_read(thesis, "empty", 1, &data, &length));
    CHECK(data != NULL && length == 0);
    OK(damelo_thesis_close(thesis)); /* with an object still being read */
    return 0;
}
