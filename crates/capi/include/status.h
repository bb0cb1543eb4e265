/*
 * status.h: the numbered results of damelo.h, and the `Status` of the Damelo thesis for C++
 * (unless DAMELO_NO_CLASS is defined).
 *
 * Numbers never change and are never reused; new ones are added at the end. Zero is success, every
 * other number an error. A test holds this list to the one in src/status.rs.
 */
#ifndef DAMELO_STATUS_H
#define DAMELO_STATUS_H

/* What every function that can fail returns (as an int). */
enum damelo_status {
    DAMELO_OK = 0,            /* success */
    DAMELO_EINVAL = 1,        /* an argument is null, out of range or not understood */
    DAMELO_ENOTFOUND = 2,     /* there is no such object (a cache's ordinary miss) */
    DAMELO_EPANIC = 3,        /* a fault inside the library, caught at its border */
    DAMELO_ECLOSED = 4,       /* the store has been closed */
    DAMELO_EIO = 5,           /* the volume could not be read or written */
    DAMELO_EMEMORY = 6,       /* no memory came free in time: readers, or a slow disk */
    DAMELO_ETOOLARGE = 7,     /* the value is larger than the store accepts, or fits into memory */
    DAMELO_EKEY = 8,          /* the key or prefix is empty or too long */
    DAMELO_EMETADATA = 9,     /* the metadata is larger than the store accepts */
    DAMELO_ENOTADMITTED = 10, /* the admission policy refused the object */
    DAMELO_EVOLUME = 11,      /* no volume is in service any more */
    DAMELO_EGROUP = 12,       /* the group number is not between 1 and the group count */
    DAMELO_ENOTPINNED = 13,   /* release() without a matching read() */
    DAMELO_EBUFFER = 14,      /* the caller's buffer is too small */
    DAMELO_EOPEN = 15,        /* the store could not be opened */
    DAMELO_EMISSING = 16,     /* the volume does not exist */
    DAMELO_ELOCKED = 17,      /* another process has the store open, or a writer or reader of this one */
    DAMELO_EFOREIGN = 18,     /* the volume carries something that is not a Damelo store */
    DAMELO_EFORMAT = 19,      /* the store is damaged or was made by another version */
    DAMELO_EMISMATCH = 20,    /* an option contradicts what the store was made with */
    DAMELO_ENOSPACE = 21,     /* the file system or device has not enough room for the volume */
    DAMELO_EGONE = 22,        /* the object went away while it was being read in pieces */
    DAMELO_EDROPPED = 23,     /* objects could not be written and were dropped */
    DAMELO_EOTHER = 24,       /* anything else; see damelo_last_error_message() */
    DAMELO_EWRITING = 25,     /* the object did not get to disk in time: try again, or sync first */
    DAMELO_ESUPERSEDED = 26,  /* the object was stored anew while its metadata was being replaced */
    DAMELO_ETORN = 27         /* an earlier write of this writer failed: the object is incomplete */
};

#if defined(__cplusplus) && !defined(DAMELO_NO_CLASS)
/* The thesis's name for a result. An int, because its constructor takes an `int &`. */
typedef int Status;
#endif

#endif /* DAMELO_STATUS_H */
