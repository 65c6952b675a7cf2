"""Every limit of the store in one place; `docs/systems/documents.md` explains each."""

from typing import Final

DUE_ROWS_MAX: Final = 50  # records that one poll asks for
CLAIM_POLLS_MAX: Final = 3  # in one claim, when others were faster
WRITE_TRIES_MAX: Final = 5  # of one record that others write at the same time
LEASE_MARGIN_SECONDS: Final = 1  # added to every lock
DATA_CHARS_MAX: Final = 131_072  # of Data__c
DATA_DEPTH_MAX: Final = 100  # of lists and objects in Data__c
NUMBER_MAX: Final = 10**15  # of every number; above 2^53, adding one may have no effect
ERROR_CHARS_MAX: Final = 1_000  # of Error__c
HASH_CHARS_MAX: Final = 255  # of RequestHash__c
HASHES_IN_QUERY_MAX: Final = 20  # a URL has room for 16,384 bytes
ASIDE_SECONDS: Final = 300.0  # for which a record that can't be claimed is set aside
ASIDE_MAX: Final = 200  # records set aside; a URL has room for 16,384 bytes
POLL_SECONDS: Final = 15.0  # between two polls of a queue that is empty
USAGE_HIGH: Final = 0.8  # of the organization's calls; above it, polls get rarer
USAGE_FULL: Final = 0.95  # of the organization's calls; from here on, they don't get any rarer
SLOWDOWN_MAX: Final = 16  # times POLL_SECONDS, when calls are scarce
COMPANY_SECONDS_MAX: Final = 180.0  # for which a lease that was never settled counts as running
DEPTH_SECONDS: Final = 300.0  # for which a worker remembers how many records wait
