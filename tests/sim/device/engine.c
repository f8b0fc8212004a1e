/*
 * The compute engine of one device: which context is on it, what runs, when the next thing happens.
 * Contexts that compete get slices in turn, whole contexts at a time; a context alone keeps the
 * engine and its slices pass unnoticed. Within a context items run side by side up to the capacity.
 * Main thread only. Every function takes the instant it acts at; nothing here reads the clock.
 */
#include <cuda.h>
#include <stdlib.h>

#include "device.h"

enum { RESIDENT_THREADS = 132 * 2048 };
#define POLL_LEAST UINT64_C(10000)
#define POLL_MOST UINT64_C(100000)
#define UNHEARD UINT64_C(200000)

/* How much of the capacity a kernel fills: one place, or all of them when its threads would fill
 * the whole device. */
static unsigned engine_weight(const struct item *item)
{
    const struct command_launch *launch = &item->c.launch;
    double threads = 1;

    if (item->c.kind != COMMAND_KERNEL)
        return 1;
    for (unsigned i = 0; i < 3; i++)
        threads *= (double)launch->grid[i] * launch->block[i];
    return threads >= RESIDENT_THREADS ? settings.capacity : 1;
}

void engine_queue(struct item *item)
{
    struct item **at = &item->stream->context->queued;

    item->weight = engine_weight(item);
    while (*at && (*at)->stream->priority <= item->stream->priority)
        at = &(*at)->queue_next;
    item->queue_next = *at;
    *at = item;
}

static bool engine_fits(const struct context *context, const struct item *item)
{
    return !context->running || context->running_weight + item->weight <= settings.capacity;
}

static uint64_t engine_poll_at(const struct item *item)
{
    uint64_t age = (item->last_poll - item->begun) / 16;

    return item->last_poll + (age < POLL_LEAST ? POLL_LEAST : age > POLL_MOST ? POLL_MOST : age);
}

static bool engine_polls(const struct item *item)
{
    return item->c.kind == COMMAND_KERNEL && item->kernel->effect == EFFECT_WAIT &&
           !item->kernel->timed && !item->released;
}

static uint64_t engine_end(const struct item *item)
{
    return item->remaining == UTIL_NEVER ? UTIL_NEVER : item->since + item->remaining;
}

/* When a context has something to execute: 0 at once, UTIL_NEVER not at all. */
static uint64_t engine_wants(const struct context *context)
{
    uint64_t first = UTIL_NEVER;

    if (context->running)
        return 0;
    for (const struct item *item = context->queued; item; item = item->queue_next)
        if (item->ready < first)
            first = item->ready;
    return first;
}

/* The first end of a slice of the loaded context at or after `wanted`. */
static uint64_t engine_boundary(const struct engine *engine, uint64_t wanted)
{
    uint64_t slices = 1;

    if (wanted > engine->slice_start + settings.slice)
        slices = (wanted - engine->slice_start + settings.slice - 1) / settings.slice;
    return engine->slice_start + slices * settings.slice;
}

static uint64_t engine_earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t engine_next_of_loaded(const struct engine *engine)
{
    const struct context *context = engine->loaded;
    uint64_t next = UTIL_NEVER;

    for (const struct item *item = context->running; item; item = item->queue_next) {
        next = engine_earlier(next, engine_end(item));
        if (engine_polls(item))
            next = engine_earlier(next, engine_poll_at(item));
    }
    for (const struct item *item = context->queued; item; item = item->queue_next)
        if (engine_fits(context, item))
            next = engine_earlier(next, item->ready);
    return next;
}

uint64_t engine_next(struct engine *engine)
{
    uint64_t next = UTIL_NEVER, theirs = UTIL_NEVER, mine;

    if (engine->switching)
        return engine->switch_end;
    if (engine->loaded)
        next = engine_next_of_loaded(engine);
    for (const struct context *c = engine->contexts; c; c = c->next)
        if (c != engine->loaded)
            theirs = engine_earlier(theirs, engine_wants(c));
    if (theirs != UTIL_NEVER) {
        mine = engine->loaded ? engine_wants(engine->loaded) : UTIL_NEVER;
        if (theirs < engine->time)
            theirs = engine->time;
        next = engine_earlier(next, mine <= theirs ? engine_boundary(engine, theirs) : theirs);
    }
    return next < engine->time ? engine->time : next;
}

static void engine_unlink(struct item **list, const struct item *item)
{
    while (*list != item)
        list = &(*list)->queue_next;
    *list = item->queue_next;
}

/* Takes an executing item off the engine; what it has left stays in it. */
static void engine_pause(struct item *item, uint64_t t, bool last)
{
    if (!item->since)
        return;
    trace_stretch(item, item->since, t, last);
    if (item->remaining != UTIL_NEVER) {
        uint64_t ran = t - item->since;

        item->remaining = ran < item->remaining ? item->remaining - ran : 0;
    }
    item->since = 0;
}

static uint64_t engine_wanted_since(const struct engine *engine)
{
    uint64_t since = UTIL_NEVER;

    for (const struct context *c = engine->contexts; c; c = c->next)
        if (c != engine->loaded)
            since = engine_earlier(since, engine_wants(c));
    return since;
}

/* Says when the item ends, if nothing can change that any more: no slice ends between `from` and
 * then, nobody waits for one that ends before, and its end does nothing but to be noticed. */
static void engine_tell(const struct engine *engine, struct item *item, uint64_t from)
{
    const struct kernel *kernel = item->kernel;
    uint64_t end = engine_end(item), wanted = engine_wanted_since(engine);

    wanted = wanted < from ? wanted : from + 1;
    item->told = kernel && kernel->outcome == OUTCOME_OK &&
                 (kernel->effect == EFFECT_NONE || kernel->effect == EFFECT_SPIN) &&
                 !(item->c.flags & COMMAND_IN_GRAPH) && end != UTIL_NEVER &&
                 !item->stream->client->managed[engine->device->ordinal] &&
                 end <= engine_boundary(engine, wanted > item->since ? wanted : item->since + 1);
    if (item->told)
        stream_tell(item->stream, end);
}

bool engine_quiet(const struct engine *engine, uint64_t now)
{
    const struct context *context = engine->loaded;
    struct item *item = context ? context->running : NULL;

    if (!item || engine->switching || item->queue_next || context->queued)
        return false;
    if (!item->told && now > UNHEARD) /* what was handed over lately may not have been heard of */
        engine_tell(engine, item, now - UNHEARD);
    return item->told && engine_wanted_since(engine) == UTIL_NEVER &&
           atomic_load(&context->client->arena->sleepers) == 0 && stream_last(item->stream);
}

static void engine_start(struct engine *engine, struct item *item, uint64_t t)
{
    struct context *context = engine->loaded;

    engine_unlink(&context->queued, item);
    item->queue_next = context->running;
    context->running = item;
    context->running_weight += item->weight;
    item->begun = item->since = item->last_poll = t;
    effect_begin(item);
    engine_tell(engine, item, item->since);
}

/* The item is through at t, well or not. */
static void engine_finish(struct engine *engine, struct item *item, uint64_t t, uint32_t error)
{
    struct context *context = item->stream->context;
    const struct kernel *kernel = item->kernel;

    engine_unlink(&context->running, item);
    context->running_weight -= item->weight;
    engine_pause(item, t, true);
    if (!error)
        error = effect_finish(item);
    if (kernel && kernel->outcome == OUTCOME_LOST)
        context_lose_device(engine->device, kernel->name, t);
    else if (kernel && kernel->outcome == OUTCOME_FAULT)
        context_fail(context, CUDA_ERROR_ILLEGAL_ADDRESS, kernel->name, t);
    else if (error)
        context_fail(context, error, kernel ? kernel->name : "copy", t);
    else
        stream_complete(item->stream, t);
}

/* Looks at the flag of a waiting kernel. A look may come later than the instant t that is being
 * played, and the flag have been set in between: the kernel ends when it was seen. */
static bool engine_flag(struct item *item, uint64_t t, uint32_t *error)
{
    item->last_poll = t;
    if (!effect_flag(item, error))
        return false;
    uint64_t seen = util_now();
    if (*error || seen <= t)
        return true;
    item->released = true;
    item->remaining = seen - item->since;
    return false;
}

/* Ends one item whose time has come; false: none. */
static bool engine_finish_one(struct engine *engine, uint64_t t)
{
    struct context *context = engine->loaded;

    for (struct item *item = context ? context->running : NULL; item; item = item->queue_next) {
        uint32_t error = CUDA_SUCCESS;
        bool over = engine_end(item) <= t;

        if (engine_polls(item) && (over || engine_poll_at(item) <= t))
            over |= engine_flag(item, t, &error);
        if (over && !effect_over(item)) {
            item->remaining = t - item->since + POLL_LEAST;
            over = false;
        }
        if (over) {
            engine_finish(engine, item, t, error);
            return true;
        }
    }
    return false;
}

/* The managed memory of the context's process comes to the device before its kernels go on; until
 * then nothing runs. */
static bool engine_page(struct engine *engine, uint64_t t)
{
    struct context *context = engine->loaded;
    uint64_t bytes = paging_bring(engine->device, context->client, UINT64_MAX, t);

    if (!bytes)
        return false;
    engine->page_start = t;
    engine->page_bytes = bytes;
    engine->switching = true;
    engine->switch_end = t + paging_time(bytes);
    return true;
}

static bool engine_wants_pages(struct engine *engine, const struct item *item)
{
    const struct client *client = item->stream->client;

    if (item->c.kind != COMMAND_KERNEL || item == engine->paged_for ||
        !client->managed[engine->device->ordinal])
        return false;
    engine->paged_for = item;
    return true;
}

static bool engine_start_one(struct engine *engine, uint64_t t)
{
    struct context *context = engine->loaded;

    for (struct item *item = context ? context->queued : NULL; item; item = item->queue_next) {
        if (item->ready > t)
            continue;
        if (!engine_fits(context, item))
            return false;
        if (engine_wants_pages(engine, item) && engine_page(engine, t)) {
            for (struct item *other = context->running; other; other = other->queue_next)
                engine_pause(other, t, false);
            return true;
        }
        engine->paged_for = NULL;
        engine_start(engine, item, t);
        return true;
    }
    return false;
}

/* The next context after the loaded one, in turn, that wants the engine at t. */
static struct context *engine_other(const struct engine *engine, uint64_t t)
{
    struct context *from = engine->loaded ? engine->loaded->next : engine->contexts;

    for (struct context *c = from; c; c = c->next)
        if (engine_wants(c) <= t)
            return c;
    for (struct context *c = engine->contexts; c && c != engine->loaded; c = c->next)
        if (engine_wants(c) <= t)
            return c;
    return NULL;
}

static void engine_resume(struct engine *engine, uint64_t t)
{
    engine->switching = false;
    if (engine->page_bytes && engine->loaded)
        trace_page(engine->loaded, engine->page_start, t, engine->page_bytes);
    engine->page_bytes = 0;
    if (!engine->paged_for)
        engine->slice_start = t;
    if (!engine->loaded)
        return;
    for (struct item *item = engine->loaded->running; item; item = item->queue_next) {
        item->since = item->last_poll = t;
        engine_tell(engine, item, item->since);
    }
}

/* What was taken off the engine in the middle needs its pages again. */
static bool engine_pages_back(struct engine *engine, uint64_t t)
{
    for (struct item *item = engine->loaded->running; item; item = item->queue_next)
        if (item->c.kind == COMMAND_KERNEL)
            return engine_page(engine, t);
    return false;
}

static void engine_switch(struct engine *engine, struct context *to, uint64_t t)
{
    bool costs = engine->loaded != NULL;

    for (struct item *item = costs ? engine->loaded->running : NULL; item; item = item->queue_next)
        engine_pause(item, t, false);
    engine->loaded = to;
    engine->paged_for = NULL;
    if (costs && settings.switch_cost) {
        engine->switching = true;
        engine->switch_end = t + settings.switch_cost;
        t = engine->switch_end;
    }
    if (!engine_pages_back(engine, t) && !engine->switching)
        engine_resume(engine, t);
}

static bool engine_consider_switch(struct engine *engine, uint64_t t)
{
    struct context *other = engine_other(engine, t);

    if (!other)
        return false;
    if (engine->loaded && engine_wants(engine->loaded) <= t) {
        uint64_t since = engine_wanted_since(engine);

        if (engine_boundary(engine, since > engine->time ? since : engine->time) > t)
            return false;
    }
    engine_switch(engine, other, t);
    return true;
}

void engine_step(struct engine *engine, uint64_t t)
{
    if (engine->switching) {
        if (t < engine->switch_end)
            return;
        engine_resume(engine, t);
    }
    /* What ends now ends first, then the slice: nothing starts only to be taken off again, but what
     * pages were brought for, or it might never. */
    while (!engine->switching)
        if (!(engine->paged_for && engine_start_one(engine, t)) && !engine_finish_one(engine, t) &&
            !engine_consider_switch(engine, t) && !engine_start_one(engine, t))
            break;
    engine->time = t;
}

void engine_drop_context(struct context *context, uint64_t t)
{
    struct engine *engine = context->engine;

    for (struct item *item = context->running; item; item = item->queue_next)
        engine_pause(item, t > item->since ? t : item->since, true);
    context->running = NULL;
    context->running_weight = 0;
    context->queued = NULL;
    engine->paged_for = NULL;
    if (engine->loaded == context && !context->alive) {
        engine->loaded = NULL;
        engine->switching = false;
        engine->page_bytes = 0;
    }
}
