/*
 * damelo.hpp: the class of the Damelo thesis (2000, section 3 and appendix 9.2), over damelo.h.
 *
 * Names, parameters and the meaning of results are the thesis's: 0 is success, any other number can
 * be given to perror(). Groups are numbered from 1 to the count given to the constructor. One object
 * of this class may be used by any number of threads; its destruction must be the last use.
 *
 * <cstdio> and <cstring> are included because the thesis's code fragment uses sprintf and memset
 * without naming their headers, as compilers of its time permitted.
 */
#ifndef DAMELO_HPP
#define DAMELO_HPP

#include <cstdio>
#include <cstring>

#include "damelo.h"

class Damelo {
public:
    /* Opens the store at `path`, a raw device or a file, with `memory_mb` MiB of memory. The
     * environment variables DAMELO_VOLUME and DAMELO_VOLUME_SIZE may name another volume and the
     * size to make it. On failure `status` is not 0, and so is the result of every method. */
    Damelo(const char *path, int group_count, int memory_mb, int &status)
        : thesis_(0), status_(damelo_thesis_open(path, group_count, memory_mb, &thesis_)) {
        status = status_;
    }

    /* Writes out everything. Pointers from read() that were not released become invalid. */
    ~Damelo() {
        damelo_thesis_close(thesis_);
    }

    /* Copies `length` bytes into the group. An existing object of this name is replaced. */
    int create(const char *name, int group, const char *data, int length) {
        return thesis_ ? damelo_thesis_create(thesis_, name, group, data, length) : status_;
    }

    /* Finds the object's group; 0 if there is no such object. */
    int lookup(const char *name, int &group) {
        group = 0;
        return thesis_ ? damelo_thesis_lookup(thesis_, name, &group) : status_;
    }

    /* Gives a pointer into the store's memory, good until release(). Not to be written to. */
    int read(const char *name, int group, char *&data, int &length) {
        data = 0;
        length = 0;
        return thesis_ ? damelo_thesis_read(thesis_, name, group, &data, &length) : status_;
    }

    /* Ends one read(). */
    int release(const char *name, int group) {
        return thesis_ ? damelo_thesis_release(thesis_, name, group) : status_;
    }

    /* Deletes the object; who has it from read() keeps it until release(). */
    int remove(const char *name, int group) {
        return thesis_ ? damelo_thesis_remove(thesis_, name, group) : status_;
    }

    /* Keep the group's objects in memory. */
    int love(int group) {
        return thesis_ ? damelo_thesis_love(thesis_, group) : status_;
    }

    /* Let the group's objects go first. */
    int hate(int group) {
        return thesis_ ? damelo_thesis_hate(thesis_, group) : status_;
    }

    /* Seconds for which the group's objects may exist in memory only; 0: no limit. */
    int setCheckpoint(int group, int seconds) {
        return thesis_ ? damelo_thesis_set_checkpoint(thesis_, group, seconds) : status_;
    }

    /* Writes `s` and what the error means to stderr. */
    void perror(const char *s, int error) {
        damelo_perror(s, error);
    }

private:
    Damelo(const Damelo &);            /* not to be copied: */
    Damelo &operator=(const Damelo &); /* it owns the store */

    damelo_thesis *thesis_;
    int status_;
};

#endif /* DAMELO_HPP */
