/*
 * thesis_class.cpp: the class of the thesis, every method with its result; and the steps of the
 * thesis's code fragment with their results checked, which the fragment itself does not do.
 */
#include "damelo.hpp"

#include "check.h"

static void fragment(Damelo &damelo) {
    char name[20];
    char data_in[100];
    char *data_out = 0;
    int group = 0, length = 0;

    std::sprintf(name, "somefile.gif");
    std::memset(data_in, 'a', sizeof data_in);
    OK(damelo.love(3));
    OK(damelo.create(name, 3, data_in, 100));
    OK(damelo.lookup(name, group));
    CHECK(group == 3);
    OK(damelo.read(name, group, data_out, length));
    CHECK(length == 100 && std::memcmp(data_out, data_in, 100) == 0);
    OK(damelo.release(name, group));
    OK(damelo.hate(group));
    OK(damelo.remove(name, group));
    MISSING(damelo.lookup(name, group));
    CHECK(group == 0);
    OK(damelo.setCheckpoint(3, 60));
    CHECK_STATUS(DAMELO_EGROUP, damelo.love(17));
    damelo.perror(const_cast<char *>("thesis"), damelo.love(17));
}

/* Without a store every method gives the result of the constructor, and none crashes. */
static void without_store(const char *directory) {
    Status status = 0;
    char *data = const_cast<char *>("");
    int group = 5, length = 5;
    Damelo damelo(directory, 16, 16, status);

    CHECK_STATUS(DAMELO_EOPEN, status);
    CHECK_STATUS(DAMELO_EOPEN, damelo.create("a", 1, "x", 1));
    CHECK_STATUS(DAMELO_EOPEN, damelo.lookup("a", group));
    CHECK_STATUS(DAMELO_EOPEN, damelo.read("a", 1, data, length));
    CHECK(group == 0 && data == 0 && length == 0);
    CHECK_STATUS(DAMELO_EOPEN, damelo.release("a", 1));
    CHECK_STATUS(DAMELO_EOPEN, damelo.remove("a", 1));
    CHECK_STATUS(DAMELO_EOPEN, damelo.love(1));
    CHECK_STATUS(DAMELO_EOPEN, damelo.hate(1));
    CHECK_STATUS(DAMELO_EOPEN, damelo.setCheckpoint(1, 1));
}

int main(int argc, char **argv) {
    const char *directory = directory_of(argc, argv);
    Status status = -1;
    Damelo *damelo = new Damelo(path_in(directory, "raw4"), 16, 16, status);
    OK(status);
    fragment(*damelo);
    delete damelo;
    without_store(directory);
    return 0;
}
