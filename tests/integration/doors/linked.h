/*
 * linked: where an object's own linkage leads, for every function named in names.h.
 */
#ifndef TESTS_DOORS_LINKED_H
#define TESTS_DOORS_LINKED_H

#include "look.h"

#define NAME(name) void name(void);
#include "names.h"
#undef NAME

/* Read anew at each call, as a call through the linkage would. */
static inline void look_linked(const char *door)
{
    static void (*volatile const words[])(void) = {
#define NAME(name) name,
#include "names.h"
#undef NAME
    };
    for (size_t i = 0; i < LOOK_NAMES; i++)
        look_say(door, look_names[i], (void *)(size_t)words[i]);
}

#endif
