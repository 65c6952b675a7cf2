"""Every limit of the local Service Bus, in one place. `docs/reference/limits.md` explains each."""

from typing import Final

MESSAGE_BYTES_MAX: Final = 256 * 1024  # as in the standard tier
REFUSED_BYTES_MAX: Final = 16 * 1024 * 1024  # read of a larger one, to tell its sender
QUEUE_BYTES_MAX: Final = 256 * 1024 * 1024  # of a queue with its dead letters, in memory
SESSION_STATE_BYTES_MAX: Final = 256 * 1024
LOCK_SECONDS_MIN: Final = 0.001
LOCK_SECONDS_MAX: Final = 300
DELIVERIES_MAX: Final = 2000  # the most that `deliveries_max` can be
SESSION_WAIT_SECONDS: Final = 60  # for the next session, unless the client says how long
PEEKED_MESSAGES_MAX: Final = 250  # in one answer
PEEKED_BYTES_MAX: Final = 1024 * 1024  # in one answer with more than one message
SESSIONS_LISTED_MAX: Final = 100  # in one answer

FRAME_BYTES_MAX: Final = 64 * 1024
FRAME_DEPTH_MAX: Final = 32  # of values nested in a frame or a message
BUS_CONNECTIONS_MAX: Final = 1000
LINKS_MAX: Final = 255  # of one connection
INCOMING_CREDIT: Final = 100  # messages that a sender may send ahead
OUTGOING_BYTES_MAX: Final = 4 * 1024 * 1024  # that wait for one client to read them
REPLIES_WAITING_MAX: Final = 100  # of one link, to a client that takes none
IDLE_SECONDS_MAX: Final = 240  # without a frame from a client
