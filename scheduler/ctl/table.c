/* Tables of text: see table.h. */
#include "table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"

static void table_grow(struct table *table)
{
    table->room = table->room ? 2 * table->room : 256;
    table->cell = realloc(table->cell, table->room * sizeof(*table->cell));
    if (!table->cell)
        exit(ctl_fail("out of memory"));
}

void table_add(struct table *table, const char *format, ...)
{
    va_list arguments;

    if (table->cells == table->room)
        table_grow(table);
    va_start(arguments, format);
    vsnprintf(table->cell[table->cells++], TABLE_CELL, format, arguments);
    va_end(arguments);
}

void table_begin(struct table *table, const char *formats, const char *const *headings)
{
    memset(table, 0, sizeof(*table));
    table->formats = formats;
    table->columns = (unsigned)strlen(formats);
    for (unsigned i = 0; i < table->columns; i++)
        table_add(table, "%s", headings[i]);
}

static void table_measure(const struct table *table, int width[TABLE_COLUMNS])
{
    memset(width, 0, TABLE_COLUMNS * sizeof(width[0]));
    for (unsigned i = 0; i < table->cells; i++) {
        int length = (int)strlen(table->cell[i]);
        unsigned column = i % table->columns;
        if (length > width[column])
            width[column] = length;
    }
}

static void table_print_cell(const struct table *table, unsigned cell, int width)
{
    unsigned column = cell % table->columns;
    bool last = column == table->columns - 1;

    if (table->formats[column] == 'r')
        printf("%*s", width, table->cell[cell]);
    else
        printf("%-*s", last ? 0 : width, table->cell[cell]);
    fputs(last ? "\n" : "  ", stdout);
}

void table_end(struct table *table, const char *indent)
{
    int width[TABLE_COLUMNS];

    table_measure(table, width);
    for (unsigned i = 0; i < table->cells; i++) {
        if (i % table->columns == 0)
            fputs(indent, stdout);
        table_print_cell(table, i, width[i % table->columns]);
    }
    table_drop(table);
}

void table_drop(struct table *table)
{
    free(table->cell);
}
