"""Every limit of the store in one place; `docs/systems/documents.md` explains each."""

from typing import Final

DUE_ROWS_MAX: Final = 50  # records that one look at the queue asks for
CLAIM_LOOKS_MAX: Final = 3  # at the queue, in one claim, when others were quicker
WRITE_TRIES_MAX: Final = 5  # of one record that others write at the same time
LEASE_MARGIN_SECONDS: Final = 1  # a lock is so much longer than asked for
DATA_CHARS_MAX: Final = 131_072  # of Data__c
DATA_DEPTH_MAX: Final = 100  # of lists and objects in Data__c
NUMBER_MAX: Final = 10**15  # of every number; from 2^53 on, one more could be the same
ERROR_CHARS_MAX: Final = 1_000  # of Error__c
HASH_CHARS_MAX: Final = 255  # of RequestHash__c
HASHES_IN_QUERY_MAX: Final = 20  # an address holds 16,384 bytes
ASIDE_SECONDS: Final = 300.0  # for which a record that can't be claimed is left out
ASIDE_MAX: Final = 200  # such records; an address holds 16,384 bytes
