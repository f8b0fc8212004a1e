/* Figures as people read them. Pure functions on the caller's memory; each returns its `text`. */
#ifndef CUSLICE_CTL_TEXT_H
#define CUSLICE_CTL_TEXT_H

#include <stddef.h>
#include <stdint.h>

#define TEXT_FIGURE 24

/* Three digits and a power of 1024: "0", "512B", "1.50Gi", "23.4Mi". */
char *text_bytes(char text[TEXT_FIGURE], uint64_t bytes);

/* A cap: as text_bytes, "-" for none (UINT64_MAX). */
char *text_cap(char text[TEXT_FIGURE], uint64_t bytes);

/* Three digits and a unit: "0", "850ns", "35.2us", "1.25s"; from a minute on "4m05s", "3h12m",
 * "2d03h". */
char *text_duration(char text[TEXT_FIGURE], uint64_t ns);

/* part of whole as "49.8%"; "-" when whole is 0. */
char *text_percent(char text[TEXT_FIGURE], double part, double whole);

#endif
