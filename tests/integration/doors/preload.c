/*
 * A second preload. It asks for the next one behind itself, when the program tells it to.
 */
#include "look.h"

void PRELOAD_ASK(const char *who);
void PRELOAD_ASK(const char *who)
{
    look_by_dlsym(who, RTLD_NEXT);
}
