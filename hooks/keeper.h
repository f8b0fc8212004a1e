/*
 * keeper: cuslice's one thread in a client. It ends slices, drains, passes the token, looks after
 * the client that it passed to, and once a second after the ring itself.
 */
#ifndef CUSLICE_HOOKS_KEEPER_H
#define CUSLICE_HOOKS_KEEPER_H

/* Starts the thread; 0 or -errno. */
int keeper_start(void);

/* Ends it: closes the gates, drains for at most 50 ms, gives token and slot back. Called once, when
 * the program exits. */
void keeper_stop(void);

/* In a forked child: the thread stayed behind. */
void keeper_forget(void);

#endif
