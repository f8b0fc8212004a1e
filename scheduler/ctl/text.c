/* Figures as people read them: see text.h. Pure; any thread. */
#include "text.h"

#include <inttypes.h>
#include <stdio.h>

/* Three digits, whatever the size; 999.7 must not become "1000" and so lose its unit's meaning. */
static char *text_three(char text[TEXT_FIGURE], double value, const char *unit)
{
    int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;

    snprintf(text, TEXT_FIGURE, "%.*f%s", decimals, value, unit);
    return text;
}

char *text_bytes(char text[TEXT_FIGURE], uint64_t bytes)
{
    static const char *const units[] = {"B", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
    double value = (double)bytes;
    unsigned unit = 0;

    while (value >= 999.5 && unit < 6) {
        value /= 1024;
        unit++;
    }
    if (unit > 0)
        return text_three(text, value, units[unit]);
    snprintf(text, TEXT_FIGURE, bytes ? "%" PRIu64 "B" : "%" PRIu64, bytes);
    return text;
}

char *text_cap(char text[TEXT_FIGURE], uint64_t bytes)
{
    if (bytes != UINT64_MAX)
        return text_bytes(text, bytes);
    snprintf(text, TEXT_FIGURE, "-");
    return text;
}

static char *text_long_duration(char text[TEXT_FIGURE], uint64_t seconds)
{
    uint64_t minutes = seconds / 60;
    uint64_t hours = minutes / 60;

    if (hours >= 24)
        snprintf(text, TEXT_FIGURE, "%" PRIu64 "d%02" PRIu64 "h", hours / 24, hours % 24);
    else if (hours)
        snprintf(text, TEXT_FIGURE, "%" PRIu64 "h%02" PRIu64 "m", hours, minutes % 60);
    else
        snprintf(text, TEXT_FIGURE, "%" PRIu64 "m%02" PRIu64 "s", minutes, seconds % 60);
    return text;
}

char *text_duration(char text[TEXT_FIGURE], uint64_t ns)
{
    double value = (double)ns;

    if (ns < 1000) {
        snprintf(text, TEXT_FIGURE, ns ? "%" PRIu64 "ns" : "%" PRIu64, ns);
        return text;
    }
    if (value < 999.5e3)
        return text_three(text, value / 1e3, "us");
    if (value < 999.5e6)
        return text_three(text, value / 1e6, "ms");
    if (value < 59.95e9)
        return text_three(text, value / 1e9, "s");
    return text_long_duration(text, (ns + 500000000) / 1000000000);
}

char *text_percent(char text[TEXT_FIGURE], double part, double whole)
{
    if (whole > 0)
        snprintf(text, TEXT_FIGURE, "%.1f%%", 100 * part / whole);
    else
        snprintf(text, TEXT_FIGURE, "-");
    return text;
}
