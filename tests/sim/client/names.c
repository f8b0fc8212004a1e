/*
 * Names of errors and the driver's version. The error names are the enumerators of the header this
 * library was built with; the text of an error is its enumerator in plain words, so nobody may
 * compare it with a real driver's. Runs on any thread; takes no lock and needs no cuInit.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

#include "names.h"

enum { NAMES_TEXT = 64, NAMES_NEWEST = 99990 };

struct error_name {
    CUresult value;
    const char *name;
};

static const struct error_name errors[] = {
#define ERROR(name, value) {(CUresult)(value), #name},
#include "errors.h"
#undef ERROR
};

enum { ERROR_COUNT = sizeof(errors) / sizeof(errors[0]) };

static char texts[ERROR_COUNT][NAMES_TEXT];

static int names_find(CUresult error)
{
    for (int i = 0; i < ERROR_COUNT; i++)
        if (errors[i].value == error)
            return i;
    return -1;
}

static void names_write_text(char *text, const char *name)
{
    const char *prefix = "CUDA_ERROR_";
    size_t skip = strlen(prefix);
    size_t length = 0;

    if (strncmp(name, prefix, skip) != 0) {
        strcpy(text, "no error");
        return;
    }
    for (const char *c = name + skip; *c != '\0' && length + 1 < NAMES_TEXT; c++)
        text[length++] = *c == '_' ? ' ' : (char)tolower((unsigned char)*c);
    text[length] = '\0';
}

__attribute__((constructor)) static void names_write_texts(void)
{
    for (int i = 0; i < ERROR_COUNT; i++)
        names_write_text(texts[i], errors[i].name);
}

CUresult cuGetErrorName(CUresult error, const char **text)
{
    int i = names_find(error);

    if (text == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *text = i < 0 ? NULL : errors[i].name;
    return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    int i = names_find(error);

    if (text == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *text = i < 0 ? NULL : texts[i];
    return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

int names_driver_version(void)
{
    const char *text = getenv("SIMCUDA_DRIVER_VERSION");
    char *end = NULL;
    long version = text == NULL ? 0 : strtol(text, &end, 10);

    if (text == NULL || *end != '\0' || version < 2000 || version > NAMES_NEWEST)
        return CUDA_VERSION;
    return (int)version;
}

CUresult cuDriverGetVersion(int *version)
{
    if (version == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *version = names_driver_version();
    return CUDA_SUCCESS;
}
