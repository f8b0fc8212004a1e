#!/usr/bin/env python3
"""Pauses of the holder: long ones are the others' at once, short ones are not worth a hand-over."""
# timeout: 120
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import MS, check

TRIES = 3  # somebody else's burst on the same CPUs must not decide


def beside_trainer(words):
    """A client beside one that always has work: the trace, its turns, the window."""
    with farm.Farm(sim={"SWITCH": "0"}) as place:
        a, b = place.worker("a"), place.worker("b")
        farm.together([(a, words), (b, "loop 3000 500000 0")], 40)
        trace = place.trace()
        start, end = farm.window(trace, "ab")
        return trace, [t for t in trace.turns() if start <= t.start <= end], start, end


def releases(turns):
    """From the end of a's turns to the start of b's, sorted."""
    gaps = sorted(second.start - first.end for first, second in zip(turns, turns[1:])
                  if (first.client, second.client) == ("a", "b"))
    if len(gaps) < 10:
        raise AssertionError("only %d turns of a" % len(gaps))
    return gaps


def inference(words, least):
    trace, turns, start, end = beside_trainer(words)
    gaps = releases(turns)
    middle, free = gaps[len(gaps) // 2], 100.0 * farm.idle(trace, start, end) / (end - start)
    share = farm.shares(turns, start, end)["a"]
    print("'%s' beside a trainer: it goes on %.3f ms (median of %d) after the last kernel; %.2f %% "
          "idle in all; a has %.1f %%" % (words, middle / MS, len(gaps), free, share), flush=True)
    return middle < 0.4 * MS and share > least


def check_inference():
    """10 ms of work, 40 ms of CPU: the GPU goes on at once, however often a burst synchronises."""
    for words in ("bursts 3000 1000000 10 40000", "bursts 3000 1000000 10 40000 1"):
        farm.holds(lambda: inference(words, 12), TRIES,
                   "'%s': the GPU is idle while somebody wants it" % words)


def decoding():
    trace, turns, start, end = beside_trainer("bursts 3000 1000000 1 200")
    share = farm.shares(turns, start, end)["a"]
    mine = sum(t.client == "a" for t in turns)
    per_turn = sum(start <= r.start <= end for r in trace.of("a")) / mine
    print("gaps of 0.2 ms between kernels of 1 ms: share %.1f %%, %.1f kernels a turn" % (
        share, per_turn), flush=True)
    return 47 < share < 53 and per_turn > 8


def check_decoding():
    """Gaps as of an LLM that decodes: its share, and no hand-over at each gap."""
    farm.holds(decoding, TRIES, "short gaps cost the client its turn")


farm.run(check_inference, check_decoding)
