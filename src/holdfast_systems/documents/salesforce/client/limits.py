"""Every limit of the Salesforce client in one place; `docs/systems/documents.md` explains each."""

from typing import Final

API_VERSION: Final = "62.0"
RECORDS_IN_CALL_MAX: Final = 200  # Salesforce's own limit for collections
QUERY_PAGES_MAX: Final = 100  # of up to 2,000 records each
REQUEST_SECONDS_MAX: Final = 30.0
CONNECTIONS_MAX: Final = 16
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
MESSAGE_CHARS_MAX: Final = 400  # quoted from Salesforce's answer in an error
