/*
 * units: durations and sizes between text and numbers.
 * Pure functions; any thread. Parsing takes the whole text or refuses it: no sign, no exponent, no
 * blanks.
 */
#ifndef CUSLICE_UNITS_H
#define CUSLICE_UNITS_H

#include <stddef.h>
#include <stdint.h>

/* "500us", "20ms", "1.5s", "100ns"; a bare number is milliseconds. 0 or -EINVAL; saturates. */
int units_parse_duration(const char *text, uint64_t *ns);

/* Bytes with an optional unit: k m g t in either case, each alone or followed by i, iB or B; powers
 * of 1024. "1.5Gi" is taken, rounded down. 0 or -EINVAL; saturates at UINT64_MAX - 1. */
int units_parse_size(const char *text, uint64_t *bytes);

/* "12.5%" or "12.5" (percent) in millionths; 0 or -EINVAL; saturates. */
int units_parse_percent(const char *text, uint64_t *parts);

/* Millionths as percent: "50%", "12.5%". Returns the length, as snprintf. */
size_t units_format_percent(uint64_t parts, char *text, size_t size);

/* A whole decimal number. 0, -EINVAL, or -ERANGE when it does not fit. */
int units_parse_number(const char *text, uint64_t *number);

/* The shortest exact text: "20ms", "1500us", "4Gi", "4294967297". Length as snprintf. */
size_t units_format_duration(uint64_t ns, char *text, size_t size);
size_t units_format_size(uint64_t bytes, char *text, size_t size);

#endif
