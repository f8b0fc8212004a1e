/*
 * Calls without an answer: the library has them, as a driver's has, and says NOT_SUPPORTED, so that
 * monitors do not take it for a broken installation. They look at none of their arguments.
 */
#include "state.h"

static nvmlReturn_t refused(void)
{
    nvmlReturn_t result = state_check();

    return result == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : result;
}

#define REFUSED(name)                                                                              \
    NVML_API nvmlReturn_t name(void);                                                              \
    nvmlReturn_t name(void)                                                                        \
    {                                                                                              \
        return refused();                                                                          \
    }
#include "refused.def"
