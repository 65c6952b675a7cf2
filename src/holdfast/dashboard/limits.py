"""Every limit of the dashboard, in one place. `docs/reference/limits.md` explains each."""

from typing import Final

SYSTEM_ROWS_MAX: Final = 50  # on one page of a system's list
SESSION_SECONDS: Final = 12 * 3600  # from one login to the next
SESSION_CHARS_MAX: Final = 300  # of the cookie
FORM_BYTES_MAX: Final = 2 * 1024 * 1024  # arguments of a job, percent-encoded
FORM_FIELDS_MAX: Final = 5000
PUBLIC_FORM_BYTES_MAX: Final = 16 * 1024  # of the login
NEXT_CHARS_MAX: Final = 1000  # of the path where a login leads
NOTICE_CHARS_MAX: Final = 300
NOTICE_SECONDS: Final = 60  # for the browser to show it
EXAMINED_SECONDS: Final = 30.0  # between two examinations while somebody looks
LIVE_QUIET_SECONDS: Final = 0.5  # between two events of a live page
LIVE_LOOK_SECONDS: Final = 2.0  # between two looks for changes that nobody told of
LIVE_REFRESH_SECONDS: Final = 10.0  # after which a live page is read again in any case
LIVE_COUNTED_MAX: Final = 1000  # waiting jobs of a queue that such a look counts
LIVE_JOBS_MAX: Final = 10  # jobs that one live page follows closely
SEARCH_JOBS_MAX: Final = 10_000  # that the first page of a search looks at
SEARCH_FURTHER_JOBS_MAX: Final = 100_000  # that each further one looks at
RELATED_JOBS_SHOWN_MAX: Final = 10  # of each kind, on the page of a job
TIMELINE_ATTEMPTS_MAX: Final = 50  # newest attempts on the page of a job
SUGGESTIONS_JOBS_MAX: Final = 100  # newest jobs whose values complete a search, and newest failures
SUGGESTIONS_KEPT_SECONDS: Final = 10.0  # for which a tenant's suggestions are kept
TENANTS_KEPT_MAX: Final = 1000  # whose suggestions and groups are kept
GROUPS_KEPT_SECONDS: Final = 2.0  # for which the number of groups in the menu is kept
GROUPS_SHOWN_MAX: Final = 99  # that the menu counts

JOB_FORM_FIELDS_MAX: Final = 1000  # of a form made from a JSON Schema
JOB_FORM_DEPTH_MAX: Final = 8  # levels of a schema; what is deeper is typed as JSON
JOB_FORM_SHAPES_MAX: Final = 30  # to choose from at one field
JOB_FORM_OPTIONS_MAX: Final = 200  # of an enum
JOB_FORM_ITEMS_MAX: Final = 300  # of one list
JOB_FORM_STEPS_MAX: Final = 500  # to read the schema of one field
JOB_FORM_TRIES_MAX: Final = 5000  # to find the shapes that fit a value

RESULT_CHARS_SHOWN_MAX: Final = 64 * 1024  # of one result, file or table on a page
RESULT_ROWS_SHOWN_MAX: Final = 200
RESULT_COLUMNS_MAX: Final = 30  # of a table
RESULT_FILES_MAX: Final = 20  # of one result
RESULT_LOOK_MAX: Final = 10_000  # values of a result, looking for files
RESULT_FILE_BYTES_MAX: Final = 32 * 1024 * 1024
