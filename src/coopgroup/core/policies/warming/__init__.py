"""Warm-ups: a member restores the state of a resource before it owns it (KIP-441).

The price of a move is the time to restore state. With warm-ups the owner goes on working. The
leader assigns a warm-up first. It moves the resource when the new owner says that it is warm.

Terms of KIP-441: the active member owns a resource; a warm-up prepares a move; a standby stays warm
for the case of a loss. A member is warm for a resource if it says so in its subscription, and cold
otherwise. A member takes part if it tells a warm set at all.

A round with warm-ups, step by step:

    warmth   the facts: warm members, running warm-ups, planned receivers, members that hand over
    taking   a free resource goes to a warm member; a lost one then does not wait for its owner
    asking   the assignor answers; running warm-ups are shown to it as done, so that they are kept
    moves    a move to a cold member is held back, and a warm-up is wished for it
    standbys which members stay warm beside the owner
    rounds   the order of these steps, the limits, and the memory for the next round

Resources that belong together are bundles (module `bundles`). The whole round is decided for them.
"""
