/*
 * Reads PTX text as far as the simulated device needs it: versions, entry functions with the layout
 * of their parameters, variables of the module with their initial bytes. Bodies are skipped over
 * but for static shared memory; instructions are not checked. Pure functions on memory.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"

enum { PTX_TYPE_NAME = 12, PTX_NUMBER = 32 };

#define PTX_MOST_BYTES ((uint64_t)1 << 40)

struct ptx_token {
    const char *at;
    size_t length; /* 0: end of text */
};

struct ptx_reader {
    const char *at;
    const char *end;
    struct ptx_token token;
    bool broken; /* an open comment or string */
};

struct ptx_variable {
    struct ptx_token name;
    uint64_t bytes;
    uint64_t alignment;
    uint32_t element;
    bool managed;
};

static const struct {
    char name[PTX_TYPE_NAME];
    uint32_t bytes;
} ptx_types[] = {
    {".b8", 1},    {".u8", 1},     {".s8", 1},      {".b16", 2},        {".u16", 2}, {".s16", 2},
    {".f16", 2},   {".bf16", 2},   {".b32", 4},     {".u32", 4},        {".s32", 4}, {".f32", 4},
    {".f16x2", 4}, {".bf16x2", 4}, {".b64", 8},     {".u64", 8},        {".s64", 8}, {".f64", 8},
    {".b128", 16}, {".texref", 8}, {".surfref", 8}, {".samplerref", 8},
};

static bool ptx_name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

/* Skips blanks and comments. */
static void ptx_skip_space(struct ptx_reader *r)
{
    while (r->at < r->end) {
        if (isspace((unsigned char)*r->at)) {
            r->at++;
        } else if (r->end - r->at >= 2 && r->at[0] == '/' && r->at[1] == '/') {
            const char *line = memchr(r->at, '\n', (size_t)(r->end - r->at));

            r->at = line == NULL ? r->end : line;
        } else if (r->end - r->at >= 2 && r->at[0] == '/' && r->at[1] == '*') {
            const char *close = memmem(r->at + 2, (size_t)(r->end - r->at - 2), "*/", 2);

            r->broken = r->broken || close == NULL;
            r->at = close == NULL ? r->end : close + 2;
        } else {
            return;
        }
    }
}

static void ptx_next_string(struct ptx_reader *r)
{
    const char *close = memchr(r->at + 1, '"', (size_t)(r->end - r->at - 1));

    r->broken = r->broken || close == NULL;
    r->token.length = close == NULL ? 0 : (size_t)(close + 1 - r->at);
    r->at = close == NULL ? r->end : close + 1;
}

/* Moves to the next token: a word (a directive begins with its dot), a string or one character. */
static void ptx_next(struct ptx_reader *r)
{
    ptx_skip_space(r);
    r->token.at = r->at;
    r->token.length = 0;
    if (r->at >= r->end)
        return;
    if (*r->at == '"') {
        ptx_next_string(r);
        return;
    }
    r->at++;
    if (ptx_name_char(r->token.at[0]) || r->token.at[0] == '.')
        while (r->at < r->end && ptx_name_char(*r->at))
            r->at++;
    r->token.length = (size_t)(r->at - r->token.at);
}

static bool ptx_is(const struct ptx_reader *r, const char *text)
{
    return r->token.length == strlen(text) && memcmp(r->token.at, text, r->token.length) == 0;
}

static bool ptx_at_end(const struct ptx_reader *r)
{
    return r->token.length == 0;
}

static bool ptx_at_name(const struct ptx_reader *r)
{
    return r->token.length > 0 && ptx_name_char(r->token.at[0]) &&
           !isdigit((unsigned char)r->token.at[0]);
}

/* An integer token (decimal, octal, hexadecimal, binary; a trailing U); false if it is none. */
static bool ptx_number(const struct ptx_token *token, uint64_t *value)
{
    char text[PTX_NUMBER];
    size_t length = token->length;
    char *end;

    if (length > 0 && (token->at[length - 1] == 'U' || token->at[length - 1] == 'u'))
        length--;
    if (length == 0 || length >= sizeof(text) || !isdigit((unsigned char)token->at[0]))
        return false;
    memcpy(text, token->at, length);
    text[length] = '\0';
    if (text[0] == '0' && (text[1] == 'b' || text[1] == 'B'))
        *value = strtoull(text + 2, &end, 2);
    else
        *value = strtoull(text, &end, 0);
    return *end == '\0';
}

static uint32_t ptx_type_bytes(const struct ptx_token *token)
{
    for (size_t i = 0; i < sizeof(ptx_types) / sizeof(ptx_types[0]); i++)
        if (strlen(ptx_types[i].name) == token->length &&
            memcmp(ptx_types[i].name, token->at, token->length) == 0)
            return ptx_types[i].bytes;
    return 0;
}

static bool ptx_read_variable(struct ptx_reader *r, struct ptx_variable *v);

/* Passes over a block in braces; the reader stands on the opening one, and after it on the token
 * behind the block. Sums what the block declares as .shared. */
static bool ptx_skip_block(struct ptx_reader *r, uint32_t *shared)
{
    unsigned depth = 0;
    bool statement = true;

    while (!ptx_at_end(r)) {
        struct ptx_variable v;

        if (statement && ptx_is(r, ".shared")) {
            ptx_next(r);
            if (!ptx_read_variable(r, &v))
                return false;
            *shared = (uint32_t)(((*shared + v.alignment - 1) & ~(v.alignment - 1)) + v.bytes);
        }
        if (ptx_is(r, "{"))
            depth++;
        else if (ptx_is(r, "}"))
            depth--;
        statement = ptx_is(r, "{") || ptx_is(r, "}") || ptx_is(r, ";");
        ptx_next(r);
        if (depth == 0)
            return true;
    }
    return false;
}

static bool ptx_skip_to(struct ptx_reader *r, const char *text)
{
    while (!ptx_at_end(r) && !ptx_is(r, text))
        ptx_next(r);
    return !ptx_at_end(r);
}

/* .attribute(.managed) and its like. */
static bool ptx_read_attribute(struct ptx_reader *r, struct ptx_variable *v)
{
    ptx_next(r);
    while (!ptx_at_end(r) && !ptx_is(r, ")")) {
        v->managed = v->managed || ptx_is(r, ".managed");
        ptx_next(r);
    }
    return !ptx_at_end(r);
}

static bool ptx_read_align(struct ptx_reader *r, uint64_t *alignment)
{
    ptx_next(r);
    return ptx_number(&r->token, alignment) && *alignment > 0 && *alignment <= PTX_MOST_BYTES &&
           (*alignment & (*alignment - 1)) == 0;
}

/* The qualifiers and the type in front of a name. An alignment behind .ptr is the pointee's. */
static bool ptx_read_type(struct ptx_reader *r, struct ptx_variable *v)
{
    bool pointer = false;
    uint32_t lanes = 1;
    uint64_t pointee;

    for (; !ptx_at_end(r) && r->token.at[0] == '.'; ptx_next(r)) {
        uint32_t bytes = ptx_type_bytes(&r->token);

        if (bytes != 0)
            v->element = bytes;
        else if (ptx_is(r, ".align") && !ptx_read_align(r, pointer ? &pointee : &v->alignment))
            return false;
        else if (ptx_is(r, ".attribute") && !ptx_read_attribute(r, v))
            return false;
        else if (ptx_is(r, ".v2"))
            lanes = 2;
        else if (ptx_is(r, ".v4"))
            lanes = 4;
        else if (ptx_is(r, ".ptr"))
            pointer = true;
    }
    v->element *= lanes;
    if (v->alignment == 0)
        v->alignment = v->element;
    return v->element != 0;
}

/* A declaration from its qualifiers to the token behind its last bracket. [] counts as no element
 * (the size is the initialiser's). */
static bool ptx_read_variable(struct ptx_reader *r, struct ptx_variable *v)
{
    memset(v, 0, sizeof(*v));
    if (!ptx_read_type(r, v) || !ptx_at_name(r))
        return false;
    v->name = r->token;
    v->bytes = v->element;
    for (ptx_next(r); ptx_is(r, "["); ptx_next(r)) {
        uint64_t count = 0;

        ptx_next(r);
        if (!ptx_is(r, "]")) {
            if (!ptx_number(&r->token, &count))
                return false;
            ptx_next(r);
        }
        if (!ptx_is(r, "]") || (count != 0 && v->bytes > PTX_MOST_BYTES / count))
            return false;
        v->bytes *= count;
    }
    return true;
}

/* 0f3F800000 and 0d3FF0000000000000 are bit patterns; names (addresses of other variables) are left
 * zero, as the device has no use for them. */
static uint64_t ptx_initial_value(const struct ptx_reader *r)
{
    const char *at = r->token.at;
    char text[PTX_NUMBER];
    uint64_t value = 0;

    if (r->token.length > 2 && r->token.length < sizeof(text) && at[0] == '0' &&
        strchr("fFdD", at[1]) != NULL) {
        memcpy(text, at + 2, r->token.length - 2);
        text[r->token.length - 2] = '\0';
        return strtoull(text, NULL, 16);
    }
    return ptx_number(&r->token, &value) ? value : 0;
}

/* Stores one element; an unsized array ([]) grows with its initialiser. */
static bool ptx_store(struct image_global *g, const struct ptx_variable *v, uint64_t at,
                      uint64_t value)
{
    size_t width = v->element < sizeof(value) ? v->element : sizeof(value);

    if (v->bytes == 0) {
        void *grown = realloc(g->initial, at + v->element);

        if (grown == NULL)
            return false;
        g->initial = grown;
        memset((char *)grown + at, 0, v->element);
        g->bytes = at + v->element;
    } else if (at + v->element > g->bytes) {
        return false;
    }
    memcpy((char *)g->initial + at, &value, width);
    return true;
}

/* What follows a value up to its comma: an offset, the operand of generic() or of a byte mask. */
static void ptx_skip_operand(struct ptx_reader *r)
{
    while (!ptx_at_end(r) && !ptx_is(r, ",") && !ptx_is(r, "}") && !ptx_is(r, ";"))
        ptx_next(r);
}

static bool ptx_read_initial(struct ptx_reader *r, struct image_global *g,
                             const struct ptx_variable *v)
{
    uint64_t at = 0;
    bool negative = false;

    if (v->bytes > PTX_MOST_BYTES)
        return false;
    g->initial = calloc(1, v->bytes == 0 ? 1 : v->bytes);
    ptx_next(r);
    while (g->initial != NULL && !ptx_at_end(r) && !ptx_is(r, ";")) {
        if (ptx_name_char(r->token.at[0])) {
            uint64_t value = ptx_initial_value(r);

            if (!ptx_store(g, v, at, negative ? 0 - value : value))
                return false;
            at += v->element;
            ptx_skip_operand(r);
        } else {
            negative = ptx_is(r, "-");
            ptx_next(r);
        }
    }
    return g->initial != NULL && ptx_is(r, ";");
}

/* Declarations of one statement; ends behind its semicolon. */
static bool ptx_read_globals(struct image *image, struct ptx_reader *r, bool constant,
                             bool external)
{
    struct ptx_variable v;

    ptx_next(r);
    if (!ptx_read_variable(r, &v))
        return false;
    if (!external) {
        struct image_global *g = image_add_global(image, v.name.at, v.name.length);

        if (g == NULL)
            return false;
        g->bytes = v.bytes;
        g->alignment = v.alignment;
        g->constant = constant;
        g->managed = v.managed;
        if (ptx_is(r, "=") && !ptx_read_initial(r, g, &v))
            return false;
    }
    return ptx_skip_to(r, ";");
}

static bool ptx_add_param(struct image_function *f, const struct ptx_variable *v)
{
    struct image_param *p = image_add_param(f);
    uint64_t offset = (f->param_bytes + v->alignment - 1) & ~(v->alignment - 1);

    if (p == NULL || v->bytes > UINT16_MAX || offset > UINT16_MAX)
        return false;
    p->offset = (uint32_t)offset;
    p->bytes = (uint32_t)v->bytes;
    f->param_bytes = p->offset + p->bytes;
    return true;
}

static bool ptx_read_params(struct ptx_reader *r, struct image_function *f)
{
    ptx_next(r);
    while (ptx_is(r, ".param")) {
        struct ptx_variable v;

        ptx_next(r);
        if (!ptx_read_variable(r, &v) || !ptx_add_param(f, &v))
            return false;
        if (ptx_is(r, ","))
            ptx_next(r);
    }
    if (!ptx_is(r, ")"))
        return false;
    ptx_next(r);
    return true;
}

/* .maxntid and .reqntid: the product of up to three numbers. */
static void ptx_read_threads(struct ptx_reader *r, struct image_function *f)
{
    uint64_t product = 1;
    uint64_t value;

    ptx_next(r);
    while (ptx_number(&r->token, &value)) {
        product *= value;
        ptx_next(r);
        if (!ptx_is(r, ","))
            break;
        ptx_next(r);
    }
    f->max_threads = product <= UINT16_MAX ? (uint32_t)product : 0;
}

/* From the name of an entry to the end of its body. */
static bool ptx_read_entry(struct image *image, struct ptx_reader *r)
{
    const char *start = r->at;
    struct image_function *f;

    ptx_next(r);
    if (!ptx_at_name(r))
        return false;
    f = image_add_function(image, r->token.at, r->token.length);
    if (f == NULL)
        return false;
    ptx_next(r);
    if (ptx_is(r, "(") && !ptx_read_params(r, f))
        return false;
    while (!ptx_at_end(r) && !ptx_is(r, "{") && !ptx_is(r, ";")) {
        if (ptx_is(r, ".maxntid") || ptx_is(r, ".reqntid"))
            ptx_read_threads(r, f);
        else
            ptx_next(r);
    }
    if (!ptx_is(r, "{") || !ptx_skip_block(r, &f->shared_bytes))
        return false;
    f->code_bytes = (uint32_t)(r->at - start);
    return true;
}

/* A device function: declared (ends in a semicolon) or defined (ends with its body). */
static bool ptx_skip_function(struct ptx_reader *r)
{
    uint32_t unused = 0;

    while (!ptx_at_end(r) && !ptx_is(r, ";") && !ptx_is(r, "{"))
        ptx_next(r);
    if (ptx_is(r, "{"))
        return ptx_skip_block(r, &unused);
    ptx_next(r);
    return !r->broken;
}

static bool ptx_read_version(struct image *image, struct ptx_reader *r)
{
    uint64_t major;
    uint64_t minor = 0;
    struct ptx_token fraction;

    ptx_next(r);
    if (!ptx_number(&r->token, &major))
        return false;
    ptx_next(r);
    fraction = r->token;
    if (fraction.length < 2 || fraction.at[0] != '.')
        return false;
    fraction.at++;
    fraction.length--;
    if (!ptx_number(&fraction, &minor) || major > 99 || minor > 9)
        return false;
    image->ptx_version = (unsigned)(major * 10 + minor);
    ptx_next(r);
    return true;
}

/* sm_90, sm_90a, compute_75: the number counts. Further targets of the list are options. */
static bool ptx_read_target(struct image *image, struct ptx_reader *r, unsigned arch)
{
    unsigned version = 0;

    ptx_next(r);
    for (size_t i = 0; i < r->token.length; i++)
        if (isdigit((unsigned char)r->token.at[i]) && version < 1000)
            version = version * 10 + (unsigned)(r->token.at[i] - '0');
    if (!ptx_at_name(r) || version == 0 || version > arch)
        return false;
    image->binary_version = arch;
    ptx_next(r);
    while (ptx_is(r, ",")) {
        ptx_next(r);
        ptx_next(r);
    }
    return true;
}

/* .file 1 "name", 123, 456 */
static bool ptx_skip_file(struct ptx_reader *r)
{
    ptx_next(r);
    ptx_next(r);
    ptx_next(r);
    while (ptx_is(r, ",")) {
        ptx_next(r);
        ptx_next(r);
    }
    return !r->broken;
}

static bool ptx_read_space(struct image *image, struct ptx_reader *r, bool external)
{
    struct ptx_variable shared;

    if (ptx_is(r, ".shared")) {
        ptx_next(r);
        return ptx_read_variable(r, &shared) && ptx_skip_to(r, ";");
    }
    return ptx_read_globals(image, r, ptx_is(r, ".const"), external);
}

/* One statement of the module; the reader stands on its first token, after it behind its last. */
static bool ptx_read_statement(struct image *image, struct ptx_reader *r, unsigned arch)
{
    bool external = false;
    uint32_t unused = 0;

    while (ptx_is(r, ".visible") || ptx_is(r, ".weak") || ptx_is(r, ".extern") ||
           ptx_is(r, ".common")) {
        external = external || ptx_is(r, ".extern");
        ptx_next(r);
    }
    if (ptx_is(r, ".version"))
        return ptx_read_version(image, r);
    if (ptx_is(r, ".target"))
        return ptx_read_target(image, r, arch);
    if (ptx_is(r, ".entry"))
        return ptx_read_entry(image, r);
    if (ptx_is(r, ".func"))
        return ptx_skip_function(r);
    if (ptx_is(r, ".file"))
        return ptx_skip_file(r);
    if (ptx_is(r, ".section"))
        return ptx_skip_to(r, "{") && ptx_skip_block(r, &unused);
    if (ptx_is(r, ".address_size")) {
        ptx_next(r);
        ptx_next(r);
        return true;
    }
    if (ptx_is(r, ".global") || ptx_is(r, ".const") || ptx_is(r, ".shared")) {
        if (!ptx_read_space(image, r, external))
            return false;
    } else if (ptx_at_end(r) || r->token.at[0] != '.' || !ptx_skip_to(r, ";")) {
        return false;
    }
    ptx_next(r);
    return true;
}

bool image_is_ptx(struct image_bytes text)
{
    struct ptx_reader r = {.at = (const char *)text.at, .end = (const char *)text.at + text.size};

    ptx_next(&r);
    return ptx_is(&r, ".version");
}

/* Whether a name stands in the text as a word of its own. */
static bool ptx_mentions(struct image_bytes text, const char *name)
{
    size_t length = strlen(name), at = 0;

    while (at + length <= text.size) {
        const unsigned char *found = memmem(text.at + at, text.size - at, name, length);
        unsigned char before, behind;

        if (!found)
            return false;
        at = (size_t)(found - text.at) + length;
        before = found == text.at ? ' ' : found[-1];
        behind = at < text.size ? text.at[at] : ' ';
        if (!isalnum(before) && !strchr("_$.", before) && !isalnum(behind) && !strchr("_$", behind))
            return true;
    }
    return false;
}

CUresult image_read_ptx(struct image *image, struct image_bytes text, unsigned arch)
{
    const void *end = memchr(text.at, '\0', text.size);
    struct ptx_reader r = {.at = (const char *)text.at};

    r.end = end == NULL ? (const char *)text.at + text.size : end;
    ptx_next(&r);
    if (!ptx_is(&r, ".version"))
        return CUDA_ERROR_INVALID_IMAGE;
    while (!ptx_at_end(&r))
        if (!ptx_read_statement(image, &r, arch) || r.broken)
            return CUDA_ERROR_INVALID_PTX;
    image->heap |= ptx_mentions(text, "malloc");
    image->fifo |= ptx_mentions(text, "vprintf");
    return r.broken || image->binary_version == 0 ? CUDA_ERROR_INVALID_PTX : CUDA_SUCCESS;
}
