/*
 * units: text to numbers and back, in integers throughout.
 * Owns nothing. Runs on any thread. Must never accept part of a text, wrap around, or use the
 * locale.
 */
#include "units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The largest amount; one below UINT64_MAX, which callers use as "none". */
#define UNITS_MAX (UINT64_MAX - 1)

/* Digits kept behind the decimal point; more are read and have no effect. */
#define UNITS_FRACTION_DIGITS 9
#define UNITS_FRACTION UINT64_C(1000000000)

struct units_value {
    uint64_t whole;
    uint64_t fraction; /* in 1 / UNITS_FRACTION */
};

struct units_unit {
    const char *name;
    uint64_t scale;
};

static int units_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static uint64_t units_add(uint64_t a, uint64_t b)
{
    uint64_t sum;

    return __builtin_add_overflow(a, b, &sum) || sum > UNITS_MAX ? UNITS_MAX : sum;
}

static uint64_t units_multiply(uint64_t a, uint64_t b)
{
    uint64_t product;

    return __builtin_mul_overflow(a, b, &product) || product > UNITS_MAX ? UNITS_MAX : product;
}

/* Reads "12" or "12.5"; returns what follows, NULL when there is no number. */
static const char *units_read(const char *text, struct units_value *value)
{
    uint64_t scale = UNITS_FRACTION / 10;

    if (!units_is_digit(*text))
        return NULL;
    for (value->whole = 0; units_is_digit(*text); text++)
        value->whole = units_add(units_multiply(value->whole, 10), (uint64_t)(*text - '0'));
    value->fraction = 0;
    if (*text != '.')
        return text;
    if (!units_is_digit(*++text))
        return NULL;
    for (; units_is_digit(*text); text++, scale /= 10)
        value->fraction += scale * (uint64_t)(*text - '0');
    return text;
}

static uint64_t units_scale(struct units_value value, uint64_t scale)
{
    /* Fits: the largest scale is 2^40, a fraction is below 2^30, so the parts are taken apart. */
    uint64_t part = scale / UNITS_FRACTION * value.fraction +
                    scale % UNITS_FRACTION * value.fraction / UNITS_FRACTION;

    return units_add(units_multiply(value.whole, scale), part);
}

int units_parse_duration(const char *text, uint64_t *ns)
{
    static const struct units_unit units[] = {
        {"", 1000000}, {"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}};
    struct units_value value;
    const char *rest = units_read(text, &value);

    if (!rest)
        return -EINVAL;
    for (unsigned i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(rest, units[i].name) == 0) {
            *ns = units_scale(value, units[i].scale);
            return 0;
        }
    }
    return -EINVAL;
}

/* The scale of k, m, g or t in either case, 0 for any other letter. */
static uint64_t units_binary_scale(char letter)
{
    static const char letters[] = "kmgt";
    const char *found = letter ? strchr(letters, letter | 0x20) : NULL;

    return found ? UINT64_C(1) << (10 * (found - letters + 1)) : 0;
}

int units_parse_size(const char *text, uint64_t *bytes)
{
    struct units_value value;
    const char *rest = units_read(text, &value);
    uint64_t scale;

    if (!rest)
        return -EINVAL;
    if (*rest == '\0') {
        if (strchr(text, '.'))
            return -EINVAL;
        *bytes = value.whole;
        return 0;
    }
    scale = units_binary_scale(*rest++);
    if (scale == 0 || (strcmp(rest, "") != 0 && strcmp(rest, "i") != 0 && strcmp(rest, "iB") != 0 &&
                       strcmp(rest, "B") != 0))
        return -EINVAL;
    *bytes = units_scale(value, scale);
    return 0;
}

int units_parse_percent(const char *text, uint64_t *parts)
{
    struct units_value value;
    const char *rest = units_read(text, &value);

    if (!rest || (strcmp(rest, "") != 0 && strcmp(rest, "%") != 0))
        return -EINVAL;
    *parts = units_scale(value, 10000);
    return 0;
}

int units_parse_number(const char *text, uint64_t *number)
{
    struct units_value value;
    const char *rest = units_read(text, &value);

    if (!rest || *rest || strchr(text, '.'))
        return -EINVAL;
    if (value.whole == UNITS_MAX)
        return -ERANGE;
    *number = value.whole;
    return 0;
}

/* The number in the largest unit that divides it; units run from large to small. */
static size_t units_format(uint64_t amount, const struct units_unit *unit, char *text, size_t size)
{
    while (unit->scale > 1 && (amount % unit->scale != 0 || amount == 0))
        unit++;
    return (size_t)snprintf(text, size, "%" PRIu64 "%s", amount / unit->scale, unit->name);
}

size_t units_format_percent(uint64_t parts, char *text, size_t size)
{
    unsigned digits = 4, rest = (unsigned)(parts % 10000);

    if (rest == 0)
        return (size_t)snprintf(text, size, "%" PRIu64 "%%", parts / 10000);
    for (; rest % 10 == 0; rest /= 10)
        digits--;
    return (size_t)snprintf(text, size, "%" PRIu64 ".%0*u%%", parts / 10000, (int)digits, rest);
}

size_t units_format_duration(uint64_t ns, char *text, size_t size)
{
    static const struct units_unit units[] = {
        {"s", 1000000000}, {"ms", 1000000}, {"us", 1000}, {"ns", 1}};

    if (ns == 0)
        return (size_t)snprintf(text, size, "0s");
    return units_format(ns, units, text, size);
}

size_t units_format_size(uint64_t bytes, char *text, size_t size)
{
    static const struct units_unit units[] = {{"Ti", UINT64_C(1) << 40},
                                              {"Gi", UINT64_C(1) << 30},
                                              {"Mi", UINT64_C(1) << 20},
                                              {"Ki", UINT64_C(1) << 10},
                                              {"", 1}};

    return units_format(bytes, units, text, size);
}
