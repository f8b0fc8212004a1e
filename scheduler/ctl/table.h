/* Tables of text with columns as wide as their widest cell. Cells are added row by row and printed
 * at the end; one thread. Running out of memory ends the tool, which has nothing better to do. */
#ifndef CUSLICE_CTL_TABLE_H
#define CUSLICE_CTL_TABLE_H

#include <stddef.h>

#define TABLE_CELL 96
#define TABLE_COLUMNS 20

struct table {
    unsigned columns;
    const char *formats; /* one letter a column: 'l' left, 'r' right */
    unsigned cells;
    unsigned room;
    char (*cell)[TABLE_CELL];
};

/* Begins a table with one column per letter of formats and these headings. */
void table_begin(struct table *table, const char *formats, const char *const *headings);

/* Adds the next cell, cut to TABLE_CELL - 1 characters. */
void table_add(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints the rows on standard output, each behind indent, and frees the table. */
void table_end(struct table *table, const char *indent);

/* Frees the table without printing it. */
void table_drop(struct table *table);

#endif
