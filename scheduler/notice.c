/*
 * notice: the robust list of the one thread of a process that has begun (see notice.h). Owns that
 * list; run by that thread alone. Must never let the file say what the kernel shall write.
 *
 * A robust list is what the kernel walks when a thread ends: for each node it goes a fixed distance
 * (one for the whole list) to a word, and if that holds the thread's id, marks it and wakes one who
 * sleeps on it. The thread's id is what its own PID namespace says, and no other process's list
 * names the word, so equal ids in other namespaces are nothing to it. The nodes lie in private
 * memory, at the same distance behind the word in every ring (segment_twin): nothing that is
 * written into the file leads the kernel anywhere else. So a damaged or hostile word does no more
 * than this: a waiter is woken in vain and looks at the lock some times, or it is not told and
 * looks when it would have anyway.
 *
 * The C library's list of that thread is replaced: no robust mutex may be held by it when the
 * process is killed. The keeper takes none.
 */
#include "notice.h"

#include <errno.h>
#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "segment.h"

static struct robust_list_head notice_head;
static uint32_t notice_value; /* what the words say while it lives; 0: not begun */

_Static_assert(offsetof(struct cuslice_slot, death) % _Alignof(struct robust_list) == 0,
               "a node lies as its word does");

static struct robust_list *notice_node(const struct ring *ring)
{
    return segment_twin(&ring_me(ring)->death);
}

int notice_begin(void)
{
    notice_value = 0;
    notice_head = (struct robust_list_head){.list = {&notice_head.list},
                                            .futex_offset = -(long)segment_span()};
    if (syscall(SYS_set_robust_list, &notice_head, sizeof notice_head) != 0)
        return -errno;
    notice_value = ((uint32_t)syscall(SYS_gettid) & FUTEX_TID_MASK) | FUTEX_WAITERS;
    return 0;
}

/* The thread may be killed between any two stores: the list is whole at each of them. */
void notice_add(struct ring *ring)
{
    struct robust_list *node = notice_node(ring);
    if (notice_value == 0 || ring->segment.private_copy)
        return;
    node->next = notice_head.list.next;
    atomic_signal_fence(memory_order_seq_cst);
    notice_head.list.next = node;
    atomic_store(&ring->notice, notice_value);
    atomic_store(&ring_me(ring)->death, notice_value);
}

void notice_drop(struct ring *ring)
{
    struct robust_list *at = &notice_head.list, *node = notice_node(ring);
    if (atomic_exchange(&ring->notice, 0) == 0)
        return;
    atomic_store(&ring_me(ring)->death, 0);
    while (at->next != &notice_head.list && at->next != node)
        at = at->next;
    if (at->next == node)
        at->next = node->next;
    futex_wake(&ring_me(ring)->death, INT_MAX); /* who sleeps on it needs another word */
}
