/*
 * A plugin that is itself linked with the driver, to be loaded with RTLD_DEEPBIND. What its words
 * hold it says by name; where its calls go it shows by asking for more memory than it may have.
 */
#include "linked.h"

int cuDevicePrimaryCtxRetain(void **context, int device);

void plugin_look(const char *who);
void plugin_use(const char *who);

void plugin_look(const char *who)
{
    look_linked(who);
}

/* Called with arguments that the declarations of names.h do not know. */
#define CALL(name, ...) ((int (*)())name)(__VA_ARGS__)

void plugin_use(const char *who)
{
    void *context = NULL;
    unsigned long long pointer = 0;
    int rc = CALL(cuInit, 0);
    if (rc == 0)
        rc = cuDevicePrimaryCtxRetain(&context, 0);
    if (rc == 0)
        rc = CALL(cuCtxSetCurrent, context);
    if (rc == 0)
        rc = CALL(cuMemAlloc_v2, &pointer, (size_t)atoll(getenv("ASK")));
    printf("used %s %d -\n", who, rc);
}
